//! Decodes and preprocesses images on several threads, ahead of the detector.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;

use ocelli::image::Image;
use ocelli::preprocess::{PreprocessConfig, Preprocessor};
use ocelli::stages::{ImageEncoder, ImageFeatures, Wanted};
use ocelli::{Error, ErrorKind, Result, StageTimes, cannot_start_thread};
use ocelli_engines::Tensor;
use ocelli_export::contract::Manifest;

use crate::label::open_image;

/// An image as the backbone takes it. The default is one that stays in its file until it is searched in tiles.
#[derive(Default)]
pub(crate) struct Prepared {
    /// `[1, 3, S, S]`.
    pub pixels: Tensor,
    /// Width and height of the upright image.
    pub size: (u32, u32),
    /// A frame that is searched in tiles.
    pub frame: Option<Image>,
}

/// Decodes and preprocesses images with pooled buffers. Only the model's square input waits for the detector, so memory use
/// does not depend on the size of the images.
pub(crate) struct Preparer {
    config: PreprocessConfig,
    preprocessors: Mutex<Vec<Preprocessor>>,
    tensors: Mutex<Vec<Tensor>>,
    /// True if images are searched in tiles.
    tiles: bool,
}

impl Preparer {
    pub fn new(manifest: &Manifest, tiles: bool) -> Self {
        let mut config = PreprocessConfig::new(manifest.imgsz);
        config.mean = manifest.preprocessing.mean;
        config.std = manifest.preprocessing.std;
        Self { config, preprocessors: Mutex::default(), tensors: Mutex::default(), tiles }
    }

    /// As [`prepare_image`](Self::prepare_image), for a search; nothing is read yet if the search is in tiles.
    pub fn prepare_file(&self, path: &Path) -> Result<Prepared> {
        if self.tiles { Ok(Prepared::default()) } else { self.prepare_image(&open_image(path)?) }
    }

    /// As [`prepare_image`](Self::prepare_image), for a search; the frame itself if the search is in tiles.
    pub fn prepare_frame(&self, frame: &Image) -> Result<Prepared> {
        if self.tiles {
            return Ok(Prepared { frame: Some(frame.clone()), ..Prepared::default() });
        }
        self.prepare_image(frame)
    }

    /// Preprocesses an image.
    pub fn prepare_image(&self, image: &Image) -> Result<Prepared> {
        let mut preprocessor = match take(&self.preprocessors) {
            Some(preprocessor) => preprocessor,
            None => Preprocessor::new(self.config)?,
        };
        let mut pixels = take(&self.tensors).unwrap_or_else(Tensor::empty);
        let side = self.config.imgsz;
        let size = (image.width(), image.height());
        preprocessor.run_into(image.view(), pixels.reset_f32(&[1, 3, side, side]))?;
        put(&self.preprocessors, preprocessor);
        Ok(Prepared { pixels, size, frame: None })
    }

    /// Computes the features of an image, and returns its buffer to the pool. Returns the size of the image.
    pub fn encode(
        &self,
        encoder: &mut ImageEncoder,
        prepared: Prepared,
        features: &mut ImageFeatures,
    ) -> Result<(u32, u32)> {
        let Prepared { pixels, size, .. } = prepared;
        encoder.backbone.run_into(&pixels, size, Wanted::default(), features, &mut StageTimes::default())?;
        put(&self.tensors, pixels);
        Ok(size)
    }
}

fn take<T>(pool: &Mutex<Vec<T>>) -> Option<T> {
    pool.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

fn put<T>(pool: &Mutex<Vec<T>>, buffer: T) {
    pool.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
}

/// Calls `make` with 0 to `count` on `threads` threads, and `consume` with the results in order on the caller's thread. At
/// most `ahead` results wait. An error of `make` is passed to `consume`; an error of `consume` ends the work.
///
/// # Errors
/// The error of `consume`; [`Internal`](ocelli::ErrorKind::Internal) if it panics; [`Io`](ocelli::ErrorKind::Io) if no thread can be started.
pub(crate) fn in_order<T: Send>(
    count: usize,
    threads: usize,
    ahead: usize,
    make: impl Fn(usize) -> Result<T> + Sync,
    mut consume: impl FnMut(usize, Result<T>) -> Result<()>,
) -> Result<()> {
    let (ask, asked) = channel::<usize>();
    let (made, results) = channel();
    let asked = Mutex::new(asked);
    let work = |made: Sender<(usize, Result<T>)>| {
        loop {
            // No thread panics while it holds the lock.
            let next = asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(index) = next else { return };
            // A decoder that panics on one image must not stop the others.
            let result = catch_unwind(AssertUnwindSafe(|| make(index)))
                .unwrap_or_else(|_| Err(Error::invalid_data("the image decoder panicked")));
            if made.send((index, result)).is_err() {
                return;
            }
        }
    };
    let ahead = ahead.max(1);
    // It owns its ends of the channels: when it returns or panics, the threads end.
    let consume_all = move || {
        (0..ahead.min(count)).for_each(|index| _ = ask.send(index));
        let mut ready = BTreeMap::new();
        for index in 0..count {
            let result = loop {
                if let Some(result) = ready.remove(&index) {
                    break result;
                }
                let (other, result) = results.recv().map_err(|_| panicked())?;
                ready.insert(other, result);
            };
            if index + ahead < count {
                _ = ask.send(index + ahead);
            }
            consume(index, result)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        for started in 0..threads.clamp(1, count.max(1)) {
            let (thread, work, made) = (Builder::new().name("decode".into()), &work, made.clone());
            // Fewer threads do the same work.
            if let Err(e) = thread.spawn_scoped(scope, move || work(made))
                && started == 0
            {
                return Err(cannot_start_thread(e));
            }
        }
        catch_unwind(AssertUnwindSafe(consume_all)).unwrap_or_else(|_| Err(panicked()))
    })
}

pub(crate) fn panicked() -> Error {
    let message = "labelling panicked; finished images are kept, and running it again continues from there";
    Error::new(ErrorKind::Internal, message)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ocelli::ErrorKind;

    use super::*;

    #[test]
    fn results_come_in_order_and_few_wait() {
        for (count, threads, ahead) in
            [(0, 3, 2), (1, 4, 1), (200, 1, 1), (200, 4, 3), (200, 8, 50), (5, 2, 0)]
        {
            let (begun, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let mut found = Vec::new();
            let make = |i| {
                let waiting = begun.fetch_add(1, Ordering::SeqCst) - taken.load(Ordering::SeqCst);
                assert!(waiting <= ahead.max(1) + threads, "{waiting} are waiting");
                if i % 7 == 3 { Err(Error::invalid_data("bad")) } else { Ok(i * 2) }
            };
            let ended = in_order(count, threads, ahead, make, |i, result| {
                taken.fetch_add(1, Ordering::SeqCst);
                found.push((i, result.ok()));
                Ok(())
            });
            let expected: Vec<_> = (0..count).map(|i| (i, (i % 7 != 3).then_some(i * 2))).collect();
            assert!(ended.is_ok() && found == expected, "{count}, {threads} threads: {found:?}");
        }
    }

    #[test]
    fn an_error_of_the_consumer_ends_the_work() {
        let made = AtomicUsize::new(0);
        let make = |i| Ok(made.fetch_add(1, Ordering::SeqCst) + i);
        let ended = in_order(1000, 4, 4, make, |i, _| match i {
            10 => Err(Error::cancelled("stop")),
            _ => Ok(()),
        });
        assert_eq!(ended.map_err(|e| e.kind()), Err(ErrorKind::Cancelled));
        assert!(made.load(Ordering::SeqCst) < 30);
    }

    #[test]
    fn a_panic_of_the_consumer_ends_the_work_with_an_error() {
        let ended = in_order(1000, 4, 2, Ok, |i, _| {
            assert!(i < 3, "the fourth image breaks it");
            Ok(())
        });
        assert_eq!(ended.map_err(|e| e.kind()), Err(ErrorKind::Internal));
        let mut failed = Vec::new();
        let make = |i| if i == 2 { panic!("a decoder") } else { Ok(i) };
        let ended = in_order(5, 2, 2, make, |i, made| {
            failed.extend(made.is_err().then_some(i));
            Ok(())
        });
        assert!(ended.is_ok() && failed == [2], "{failed:?}");
    }
}
