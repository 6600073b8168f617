//! The ground truth of a drawn video.

use ocelli_tracking::BoundingBox;

use crate::scenes::{MovingScene, OPAQUE};

/// A pictogram in a frame of a [`MovingScene`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TruthBox {
    /// The id of the object, from 1. An object that enters again has a new id.
    pub id: u64,
    /// The index of its label in the list that the video was made with.
    pub class_id: usize,
    /// Its label.
    pub label: &'static str,
    /// The bounding box of the part inside the image, including occluded pixels; in pixels.
    pub bbox: BoundingBox,
    /// The share of it that is visible, neither occluded nor outside the image, 0 to 1.
    pub visible: f32,
}

impl MovingScene {
    /// The objects in frame `index`, ordered by id, including those that are fully occluded.
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
}
