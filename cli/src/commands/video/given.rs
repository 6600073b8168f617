//! `--points` and `--init-masks`: objects that the user gives, in place of text prompts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use ocelli::mask::read_mask_png;
use ocelli::masklets::{Click, GivenObject, GivenShape, ObjectId};
use ocelli::source::natural_order;
use ocelli_export::read_text;
use serde::Deserialize;

use crate::usage;

/// The class of objects without one.
const CLASS: &str = "object";

/// Objects of the user.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Tracking")]
pub struct GivenArgs {
    /// With --memory and in place of --classes: follow the objects that are clicked in this JSON file, a list or lines of
    /// {"frame": 0, "object": 1, "points": [[x, y], …], "labels": [1, 0, …], "class": "dog"}; pixels of the video, label 0 is
    /// not the object
    #[arg(long, value_name = "FILE", requires = "memory")]
    pub points: Option<PathBuf>,
    /// With --memory and in place of --classes: follow the objects of PNGs whose pixels are their numbers and whose names are
    /// frames, such as 00000.png; of each object the first mask counts
    #[arg(long, value_name = "DIR", requires = "memory")]
    pub init_masks: Option<PathBuf>,
}

/// Objects with their labels.
pub struct GivenObjects {
    /// By class id.
    pub labels: Vec<Arc<str>>,
    clicks: Vec<ClickRecord>,
    masks: Vec<GivenObject>,
}

/// Clicks on an object of a frame.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct ClickRecord {
    frame: u64,
    /// From 1.
    object: ObjectId,
    points: Vec<[f32; 2]>,
    labels: Option<Vec<u8>>,
    class: Option<String>,
}

impl GivenArgs {
    /// The files that are read.
    pub fn files(&self) -> Vec<PathBuf> {
        let entries = self.init_masks.as_deref().and_then(|folder| folder.read_dir().ok());
        let masks = entries.into_iter().flatten().flatten().map(|entry| entry.path());
        self.points.iter().cloned().chain(masks).collect()
    }

    /// Reads the files; `None` if none is named.
    ///
    /// # Errors
    /// If one cannot be read, or has no objects.
    pub fn read(&self) -> anyhow::Result<Option<GivenObjects>> {
        if self.points.is_none() && self.init_masks.is_none() {
            return Ok(None);
        }
        let mut clicks = Vec::new();
        if let Some(path) = &self.points {
            let text = read_text(path, "the file of --points").map_err(|error| usage(error.to_string()))?;
            clicks =
                parse_clicks(&text).map_err(|why| usage(format!("--points, {}: {why}", path.display())))?;
        }
        let masks = self.init_masks.as_deref().map(read_masks).transpose()?.unwrap_or_default();
        let mut labels: Vec<Arc<str>> = Vec::new();
        let mut names: Vec<&str> =
            clicks.iter().map(|record| record.class.as_deref().unwrap_or(CLASS)).collect();
        // Masks have the first label.
        names.splice(0..0, (!masks.is_empty()).then_some(CLASS));
        for name in names {
            if !labels.iter().any(|label| **label == *name) {
                labels.push(name.into());
            }
        }
        Ok(Some(GivenObjects { labels, clicks, masks }))
    }
}

impl GivenObjects {
    /// The objects in a video of this size.
    ///
    /// # Errors
    /// If a click is outside of it, or a mask has another size.
    pub fn objects(self, size: Option<(u32, u32)>) -> anyhow::Result<Vec<GivenObject>> {
        let Self { labels, clicks, masks } = self;
        for object in &masks {
            let (GivenShape::Mask(mask), Some((width, height))) = (&object.shape, size) else { continue };
            if (mask.width(), mask.height()) != (width, height) {
                refuse!(
                    "--init-masks: the masks of frame {} have {}×{} pixels, the video {width}×{height}",
                    object.frame,
                    mask.width(),
                    mask.height()
                );
            }
        }
        let mut objects = masks;
        for record in clicks {
            let Some((width, height)) = size else {
                refuse!("--points: the size of the video is not known before its first frame");
            };
            let (width, height) = (width as f32, height as f32);
            let at = format!("--points: object {}, frame {}", record.object, record.frame);
            if let Some([x, y]) =
                record.points.iter().find(|[x, y]| !(0.0..=width).contains(x) || !(0.0..=height).contains(y))
            {
                refuse!("{at}: {x},{y} is outside of the video of {width}×{height} pixels");
            }
            let wanted = record.labels.iter().flatten().map(|&label| label == 1);
            let wanted = wanted.chain(std::iter::repeat(true));
            let clicks = record.points.iter().zip(wanted);
            let clicks =
                clicks.map(|([x, y], is_foreground)| Click { x: x / width, y: y / height, is_foreground });
            let class = record.class.as_deref().unwrap_or(CLASS);
            objects.push(GivenObject {
                frame: record.frame,
                id: record.object - 1,
                class_id: labels.iter().position(|label| **label == *class).unwrap_or(0),
                shape: GivenShape::Clicks(clicks.collect()),
            });
        }
        Ok(objects)
    }
}

/// A list of records, or one record a line.
fn parse_clicks(text: &str) -> Result<Vec<ClickRecord>, String> {
    let records: Vec<ClickRecord> = if text.trim_start().starts_with('[') {
        serde_json::from_str(text).map_err(|error| error.to_string())?
    } else {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let record = |(index, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|error| format!("line {}: {error}", index + 1))
        };
        lines.map(record).collect::<Result<_, _>>()?
    };
    if records.is_empty() {
        return Err("expected at least one object".into());
    }
    for ClickRecord { frame, object, points, labels, .. } in &records {
        let at = format!("object {object}, frame {frame}");
        if *object == 0 {
            return Err(format!("{at}: objects are numbered from 1"));
        }
        if points.is_empty() {
            return Err(format!("{at}: expected at least one point"));
        }
        let Some(labels) = labels else { continue };
        if labels.len() != points.len() {
            return Err(format!(
                "{at}: {} points and {} labels: expected equally many",
                points.len(),
                labels.len()
            ));
        }
        if let Some(label) = labels.iter().find(|label| **label > 1) {
            return Err(format!("{at}: label {label}: expected 1 for the object and 0 for what is not"));
        }
    }
    Ok(records)
}

fn read_masks(folder: &Path) -> anyhow::Result<Vec<GivenObject>> {
    let refuse = |why: String| usage(format!("--init-masks, {}: {why}", folder.display()));
    let entries = folder.read_dir().map_err(|error| refuse(error.to_string()))?;
    let is_png =
        |path: &PathBuf| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("png"));
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_png).collect();
    natural_order(&mut files);
    let (mut seen, mut objects) = (BTreeSet::new(), Vec::new());
    for path in &files {
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let frame: u64 = name
            .parse()
            .map_err(|_| refuse(format!("{name}.png: expected the number of a frame, such as 00000.png")))?;
        let masks = read_mask_png(path).map_err(|error| usage(format!("--init-masks, {error}")))?;
        for (object, mask) in masks.into_iter().filter(|(object, _)| seen.insert(*object)) {
            let (id, shape) = (ObjectId::from(object - 1), GivenShape::Mask(mask));
            objects.push(GivenObject { frame, id, class_id: 0, shape });
        }
    }
    if objects.is_empty() {
        return Err(refuse("it has no PNG with an object".into()));
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_clicks() {
        let record =
            r#"{"frame": 2, "object": 1, "points": [[3, 4], [5, 6]], "labels": [1, 0], "class": "dog"}"#;
        let cases: [(&str, Result<usize, &str>); 11] = [
            (record, Ok(1)),
            (&format!("[{record}, {record}]"), Ok(2)),
            (&format!("{record}\n\n{record}\n"), Ok(2)),
            (r#"{"frame": 0, "object": 3, "points": [[1.5, 2]]}"#, Ok(1)),
            ("", Err("at least one object")),
            ("{}", Err("line 1: missing field")),
            (r#"{"frame": 0, "object": 0, "points": [[1, 2]]}"#, Err("numbered from 1")),
            (r#"{"frame": 0, "object": 1, "points": []}"#, Err("at least one point")),
            (r#"{"frame": 0, "object": 1, "points": [[1, 2]], "labels": []}"#, Err("1 points and 0 labels")),
            (r#"{"frame": 0, "object": 1, "points": [[1, 2]], "labels": [2]}"#, Err("label 2: expected 1")),
            (r#"{"frame": 0, "object": 1, "points": [[1, 2]], "box": []}"#, Err("unknown field `box`")),
        ];
        for (text, expected) in cases {
            match (parse_clicks(text), expected) {
                (Ok(found), Ok(count)) => assert_eq!(found.len(), count, "{text}"),
                (Err(found), Err(word)) => assert!(found.contains(word), "{text}: {found}"),
                (found, expected) => panic!("{text}: {found:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn clicks_become_shares_of_the_video() {
        let clicks = parse_clicks(
            r#"[{"frame": 2, "object": 4, "points": [[48, 18], [0, 72]], "labels": [0, 1], "class": "cat"},
                {"frame": 0, "object": 1, "points": [[96, 72]]}]"#,
        );
        let labels = vec![Arc::from(CLASS), Arc::from("cat")];
        let given = || GivenObjects {
            labels: labels.clone(),
            clicks: clicks.clone().expect("valid"),
            masks: Vec::new(),
        };
        let objects = given().objects(Some((96, 72))).expect("all are inside");
        let click = |x, y, is_foreground| Click { x, y, is_foreground };
        assert_eq!((objects[0].frame, objects[0].id, objects[0].class_id), (2, 3, 1));
        assert_eq!(
            objects[0].shape,
            GivenShape::Clicks(vec![click(0.5, 0.25, false), click(0.0, 1.0, true)])
        );
        assert_eq!((objects[1].id, objects[1].class_id), (0, 0));
        let error = given().objects(Some((50, 72))).expect_err("96 is outside").to_string();
        assert!(error.contains("object 1, frame 0: 96,72 is outside"), "{error}");
    }
}
