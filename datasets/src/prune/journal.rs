//! The measurements of a search, one on each line of a file.
//!
//! The first line says what was searched. A search that is killed can leave half a line at the end, which is removed.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ocelli::{Error, ErrorKind, Result, cache::sha256_of_file};
use ocelli_export::MaskedBranch;
use serde::{Deserialize, Serialize};

use super::PruneInput;
use super::effect::Measurement;
use super::subject::PartTimes;

/// The conditions of a measurement besides the branches that are removed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Identity {
    /// The version of the format.
    ocelli_prune: u32,
    model: String,
    engine: String,
    prompts: Vec<String>,
    score_threshold: f32,
    /// Hashes of the files.
    images: Vec<String>,
}

impl Identity {
    pub fn of(input: &PruneInput<'_>, score_threshold: f32) -> Result<Self> {
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
            score_threshold,
            images: input.images.iter().map(hash).collect::<Result<_>>()?,
        })
    }

    /// The first difference, in words.
    fn difference(&self, other: &Self) -> Option<&'static str> {
        [
            (self.ocelli_prune != other.ocelli_prune, "another version of this program"),
            (self.model != other.model, "another model"),
            (self.engine != other.engine, "another engine"),
            (self.prompts != other.prompts, "other classes"),
            (self.score_threshold != other.score_threshold, "another score threshold"),
            (self.images != other.images, "other images"),
        ]
        .into_iter()
        .find_map(|(differs, what)| differs.then_some(what))
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
    path: PathBuf,
    file: File,
    times: Option<PartTimes>,
    measurements: HashMap<(String, usize), Measurement>,
}

impl Journal {
    /// Opens the journal of this search, or starts it.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] if it is that of another search, [`ErrorKind::InvalidData`] if it is none.
    pub fn open(path: &Path, identity: &Identity) -> Result<Self> {
        let io = |error| Error::io("cannot open the measurements", path, error);
        let options = File::options().create(true).truncate(false).read(true).write(true).open(path);
        let mut file = options.map_err(io)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).and_then(|()| file.seek(SeekFrom::End(0))).map_err(io)?;
        let (path, measurements) = (path.to_owned(), HashMap::new());
        let mut journal = Self { path, file, times: None, measurements };
        for (number, line) in bytes[..whole].split_inclusive(|byte| *byte == b'\n').enumerate() {
            match (number, serde_json::from_slice(line)) {
                (0, Ok(Line::Search(found))) => journal.check(&found, identity)?,
                (1.., Ok(Line::Times(times))) => journal.times = Some(times),
                (1.., Ok(Line::Removed { branches, image, found })) => {
                    journal.measurements.insert((branches, image), found);
                }
                _ => {
                    let (path, line) = (journal.path.display(), number + 1);
                    let message = format!(
                        "{path}, line {line}: it has no measurement of a search; delete the file or choose another output"
                    );
                    return Err(Error::new(ErrorKind::InvalidData, message));
                }
            }
        }
        if whole == 0 {
            journal.write(&Line::Search(identity.clone()))?;
        }
        Ok(journal)
    }

    fn check(&self, found: &Identity, expected: &Identity) -> Result<()> {
        let Some(what) = found.difference(expected) else { return Ok(()) };
        let message = format!(
            "cannot continue the search, {}: its measurements are of {what}; delete the file or choose another output",
            self.path.display()
        );
        Err(Error::new(ErrorKind::Mismatch, message))
    }

    pub fn times(&self) -> Option<PartTimes> {
        self.times
    }

    pub fn add_times(&mut self, times: &PartTimes) -> Result<()> {
        self.times = Some(*times);
        self.write(&Line::Times(*times))
    }

    pub fn measurement(&self, removed: &BTreeSet<MaskedBranch>, image: usize) -> Option<Measurement> {
        self.measurements.get(&(text(removed), image)).copied()
    }

    pub fn add(&mut self, removed: &BTreeSet<MaskedBranch>, image: usize, found: &Measurement) -> Result<()> {
        let branches = text(removed);
        self.measurements.insert((branches.clone(), image), *found);
        self.write(&Line::Removed { branches, image, found: *found })
    }

    /// Appends a line in one write, so that a stop leaves whole lines.
    fn write(&mut self, line: &Line) -> Result<()> {
        let mut text = serde_json::to_vec(line).expect("a line is plain data");
        text.push(b'\n');
        self.file.write_all(&text).map_err(|e| Error::io("cannot write the measurements", &self.path, e))
    }
}

fn text(branches: &BTreeSet<MaskedBranch>) -> String {
    branches.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
