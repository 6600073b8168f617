//! The same work with one part of the model in memory at a time.
//!
//! The text encoder goes when the words are encoded. Then, batch by batch: the backbone comes, its features of a batch of
//! pictures go to a file, it goes; the decoder comes, reads them, finds, goes.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;

use super::ahead::in_order;
use super::prepare::Preparer;
use super::run::{LabelEvent, LabelJob};
use super::search::Searches;
use ocelli::{Detector, ImageFeatures, StageTimes};
use ocelli::{Error, ErrorKind, Result};

/// What the features of one batch may take on disk unless told otherwise.
pub const SPILL_BYTES: u64 = 4 << 30;

/// Features on disk, gone when this is.
struct SpillFile<'a>(&'a Path);

impl Drop for SpillFile<'_> {
    fn drop(&mut self) {
        // One that cannot be removed is overwritten by the next batch.
        drop(std::fs::remove_file(self.0));
    }
}

impl LabelJob {
    /// As [`run`](Self::run), with text encoder, backbone and decoder in memory one after the other. Features of a batch
    /// of pictures, `spill_bytes` of them at most but for one picture, wait in a file in the output folder.
    ///
    /// The result is the same. Larger batches load the model less often: a picture takes 5 MB at 1008 pixels, 111 MB
    /// where masks are wanted.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_in_low_memory(
        &mut self,
        detector: Detector,
        spill_bytes: u64,
        on_event: &mut dyn FnMut(LabelEvent<'_>) -> Result<()>,
    ) -> Result<()> {
        let each = ImageFeatures::bytes_on_disk(detector.model().manifest(), self.masks);
        let batch = usize::try_from(spill_bytes / each).unwrap_or(usize::MAX).max(1);
        let preparer = Preparer::new(detector.model().manifest());
        let (mut text, encoder, mut decoder) = detector.into_stages();
        let (_, mut backbone) = encoder.into_stages();
        let stages = (&mut text, &mut backbone, &mut decoder);
        let mut searches = Searches::new(&self.refiner, &self.todo, &preparer, stages, true)?;
        let path = self.folder().spill_path();
        let cannot = |e: std::io::Error| {
            let message = format!("cannot keep features, {}: {e}; --spill takes less room", path.display());
            Error::new(ErrorKind::Io, message).with_source(e)
        };
        let mut features = ImageFeatures::default();
        let todo = std::mem::take(&mut self.todo);
        let mut label = || {
            for files in todo.chunks(batch) {
                let spill = SpillFile(&path);
                let mut out = BufWriter::with_capacity(1 << 20, File::create(&path).map_err(cannot)?);
                let mut sizes = Vec::with_capacity(files.len());
                backbone.load()?;
                in_order(
                    files.len(),
                    1,
                    1,
                    |i| preparer.prepare(&files[i].path),
                    |_, prepared| {
                        on_event(LabelEvent::Waiting)?;
                        let encoded = prepared.and_then(|prepared| {
                            let (size, mut times) = (prepared.size, StageTimes::default());
                            backbone.run_into(&prepared.pixels, size, &mut features, &mut times)?;
                            preparer.recycle(prepared);
                            Ok(size)
                        });
                        if encoded.is_ok() {
                            features.write_to(&mut out).map_err(cannot)?;
                        }
                        sizes.push(encoded);
                        Ok(())
                    },
                )?;
                backbone.unload();
                features = ImageFeatures::default();
                out.flush().map_err(cannot)?;
                drop(out);

                decoder.load()?;
                let mut from = BufReader::with_capacity(1 << 20, File::open(&path).map_err(cannot)?);
                for (file, size) in files.iter().zip(sizes) {
                    on_event(LabelEvent::Waiting)?;
                    if size.is_ok() {
                        features.read_from(&mut from).map_err(cannot)?;
                    }
                    let found = size.and_then(|size| {
                        let found = searches.decode(&self.refiner, &mut text, file, &features, &mut decoder);
                        found.map(|found| (size, found))
                    });
                    self.finish_picture(file, found, &searches, on_event)?;
                }
                decoder.unload();
                features = ImageFeatures::default();
                drop(spill);
            }
            Ok(())
        };
        let ended = label();
        let synced = self.journal.sync();
        ended.and(synced)
    }
}
