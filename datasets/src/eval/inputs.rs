//! Annotations as tools write them.

use std::path::Path;

use ocelli::{ErrorKind, Image};

use super::{Overlap, Predictions, Truth, average_precision};

const FOUND: &str = r#"[{"image_id":1,"category_id":1,"bbox":[10,10,40,28],"score":0.9},
    {"image_id":2,"category_id":3,"bbox":[21,20,20,20],"score":0.8}]"#;

const PLAIN: &str = r#"{"info":{"year":2024,"version":"1"},"licenses":[],
    "images":[{"id":1,"file_name":"a.png","width":100,"height":80},{"id":2,"file_name":"b.png","width":100,"height":80}],
    "categories":[{"id":1,"name":"cat","supercategory":""},{"id":3,"name":"dog","supercategory":""}],
    "annotations":[
    {"id":1,"image_id":1,"category_id":1,"bbox":[10,10,40,30],"area":1200,"iscrowd":0,"segmentation":[[10,10,50,10,50,40,10,40]]},
    {"id":2,"image_id":2,"category_id":3,"bbox":[20,20,20,20],"area":400,"iscrowd":0,"segmentation":[[20,20,40,20,40,40,20,40]]}]}"#;

fn ap_of(folder: &Path, truth: &str, found: &str) -> Result<Option<f64>, ocelli::Error> {
    let [truth_file, found_file] = ["truth.json", "found.json"].map(|name| folder.join(name));
    std::fs::write(&truth_file, truth)
        .and_then(|()| std::fs::write(&found_file, found))
        .expect("a temporary folder");
    let truth = Truth::open(&truth_file)?;
    let found = Predictions::open(&found_file, &truth)?;
    Ok(average_precision(&truth, &found, &truth.image_ids(), Overlap::Boxes)?.ap)
}

/// Each row replaces a part of a file that pycocotools scores. The figure stays, as nothing else is evaluated.
#[test]
fn what_is_not_evaluated_may_be_anything() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let expected = ap_of(folder.path(), PLAIN, FOUND).expect("a plain file");
    assert!(expected.is_some_and(|ap| (ap - 0.9).abs() < 0.02), "{expected:?}");
    let info = r#"{"year":2024,"version":"1"}"#;
    let area = r#""area":1200"#;
    let crowd = r#""iscrowd":0"#;
    let name = r#""file_name":"a.png""#;
    let polygon = "[[10,10,50,10,50,40,10,40]]";
    let rows = [
        (info, r#"{"year":"2019","version":6}"#),
        (info, r#"{"year":null,"date_created":20190908,"contributor":["x"]}"#),
        (info, "null"),
        (info, r#""exported""#),
        (info, "[]"),
        (r#""info":{"year":2024,"version":"1"},"#, ""),
        (r#""licenses":[]"#, r#""licenses":[{"name":"","id":0,"url":""}]"#),
        (r#""licenses":[]"#, r#""licenses":[{"id":"1","name":5}]"#),
        (r#""licenses":[]"#, r#""licenses":null"#),
        (r#""licenses":[]"#, r#""licenses":{}"#),
        (r#""licenses":[],"#, ""),
        (name, r#""file_name":"a.png","license":"CC","date_captured":5,"coco_url":0,"flickr_url":null"#),
        (name, r#""file_name":"a.png","license":1.5,"neg_category_ids":"x""#),
        (name, r#""file_name":null"#),
        (name, r#""file_name":17"#),
        (r#""file_name":"a.png","width":100,"height":80"#, r#""file_name":"a.png""#),
        (r#""width":100"#, r#""width":"100""#),
        (r#""width":100"#, r#""width":100.0"#),
        (r#""width":100"#, r#""width":null"#),
        (r#"[{"id":1,"file"#, r#"[{"id":"1","file"#),
        (r#"[{"id":1,"file"#, r#"[{"id":"0001","file"#),
        (r#"[{"id":1,"file"#, r#"[{"id":1.0,"file"#),
        (r#""supercategory":""#, r#""skeleton":[["a","b"]],"keypoints":[1,2],"supercategory":""#),
        (r#""supercategory":"""#, r#""supercategory":3,"skeleton":{},"color":[1,2,3],"isthing":1"#),
        (r#""supercategory":"""#, r#""supercategory":null,"keypoints":"none","frequency":7"#),
        (r#""name":"cat","#, ""),
        (r#""name":"cat""#, r#""name":7"#),
        (r#"{"id":3,"name""#, r#"{"id":"3","name""#),
        (area, r#""area":null"#),
        (area, r#""area":NaN"#),
        (area, r#""area":Infinity"#),
        (area, r#""area":"1200""#),
        (r#""area":1200,"#, ""),
        (crowd, r#""iscrowd":null"#),
        (crowd, r#""iscrowd":false"#),
        (crowd, r#""iscrowd":0.0"#),
        (crowd, r#""iscrowd":"0""#),
        (r#""iscrowd":0,"#, ""),
        (polygon, "[10,10,50,10,50,40,10,40]"),
        (polygon, "null"),
        (polygon, "[]"),
        (polygon, "{}"),
        (polygon, r#""none""#),
        (polygon, "[null]"),
        (polygon, r#"{"size":["80",100],"counts":3}"#),
        (r#"{"id":1,"image_id":1"#, r#"{"id":null,"image_id":"1""#),
        (r#"{"id":1,"image_id":1"#, r#"{"id":"a7","image_id":1.0"#),
        (r#"{"id":1,"image_id":1"#, r#"{"image_id":1"#),
        (r#""category_id":3"#, r#""category_id":"3""#),
        (
            crowd,
            r#""iscrowd":0,"attributes":{"occluded":false},"keypoints":"x","num_keypoints":-1,"obb":1,"score":"high""#,
        ),
        (crowd, r#""iscrowd":0,"note":"NaN, \"-Infinity\"","ignore":NaN"#),
        ("{\"info\"", "\u{feff}{\"info\""),
    ];
    let mut wrong = Vec::new();
    for (part, other) in rows {
        assert!(PLAIN.contains(part), "{part}");
        match ap_of(folder.path(), &PLAIN.replacen(part, other, 1), FOUND) {
            Ok(ap) if ap == expected => {}
            came => wrong.push(format!("{other} for {part}: {came:?}")),
        }
    }
    for (part, other) in [
        (r#""image_id":1"#, r#""image_id":"1""#),
        (r#""category_id":3"#, r#""category_id":3.0"#),
        (r#""score":0.9"#, r#""score":0.9,"area":null,"segmentation":null,"iscrowd":null,"name":[1]"#),
    ] {
        match ap_of(folder.path(), PLAIN, &FOUND.replacen(part, other, 1)) {
            Ok(ap) if ap == expected => {}
            came => wrong.push(format!("{other} for {part} in the results: {came:?}")),
        }
    }
    assert!(wrong.is_empty(), "{} failed:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_is_evaluated_has_to_be_right() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut wrong = Vec::new();
    for (part, other, word) in [
        (r#"{"id":1,"image_id":1"#, r#"{"id":2,"image_id":1"#, "two annotations have the id 2"),
        (r#"[{"id":1,"file"#, r#"[{"id":"2","file"#, "two images have the id 2"),
        (r#"[{"id":1,"file"#, r#"[{"id":-1,"file"#, "image 1: expected \"id\""),
        (r#"{"id":1,"image_id":1"#, r#"{"id":1,"image_id":"a""#, "annotation 1: expected \"image_id\""),
        (r#""iscrowd":0"#, r#""iscrowd":0.5"#, "annotation 1: expected \"iscrowd\""),
        ("[10,10,40,30]", "[10,10,NaN,30]", "line 5"),
        ("[10,10,40,30]", "[10,10,40]", "line 5"),
    ] {
        match ap_of(folder.path(), &PLAIN.replacen(part, other, 1), FOUND) {
            Err(e) if e.kind() == ErrorKind::InvalidData && e.to_string().contains(word) => {}
            came => wrong.push(format!("{other}: expected {word:?}, came {came:?}")),
        }
    }
    match ap_of(folder.path(), PLAIN, &FOUND.replacen("0.9", "NaN", 1)) {
        Err(e) if e.to_string().contains("entry 1: it has no score") => {}
        came => wrong.push(format!("a score that is NaN: {came:?}")),
    }
    // Boxes were evaluated without it; masks cannot be.
    let path = folder.path().join("truth.json");
    std::fs::write(&path, PLAIN.replacen("[[10,10,50,10,50,40,10,40]]", "\"none\"", 1))
        .expect("a temporary folder");
    let truth = Truth::open(&path).expect("the boxes are right");
    match average_precision(&truth, &Predictions::default(), &truth.image_ids(), Overlap::Masks) {
        Err(e) if e.to_string().contains("annotation 1: its segmentation") => {}
        came => wrong.push(format!("masks: {came:?}")),
    }
    assert!(wrong.is_empty(), "{} failed:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn detections_beyond_the_best_hundred_change_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("truth.json");
    std::fs::write(&path, PLAIN).expect("a temporary folder");
    let truth = Truth::open(&path).expect("a plain file");
    let box_at = |left: usize| ocelli::BoundingBox::from_ltwh([left as f32, 10.0, 40.0, 30.0]);
    let accuracy = |count: usize| {
        let mut found = Predictions::default();
        // The last one of a score is best: it counts only while it is among the first hundred.
        (0..count).for_each(|at| found.push(1, 1, box_at(59 - at.min(49)), 0.5, None));
        average_precision(&truth, &found, &truth.image_ids(), Overlap::Boxes).expect("boxes")
    };
    let hundred = accuracy(100);
    assert!(hundred.ap.is_some_and(|ap| ap > 0.0));
    assert_eq!(accuracy(5000), hundred);
}

/// Writes a drawn image.
fn image(path: &Path, width: u32, height: u32) {
    std::fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a temporary folder");
    let pixels = vec![90; width as usize * height as usize * 3];
    let image = Image::from_rgb8(width, height, pixels).expect("the length fits").into_rgb_image();
    image.save(path).expect("a temporary folder");
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a temporary folder");
    std::fs::write(path, text).expect("a temporary folder");
}

#[test]
fn yolo_and_voc_are_read_by_their_folders() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| temporary.path().join(name);
    for (name, split) in [("a", "train"), ("b", "val")] {
        image(&at(&format!("yolo/images/{split}/{name}.png")), 100, 80);
    }
    write(&at("yolo/labels/train/a.txt"), "7 0.3 0.3125 0.4 0.375\r\n");
    write(&at("yolo/labels/val/b.txt"), "\u{feff}3 0.2 0.25 0.4 0.25 0.4 0.5 0.2 0.5\n");
    let names = "names: {3: dog, 7: cat}\n";
    write(
        &at("yolo/data.yaml"),
        &format!("\u{feff}path: ../elsewhere\ntrain: images/train\nval: ../images/val\n{names}"),
    );
    image(&at("plain/a.png"), 100, 80);
    write(&at("plain/a.txt"), "1 0.3 0.3125 0.4 0.375\n");
    write(&at("plain/classes.txt"), "dog\ncat\n");
    let voc = |name: &str, [x1, y1, x2, y2]: [u32; 4]| {
        format!(
            "<annotation><filename>a.png</filename><size><width>100</width><height>80</height><depth>3</depth></size><object>\
             <name>{name}</name><difficult>0</difficult><bndbox><xmin>{x1}</xmin><ymin>{y1}</ymin><xmax>{x2}</xmax>\
             <ymax>{y2}</ymax></bndbox></object></annotation>"
        )
    };
    image(&at("voc/JPEGImages/a.png"), 100, 80);
    image(&at("voc/JPEGImages/deep/a.png"), 100, 80);
    write(&at("voc/Annotations/a.xml"), &voc("cat", [11, 11, 50, 40]));
    write(&at("voc/Annotations/deep/a.xml"), &voc("dog", [21, 21, 40, 40]));
    write(&at("broken/data.yaml"), "train: nowhere\nnames: [cat]\n");
    write(&at("class/data.yaml"), "train: images\nnames: [cat]\n");
    image(&at("class/images/a.png"), 10, 10);
    write(&at("class/labels/a.txt"), "7 0.5 0.5 0.1 0.1\n");
    let cat = ("cat", [10.0, 10.0, 50.0, 40.0]);
    let dog = ("dog", [20.0, 20.0, 40.0, 40.0]);
    let mut wrong = Vec::new();
    for (path, expected) in [
        ("yolo", Ok(vec![("images/train/a.png", cat), ("images/val/b.png", dog)])),
        ("yolo/data.yaml", Ok(vec![("images/train/a.png", cat), ("images/val/b.png", dog)])),
        ("yolo/labels/train", Ok(vec![("images/train/a.png", cat)])),
        ("yolo/images/val", Ok(vec![("images/val/b.png", dog)])),
        ("plain", Ok(vec![("a.png", cat)])),
        ("voc", Ok(vec![("JPEGImages/a.png", cat), ("JPEGImages/deep/a.png", dog)])),
        ("broken", Err("train: nowhere: no such folder")),
        ("class/data.yaml", Err("class 7 has no name")),
        ("voc/JPEGImages", Err("no data set")),
    ] {
        let truth = Truth::open(&at(path));
        let came = truth.as_ref().map_err(ToString::to_string).map(|truth| {
            let image = |image: &super::TruthImage| {
                let instances = truth.instances(image.id);
                let near = |value: f32| value.round();
                let of = |one: &super::Instance| {
                    let category = truth.categories().iter().find(|known| known.id == one.category_id);
                    (category.map_or("", |category| &*category.name), one.bbox.to_xyxy().map(near))
                };
                (image.file_name.clone(), of(&instances[0]))
            };
            truth.images().iter().map(image).collect::<Vec<_>>()
        });
        let is_right = match (&came, &expected) {
            (Ok(came), Ok(expected)) => {
                came.iter().map(|(name, one)| (&**name, *one)).eq(expected.iter().copied())
            }
            (Err(came), Err(word)) => came.contains(word),
            _ => false,
        };
        if !is_right {
            wrong.push(format!("{path}: {came:?}, expected {expected:?}"));
        }
    }
    let sparse = Truth::open(&at("yolo")).expect("it was written");
    let ids: Vec<u64> = sparse.categories().iter().map(|category| category.id).collect();
    assert_eq!(ids, [3, 7], "ids stay");
    assert!(wrong.is_empty(), "{} failed:\n{}", wrong.len(), wrong.join("\n"));
}
