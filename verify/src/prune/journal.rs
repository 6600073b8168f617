//! The measurements of a search, one on each line of a file.
//!
//! The first line says what was searched. A search that is killed can leave half a line at the end, which is removed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ocelli::{Error, Result, cache::sha256_of_file, json_lines::JsonLines};
use serde::{Deserialize, Serialize};

use super::{Branches, Measurement, PartTimes, PruneInput};

/// The conditions of a measurement besides the branches that are removed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Identity {
    /// The version of the format.
    ocelli_prune: u32,
    model: String,
    engine: String,
    prompts: Vec<String>,
    #[serde(alias = "score_threshold")]
    confidence: f32,
    /// Hashes of the files.
    images: Vec<String>,
}

impl Identity {
    pub fn of(input: &PruneInput<'_>, confidence: f32) -> Result<Self> {
        let m = input.model.manifest();
        let hash = |path: &PathBuf| {
            let hash = sha256_of_file(path).map_err(|e| Error::io("cannot read the image", path, e))?;
            Ok(hash[..16].to_owned())
        };
        Ok(Self {
            ocelli_prune: 1,
            model: format!(
                "{} {} {:?} {:?} {:?} {:?} {}",
                m.weights_sha256, m.imgsz, m.target, m.prompting, m.skip_blocks, m.mask_blocks, m.exporter
            ),
            engine: input.factory.description(),
            prompts: input.prompts.iter().map(|prompt| prompt.phrase().to_owned()).collect(),
            confidence,
            images: input.images.iter().map(hash).collect::<Result<_>>()?,
        })
    }

    /// The name of the first field that differs.
    fn difference(&self, other: &Self) -> Option<String> {
        let [ours, theirs] = [self, other].map(|one| serde_json::to_value(one).expect("it is plain data"));
        let mut fields = ours.as_object().expect("it has fields").iter();
        fields.find(|(name, value)| theirs.get(name) != Some(value)).map(|(name, _)| name.replace('_', " "))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Search(Identity),
    Times(PartTimes),
    Removed {
        branches: String,
        image: usize,
        #[serde(flatten)]
        found: Measurement,
    },
}

/// An open journal.
pub(super) struct Journal {
    lines: JsonLines,
    pub times: Option<PartTimes>,
    measurements: HashMap<(String, usize), Measurement>,
}

impl Journal {
    /// Opens the journal of this search, or starts it.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`](ocelli::ErrorKind::Mismatch) if it is that of another search,
    /// [`ErrorKind::InvalidData`](ocelli::ErrorKind::InvalidData) if it is none.
    pub fn open(path: &Path, identity: &Identity) -> Result<Self> {
        let (lines, read) = JsonLines::open(path, "measurements")?;
        let mut journal = Self { lines, times: None, measurements: HashMap::new() };
        if read.is_empty() {
            journal.lines.write(&Line::Search(identity.clone()))?;
        }
        for (number, line) in read.into_iter().enumerate() {
            match (number, line) {
                (0, Line::Search(found)) => {
                    if let Some(field) = found.difference(identity) {
                        return Err(journal.lines.other("the search", &format!("another search ({field})")));
                    }
                }
                (1.., Line::Times(times)) => journal.times = Some(times),
                (1.., Line::Removed { branches, image, found }) => {
                    journal.measurements.insert((branches, image), found);
                }
                _ => return Err(journal.lines.wrong_line(number)),
            }
        }
        Ok(journal)
    }

    pub fn add_times(&mut self, times: &PartTimes) -> Result<()> {
        self.times = Some(*times);
        self.lines.write(&Line::Times(*times))
    }

    pub fn measurement(&self, removed: &Branches, image: usize) -> Option<Measurement> {
        self.measurements.get(&(text(removed), image)).copied()
    }

    pub fn add(&mut self, removed: &Branches, image: usize, found: &Measurement) -> Result<()> {
        let branches = text(removed);
        self.measurements.insert((branches.clone(), image), *found);
        self.lines.write(&Line::Removed { branches, image, found: *found })
    }
}

fn text(branches: &Branches) -> String {
    branches.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
