//! The features of the last images: the next request is often about the same image with other names.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ocelli::{Image, stages::ImageFeatures, tiles::Tiling};

use super::Key;
use crate::metrics::Metrics;

/// Features that nobody asked for in this time are dropped.
pub(super) const KEPT: Duration = Duration::from_secs(600);

/// The features of an image, or the image itself if it is searched in tiles.
#[derive(Default)]
pub(super) struct SearchedImage {
    pub size: (u32, u32),
    pub features: ImageFeatures,
    pub in_tiles: Option<(Image, Tiling)>,
}

/// Features within a memory limit. Those that were used longest ago are dropped first.
pub(super) struct FeatureCache {
    /// Bytes.
    limit: usize,
    /// In the order of their last use.
    kept: VecDeque<CachedImage>,
    /// The bytes of the image that was kept last; the next one often has as many.
    last_bytes: usize,
    metrics: Arc<Metrics>,
}

struct CachedImage {
    key: Key,
    image: Arc<SearchedImage>,
    /// Its features are enough for masks.
    with_masks: bool,
    used: Instant,
}

impl FeatureCache {
    pub fn new(limit: usize, metrics: Arc<Metrics>) -> Self {
        Self { limit, kept: VecDeque::new(), last_bytes: 0, metrics }
    }

    /// The place of an image with features that are enough for the question; it need not be decoded.
    pub fn place(&self, key: &Key, masks: bool) -> Option<usize> {
        self.kept.iter().position(|kept| kept.key == *key && (kept.with_masks || !masks))
    }

    /// The image, if features that are enough for the question are kept.
    pub fn find(&mut self, key: &Key, masks: bool, now: Instant) -> Option<Arc<SearchedImage>> {
        self.kept.retain(|kept| now.duration_since(kept.used) < KEPT);
        let mut found = self.kept.remove(self.place(key, masks)?)?;
        found.used = now;
        let image = found.image.clone();
        self.kept.push_back(found);
        self.metrics.feature_hits.fetch_add(1, Relaxed);
        Some(image)
    }

    /// Makes room for an image. Returns buffers of another one, if nobody searches it.
    pub fn make_room(&mut self, key: &Key) -> ImageFeatures {
        self.kept.retain(|kept| kept.key != *key);
        self.drop_oldest(self.last_bytes).unwrap_or_default()
    }

    /// Keeps an image, unless it is larger than the limit.
    pub fn keep(&mut self, key: Key, image: Arc<SearchedImage>, with_masks: bool, now: Instant) {
        let bytes = image.features.bytes();
        if bytes <= self.limit {
            self.drop_oldest(bytes);
            self.last_bytes = bytes;
            self.kept.push_back(CachedImage { key, image, with_masks, used: now });
        }
    }

    /// Drops all.
    pub fn clear(&mut self) {
        self.kept.clear();
    }

    /// Drops images until there is room for `bytes`. Returns the features of one of them.
    fn drop_oldest(&mut self, bytes: usize) -> Option<ImageFeatures> {
        let mut buffers = None;
        while self.bytes() + bytes > self.limit
            && let Some(oldest) = self.kept.pop_front()
        {
            buffers = Arc::try_unwrap(oldest.image).ok().map(|image| image.features).or(buffers);
        }
        buffers
    }

    /// The bytes of what is kept.
    pub fn bytes(&self) -> usize {
        self.kept.iter().map(|kept| kept.image.features.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_that_nobody_asks_for_are_dropped() {
        let metrics = Arc::new(Metrics::default());
        let mut cache = FeatureCache::new(1, metrics.clone());
        let (start, keys) = (Instant::now(), [[1; 32], [2; 32]]);
        let later = |share: u32| start + KEPT * share / 4;
        keys.iter().for_each(|key| cache.keep(*key, Arc::default(), false, start));
        let mut finds = |key: &Key, masks, now| cache.find(key, masks, now).is_some();
        assert!(finds(&keys[0], false, later(3)) && !finds(&keys[0], true, later(3)));
        assert!(finds(&keys[0], false, later(5)) && !finds(&keys[1], false, later(5)));
        assert!(!finds(&keys[0], false, later(9)));
        assert_eq!(metrics.feature_hits.load(Relaxed), 2);
        cache.keep(keys[1], Arc::default(), true, later(9));
        assert!(cache.place(&keys[1], true).is_some() && cache.place(&keys[0], false).is_none());
    }
}
