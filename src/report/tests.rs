use ocelli_tracking::BoundingBox;
use unicode_width::UnicodeWidthStr;

use super::{DetectionRecord, ImageReport, Report, TableOptions, Timings, write_table};
use crate::detection::Detection;
use crate::mask::Mask;

fn record(label: &str, score: f32, edges: [f32; 4]) -> DetectionRecord {
    let bbox = BoundingBox::from(edges);
    DetectionRecord::from(&Detection { class_id: 3, label: label.into(), score, bbox, mask: None })
}

fn image(detections: Vec<DetectionRecord>) -> ImageReport {
    let mut timing_ms = Timings::default();
    for (stage, milliseconds) in
        [("preprocess", 1.234_56), ("backbone", 300.0), ("backbone", 100.0), ("total", 412.4)]
    {
        timing_ms.add(stage, milliseconds);
    }
    ImageReport { file: "street.jpg".into(), width: 1280, height: 720, detections, timing_ms }
}

#[test]
fn json_has_the_promised_form() {
    let mut masked = record("dog", 0.931_234_5, [1.0, 2.346, 1_279.996, 719.5]);
    masked.mask = Some(Mask::from_bitmap(&[1, 1, 0, 1, 0, 0], 3, 2).expect("a bitmap of that size"));
    let report = Report { images: vec![image(vec![masked, record("\"red\" apple", 0.3, [0.1; 4])])] };
    let mut text = Vec::new();
    report.write_json(&mut text).expect("memory can be written to");
    let text = String::from_utf8(text).expect("JSON is UTF-8");
    let expected = concat!(
        r#"{"images":[{"file":"street.jpg","width":1280,"height":720,"detections":["#,
        r#"{"class_id":3,"label":"dog","score":0.93123,"box":[1.0,2.35,1280.0,719.5],"#,
        r#""mask":{"size":[2,3],"counts":"033"}},"#,
        r#"{"class_id":3,"label":"\"red\" apple","score":0.3,"box":[0.1,0.1,0.1,0.1]}],"#,
        r#""timing_ms":{"preprocess":1.23,"backbone":400.0,"total":412.4}}]}"#,
        "\n"
    );
    assert_eq!(text, expected);

    let read: Report = serde_json::from_str(&text).expect("what was just written");
    assert_eq!(
        read.images[0].timing_ms.iter().map(|(stage, _)| stage).collect::<Vec<_>>(),
        ["preprocess", "backbone", "total"]
    );
    assert_eq!(read.images[0].detections[0].mask, report.images[0].detections[0].mask);
    assert!((read.images[0].detections[0].score - 0.931_23).abs() < 1e-6);
}

fn table(image: &ImageReport, max_rows: Option<usize>) -> String {
    let mut text = Vec::new();
    write_table(&mut text, image, TableOptions { max_rows }).expect("memory can be written to");
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
    assert_eq!(table(&image(rows), None), expected);
}

#[test]
fn tables_of_nothing_and_of_hundreds_are_short() {
    assert_eq!(table(&image(Vec::new()), Some(5)), "street.jpg   1280 × 720   nothing found   412 ms\n");
    let many: Vec<_> = (0..300).map(|_| record("ant", 0.5, [1.0; 4])).collect();
    for (max_rows, lines, last) in [
        (Some(5), 8, "  … and 295 more"),
        (Some(0), 2, "  … and 300 more"),
        (Some(300), 302, "  ant    0.500  1.0  1.0  1.0  1.0"),
        (None, 302, "  ant    0.500  1.0  1.0  1.0  1.0"),
    ] {
        let text = table(&image(many.clone()), max_rows);
        assert_eq!((text.lines().count(), text.lines().last()), (lines, Some(last)), "{max_rows:?}");
    }
}

#[test]
fn words_cannot_steer_the_terminal_nor_break_the_columns() {
    let mut report =
        image(vec![record("a\u{1b}[31m\nb", 0.5, [1.0; 4]), record(&"長い".repeat(40), 0.5, [1.0; 4])]);
    report.file = "x\r\u{7}.png".into();
    report.timing_ms = Timings::default();
    let text = table(&report, None);
    assert!(!text.chars().any(|letter| letter.is_control() && letter != '\n'), "{text:?}");
    let widths: Vec<usize> = text.lines().skip(1).map(UnicodeWidthStr::width).collect();
    assert!(widths.len() == 3 && widths.iter().all(|&width| width == widths[0] && width < 80), "{text}");
    assert!(text.starts_with("x\u{FFFD}\u{FFFD}.png   1280 × 720   2 detections\n"), "{text}");
}
