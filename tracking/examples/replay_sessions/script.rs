//! A network that answers from a recording.

use crate::bucket_bank::BucketBank;
use crate::options::MULTIPLEX;
use crate::replay::{Result, array, list, number, paint};
use ocelli_tracking::masklets::{
    DetectedMask, EncodeBatch, LogitMask, MaskNetwork, MaskPromptBatch, MaskletOptions, MemoryKind, ObjectId,
    PointPrompt, TrackBatch, TrackedMask, exclusive_foreground,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A recorded sequence.
pub struct Sequence<'a> {
    pub name: String,
    pub frames: usize,
    /// Width and height.
    pub video: [usize; 2],
    pub patch_grid: usize,
    pub options: Map<String, Value>,
    pub ops: Vec<Value>,
    /// The recording of each mode.
    pub recorded: Vec<(String, &'a [Value])>,
    detections: &'a [Value],
    tracks: &'a Value,
}

impl<'a> Sequence<'a> {
    /// Reads a sequence whose masks have the side `grid`.
    pub fn new(value: &'a Value, grid: usize) -> Result<Self> {
        let name = value["name"].as_str().ok_or("a sequence has no name")?.to_owned();
        let video = list(value, "video")?;
        let side = |at: usize| video.get(at).and_then(Value::as_u64).map(|side| side as usize);
        // The recording has the height first.
        let (height, width) = side(0).zip(side(1)).ok_or("a video has no size")?;
        let recorded = match &value["meta"] {
            Value::Object(modes) => modes.iter().map(|(mode, ops)| (mode.clone(), array(ops))).collect(),
            Value::Array(ops) => vec![(MULTIPLEX.to_owned(), ops.as_slice())],
            _ => return Err(format!("{name} has no recording").into()),
        };
        let frames = number(value, "frames")?;
        let detections = list(value, "det")?;
        if detections.len() != frames {
            return Err(
                format!("{name} has detections of {} frames: expected {frames}", detections.len()).into()
            );
        }
        Ok(Self {
            name,
            frames,
            video: [width, height],
            patch_grid: grid / 4,
            options: value["opt"].as_object().cloned().unwrap_or_default(),
            ops: list(value, "ops")?.to_vec(),
            recorded,
            detections,
            tracks: &value["trk"],
        })
    }
}

/// The network of a sequence.
pub struct Script<'a> {
    sequence: &'a Sequence<'a>,
    options: MaskletOptions,
    /// The recorded object that each object follows.
    sources: BTreeMap<ObjectId, String>,
    /// The areas of masks that were encoded as prompts.
    prompted_areas: BTreeMap<ObjectId, usize>,
    pub buckets: BucketBank,
}

impl<'a> Script<'a> {
    pub fn new(sequence: &'a Sequence<'a>, options: MaskletOptions) -> Self {
        Self {
            sequence,
            options,
            sources: BTreeMap::new(),
            prompted_areas: BTreeMap::new(),
            buckets: BucketBank::default(),
        }
    }

    pub fn set_source(&mut self, id: ObjectId, source: &str) {
        self.sources.insert(id, source.to_owned());
    }

    /// Remembers which recorded objects new objects follow.
    pub fn add_sources(&mut self, frame: usize, born: &[(ObjectId, usize)]) {
        for &(id, detection) in born {
            let source = self.sequence.detections[frame][detection][1].as_str().unwrap_or_default();
            self.sources.insert(id, source.to_owned());
        }
    }

    /// Adds the areas of the prompts since the last call to a step.
    pub fn take_prompted_areas(&mut self, step: &mut Value) {
        let areas = std::mem::take(&mut self.prompted_areas);
        if !areas.is_empty() {
            step["born_memory_area"] = json!(areas);
        }
    }

    fn answer(&self, id: ObjectId, frame: usize) -> TrackedMask {
        let source = self.sources.get(&id).map_or("", String::as_str);
        let absent = json!([[], 5.0, -3.0, 0.3]);
        let entry = self.sequence.tracks[source].get(frame.to_string()).unwrap_or(&absent);
        let value = |at: usize| entry[at].as_f64().unwrap_or(0.0) as f32;
        let object_score = value(2);
        let mask = if object_score > 0.0 {
            self.mask(array(&entry[0]), [-value(1), value(1)])
        } else {
            self.mask(&[], [-1024.0; 2])
        };
        TrackedMask { mask, object_score, iou: value(3) }
    }

    fn mask(&self, rectangles: &[Value], [background, foreground]: [f32; 2]) -> LogitMask {
        let side = self.options.mask_side();
        let painted = paint(rectangles, side);
        let value =
            |index: usize| if painted.contains(index % side, index / side) { foreground } else { background };
        LogitMask::new(side, side, (0..side * side).map(value).collect())
            .expect("the sides are those of the painted mask")
    }

    fn record_areas(&mut self, masks: &[(ObjectId, &LogitMask)]) {
        let logits: Vec<&LogitMask> = masks.iter().map(|&(_, mask)| mask).collect();
        let foreground = exclusive_foreground(&logits, 14 * self.options.patch_grid);
        self.prompted_areas.extend(masks.iter().zip(foreground).map(|(&(id, _), mask)| (id, mask.area())));
    }
}

impl MaskNetwork for Script<'_> {
    fn load(&mut self, _frame: usize) -> ocelli_tracking::Result<()> {
        Ok(())
    }

    fn detect(&mut self, frame: usize) -> ocelli_tracking::Result<Option<Vec<DetectedMask>>> {
        let detection = |entry: &Value| {
            let number = |at: usize| entry[at].as_f64().unwrap_or(0.0);
            // The recording went through logits of 32 bits.
            let logit = (number(0) / (1.0 - number(0))).ln() as f32;
            let value = number(3) as f32;
            let mask = self.mask(array(&entry[2]), [-value, value]);
            DetectedMask { score: 1.0 / (1.0 + (-logit).exp()), mask }
        };
        Ok(Some(array(&self.sequence.detections[frame]).iter().map(detection).collect()))
    }

    fn track(&mut self, batch: &TrackBatch) -> ocelli_tracking::Result<Vec<TrackedMask>> {
        self.buckets.track(batch);
        Ok(batch.objects().map(|id| self.answer(id, batch.frame)).collect())
    }

    fn prompt_masks(&mut self, batch: &MaskPromptBatch<'_>) -> ocelli_tracking::Result<()> {
        self.record_areas(&batch.group);
        self.buckets.prompt(batch);
        Ok(())
    }

    fn prompt_points(&mut self, prompt: &PointPrompt<'_>) -> ocelli_tracking::Result<TrackedMask> {
        self.buckets.click(prompt);
        Ok(self.answer(prompt.id, prompt.frame))
    }

    fn encode(&mut self, batch: &EncodeBatch<'_>) -> ocelli_tracking::Result<()> {
        self.buckets.encode(batch, self.options.patch_grid);
        if batch.kind == MemoryKind::Prompted {
            let masks: Vec<_> = batch.objects.iter().map(|object| (object.id, object.mask)).collect();
            self.record_areas(&masks);
        }
        Ok(())
    }
}
