//! The results of a session, for everybody who looks at it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::body::Bytes;
use ocelli::masklets::TrackedFrame;
use ocelli::report::rounded;
use serde::Serialize;
use serde_json::json;

/// The name of an object that nobody named.
const UNNAMED: &str = "object";

/// The frames that runs and prompts have shown, each as it was last, and the names of the objects.
#[derive(Default)]
pub(crate) struct Results {
    frames: BTreeMap<usize, StoredFrame>,
    names: BTreeMap<u64, String>,
    /// The text that was looked for.
    text: Option<String>,
    /// Counts changes.
    revision: u64,
    /// Counts prompts that started over.
    started: u64,
    /// About how much memory the frames take.
    pub bytes: u64,
}

struct StoredFrame {
    /// The revision of its last change.
    revision: u64,
    frame: TrackedFrame,
    line: Bytes,
}

/// All that a client needs to know to ask for the frames that changed.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Changes {
    /// Grows with each change of the results.
    pub revision: u64,
    /// Grows with each prompt that starts over: frames of before are no results any more.
    pub started: u64,
    /// The text that was looked for.
    pub text: Option<String>,
    /// The names of the objects.
    pub names: BTreeMap<u64, String>,
}

/// The results as they are now, for an export.
pub(crate) struct Snapshot {
    /// By number. The class of an object is the place of its name among `labels`.
    pub frames: Vec<TrackedFrame>,
    /// Different names.
    pub labels: Arc<[Arc<str>]>,
}

/// A frame as a line of JSON.
fn line(frame: &TrackedFrame) -> Bytes {
    let objects = frame.objects.iter().map(|object| {
        json!({
            "object": object.id,
            "score": rounded(f64::from(object.score), 1e5),
            "box": object.bbox.to_xyxy().map(|edge| rounded(f64::from(edge), 1e2)),
            "mask": object.mask,
        })
    });
    let record = json!({"frame": frame.frame, "objects": objects.collect::<Vec<_>>()});
    format!("{record}\n").into()
}

impl Results {
    /// Begins again, with what is looked for from now on.
    pub fn start_over(&mut self, text: Option<String>) {
        self.frames.clear();
        self.names.clear();
        self.text = text;
        self.bytes = 0;
        self.started += 1;
        self.revision += 1;
    }

    /// Keeps a frame. Returns its line.
    pub fn keep(&mut self, frame: TrackedFrame) -> Bytes {
        let line = line(&frame);
        self.revision += 1;
        let kept = StoredFrame { revision: self.revision, frame, line: line.clone() };
        self.bytes += kept.bytes();
        if let Some(before) = self.frames.insert(kept.frame.frame, kept) {
            self.bytes -= before.bytes();
        }
        line
    }

    /// Names an object; without a name it has that of the text again.
    pub fn rename(&mut self, object: u64, name: String) {
        self.revision += 1;
        if name.is_empty() {
            self.names.remove(&object)
        } else {
            self.names.insert(object, name)
        };
    }

    /// Notes an object that somebody clicked on: it is not what the text says.
    pub fn begin(&mut self, object: u64) {
        if self.text.is_some() {
            self.names.entry(object).or_insert_with(|| UNNAMED.to_owned());
        }
    }

    /// Removes an object from all frames.
    pub fn remove(&mut self, object: u64) {
        self.revision += 1;
        self.names.remove(&object);
        for kept in self.frames.values_mut() {
            let before = kept.frame.objects.len();
            kept.frame.objects.retain(|one| one.id != object);
            if kept.frame.objects.len() < before {
                self.bytes -= kept.bytes();
                (kept.line, kept.revision) = (line(&kept.frame), self.revision);
                self.bytes += kept.bytes();
            }
        }
    }

    /// Forgets the frames before this one.
    pub fn forget_before(&mut self, frame: usize) {
        let left = self.frames.split_off(&frame);
        self.bytes -= self.frames.values().map(StoredFrame::bytes).sum::<u64>();
        self.frames = left;
    }

    /// The lines of the frames that changed after a revision, by number.
    pub fn since(&self, revision: u64) -> Vec<u8> {
        let changed = self.frames.values().filter(|kept| kept.revision > revision);
        changed.flat_map(|kept| kept.line.iter().copied()).collect()
    }

    fn name(&self, object: u64) -> &str {
        self.names.get(&object).or(self.text.as_ref()).map_or(UNNAMED, String::as_str)
    }

    /// The changes, with the names of these objects and of those that frames show.
    pub fn changes(&self, objects: impl IntoIterator<Item = u64>) -> Changes {
        let shown = self.frames.values().flat_map(|kept| &kept.frame.objects).map(|object| object.id);
        let all: BTreeSet<u64> = objects.into_iter().chain(shown).collect();
        let named = |object| (object, self.name(object).to_owned());
        Changes {
            revision: self.revision,
            started: self.started,
            text: self.text.clone(),
            names: all.into_iter().map(named).collect(),
        }
    }

    /// `true` if a frame shows an object.
    pub fn has(&self, object: u64) -> bool {
        self.frames.values().any(|kept| kept.frame.objects.iter().any(|one| one.id == object))
    }

    /// The results for an export.
    pub fn snapshot(&self) -> Snapshot {
        let mut labels: Vec<Arc<str>> = Vec::new();
        let mut frames: Vec<TrackedFrame> = self.frames.values().map(|kept| kept.frame.clone()).collect();
        for object in frames.iter_mut().flat_map(|frame| &mut frame.objects) {
            let name = self.name(object.id);
            object.class_id = labels.iter().position(|label| **label == *name).unwrap_or_else(|| {
                labels.push(name.into());
                labels.len() - 1
            });
        }
        Snapshot { frames, labels: labels.into() }
    }
}

impl StoredFrame {
    /// The line, and about as much for the masks themselves.
    fn bytes(&self) -> u64 {
        2 * self.line.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use ocelli::masklets::TrackedObject;
    use ocelli::{BoundingBox, Mask};

    use super::*;

    fn frame(number: usize, objects: &[u64]) -> TrackedFrame {
        let object = |&id: &u64| TrackedObject {
            id,
            class_id: 0,
            score: 0.5,
            bbox: BoundingBox::new(0.0, 0.0, 2.0, 1.0),
            mask: Mask::from_bitmap(&[1, 1, 0, 0], 2, 2).expect("four pixels"),
        };
        TrackedFrame { frame: number, objects: objects.iter().map(object).collect(), retracted: Vec::new() }
    }

    fn numbers(lines: &[u8]) -> Vec<(u64, Vec<u64>)> {
        let line = |line: &str| {
            let value: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
            let objects = value["objects"].as_array().expect("a list").iter();
            let ids = objects.map(|object| object["object"].as_u64().expect("a number"));
            (value["frame"].as_u64().expect("a number"), ids.collect())
        };
        std::str::from_utf8(lines).expect("text").lines().map(line).collect()
    }

    #[test]
    fn a_client_that_asks_for_changes_has_what_there_is() {
        // Every sequence of changes, with a client that asks now and then.
        let mut results = Results::default();
        let (mut known, mut revision, mut started) = (BTreeMap::new(), 0, 0);
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut removed = BTreeSet::new();
        for _ in 0..3000 {
            match random(9) {
                0..5 => {
                    let number = random(12) as usize;
                    let ids: Vec<u64> = (0..4).filter(|id| !removed.contains(id) && random(2) == 0).collect();
                    results.keep(frame(number, &ids));
                }
                5 => {
                    let object = random(4);
                    results.remove(object);
                    removed.insert(object);
                }
                6 if random(8) == 0 => {
                    results.start_over(None);
                    removed.clear();
                }
                7 => results.rename(random(4), "dog".into()),
                _ => {}
            }
            if random(3) == 0 {
                let changes = results.changes([]);
                if changes.started != started {
                    (known, started, revision) = (BTreeMap::new(), changes.started, 0);
                }
                known.extend(numbers(&results.since(revision)));
                revision = changes.revision;
                let all: BTreeMap<u64, Vec<u64>> = numbers(&results.since(0)).into_iter().collect();
                assert_eq!(known, all);
                let bytes: u64 = results.frames.values().map(StoredFrame::bytes).sum();
                assert_eq!(results.bytes, bytes);
            }
        }
        results.forget_before(5);
        assert!(numbers(&results.since(0)).iter().all(|(frame, _)| *frame >= 5));
        results.start_over(None);
        assert_eq!(results.bytes, 0);
    }

    #[test]
    fn objects_have_the_name_of_the_text_unless_they_were_clicked_or_named() {
        let mut results = Results::default();
        results.begin(9);
        assert_eq!(results.changes([9]).names[&9], "object");
        results.start_over(Some("dog".into()));
        results.begin(3);
        results.keep(frame(0, &[0, 1, 3]));
        results.rename(1, "cat".into());
        let names = |results: &Results| results.changes([0, 1, 3]).names.into_values().collect::<Vec<_>>();
        assert_eq!(names(&results), ["dog", "cat", "object"]);
        results.rename(1, String::new());
        results.rename(3, "dog".into());
        assert_eq!(names(&results), ["dog", "dog", "dog"]);
        let Snapshot { frames, labels } = results.snapshot();
        assert_eq!((labels.len(), frames.len()), (1, 1), "a name is one class");
        assert!(frames[0].objects.iter().all(|object| object.class_id == 0));
    }
}
