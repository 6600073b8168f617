//! Masks of a video in YouTube-VIS' JSON format.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::Sink;
use super::objects::objects;
use crate::atomic_file::write_atomically;
use crate::mask::Mask;
use crate::outcome::FrameOutcome;
use crate::report::rounded;
use ocelli_error::{Error, Result};

/// Writes the video as a data set of YouTube-VIS, with `videos`, `categories` and an annotation for each track: a list with a
/// mask or `null` for each frame, boxes, areas and, in addition, a score. Ids begin at 1.
///
/// The run lengths of all masks stay in memory until the end, when the file appears.
pub struct YouTubeVis {
    path: PathBuf,
    names: Vec<String>,
    size: (u32, u32),
    labels: Arc<[Arc<str>]>,
    tracks: BTreeMap<u64, Followed>,
}

struct Followed {
    class_id: usize,
    score: f32,
    /// By place among the frames.
    masks: BTreeMap<usize, Mask>,
}

impl YouTubeVis {
    /// A file, which is written at the end of the video.
    pub fn create(path: &Path) -> Self {
        let (names, labels) = (Vec::new(), Arc::from([]));
        Self { path: path.to_owned(), names, size: (0, 0), labels, tracks: BTreeMap::new() }
    }

    fn annotation(&self, id: u64, track: &Followed) -> Value {
        let frames = 0..self.names.len();
        let each = |value: fn(&Mask) -> Value| -> Vec<Value> {
            frames.clone().map(|frame| track.masks.get(&frame).map_or(Value::Null, value)).collect()
        };
        let bbox = |mask: &Mask| mask.bounding_box().map_or(Value::Null, |bbox| json!(bbox.to_ltwh()));
        json!({
            "id": id,
            "video_id": 1,
            "category_id": track.class_id + 1,
            "iscrowd": 0,
            "width": self.size.0,
            "height": self.size.1,
            "length": self.names.len(),
            "score": rounded(f64::from(track.score), 1e5),
            "segmentations": each(|mask| json!(mask)),
            "bboxes": each(bbox),
            "areas": each(|mask| json!(mask.area())),
        })
    }
}

impl Sink for YouTubeVis {
    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        let place = self.names.len();
        let file = outcome.file.as_ref().and_then(|file| file.file_name());
        let numbered = || format!("{:05}.jpg", outcome.index);
        self.names.push(file.map_or_else(numbered, |name| name.to_string_lossy().into_owned()));
        self.size = outcome.size;
        self.labels = outcome.labels.clone();
        for (track, mask) in objects(outcome)?.tracks {
            let new = Followed { class_id: track.class_id, score: track.score, masks: BTreeMap::new() };
            let followed = self.tracks.entry(track.id).or_insert(new);
            followed.score = followed.score.max(track.score);
            followed.masks.insert(place, mask);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        if self.names.is_empty() {
            return Ok(());
        }
        let category = |(index, label): (usize, &Arc<str>)| json!({"id": index + 1, "name": **label});
        let annotations: Vec<Value> =
            self.tracks.iter().map(|(&id, track)| self.annotation(id, track)).collect();
        let data_set = json!({
            "videos": [{
                "id": 1,
                "width": self.size.0,
                "height": self.size.1,
                "length": self.names.len(),
                "file_names": self.names,
            }],
            "categories": self.labels.iter().enumerate().map(category).collect::<Vec<_>>(),
            "annotations": annotations,
        });
        let written: Result<()> = write_atomically(&self.path, |file| {
            serde_json::to_writer(&mut *file, &data_set)?;
            file.write_all(b"\n")
        });
        written.map_err(|error| Error::new(error.kind(), format!("YouTube-VIS: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::objects::tests::frame;

    #[test]
    fn a_track_has_a_mask_or_nothing_for_each_frame() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("vis.json");
        let mut sink = YouTubeVis::create(&path);
        for outcome in [
            frame(0, &[(7, 1, [1, 1, 5, 3])]),
            frame(1, &[]),
            frame(2, &[(2, 0, [0, 0, 2, 2]), (7, 1, [2, 1, 6, 3])]),
        ] {
            sink.write(&outcome).expect("nothing is written yet");
        }
        assert!(!path.exists());
        sink.finish().expect("it can be written to");
        let read: Value =
            serde_json::from_slice(&std::fs::read(&path).expect("it was written")).expect("JSON");
        assert_eq!(read["videos"][0]["file_names"], json!(["00000.jpg", "00001.jpg", "00002.jpg"]));
        assert_eq!(read["categories"], json!([{"id": 1, "name": "dog"}, {"id": 2, "name": "red car"}]));
        let [first, second] = &read["annotations"].as_array().expect("a list")[..] else {
            panic!("two tracks")
        };
        assert_eq!(
            (&first["id"], &first["category_id"], &first["areas"]),
            (&json!(2), &json!(1), &json!([null, null, 4]))
        );
        assert_eq!(
            (&second["id"], &second["category_id"], &second["areas"]),
            (&json!(7), &json!(2), &json!([8, null, 8]))
        );
        assert_eq!(second["bboxes"], json!([[1.0, 1.0, 4.0, 2.0], null, [2.0, 1.0, 4.0, 2.0]]));
        let masks: Vec<Option<Mask>> =
            serde_json::from_value(second["segmentations"].clone()).expect("run lengths or null");
        assert_eq!(
            masks.iter().map(|mask| mask.as_ref().map(Mask::area)).collect::<Vec<_>>(),
            [Some(8), None, Some(8)]
        );

        let nothing = folder.path().join("none.json");
        YouTubeVis::create(&nothing).finish().expect("nothing is written");
        assert!(!nothing.exists(), "a run without a frame leaves earlier files alone");
    }
}
