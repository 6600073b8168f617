//! Objects that a caller gives, in place of text prompts.

use ocelli_tracking::masklets::{BitMask, Click, ObjectId, StreamObject};

use crate::mask::Mask;

/// An object as it is clicked or given as a mask on a frame, for [`Pipeline::builder_of_objects`](crate::Pipeline::builder_of_objects).
#[derive(Clone, Debug, PartialEq)]
pub struct GivenObject {
    /// The index of the frame in its stream.
    pub frame: u64,
    /// The object.
    pub id: ObjectId,
    /// The index of its label; that of its first appearance counts.
    pub class_id: usize,
    /// Its place.
    pub shape: GivenShape,
}

/// The place of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum GivenShape {
    /// Clicks: an object that is followed is refined, another one is added.
    Clicks(Vec<Click>),
    /// The mask of a new object, as large as the frames.
    Mask(Mask),
}

impl GivenObject {
    /// The object as the tracker takes it.
    pub(crate) fn prompt(&self) -> StreamObject {
        match &self.shape {
            GivenShape::Clicks(clicks) => StreamObject::Clicks { id: self.id, clicks: clicks.clone() },
            GivenShape::Mask(mask) => StreamObject::Mask { id: self.id, mask: to_bits(mask) },
        }
    }
}

/// A mask as the tracker takes it.
pub(super) fn to_bits(mask: &Mask) -> BitMask {
    let mut bits = BitMask::empty(mask.width() as usize, mask.height() as usize);
    for span in mask.spans() {
        (span.top..span.bottom).for_each(|y| bits.insert(span.x as usize, y as usize));
    }
    bits
}
