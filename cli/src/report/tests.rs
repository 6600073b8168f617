use ocelli::{BoundingBox, Detection, Mask, StageTimes};
use unicode_width::UnicodeWidthStr;

use crate::output::write_json;

use super::{ImageReport, Report, timings, write_table};

fn record(label: &str, score: f32, edges: [f32; 4]) -> Detection {
    let bbox = BoundingBox::from(edges);
    Detection { class_id: 3, label: label.into(), score, bbox, mask: None }
}

fn image(detections: Vec<Detection>) -> ImageReport {
    let mut times = StageTimes::default();
    (times.preprocess, times.backbone, times.total) = (1.234_56, 400.0, 412.4);
    let timing_ms = timings(&times);
    ImageReport { file: "street.jpg".into(), width: 1280, height: 720, detections, timing_ms }
}

#[test]
fn json_has_the_documented_form() {
    let mut masked = record("dog", 0.931_234_5, [1.0, 2.346, 1_279.996, 719.5]);
    masked.mask = Some(Mask::from_bitmap(&[1, 1, 0, 1, 0, 0], 3, 2).expect("a bitmap of that size"));
    let report = Report { images: vec![image(vec![masked, record("\"red\" apple", 0.3, [0.1; 4])])] };
    let mut text = Vec::new();
    write_json(&mut text, &report).expect("memory can be written to");
    let text = String::from_utf8(text).expect("JSON is UTF-8");
    let expected = concat!(
        r#"{"images":[{"file":"street.jpg","width":1280,"height":720,"detections":["#,
        r#"{"class_id":3,"label":"dog","score":0.93123,"box":[1.0,2.35,1280.0,719.5],"#,
        r#""mask":{"size":[2,3],"counts":"033"}},"#,
        r#"{"class_id":3,"label":"\"red\" apple","score":0.3,"box":[0.1,0.1,0.1,0.1]}],"#,
        r#""timing_ms":{"text":0.0,"preprocess":1.23,"backbone":400.0,"decode":0.0,"masks":0.0,"total":412.4}}]}"#,
        "\n"
    );
    assert_eq!(text, expected);

    let read: Report = serde_json::from_str(&text).expect("what was just written");
    assert_eq!(
        read.images[0].timing_ms.keys().collect::<Vec<_>>(),
        ["text", "preprocess", "backbone", "decode", "masks", "total"]
    );
    assert_eq!(read.images[0].detections[0].mask, report.images[0].detections[0].mask);
    assert!((read.images[0].detections[0].score - 0.931_23).abs() < 1e-6);
}

fn table(image: &ImageReport, most: usize) -> String {
    let mut text = Vec::new();
    write_table(&mut text, image, most).expect("memory can be written to");
    String::from_utf8(text).expect("tables are UTF-8")
}

#[test]
fn tables_are_aligned() {
    let rows =
        vec![record("person", 0.9312, [12.4, 40.0, 200.1, 310.9]), record("赤いりんご", 0.4, [0.0; 4])];
    let expected = "\
street.jpg   1280 × 720   2 detections   412 ms
  label       score    x1    y1     x2     y2
  person      0.931  12.4  40.0  200.1  310.9
  赤いりんご  0.400   0.0   0.0    0.0    0.0
";
    assert_eq!(table(&image(rows), usize::MAX), expected);
}

#[test]
fn tables_are_limited_in_length() {
    assert_eq!(table(&image(Vec::new()), 5), "street.jpg   1280 × 720   nothing found   412 ms\n");
    let many: Vec<_> = (0..300).map(|_| record("ant", 0.5, [1.0; 4])).collect();
    for (most, lines, last) in [
        (5, 8, "  … and 295 more"),
        (0, 2, "  … and 300 more"),
        (300, 302, "  ant    0.500  1.0  1.0  1.0  1.0"),
        (usize::MAX, 302, "  ant    0.500  1.0  1.0  1.0  1.0"),
    ] {
        let text = table(&image(many.clone()), most);
        assert_eq!((text.lines().count(), text.lines().last()), (lines, Some(last)), "{most}");
    }
}

#[test]
fn labels_cannot_control_the_terminal_or_break_the_columns() {
    let mut report =
        image(vec![record("a\u{1b}[31m\nb", 0.5, [1.0; 4]), record(&"長い".repeat(40), 0.5, [1.0; 4])]);
    report.file = "x\r\u{7}.png".into();
    report.timing_ms.clear();
    let text = table(&report, usize::MAX);
    assert!(!text.chars().any(|letter| letter.is_control() && letter != '\n'), "{text:?}");
    let widths: Vec<usize> = text.lines().skip(1).map(UnicodeWidthStr::width).collect();
    assert!(widths.len() == 3 && widths.iter().all(|&width| width == widths[0] && width < 80), "{text}");
    assert!(text.starts_with("x\u{FFFD}\u{FFFD}.png   1280 × 720   2 detections\n"), "{text}");
}
