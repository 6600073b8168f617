//! The first half of post-processing on the host or on the device that the encoder-decoder works on.

use std::sync::Arc;

use ocelli_engines::{Device, DeviceKind, Tensor};

use super::{PostProcessor, QuerySelector, RawOutputs, SelectedQuery};
use crate::error::Result;
use crate::kernels::compiler_for;

/// Hands what an encoder-decoder says of some classes to a [`PostProcessor`], from wherever it lies.
#[derive(Debug, Default)]
pub(crate) struct OutputReader {
    /// Where the encoder-decoder works on a device that runs kernels.
    selector: Option<QuerySelector>,
    /// The device that the place was decided for.
    placed_at: Option<DeviceKind>,
    selected: Vec<SelectedQuery>,
}

impl OutputReader {
    /// Has outputs be read on the encoder-decoder's device from now on, and says whether they are to stay there; in the
    /// host's memory for none.
    ///
    /// Where kernels cannot be compiled for it, all outputs are to come to the host; the result is the same, and the log
    /// says why.
    pub(crate) fn place_at(&mut self, device: Option<&Arc<dyn Device>>) -> bool {
        let kind = device.map(|device| device.kind());
        if kind != self.placed_at {
            self.placed_at = kind;
            self.selector = device.and_then(|device| {
                let made = compiler_for(device);
                let made = made.and_then(|compiler| compiler.map(|c| QuerySelector::new(&*c)).transpose());
                made.unwrap_or_else(|error| {
                    tracing::warn!("all scores are copied from {}: {error}", device.name());
                    None
                })
            });
        }
        self.selector.is_some()
    }

    /// Reads `[class, query]`, `[class, query, xyxy]` and `[class, 1]` of the classes of these ids, and calls `pushed` after
    /// each row.
    pub(crate) fn read<'l>(
        &mut self,
        (logits, boxes, presence): (&Tensor, &Tensor, &Tensor),
        class_ids: &[usize],
        label: impl Fn(usize) -> &'l Arc<str>,
        post: &mut PostProcessor,
        mut pushed: impl FnMut(usize, &PostProcessor) -> Result<()>,
    ) -> Result<()> {
        match &mut self.selector {
            Some(selector) => {
                let (options, selected) = (post.options(), &mut self.selected);
                selector.run_into(logits, boxes, Some(presence), class_ids, options, selected)?;
                let by_row = SelectedQuery::by_row(selected, class_ids.len());
                for ((row, &class_id), queries) in class_ids.iter().enumerate().zip(by_row) {
                    post.push_selected(class_id, label(class_id), queries)?;
                    pushed(row, post)?;
                }
            }
            None => {
                let queries = logits.shape().get(1).copied().unwrap_or(0);
                let (logits, boxes, presence) = (logits.as_f32()?, boxes.as_f32()?, presence.as_f32()?);
                for (row, &class_id) in class_ids.iter().enumerate() {
                    post.push_chunk(&RawOutputs {
                        first_class_id: class_id,
                        labels: std::slice::from_ref(label(class_id)),
                        logits: &logits[row * queries..][..queries],
                        boxes: &boxes[row * queries * 4..][..queries * 4],
                        presence: Some(&presence[row..][..1]),
                    })?;
                    pushed(row, post)?;
                }
            }
        }
        Ok(())
    }
}
