//! Writes COCO's `annotations.json` as a stream.

use std::io::{self, Write};

use ocelli::{Mask, report::rounded};
use serde_json::{Value, json};

use crate::label::formats::simplify::{Coverage, simplest};
use crate::label::formats::tracks::{Objects, Videos};
use crate::label::{Instance, Record};

/// Writes the file: categories, then images, then annotations, each in the order of their ids.
pub(crate) struct CocoWriter<'v, W: Write> {
    out: W,
    polygons: bool,
    /// Number of entries of the current list.
    entries: u64,
    annotations: u64,
    videos: &'v Videos,
    objects: Objects,
}

impl<'v, W: Write> CocoWriter<'v, W> {
    pub fn begin<'a>(
        mut out: W,
        names: impl Iterator<Item = &'a str>,
        polygons: bool,
        videos: &'v Videos,
    ) -> io::Result<Self> {
        begin(&mut out, names)?;
        // As CocoVID has them.
        let described = videos.iter().map(|video| {
            let (width, height) = video.size;
            json!({"id": video.id, "name": video.name, "width": width, "height": height})
        });
        let described: Vec<Value> = described.collect();
        if !described.is_empty() {
            write!(out, ",\n\"videos\":")?;
            serde_json::to_writer(&mut out, &described)?;
        }
        write!(out, ",\n\"images\":[")?;
        Ok(Self { out, polygons, entries: 0, annotations: 0, videos, objects: Objects::default() })
    }

    fn entry(&mut self, entry: &Value) -> io::Result<()> {
        self.out.write_all(if self.entries == 0 { b"\n" } else { b",\n" })?;
        self.entries += 1;
        Ok(serde_json::to_writer(&mut self.out, entry)?)
    }

    /// Adds the image with this id, from 1.
    pub fn image(&mut self, id: u64, file_name: &str, record: &Record) -> io::Result<()> {
        let (width, height) = (record.width, record.height);
        let mut image = json!({"id": id, "file_name": file_name, "width": width, "height": height});
        if let Some(place) = self.videos.place(&record.name) {
            image["video_id"] = place.video_id.into();
            image["frame_id"] = place.frame_id.into();
            image["frame_index"] = place.frame_index.into();
        }
        self.entry(&image)
    }

    /// Ends the list of images and starts the annotations.
    pub fn begin_annotations(&mut self) -> io::Result<()> {
        self.entries = 0;
        write!(self.out, "\n],\n\"annotations\":[")
    }

    /// Adds the instances of the image with this id.
    pub fn annotations(&mut self, image_id: u64, record: &Record) -> io::Result<()> {
        record.instances.iter().try_for_each(|instance| self.annotation(image_id, record, instance))
    }

    fn annotation(&mut self, image_id: u64, record: &Record, instance: &Instance) -> io::Result<()> {
        let (mask, bbox, area) = extent(record, instance);
        self.annotations += 1;
        let mut annotation = json!({
            "id": self.annotations,
            "image_id": image_id,
            "category_id": instance.class + 1,
            "bbox": bbox,
            "area": area,
            "iscrowd": 0,
        });
        if let Some(mask) = mask {
            annotation["segmentation"] = segmentation(&mask, self.polygons);
        }
        annotation["score"] = rounded(f64::from(instance.score), 1e5).into();
        if let Some(track) = instance.track {
            annotation["track_id"] = track.into();
        }
        if let Some(object) = self.object(record, instance) {
            annotation["instance_id"] = object.into();
        }
        self.entry(&annotation)
    }

    /// Leaves out the instances of an image, whose ids stay free.
    pub fn skip(&mut self, record: &Record) {
        self.annotations += record.instances.len() as u64;
        record.instances.iter().for_each(|instance| _ = self.object(record, instance));
    }

    /// The number of the object that an instance in a frame shows.
    fn object(&mut self, record: &Record, instance: &Instance) -> Option<u64> {
        let place = self.videos.place(&record.name)?;
        Some(self.objects.number(place.video_id, instance.track))
    }

    /// Ends the file.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.write_all(b"\n]}\n")
    }
}

/// The segmentation that is written for a mask.
pub(crate) fn segmentation(mask: &Mask, polygons: bool) -> Value {
    if !polygons {
        return json!(mask);
    }
    let coverage = Coverage { at: 0.5, with_border: false };
    let rings = simplest(mask, coverage, |tolerance| mask.polygons(tolerance));
    json!(rings.iter().map(|ring| ring.as_flattened()).collect::<Vec<_>>())
}

/// What a person can change of an annotation, as text.
pub(crate) fn mark(
    class: usize,
    bbox: Option<[f64; 4]>,
    segmentation: &Value,
    score: Option<f64>,
    track: Option<u64>,
) -> String {
    format!("{class} {bbox:?} {segmentation} {score:?} {track:?}")
}

/// The [`mark`] of the annotation of an instance.
pub(crate) fn mark_of(record: &Record, instance: &Instance, polygons: bool) -> String {
    let (mask, bbox, _) = extent(record, instance);
    let segmentation = mask.map_or(Value::Null, |mask| segmentation(&mask, polygons));
    let score = rounded(f64::from(instance.score), 1e5);
    mark(instance.class, Some(bbox), &segmentation, Some(score), instance.track)
}

/// Writes the start of a file, up to the categories: the classes in order, from 1.
pub(crate) fn begin<'a>(out: &mut dyn Write, names: impl Iterator<Item = &'a str>) -> io::Result<()> {
    let categories = names.enumerate().map(|(id, name)| json!({"id": id + 1, "name": name}));
    write!(out, "{{\"info\":{{\"description\":\"labelled by ocelli\"}},\"licenses\":[],\n\"categories\":")?;
    Ok(serde_json::to_writer(out, &categories.collect::<Vec<_>>())?)
}

/// The mask of an instance; left, top, width and height of its box, rounded; and the area of the mask, or else of the box.
pub(crate) type Extent = (Option<Mask>, [f64; 4], f64);

pub(crate) fn extent(record: &Record, instance: &Instance) -> Extent {
    let [x1, y1, x2, y2] = instance.bbox.map(f64::from);
    let mask = record.mask(instance);
    let area = mask.as_ref().map_or((x2 - x1) * (y2 - y1), |mask| mask.area() as f64);
    (mask, [x1, y1, x2 - x1, y2 - y1].map(|v| rounded(v, 1e2)), rounded(area, 1e2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_valid_coco() {
        let record = |instances| Record { width: 5, height: 2, instances, ..Record::default() };
        let instance = |mask: Option<&str>| Instance {
            class: 1,
            score: 0.123_456_7,
            bbox: [0.0, 0.5, 2.005, 2.0],
            mask: mask.map(Into::into),
            track: None,
        };
        let mask = Mask::from_bitmap(&[1, 1, 0, 0, 0, 1, 1, 0, 0, 0], 5, 2).expect("5 × 2");
        let mut out = Vec::new();
        let videos = Videos::default();
        let mut coco =
            CocoWriter::begin(&mut out, ["dog", "a \"b\""].into_iter(), false, &videos).expect("memory");
        let records =
            [record(vec![instance(None)]), record(vec![]), record(vec![instance(Some(mask.counts()))])];
        for (i, record) in records.iter().enumerate() {
            coco.image(i as u64 + 1, &format!("{i}.png"), record).expect("memory");
        }
        coco.begin_annotations().expect("memory");
        for (i, record) in records.iter().enumerate() {
            coco.annotations(i as u64 + 1, record).expect("memory");
        }
        coco.finish().expect("memory");
        let read: Value = serde_json::from_slice(&out).expect("it is JSON");
        assert_eq!(read["categories"][1], serde_json::json!({"id": 2, "name": "a \"b\""}));
        assert_eq!(
            read["images"][2],
            serde_json::json!({"id": 3, "file_name": "2.png", "width": 5, "height": 2})
        );
        assert_eq!(
            read["annotations"][0],
            serde_json::json!({"id": 1, "image_id": 1, "category_id": 2, "bbox": [0.0, 0.5, 2.01, 1.5], "area": 3.01,
                "iscrowd": 0, "score": 0.12346})
        );
        assert_eq!(
            (read["annotations"][1]["area"].as_f64(), read["annotations"][1]["id"].as_u64()),
            (Some(4.0), Some(2))
        );
        assert_eq!(read["annotations"][1]["segmentation"]["counts"], mask.counts());
    }
}
