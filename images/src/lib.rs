//! Models take and give tensors, and people have images: decoding, views of frames, masks, preprocessing, a camera's motion.
//!
//! The crate `ocelli` gives its types under the same names. What only `ocelli` needs of it is hidden.

#![forbid(unsafe_code)]

pub mod camera_motion;
#[doc(hidden)]
pub mod canvas;
mod device_frame;
pub mod frame_view;
pub mod image;
pub mod mask;
pub mod preprocess;
#[doc(hidden)]
pub mod rows;

pub use device_frame::{DeviceFrame, Nv12Colours, ToRgb};
pub use frame_view::{FrameView, PixelFormat};
pub use image::Image;
pub use mask::Mask;
