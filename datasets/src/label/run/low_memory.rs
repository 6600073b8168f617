//! Labelling with one part of the model in memory at a time.
//!
//! The text encoder is dropped once the text prompts are encoded. For each batch of images, the backbone is then loaded,
//! writes the features to a file, and is dropped; the decoder is loaded, reads the features, and is dropped.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};

use tempfile::TempPath;

use ocelli::{
    Detector, Error, ErrorKind, Result,
    stages::{ImageFeatures, Stages},
};

use crate::label::run::job::{SearchedImage, read};
use crate::label::run::prefetch::{Preparer, in_order};
use crate::label::run::prompts::LabelPrompts;
use crate::label::{LabelEvent, LabelJob, OnEvent};

/// The default size of the features of one batch on disk, in bytes.
pub const SPILL_BYTES: u64 = 4 << 30;

impl LabelJob {
    /// As [`run`](Self::run), with text encoder, backbone and decoder in memory one after the other. The features of a batch
    /// of images wait in a file in the output folder, which has at most `spill_bytes` bytes unless one image needs more.
    ///
    /// The result is the same. Larger batches load the model less often: an image takes 5 MB at 1008 pixels, and 111 MB with
    /// masks.
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`ErrorKind::InvalidArgument`] for images in tiles.
    pub fn run_in_low_memory(
        &mut self,
        detector: Detector,
        spill_bytes: u64,
        on_event: &mut OnEvent<'_>,
    ) -> Result<()> {
        if self.tiling.is_some() {
            let message = "tile: an image in tiles has many features, which low memory would keep on disk: leave one of them out";
            return Err(Error::invalid_argument(message).about("tile"));
        }
        let each = ImageFeatures::bytes_on_disk(detector.model().manifest(), self.masks);
        let batch = usize::try_from(spill_bytes / each).unwrap_or(usize::MAX).max(1);
        let preparer = Preparer::new(detector.model().manifest(), false);
        let Stages { mut text, mut encoder, mut decoder, .. } = detector.into_stages();
        let path = self.data.folder.spill_path();
        let cannot = |e: std::io::Error| {
            let message = format!(
                "cannot store features, {}: {e}; a smaller spill_bytes needs less space",
                path.display()
            );
            Error::new(ErrorKind::Io, message).with_source(e).about("spill_bytes")
        };
        let mut features = ImageFeatures::default();
        self.label_groups(|job, first, todo| {
            let stages = (&mut text, &mut encoder, &mut decoder);
            let mut prompts = LabelPrompts::new(&job.classes, first, &todo, &preparer, stages, true)?;
            for files in todo.chunks(batch) {
                // Removed on drop; if it cannot be, the next batch overwrites it.
                let spill = TempPath::try_from_path(&path).map_err(cannot)?;
                let mut out = BufWriter::with_capacity(1 << 20, File::create(&path).map_err(cannot)?);
                let mut sizes = Vec::with_capacity(files.len());
                encoder.load()?;
                in_order(
                    files.len(),
                    1,
                    1,
                    |i| read(&preparer, &files[i]),
                    |_, image| {
                        on_event(LabelEvent::Waiting)?;
                        let (identity, prepared) = image.unwrap_or_else(|panicked| ((0, 0), Err(panicked)));
                        let encoded = prepared
                            .and_then(|prepared| preparer.encode(&mut encoder, prepared, &mut features));
                        if encoded.is_ok() {
                            features.write_to(&mut out).map_err(cannot)?;
                        }
                        sizes.push((identity, encoded));
                        Ok(())
                    },
                )?;
                encoder.unload();
                features = ImageFeatures::default();
                out.flush().map_err(cannot)?;
                drop(out);

                decoder.load()?;
                let mut from = BufReader::with_capacity(1 << 20, File::open(&path).map_err(cannot)?);
                for (file, (identity, size)) in files.iter().zip(sizes) {
                    on_event(LabelEvent::Waiting)?;
                    if size.is_ok() {
                        features.read_from(&mut from).map_err(cannot)?;
                    }
                    let found = size.and_then(|size| {
                        let found = prompts.decode(&mut text, file, &features, &mut decoder, true);
                        found.map(|found| (size, found))
                    });
                    let classes = prompts.classes.clone();
                    let image = SearchedImage { file, identity, found, first, classes, device: 0 };
                    job.finish_image(image, on_event)?;
                }
                decoder.unload();
                features = ImageFeatures::default();
                drop(spill);
            }
            Ok(())
        })
    }
}
