//! Writes `youtube_vis.json`: the objects of videos, each with a mask for every image of its video.

use std::collections::BTreeMap;
use std::io::{self, Write};

use ocelli::{Result, report::rounded};
use serde_json::{Value, json};

use crate::label::Record;
use crate::label::formats::coco::{Extent, begin, extent};
use crate::label::formats::tracks::{Objects, Video, Videos};

/// The name of the file.
pub(crate) const YOUTUBE_VIS_FILE: &str = "youtube_vis.json";

/// An object: class, score and [`extent`] of its instances, by the place of the image in the video.
type Object = BTreeMap<usize, (usize, f32, Extent)>;

/// Writes videos. `labelled` reads an image by its name in the data set: its name in the file, and its record. The masks of
/// one video at a time are in memory.
pub(crate) fn write_youtube_vis<'a>(
    out: &mut dyn Write,
    videos: &Videos,
    classes: impl Iterator<Item = &'a str>,
    labelled: impl Fn(&str) -> Result<Option<(String, Record)>>,
) -> io::Result<()> {
    begin(out, classes)?;
    write!(out, ",\n\"annotations\":[")?;
    let (mut described, mut last) = (Vec::new(), 0);
    for video in videos.iter() {
        let mut numbers = Objects::default();
        let mut objects: BTreeMap<u64, (Option<u64>, Object)> = BTreeMap::new();
        let mut names = Vec::new();
        for (place, (_, name)) in video.images.iter().enumerate() {
            let Some((name, record)) = labelled(name).map_err(io::Error::other)? else { continue };
            names.push(name);
            for instance in &record.instances {
                let number = numbers.number(video.id, instance.track);
                let (_, object) = objects.entry(number).or_insert((instance.track, Object::new()));
                object.insert(place, (instance.class, instance.score, extent(&record, instance)));
            }
        }
        for (track, object) in objects.values() {
            last += 1;
            out.write_all(if last == 1 { b"\n" } else { b",\n" })?;
            serde_json::to_writer(&mut *out, &annotation(last, video, *track, object))?;
        }
        described.push(json!({
            "id": video.id,
            "name": video.name,
            "width": video.size.0,
            "height": video.size.1,
            "length": video.images.len(),
            "file_names": names,
        }));
    }
    write!(out, "\n],\n\"videos\":")?;
    serde_json::to_writer(&mut *out, &described)?;
    out.write_all(b"}\n")
}

fn annotation(id: u64, video: &Video, track: Option<u64>, object: &Object) -> Value {
    let each = |value: fn(&Extent) -> Value| -> Vec<Value> {
        let extents = (0..video.images.len()).map(|place| Some(&object.get(&place)?.2));
        extents.map(|extent| extent.map_or(Value::Null, value)).collect()
    };
    // A person may have corrected the class in some images: the one in most of them counts.
    let mut classes: BTreeMap<usize, usize> = BTreeMap::new();
    object.values().for_each(|(class, ..)| *classes.entry(*class).or_default() += 1);
    let class = classes.iter().max_by_key(|(class, count)| (**count, std::cmp::Reverse(**class)));
    let score =
        object.values().map(|(_, score, _)| f64::from(*score)).sum::<f64>() / object.len().max(1) as f64;
    let mut annotation = json!({
        "id": id,
        "video_id": video.id,
        "category_id": class.map_or(0, |(class, _)| class + 1),
        "iscrowd": 0,
        "width": video.size.0,
        "height": video.size.1,
        "length": video.images.len(),
        "score": rounded(score, 1e5),
        "segmentations": each(|(mask, ..)| json!(mask)),
        "bboxes": each(|(_, bbox, _)| json!(bbox)),
        "areas": each(|(.., area)| json!(area)),
    });
    if let Some(track) = track {
        annotation["track_id"] = track.into();
    }
    annotation
}
