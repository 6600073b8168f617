//! Searching a large image in tiles.

use ocelli_error::Result;

use super::Detections;
use super::decode::{DecodeRequest, PromptDecoder};
use super::encode::Wanted;
use super::features::ImageFeatures;
use super::stages::ImageEncoder;
use super::text::EmbeddedPrompts;
use crate::prompt::Prompt;
use crate::tiles::{Merge, Region, Regions, TileDetection, TileSize, Tiling, busiest, moved, size_for};
use crate::timing::{Instant, StageTimes, milliseconds_since};

/// Detects in large images with the stages of a detector: in tiles and in the whole image.
///
/// Tiles are searched one after the other in the same buffers, so that memory does not depend on their number. Class ids are those
/// of the prompts. An exemplar is encoded in the smallest tile that has all exemplars of its class, and is searched for in
/// all tiles.
pub struct TiledSearch {
    tiling: Tiling,
    features: ImageFeatures,
}

/// The stages that search an image.
pub type SearchStages<'s> = (&'s mut ImageEncoder, &'s mut PromptDecoder);

impl TiledSearch {
    /// A search with empty buffers.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) for tiles or an overlap out of range.
    pub fn new(tiling: Tiling) -> Result<Self> {
        tiling.check()?;
        Ok(Self { tiling, features: ImageFeatures::default() })
    }

    /// The tiles of large images.
    pub fn tiling(&self) -> Tiling {
        self.tiling
    }

    /// Detects in an image, and adds the times of the stages to `times`.
    ///
    /// # Errors
    /// As [`PromptDecoder::decode`], and those of the image.
    pub fn detect<'r>(
        &mut self,
        stages: SearchStages<'_>,
        image: &mut dyn Regions,
        request: impl Into<DecodeRequest<'r>>,
        times: &mut StageTimes,
    ) -> Result<Detections> {
        let (start, before) = (Instant::now(), times.total);
        let mut found = self.search(stages, image, request.into(), times)?;
        times.total = before + milliseconds_since(start);
        found.times = *times;
        Ok(found)
    }

    fn search(
        &mut self,
        (encoder, decoder): SearchStages<'_>,
        image: &mut dyn Regions,
        request: DecodeRequest<'_>,
        times: &mut StageTimes,
    ) -> Result<Detections> {
        let ((side, patch), size) = (decoder.input(), image.size());
        let whole = self.search_part((encoder, decoder), image, None, request, times)?;
        let levels = match self.tiling.size {
            _ if size.0.max(size.1) as usize <= side => Vec::new(),
            TileSize::Pixels { width, height } => self.tiling.levels(size, (width, height))?,
            TileSize::Auto => {
                let stages = (&mut *encoder, &mut *decoder);
                let mut sizes = self.first_pass(stages, image, (request, &whole.items), times)?;
                let mut tile = size_for(&mut sizes, side, patch);
                loop {
                    match self.tiling.levels(size, (tile, tile)) {
                        Ok(levels) => break levels,
                        Err(_) => tile += tile / 8 + 1,
                    }
                }
            }
        };
        if levels.is_empty() {
            return Ok(whole);
        }
        let mut merge = Merge::default();
        add(&mut merge, whole, Region::whole(size), size)?;
        let prompts = &self.keep_exemplars((encoder, decoder), image, request, &levels, times)?;
        for tile in levels.into_iter().flatten() {
            let request = DecodeRequest { prompts, ..request };
            let found = self.search_part((encoder, decoder), image, Some(tile), request, times)?;
            add(&mut merge, found, tile, size)?;
        }
        let (items, semantic) = merge.finish(decoder.post_processing())?;
        Ok(Detections { items, semantic, ..Detections::default() })
    }

    /// Detects in a tile, or in the whole image.
    fn search_part(
        &mut self,
        (encoder, decoder): SearchStages<'_>,
        image: &mut dyn Regions,
        tile: Option<Region>,
        request: DecodeRequest<'_>,
        times: &mut StageTimes,
    ) -> Result<Detections> {
        let how = (decoder.input().0, request.wanted());
        encode_part(encoder, how, image, tile, &mut self.features, times)?;
        let items = decoder.decode(&self.features, request, times)?;
        let semantic = decoder.take_semantic_maps();
        Ok(Detections { items, semantic, ..Detections::default() })
    }

    /// The sizes of the objects in the whole image and in the busiest tile of each quarter, which has as many pixels as the
    /// model's input, and of the wanted exemplars.
    fn first_pass(
        &mut self,
        (encoder, decoder): SearchStages<'_>,
        image: &mut dyn Regions,
        (request, whole): (DecodeRequest<'_>, &[crate::Detection]),
        times: &mut StageTimes,
    ) -> Result<Vec<f32>> {
        let (side, size) = (decoder.input().0, image.size());
        let tiles = self.tiling.grid(size, (side as u32, side as u32));
        let probes = busiest(&tiles, &image.whole(side as u32)?, size);
        let exemplars = request.prompts.classes.iter().filter(|class| class.kept_exemplars.is_none());
        let exemplars = exemplars.flat_map(|class| class.prompt.exemplars()).filter(|one| one.wanted);
        let boxes = exemplars.map(|one| one.bbox).chain(whole.iter().map(|found| found.bbox));
        let mut sizes: Vec<f32> = boxes.map(|bbox| bbox.area().sqrt()).collect();
        let levels = [probes];
        let prompts = &self.keep_exemplars((encoder, decoder), image, request, &levels, times)?;
        let [probes] = levels;
        for tile in probes {
            let request = DecodeRequest { prompts, ..request };
            let found = self.search_part((encoder, decoder), image, Some(tile), request, times)?;
            for detection in found.items {
                let detection = crate::Detection { mask: None, ..detection };
                sizes.extend(TileDetection::new(detection, tile, size)?.complete_size());
            }
        }
        Ok(sizes)
    }

    /// The prompts with the exemplars of each class as encoded in one tile, or in the whole image if no tile has all of
    /// them.
    fn keep_exemplars(
        &mut self,
        (encoder, decoder): SearchStages<'_>,
        image: &mut dyn Regions,
        request: DecodeRequest<'_>,
        levels: &[Vec<Region>],
        times: &mut StageTimes,
    ) -> Result<EmbeddedPrompts> {
        let prompts = request.prompts;
        let mut kept = prompts.clone();
        let mut places: Vec<(Option<Region>, usize)> = Vec::new();
        for (class, embedded) in prompts.classes.iter().enumerate() {
            if embedded.kept_exemplars.is_none() && !embedded.prompt.exemplars().is_empty() {
                places.push((place_of(&embedded.prompt, levels), class));
            }
        }
        // From the top down, as a file is read.
        places.sort_by_key(|(place, class)| (place.map(|tile| (tile.y, tile.x, tile.width)), *class));
        for group in places.chunk_by(|a, b| a.0 == b.0) {
            let place = group[0].0;
            let offset = place.map_or((0.0, 0.0), |tile| (tile.x as f32, tile.y as f32));
            let how = (decoder.input().0, request.wanted());
            encode_part(encoder, how, image, place, &mut self.features, times)?;
            let shifted = group.iter().map(|&(_, class)| {
                let mut embedded = prompts.classes[class].clone();
                embedded.prompt = shifted(&embedded.prompt, offset);
                embedded
            });
            let shifted = EmbeddedPrompts { classes: shifted.collect() };
            let encoded = decoder.keep_exemplars(&self.features, &shifted)?;
            for (&(_, class), encoded) in group.iter().zip(encoded.classes) {
                kept.classes[class].kept_exemplars = encoded.kept_exemplars;
            }
        }
        Ok(kept)
    }
}

/// Computes the features of a tile, or of the whole image.
pub(super) fn encode_part(
    encoder: &mut ImageEncoder,
    (side, wanted): (usize, Wanted),
    image: &mut dyn Regions,
    tile: Option<Region>,
    features: &mut ImageFeatures,
    times: &mut StageTimes,
) -> Result<()> {
    let size = tile.map_or_else(|| image.size(), |tile| tile.size());
    let view = match tile {
        Some(tile) => image.region(tile)?,
        None => image.whole(side as u32)?,
    };
    encoder.encode_into(view, wanted, features, times)?;
    // The view of the whole image may have been reduced.
    features.size = size;
    Ok(())
}

/// The tile of the lowest level that has all exemplars of a prompt, of several the one around whose middle they are.
fn place_of(prompt: &Prompt, levels: &[Vec<Region>]) -> Option<Region> {
    let boxes = || prompt.exemplars().iter().map(|exemplar| exemplar.bbox);
    let eccentricity = |tile: &Region| -> f32 {
        let [x, y, ..] = tile.to_box().to_cxcywh();
        boxes().map(|bbox| (bbox.to_cxcywh()[0] - x).abs().max((bbox.to_cxcywh()[1] - y).abs())).sum()
    };
    levels.iter().find_map(|tiles| {
        let all = tiles.iter().filter(|tile| boxes().all(|bbox| tile.contains(&bbox)));
        all.min_by(|a, b| eccentricity(a).total_cmp(&eccentricity(b))).copied()
    })
}

/// The prompt in a tile that starts at `offset`.
fn shifted(prompt: &Prompt, (x, y): (f32, f32)) -> Prompt {
    let bare = Prompt::new(prompt.phrase()).with_label(prompt.label().clone());
    let exemplars = prompt.exemplars().iter();
    exemplars.fold(bare, |prompt, one| prompt.with_exemplar(moved(one.bbox, -x, -y), one.wanted))
}

fn add(merge: &mut Merge, found: Detections, tile: Region, image: (u32, u32)) -> Result<()> {
    for detection in found.items {
        merge.add(TileDetection::new(detection, tile, image)?);
    }
    found.semantic.into_iter().try_for_each(|map| merge.add_semantic(map, tile, image))
}
