//! The decisions of a session on a frame.

use crate::masklets::{Identity, ObjectId, PointerOrigin};
use std::collections::BTreeMap;

/// A memory that a group read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadMemory {
    /// The frame.
    pub frame: usize,
    /// The row of the temporal table.
    pub row: usize,
    /// `true` if the memory of the group's first object was made of a prompt.
    pub is_prompted: bool,
    /// `true` if it shows that object.
    pub is_present: bool,
}

/// A pointer that a group read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPointer {
    /// The frame.
    pub frame: usize,
    /// The origin of the pointer of the group's first object.
    pub origin: PointerOrigin,
    /// The number of frames back, or its rank.
    pub distance: usize,
}

/// The memories that a group of objects read to be tracked on a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BankReport {
    /// The frame.
    pub frame: usize,
    /// The objects of the group.
    pub objects: Vec<ObjectId>,
    /// The memories.
    pub memories: Vec<ReadMemory>,
    /// The pointers.
    pub pointers: Vec<ReadPointer>,
    /// The divisor of pointer distances.
    pub divisor: usize,
}

/// The decisions of a session on one frame, for logs and for tests. Detections are places among all detections of the frame.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct FrameReport {
    /// The frame.
    pub frame: usize,
    /// `true` if the run goes backward.
    pub is_reverse: bool,
    /// The memories that each tracked group read.
    pub banks: Vec<BankReport>,
    /// The detections that are left after the threshold and the suppression.
    pub detections: Vec<usize>,
    /// The objects before this frame's births and removals.
    pub tracked: Vec<ObjectId>,
    /// The areas of their masks after holes are filled.
    pub areas: Vec<usize>,
    /// Objects with a mask that no detection matches.
    pub unmatched: Vec<ObjectId>,
    /// Objects without a mask.
    pub empty: Vec<ObjectId>,
    /// The objects of each detection that has some.
    pub matches: Vec<(usize, Vec<ObjectId>)>,
    /// The detection that could recondition each object.
    pub recondition: BTreeMap<ObjectId, usize>,
    /// The objects of all groups that were reconditioned; in SAM 3.1 the objects themselves.
    pub reconditioned: Vec<ObjectId>,
    /// Objects that were removed as false.
    pub removed: Vec<ObjectId>,
    /// New objects and their detections.
    pub born: Vec<(ObjectId, usize)>,
    /// Detections that started no object because there are too many.
    pub dropped: usize,
    /// Objects that are suppressed because another one covers them.
    pub occluded: Vec<ObjectId>,
    /// Objects that keep too little of their masks against the others.
    pub shrunk: Vec<ObjectId>,
    /// Objects that the memory shows.
    pub present: Vec<ObjectId>,
    /// The areas of the masks that became memory, at the side of the memory encoder.
    pub memory_areas: Vec<usize>,
    /// The objects after this frame.
    pub objects: Vec<ObjectId>,
    /// The objects of each group after this frame.
    pub groups: Vec<Vec<ObjectId>>,
    /// The conditioning frames of each group after this frame.
    pub conditioning_frames: Vec<Vec<usize>>,
    /// All frames of each group after this frame.
    pub frames: Vec<Vec<usize>>,
    /// The place of each object of each group after this frame, counted through the buckets of the group.
    pub places: Vec<Vec<usize>>,
    /// The number of places of each group that no object had yet.
    pub free_places: Vec<usize>,
    /// The session's knowledge of all objects that ever were.
    pub identities: BTreeMap<ObjectId, Identity>,
    /// Number of frames on which two objects shared a detection: the elder and the younger; in SAM 3.1 any two.
    pub shared: BTreeMap<(ObjectId, ObjectId), usize>,
    /// The frame on which each object was occluded last.
    pub last_occluded: BTreeMap<ObjectId, Option<usize>>,
    /// Objects that the keep-alive counter hides on this frame.
    pub hidden: Vec<ObjectId>,
    /// The scores of all objects that ever were, by the detections that started them; -10000 if removed.
    pub scores: BTreeMap<ObjectId, f32>,
    /// The scores of the objects on this frame, which decide overlaps.
    pub tracker_scores: BTreeMap<ObjectId, f32>,
}
