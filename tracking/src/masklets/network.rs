//! The network that a masklet session uses.

use crate::masklets::{BitMask, LogitMask};
use ocelli_error::Result;

/// The identity of an object within a session: unique, in order of appearance from 0.
pub type ObjectId = u32;

/// A detection, before any suppression.
#[derive(Clone, Debug)]
pub struct DetectedMask {
    /// The probability that it is what the prompt names.
    pub score: f32,
    /// Its mask, of the side [`mask_side`](crate::masklets::MaskletOptions::mask_side).
    pub mask: LogitMask,
}

/// The mask decoder's output for an object on a frame.
#[derive(Clone, Debug)]
pub struct TrackedMask {
    /// The mask; -1024 everywhere if the object score is not above 0.
    pub mask: LogitMask,
    /// The logit of the object's presence.
    pub object_score: f32,
    /// The predicted IoU of the mask.
    pub iou: f32,
}

/// The memory of a bucket on one frame in the network's bank: an index that is reused. In SAM 3 a bucket is
/// one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemorySlot(pub usize);

/// The pointers of a bucket on one frame in the network's bank, one for each place: an index that is reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PointerSlot(pub usize);

/// A memory that a bucket reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInput {
    /// Its slot.
    pub slot: MemorySlot,
    /// Its frame: in SAM 3.1 the image of that frame is read with the memory.
    pub frame: usize,
    /// The row of the temporal table: 0 is the frame before, the last row conditioning frames. In SAM 3.1 a
    /// conditioning frame that is 1 to 6 frames back has row 5 to 0.
    pub row: usize,
}

/// Pointers that a bucket reads, those of all its places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PointerInput {
    /// Its slot.
    pub slot: PointerSlot,
    /// Frames between them and the current frame, divided by the largest number of pointers less 1.
    pub offset: f32,
}

/// Objects to track that share their memories: one in SAM 3, up to 16 in SAM 3.1.
#[derive(Clone, Debug)]
pub struct TrackBucket {
    /// The objects and their places, at least one; the other places are empty. In SAM 3 the place is 0.
    pub objects: Vec<(ObjectId, usize)>,
    /// The memories it reads.
    pub memories: Vec<MemoryInput>,
    /// The pointers it reads.
    pub pointers: Vec<PointerInput>,
    /// The slot for its new pointers; those of empty places are 0.
    pub pointer: PointerSlot,
}

/// Buckets to track in one call: all read equally many memories and equally many pointers.
#[derive(Clone, Debug)]
pub struct TrackBatch {
    /// The frame.
    pub frame: usize,
    /// The buckets, at least one.
    pub buckets: Vec<TrackBucket>,
}

impl TrackBatch {
    /// The objects of all buckets, in their order.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.buckets.iter().flat_map(|bucket| &bucket.objects).map(|&(id, _)| id)
    }
}

/// An object that is given as a mask.
#[derive(Clone, Debug)]
pub struct MaskPrompt {
    /// Its id.
    pub id: ObjectId,
    /// Its mask, of the side [`memory_side`](crate::masklets::MaskletOptions::memory_side).
    pub mask: BitMask,
    /// The slot of its bucket's pointers.
    pub pointer: PointerSlot,
    /// The place of its pointer there.
    pub place: usize,
}

/// Mask prompts of objects that share their conditioning frames.
#[derive(Clone, Debug)]
pub struct MaskPromptBatch<'a> {
    /// The frame.
    pub frame: usize,
    /// The prompts, at least one.
    pub prompts: &'a [MaskPrompt],
    /// `true` if the pointer slots are new: the pointers of all other places become 0.
    pub is_new: bool,
    /// The masks of all objects that share the frame, prompted or not.
    pub group: Vec<(ObjectId, &'a LogitMask)>,
}

/// A click on an object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Click {
    /// From the left, 0 to 1.
    pub x: f32,
    /// From the top, 0 to 1.
    pub y: f32,
    /// `true` if the object is there.
    pub is_foreground: bool,
}

/// Clicks on an object.
#[derive(Clone, Copy, Debug)]
pub struct PointPrompt<'a> {
    /// The frame.
    pub frame: usize,
    /// The object.
    pub id: ObjectId,
    /// The clicks.
    pub clicks: &'a [Click],
    /// The object's mask of this frame if there is one: a dense prompt, clamped to ±32.
    pub previous: Option<&'a LogitMask>,
    /// The slot of its bucket's pointers.
    pub pointer: PointerSlot,
    /// The place of its pointer there.
    pub place: usize,
    /// `true` if the pointer slot is new: the pointers of all other places become 0.
    pub is_new: bool,
}

/// The way of masks into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Logits: resized to the memory side, clamped to at most -10 where the object does not keep its mask,
    /// σ·20 − 10 (SAM 3.1: σ·2 − 1).
    Tracked,
    /// Prompts: resized to the image side, without overlaps within the batch, ±10, resized to the memory
    /// side: [`prompted_masks`](crate::masklets::prompted_masks). In SAM 3.1, the masks of a group on a frame
    /// on which some are born: logits, clamped to at most -10 where another mask of the batch is higher,
    /// σ·2 − 1, resized to the memory side.
    Prompted,
}

/// A mask to encode.
#[derive(Clone, Copy, Debug)]
pub struct EncodeObject<'a> {
    /// The object.
    pub id: ObjectId,
    /// Its mask.
    pub mask: &'a LogitMask,
    /// `true` if it keeps its mask against the others.
    pub keeps_mask: bool,
    /// `true` if it is visible; if not, the memory has the occlusion embedding.
    pub is_present: bool,
    /// `true` if it is given on this frame: born, reconditioned or clicked. The memories of SAM 3.1 have a plane for that.
    pub is_given: bool,
    /// The slot for the memory of its bucket. Objects with one slot share a memory; its other places are empty.
    pub slot: MemorySlot,
    /// The place of the object in it.
    pub place: usize,
}

/// Masks to encode in one call.
#[derive(Clone, Debug)]
pub struct EncodeBatch<'a> {
    /// The frame.
    pub frame: usize,
    /// The way into memory.
    pub kind: MemoryKind,
    /// The masks, at least one.
    pub objects: Vec<EncodeObject<'a>>,
}

/// The network of a [`MaskletSession`](crate::masklets::MaskletSession).
///
/// The session decides, the network computes. Memories and pointers stay with the network, at the slots that the session
/// names: a slot is written before it is read, and may be written again. Batches are independent of each other.
pub trait MaskNetwork {
    /// Makes `frame` the frame of all calls that follow: its image features.
    ///
    /// # Errors
    /// What fails here ends the call of the session.
    fn load(&mut self, frame: usize) -> Result<()>;

    /// All detections of the frame for the session's text or box prompt; `None` if the frame was not searched. Such a frame counts
    /// neither as a match nor as a miss, and ages no object. For runs that go forward once alone.
    ///
    /// # Errors
    /// What fails here ends the call of the session.
    fn detect(&mut self, frame: usize) -> Result<Option<Vec<DetectedMask>>>;

    /// Tracks objects, in the order of [`TrackBatch::objects`].
    ///
    /// # Errors
    /// What fails here ends the call of the session.
    fn track(&mut self, batch: &TrackBatch) -> Result<Vec<TrackedMask>>;

    /// Computes the pointers of objects that are given as masks.
    ///
    /// # Errors
    /// What fails here ends the call of the session.
    fn prompt_masks(&mut self, batch: &MaskPromptBatch<'_>) -> Result<()>;

    /// The mask of an object that is given as clicks.
    ///
    /// # Errors
    /// What fails here ends the call of the session.
    fn prompt_points(&mut self, prompt: &PointPrompt<'_>) -> Result<TrackedMask>;

    /// Writes memories.
    ///
    /// # Errors
    /// What fails here ends the call of the session.
    fn encode(&mut self, batch: &EncodeBatch<'_>) -> Result<()>;
}
