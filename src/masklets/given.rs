//! Objects that a caller gives, in place of text prompts.

use ocelli_tracking::masklets::{BitMask, Click, ObjectId, ObjectPrompt};

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
    /// Where it is.
    pub shape: GivenShape,
}

/// Where an object is.
#[derive(Clone, Debug, PartialEq)]
pub enum GivenShape {
    /// Clicks: an object that is followed is refined, another one is added.
    Clicks(Vec<Click>),
    /// The mask of a new object, as large as the frames.
    Mask(Mask),
}

/// Objects of one frame, as the tracker takes them.
#[derive(Default)]
pub(crate) struct GivenMasks(Vec<(ObjectId, Shape)>);

enum Shape {
    Clicks(Vec<Click>),
    Mask(BitMask),
}

impl GivenMasks {
    pub(crate) fn new<'g>(objects: impl IntoIterator<Item = &'g GivenObject>) -> Self {
        let shape = |object: &GivenObject| match &object.shape {
            GivenShape::Clicks(clicks) => Shape::Clicks(clicks.clone()),
            GivenShape::Mask(mask) => Shape::Mask(to_bits(mask)),
        };
        Self(objects.into_iter().map(|object| (object.id, shape(object))).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn prompts(&self) -> Vec<ObjectPrompt<'_>> {
        let prompts = self.0.iter().map(|(id, shape)| match shape {
            Shape::Clicks(clicks) => ObjectPrompt::Clicks { id: *id, clicks },
            Shape::Mask(mask) => ObjectPrompt::Mask { id: *id, mask },
        });
        prompts.collect()
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
