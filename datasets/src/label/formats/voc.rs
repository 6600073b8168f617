//! Pascal VOC's files: an XML file for each image, and the lists of the splits.

use std::collections::HashMap;

use quick_xml::Reader;
use quick_xml::escape::{partial_escape, unescape};
use quick_xml::events::Event;

use ocelli::BoundingBox;

use crate::label::formats::yolo_line::Line;
use crate::label::{Instance, Record};

/// The XML file of an image. Coordinates are pixels from 1, and the last one is inside, as VOC's tools expect.
pub(crate) fn annotation(record: &Record, names: &[String], file_name: &str) -> String {
    let mut text = format!(
        "<annotation>\n  <folder>JPEGImages</folder>\n  <filename>{}</filename>\n  <source><database>ocelli</database></source>\n  \
         <size><width>{}</width><height>{}</height><depth>3</depth></size>\n  <segmented>0</segmented>\n",
        escaped(file_name),
        record.width,
        record.height
    );
    for instance in &record.instances {
        let [left, top, right, bottom] = edges(instance, (record.width, record.height));
        let name = names.get(instance.class).map_or("", String::as_str);
        text += &format!(
            "  <object>\n    <name>{}</name>\n    <pose>Unspecified</pose>\n    <truncated>0</truncated>\n    \
             <difficult>0</difficult>\n    <bndbox><xmin>{left}</xmin><ymin>{top}</ymin><xmax>{right}</xmax>\
             <ymax>{bottom}</ymax></bndbox>\n  </object>\n",
            escaped(name)
        );
    }
    text + "</annotation>\n"
}

/// The first and the last pixel of an instance, from 1: left, top, right, bottom.
fn edges(instance: &Instance, (width, height): (u32, u32)) -> [u32; 4] {
    let [x1, y1, x2, y2] = instance.bbox;
    let range = |low: f32, high: f32, side: u32| {
        let first = (low.round().max(0.0) as u32 + 1).min(side);
        (first, (high.round().max(0.0) as u32).clamp(first, side))
    };
    let ((left, right), (top, bottom)) = (range(x1, x2, width), range(y1, y2, height));
    [left, top, right, bottom]
}

/// The object of an instance in an annotation, as [`objects`] reads it.
pub(crate) fn line(instance: &Instance, size: (u32, u32)) -> Line {
    line_of(instance.class, edges(instance, size).map(|edge| edge as f32))
}

fn line_of(class: usize, edges: [f32; 4]) -> Line {
    let [left, top, right, bottom] = edges;
    let bbox = BoundingBox::new(left - 1.0, top - 1.0, right, bottom);
    Line { text: format!("{class} {edges:?}"), class, bbox, ..Line::default() }
}

/// The objects of an annotation of an image of this size; a blank one has none.
///
/// # Errors
/// Why it is not an annotation, or not one of this size with these classes.
pub(crate) fn objects(text: &str, names: &[String], size: (u32, u32)) -> Result<Vec<Line>, String> {
    let (whole, objects) = read(text).map_err(|e| e.to_string())?.ok_or("expected an <annotation>")?;
    let number = |of: &Texts, key: &[u8]| of.get(key)?.parse().ok().filter(|number: &f32| number.is_finite());
    for (key, side) in [(b"width".as_slice(), size.0), (b"height", size.1)] {
        if let Some(other) = number(&whole, key).filter(|other| *other > 0.0 && *other != side as f32) {
            return Err(format!("its size has {other} pixels where the image has {side}"));
        }
    }
    let line = |object: Texts| {
        let name = object.get(&b"name"[..]).map_or("", String::as_str);
        let class = names.iter().position(|known| known == name);
        let class = class.ok_or_else(|| format!("object \"{name}\": no class of the data set"))?;
        let edges = [b"xmin", b"ymin", b"xmax", b"ymax"].map(|key| number(&object, key));
        match edges {
            [Some(left), Some(top), Some(right), Some(bottom)] if left <= right && top <= bottom => {
                Ok(line_of(class, [left, top, right, bottom]))
            }
            _ => Err(format!("object \"{name}\": expected xmin, ymin, xmax and ymax")),
        }
    };
    objects.into_iter().map(line).collect()
}

/// Elements and their texts.
type Texts = HashMap<Vec<u8>, String>;

/// The texts outside of objects and those of each object; `None` if it is not a whole annotation.
fn read(text: &str) -> Result<Option<(Texts, Vec<Texts>)>, quick_xml::Error> {
    let mut reader = Reader::from_str(text);
    let (mut whole, mut objects, mut object) = (Texts::new(), Vec::new(), None);
    let mut is_whole = text.trim().is_empty();
    loop {
        match reader.read_event()? {
            Event::Start(tag) => match tag.name().as_ref() {
                b"object" => object = Some(Texts::new()),
                b"part" | b"attributes" => _ = reader.read_to_end(tag.name())?,
                key @ (b"name" | b"width" | b"height" | b"xmin" | b"ymin" | b"xmax" | b"ymax") => {
                    let text = reader.read_text(tag.name())?.decode()?;
                    let texts = object.as_mut().unwrap_or(&mut whole);
                    texts.insert(key.to_vec(), unescape(text.trim())?.into_owned());
                }
                _ => {}
            },
            Event::End(tag) if tag.name().as_ref() == b"object" => objects.extend(object.take()),
            Event::End(tag) => is_whole |= tag.name().as_ref() == b"annotation",
            Event::Empty(tag) => is_whole |= tag.name().as_ref() == b"annotation",
            Event::Eof => return Ok(is_whole.then_some((whole, objects))),
            _ => {}
        }
    }
}

fn escaped(text: &str) -> String {
    // XML has no way to write control characters.
    partial_escape(text).replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::record::Instance;

    #[test]
    fn coordinates_count_from_one() {
        let instance = |bbox| Instance { class: 0, score: 0.5, bbox, mask: None, track: None };
        let instances = vec![instance([0.0, 9.6, 4.4, 20.0]), instance([19.9, 0.2, 20.0, 0.4])];
        let record = Record { width: 20, height: 20, instances, ..Record::default() };
        let text = annotation(&record, &["a <b> & c".into()], "x/y.png");
        for part in [
            "<filename>x/y.png</filename>",
            "<name>a &lt;b&gt; &amp; c</name>",
            "<xmin>1</xmin><ymin>11</ymin><xmax>4</xmax><ymax>20</ymax>",
            "<xmin>20</xmin><ymin>1</ymin><xmax>20</xmax><ymax>1</ymax>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
