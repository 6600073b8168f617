//! What is in each frame of a drawn video.

use std::io::Write;

use ocelli_tracking::BoundingBox;

use crate::scenes::{MovingScene, OPAQUE};
use ocelli::{Error, ErrorKind, Result};

/// From this visible share on, a tracker is expected to find it.
const LEAST_VISIBLE: f32 = 0.25;

/// A pictogram in a frame of a [`MovingScene`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TruthBox {
    /// Whose it is, from 1; one that enters again is somebody new.
    pub id: u64,
    /// The place of its label in the list that the video was made with.
    pub class_id: usize,
    /// Its name.
    pub label: &'static str,
    /// The box around all of it that is within the picture, hidden parts with it; in pixels.
    pub bbox: BoundingBox,
    /// What share of it is visible, 0 to 1: neither hidden nor outside the picture.
    pub visible: f32,
}

impl MovingScene {
    /// What is in frame `index`, by id; things that are wholly hidden with the rest.
    pub fn truth(&self, index: u64) -> Vec<TruthBox> {
        let (width, height) = self.size();
        let [width, height] = [width, height].map(i64::from);
        let mut owners = vec![0u64; (width * height) as usize];
        let mut found = Vec::new();
        for pose in self.poses(index) {
            let mut extent = [width, height, 0, 0];
            let mut all = 0u32;
            let everywhere = [i64::MIN, i64::MIN, i64::MAX, i64::MAX];
            self.rasterize(&pose, everywhere, |x, y, color| {
                if color[3] <= OPAQUE {
                    return;
                }
                all += 1;
                if (0..width).contains(&x) && (0..height).contains(&y) {
                    owners[(y * width + x) as usize] = pose.id;
                    extent = [extent[0].min(x), extent[1].min(y), extent[2].max(x + 1), extent[3].max(y + 1)];
                }
            });
            let bbox = BoundingBox::from(extent.map(|edge| edge as f32));
            if bbox.has_area() {
                let (id, class_id) = (pose.id, pose.class_id);
                let label = self.label(class_id);
                found.push((all, TruthBox { id, class_id, label, bbox, visible: 0.0 }));
            }
        }
        for (all, truth) in &mut found {
            let shown = owners.iter().filter(|&&owner| owner == truth.id).count();
            truth.visible = shown as f32 / *all as f32;
        }
        let mut found: Vec<TruthBox> = found.into_iter().map(|(_, truth)| truth).collect();
        found.sort_by_key(|truth| truth.id);
        found
    }

    /// Writes what is in all frames as a MOTChallenge truth file: `frame,id,left,top,width,height,considered,class,
    /// visible`, with frames and classes from 1. Considered, so 1, is what is visible to a quarter at least; the others
    /// need not be found.
    ///
    /// `name` is what messages call the file.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] where writing fails.
    pub fn write_truth(&self, name: &str, mut writer: impl Write) -> Result<()> {
        for index in 0..self.frame_count() {
            let mut lines = Vec::new();
            for TruthBox { id, class_id, bbox, visible, .. } in self.truth(index) {
                let [left, top, width, height] = bbox.to_ltwh();
                let considered = u8::from(visible >= LEAST_VISIBLE);
                let (frame, class) = (index + 1, class_id + 1);
                writeln!(
                    lines,
                    "{frame},{id},{left},{top},{width},{height},{considered},{class},{visible:.3}"
                )
                .expect("a vector takes all that is written to it");
            }
            writer.write_all(&lines).map_err(|error| failed(name, error))?;
        }
        writer.flush().map_err(|error| failed(name, error))
    }
}

fn failed(name: &str, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("cannot write the truth, {name}: {error}")).with_source(error)
}
