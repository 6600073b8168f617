//! Pascal VOC's files: an XML file for each image, and the lists of the splits.

use crate::label::Record;

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
        let [x1, y1, x2, y2] = instance.bbox;
        let range = |low: f32, high: f32, side: u32| {
            let first = (low.round().max(0.0) as u32 + 1).min(side);
            (first, (high.round().max(0.0) as u32).clamp(first, side))
        };
        let ((left, right), (top, bottom)) = (range(x1, x2, record.width), range(y1, y2, record.height));
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

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    // XML has no way to write control characters.
    text.replace(char::is_control, " ")
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
