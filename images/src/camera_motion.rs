//! The motion of a camera between two frames, from the frames themselves.
//!
//! Corners of the image are followed by pyramidal Lucas-Kanade flow, and the similarity (shift, turn, scale) that most of
//! them agree on is the camera's motion; the others are on objects that move. It is the recipe of BoT-SORT's sparse optical
//! flow (Aharon et al., 2022), on an image reduced to about 320 pixels.

mod fit;
mod flow;

use crate::frame_view::{FrameView, PixelFormat};
use ocelli_tracking::CameraMotion;

use fit::Similarity;
use flow::{Pyramid, corners, follow};

/// The longer side of the reduced image in pixels, about.
const SIDE: usize = 320;
/// The minimum number of inliers, and their minimum share of all corners.
const LEAST_AGREEING: usize = 8;
const LEAST_SHARE: f64 = 0.3;
/// A motion that moves no corner of the reduced image by this many pixels is noise.
const STILL: f64 = 0.1;

/// A frame's luma, reduced to what the estimate needs.
#[derive(Clone, Debug, Default)]
#[doc(hidden)]
pub struct ReducedFrame {
    pyramid: Pyramid,
    /// Size of the frame, and pixels of the frame in one of the reduced image, in each direction.
    size: (u32, u32),
    factor: usize,
}

impl ReducedFrame {
    /// Reduces a frame; the buffers are used again.
    pub fn read(&mut self, view: &FrameView<'_>) {
        let (width, height) = (view.width as usize, view.height as usize);
        self.size = (view.width, view.height);
        self.factor = (width.max(height) as f64 / SIDE as f64).round().max(1.0) as usize;
        let (columns, rows) = ((width / self.factor).max(1), (height / self.factor).max(1));
        let level = self.pyramid.start(columns, rows);
        let step = if matches!(view.format, PixelFormat::Rgb8 | PixelFormat::Bgr8) { 3 } else { 1 };
        let (sums, down) = (self.factor.min(width), self.factor.min(height));
        let weight = 1.0 / (sums * down) as f32;
        for row in 0..rows {
            for column in 0..columns {
                let mut sum = 0;
                for y in row * down..(row + 1) * down {
                    let start = y * view.stride + column * sums * step;
                    let bytes = &view.data[start..start + sums * step];
                    sum += match step {
                        // Green counts twice: about the luma, whichever end is red.
                        3 => bytes
                            .chunks_exact(3)
                            .map(|p| u32::from(p[0]) + 2 * u32::from(p[1]) + u32::from(p[2]))
                            .sum(),
                        _ => bytes.iter().map(|byte| 4 * u32::from(*byte)).sum::<u32>(),
                    };
                }
                level[row * columns + column] = sum as f32 * 0.25 * weight;
            }
        }
        self.pyramid.reduce();
    }

    /// The motion from an earlier frame to this one, in pixels of the frames; [`CameraMotion::STILL`] if the corners do not agree
    /// on one, or the frames differ in size.
    pub fn motion_since(&self, earlier: &ReducedFrame) -> CameraMotion {
        if self.size != earlier.size {
            return CameraMotion::STILL;
        }
        let from = corners(&earlier.pyramid);
        let pairs: Vec<_> =
            from.iter().filter_map(|at| Some((*at, follow(&earlier.pyramid, &self.pyramid, *at)?))).collect();
        let Some((motion, agreeing)) = Similarity::of_most(&pairs) else { return CameraMotion::STILL };
        if agreeing < LEAST_AGREEING || (agreeing as f64) < LEAST_SHARE * from.len() as f64 {
            return CameraMotion::STILL;
        }
        let (width, height) = self.pyramid.size();
        let farthest = [[0.0, 0.0], [width as f64, 0.0], [0.0, height as f64], [width as f64, height as f64]]
            .map(|at| {
                let moved = motion.point(at);
                (moved[0] - at[0]).hypot(moved[1] - at[1])
            })
            .into_iter()
            .fold(0.0, f64::max);
        if farthest < STILL {
            return CameraMotion::STILL;
        }
        let factor = self.factor as f64;
        let Similarity { cos, sin, shift: [x, y] } = motion;
        CameraMotion::new([[cos, -sin, x * factor], [sin, cos, y * factor]]).unwrap_or(CameraMotion::STILL)
    }
}

/// Estimates how the camera moves from frame to frame, for
/// [`ByteTracker::compensate`](ocelli_tracking::ByteTracker::compensate).
///
/// A pipeline does so if its options have `camera_motion`. The background has
/// to have corners and to fill about a third of the image; otherwise the camera counts as still. Motion of more than a
/// sixth of the image between two frames is not found.
///
/// ```
/// use ocelli_images::{Image, camera_motion::CameraMotionEstimator};
/// use ocelli_tracking::CameraMotion;
///
/// let image = Image::from_rgb8(320, 180, vec![90; 320 * 180 * 3])?;
/// let mut estimator = CameraMotionEstimator::default();
/// assert_eq!(estimator.next(&(&image).into())?, CameraMotion::STILL);
/// assert_eq!(estimator.next(&(&image).into())?, CameraMotion::STILL);
/// # Ok::<(), ocelli_error::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct CameraMotionEstimator {
    previous: Option<ReducedFrame>,
    /// A buffer to use again.
    spare: ReducedFrame,
}

impl CameraMotionEstimator {
    /// The motion from the frame of the previous call to this one, in pixels; [`CameraMotion::STILL`] for the first frame, if no
    /// motion is found, and if the size has changed.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if a side is zero, a row is longer than the
    /// stride, or its data is too short.
    pub fn next(&mut self, frame: &FrameView<'_>) -> ocelli_error::Result<CameraMotion> {
        frame.check()?;
        let mut reduced = std::mem::take(&mut self.spare);
        reduced.read(frame);
        let motion = self.motion_to(&reduced);
        self.spare = self.previous.replace(reduced).unwrap_or_default();
        Ok(motion)
    }

    fn motion_to(&self, frame: &ReducedFrame) -> CameraMotion {
        self.previous.as_ref().map_or(CameraMotion::STILL, |previous| frame.motion_since(previous))
    }

    /// As [`next`](Self::next), with a frame that is reduced already; returns the buffer of an earlier frame.
    #[doc(hidden)]
    pub fn next_reduced(&mut self, frame: ReducedFrame) -> (CameraMotion, Option<ReducedFrame>) {
        let motion = self.motion_to(&frame);
        (motion, self.previous.replace(frame))
    }
}

#[cfg(test)]
mod tests;
