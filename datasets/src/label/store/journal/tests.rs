use std::path::PathBuf;

use serde_json::json;

use super::*;
use crate::label::Instance;
use crate::label::folders::stopping;

fn record(name: &str, width: u32) -> Record {
    let instance = Instance {
        class: 1,
        score: 0.1 + 0.2,
        bbox: [0.1, 2.0, 33.3, 4.4],
        mask: Some("PPYo0".into()),
        track: None,
    };
    let (source, instances) = (PathBuf::from("/x").join(name), vec![instance]);
    let identity = (1, 2);
    Record { name: name.into(), source, identity, width, height: 2, instances, ..Record::default() }
}

#[test]
fn complete_lines_survive_a_cut_at_any_byte() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("journal");
    let settings = json!({"confidence": 0.3});
    let mut journal = Journal::open(&path, &settings).expect("a new journal");
    let names = ["a", "b/c", "d"];
    let mut ends = vec![journal.log.length];
    for name in names {
        journal.append(&record(name, 5)).expect("there is room");
        ends.push(journal.log.length);
    }
    drop(journal);
    let whole = std::fs::read(&path).expect("it was written");
    assert_eq!(whole.len() as u64, ends[3]);
    for cut in 0..=whole.len() {
        std::fs::write(&path, &whole[..cut]).expect("it can be written");
        let mut journal = Journal::open(&path, &settings).unwrap_or_else(|e| panic!("{cut}: {e}"));
        let done = ends.iter().filter(|end| **end <= cut as u64).count().saturating_sub(1);
        assert_eq!(journal.entries.len(), done, "{cut} bytes");
        for name in &names[..done] {
            let entry = journal.entries.get(*name).cloned().expect("its line is complete");
            assert_eq!(journal.read(&entry).expect("its line is complete"), record(name, 5), "{cut} bytes");
        }
        for name in &names[done..] {
            journal.append(&record(name, 5)).expect("there is room");
        }
        drop(journal);
        assert_eq!(std::fs::read(&path).expect("it is there"), whole, "{cut} bytes");
    }
}

#[test]
fn the_last_line_of_an_image_counts() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut journal = Journal::open(&folder.path().join("journal"), &json!({})).expect("a new journal");
    let failed = |name: &str| Record { error: Some("no".into()), ..record(name, 0) };
    for record in [record("a", 5), record("b", 5), record("a", 7), failed("a"), failed("a"), failed("c")] {
        journal.append(&record).expect("there is room");
    }
    for (name, width, labelled) in [("a", 0, Some(7)), ("b", 5, Some(5)), ("c", 0, None)] {
        let entry = journal.entries.get(name).cloned().expect("it was appended");
        assert_eq!(journal.read(&entry).map(|record| record.width).ok(), Some(width), "{name}");
        let found = journal.read_labelled(&entry).expect("its line is complete");
        assert_eq!(found.map(|record| record.width), labelled, "{name}");
    }
}

#[test]
fn superseded_lines_are_left_out_once_they_are_most_of_a_journal() {
    for writes in 0.. {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("journal");
        let mut journal = Journal::open(&path, &json!({})).expect("a new journal");
        let failed = |name: &str| Record { error: Some("no".into()), ..record(name, 0) };
        for width in 1..20 {
            [record("a", width), record("b", width)]
                .iter()
                .for_each(|one| journal.append(one).expect("room"));
        }
        journal.append(&failed("a")).expect("there is room");
        let long = journal.log.length;
        assert!(journal.is_mostly_superseded(), "{long} bytes");
        let ended = stopping(writes, || journal.compact());
        let (journal, _) = Journal::open_existing(&path).expect("it is as it was, or written again");
        let widths = ["a", "b"].map(|name| {
            let entry = &journal.entries[name];
            let labelled = journal.read_labelled(entry).ok().flatten().map(|record| record.width);
            (journal.read(entry).map(|record| record.width).ok(), labelled)
        });
        assert_eq!(widths, [(Some(0), Some(19)), (Some(19), Some(19))], "{writes} writes");
        assert!(ended.is_err() || journal.log.length < long / 5, "{writes} writes");
        if ended.is_ok() {
            assert!(writes > 1, "{writes} writes");
            break;
        }
    }
    // Few lines that are superseded stay.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut journal = Journal::open(&folder.path().join("journal"), &json!({})).expect("a new journal");
    for name in ["a", "b", "c", "d", "e", "f", "g", "h", "a"] {
        journal.append(&record(name, 5)).expect("there is room");
    }
    assert!(!journal.is_mostly_superseded());
}

#[test]
fn a_damaged_line_is_an_error_that_names_it_unless_it_is_the_last() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("journal");
    let settings = json!({});
    let mut journal = Journal::open(&path, &settings).expect("a new journal");
    let mut ends = vec![journal.log.length];
    for name in ["a", "b", "c"] {
        journal.append(&record(name, 5)).expect("there is room");
        ends.push(journal.log.length);
    }
    drop(journal);
    let whole = std::fs::read(&path).expect("it was written");
    for (line, name) in [(2, Some("line 2")), (3, Some("line 3")), (4, None)] {
        let mut bytes = whole.clone();
        let start = ends[line - 2] as usize;
        bytes[start..start + 20].fill(0);
        std::fs::write(&path, &bytes).expect("it can be written");
        match (Journal::open(&path, &settings), name) {
            (Err(error), Some(name)) => {
                assert!(error.to_string().contains(name), "{error}");
                assert_eq!(std::fs::read(&path).expect("it is there"), bytes, "nothing is dropped");
            }
            (Ok(journal), None) => assert_eq!(journal.entries.len(), 2),
            (opened, _) => panic!("line {line}: {:?}", opened.err()),
        }
    }
}

#[test]
fn names_and_classes_of_a_journal_are_checked() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("journal");
    let settings = json!({"classes": [{"name": "dog"}, {"name": "cat"}]});
    let of_class = |class| Record {
        instances: vec![Instance { class, score: 0.5, bbox: [0.0; 4], mask: None, track: None }],
        ..record("a", 5)
    };
    for (record, word) in [
        (record("../../../victim.jpg", 5), "../../../victim.jpg"),
        (record("/etc/victim.jpg", 5), "/etc/victim.jpg"),
        (record("a/../b.jpg", 5), "a/../b.jpg"),
        (record("a//b.jpg", 5), "a//b.jpg"),
        (record("", 5), "name"),
        (record("a", 0), "size"),
        (of_class(2), "class 2"),
    ] {
        drop(std::fs::remove_file(&path));
        Journal::open(&path, &settings).and_then(|mut journal| journal.append(&record)).expect("it can");
        let error = Journal::open(&path, &settings).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("line 2") && error.contains(word), "{word}: {error}");
    }
}

#[test]
fn keys_of_a_line_do_not_change() {
    let line = serde_json::to_value(record("a", 5)).expect("a record is plain data");
    let keys = |value: &Value| value.as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default();
    let (of_record, of_instance): (Vec<String>, Vec<String>) = (keys(&line), keys(&line["things"][0]));
    assert_eq!(of_record, ["name", "source", "identity", "width", "height", "things"]);
    assert_eq!(of_instance, ["class", "score", "box", "mask"]);
}

#[test]
fn other_settings_are_refused_with_the_difference() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("journal");
    let started = json!({"confidence": 0.3, "classes": [{"name": "dog"}], "model": {"imgsz": 448}});
    drop(Journal::open(&path, &started).expect("a new journal"));
    for (settings, words) in [
        (
            json!({"confidence": 0.5, "classes": [{"name": "dog"}], "model": {"imgsz": 448}}),
            "confidence 0.3, this is 0.5",
        ),
        (
            json!({"confidence": 0.3, "classes": [{"name": "cat"}], "model": {"imgsz": 448}}),
            "classes.0.name \"dog\"",
        ),
        (json!({"confidence": 0.3, "classes": [], "model": {"imgsz": 448}}), "classes of 1 entries"),
        (
            json!({"confidence": 0.3, "classes": [{"name": "dog"}], "model": {"imgsz": 224}}),
            "model.imgsz 448",
        ),
    ] {
        let error = Journal::open(&path, &settings).err().expect("other settings");
        let is_right = error.to_string().contains(words) && error.parameter() == Some("restart");
        assert!(is_right, "{words}: {error}, {:?}", error.parameter());
    }
    std::fs::write(&path, "hello\n").expect("it can be written");
    let error = Journal::open(&path, &started).err().expect("it is corrupt");
    assert!(error.to_string().contains("corrupt journal") && error.parameter() == Some("restart"), "{error}");
}
