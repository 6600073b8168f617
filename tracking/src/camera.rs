//! The motion of a camera.

use ocelli_error::{Result, refuse};

/// The motion of the image from one frame to the next because the camera moved: a map of points that keeps lines straight.
///
/// [`ByteTracker::compensate`](crate::ByteTracker::compensate) applies it to the tracks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CameraMotion {
    matrix: [[f64; 3]; 2],
}

impl CameraMotion {
    /// A camera that stands still.
    pub const STILL: Self = Self { matrix: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]] };

    /// The motion that moves the point (x, y) to (a·x + b·y + c, d·x + e·y + f), with the matrix [[a, b, c], [d, e, f]] and
    /// points in the unit of the boxes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if a number is not finite, or the map mirrors
    /// the image or makes it flat.
    pub fn new(matrix: [[f64; 3]; 2]) -> Result<Self> {
        let motion = Self { matrix };
        let area = motion.matrix[0][0] * motion.matrix[1][1] - motion.matrix[0][1] * motion.matrix[1][0];
        if matrix.iter().flatten().all(|value| value.is_finite()) && area > 0.0 && area.is_finite() {
            return Ok(motion);
        }
        refuse!("camera motion {matrix:?}: expected finite numbers that do not mirror the image")
    }

    /// A shift by `[x, y]`, which has to be finite, of an image that is not turned and not scaled.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if a number is not finite.
    pub fn shift([x, y]: [f64; 2]) -> Result<Self> {
        Self::new([[1.0, 0.0, x], [0.0, 1.0, y]])
    }

    /// The matrix that it was made with.
    pub fn matrix(&self) -> [[f64; 3]; 2] {
        self.matrix
    }

    /// This motion and then `next`.
    ///
    /// # Errors
    /// As [`new`](Self::new), if the numbers grow too large.
    pub fn then(&self, next: &Self) -> Result<Self> {
        let [x, y] = [[self.matrix[0][0], self.matrix[1][0]], [self.matrix[0][1], self.matrix[1][1]]]
            .map(|d| next.turn(d));
        let shift = next.point([self.matrix[0][2], self.matrix[1][2]]);
        Self::new([[x[0], y[0], shift[0]], [x[1], y[1], shift[1]]])
    }

    /// The place to which it moves a point.
    pub(crate) fn point(&self, at: [f64; 2]) -> [f64; 2] {
        let [x, y] = self.turn(at);
        [x + self.matrix[0][2], y + self.matrix[1][2]]
    }

    /// A difference of two points, after the motion.
    pub(crate) fn turn(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        self.matrix.map(|[a, b, _]| a * x + b * y)
    }

    /// The factor by which it scales widths and heights.
    pub(crate) fn scale(&self) -> [f64; 2] {
        [0, 1].map(|side| length(self.matrix[0][side], self.matrix[1][side]))
    }
}

fn length(a: f64, b: f64) -> f64 {
    (a * a + b * b).sqrt()
}
