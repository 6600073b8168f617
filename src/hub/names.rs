//! The names of models: a repository of the Hugging Face Hub, a file in it, or a short name from a table.

use std::path::Path;
use std::str::FromStr;

use ocelli_error::{Error, Result};

/// The endings of files of weights.
const WEIGHTS: [&str; 3] = [".pt", ".pth", ".safetensors"];

/// A repository at a revision, or a file in it: `owner/name[@revision][:file]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubName {
    /// `owner/name`.
    pub repository: String,
    /// A branch, a tag or a commit; `main` by default.
    pub revision: String,
    /// The one file that is the model; without it, the checkpoint that the repository has.
    pub file: Option<String>,
}

impl HubName {
    /// The name of a repository or of a [known model](KnownModel), if it can be one. What ends as a file of weights does, is
    /// the path of a file.
    pub fn parse(text: &str) -> Option<Self> {
        let text = KnownModel::find(text).map_or(text, |known| known.source);
        let (repository, file) = match text.split_once(':') {
            Some((repository, file)) => (repository, Some(file)),
            None => (text, None),
        };
        let (repository, revision) = repository.split_once('@').unwrap_or((repository, "main"));
        let (owner, name) = repository.split_once('/')?;
        let is_part = |part: &str| {
            !part.is_empty()
                && part.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
                && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        let is_name = is_part(owner) && is_part(name) && is_below(revision) && file.is_none_or(is_below);
        let is_path = file.is_none() && WEIGHTS.iter().any(|ending| text.ends_with(ending));
        (is_name && !is_path).then(|| Self {
            repository: repository.to_owned(),
            revision: revision.to_owned(),
            file: file.map(str::to_owned),
        })
    }

    /// Of the files of a repository, those of the model, and how it is opened: as a folder if there is a configuration, else
    /// as the one file of weights.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the file is not there, or several could be
    /// meant.
    pub(super) fn choose<'a>(&self, files: &[&'a str]) -> Result<Vec<&'a str>> {
        let is_there = |name: &str| files.iter().find(|file| **file == name).copied();
        let of_text = || is_there("tokenizer.json").into_iter();
        if let Some(wanted) = &self.file {
            let Some(found) = is_there(wanted) else {
                let near = nearest(wanted, files.iter().copied());
                return Err(self.refused(&format!("there is no file {wanted}; there are {near}")));
            };
            return Ok([found].into_iter().chain(of_text()).collect());
        }
        let is_weights = |file: &&&str| WEIGHTS.iter().any(|ending| file.ends_with(ending));
        if let Some(config) = is_there("config.json") {
            let shards =
                || files.iter().filter(|file| file.starts_with("model-") && file.ends_with(".safetensors"));
            let weights: Vec<&str> = match is_there("model.safetensors") {
                Some(weights) => vec![weights],
                None => shards().chain(files.iter().filter(|file| **file == INDEX)).copied().collect(),
            };
            if !weights.is_empty() {
                return Ok(weights.into_iter().chain([config]).chain(of_text()).collect());
            }
        }
        match *files.iter().filter(is_weights).copied().collect::<Vec<_>>() {
            [only] => Ok([only].into_iter().chain(of_text()).collect()),
            [] => Err(self.refused("it has no file of weights")),
            [first, ..] => {
                let several = files.iter().filter(is_weights).copied().take(8).collect::<Vec<_>>().join(", ");
                let name = format!("{}:{first}", self.repository);
                Err(self.refused(&format!("several files could be meant: {several}; name one, as {name}")))
            }
        }
    }

    /// The path to open below a snapshot with the files that [`choose`](Self::choose) named.
    pub(super) fn path_of(&self, snapshot: &Path, files: &[&str]) -> std::path::PathBuf {
        let is_folder = self.file.is_none() && files.contains(&"config.json");
        if is_folder { snapshot.to_owned() } else { snapshot.join(files[0]) }
    }

    fn refused(&self, why: &str) -> Error {
        Error::invalid_argument(format!("cannot open the model, {}: {why}", self.repository))
    }
}

/// `true` for a path below a folder, which can become a part of an address as it is, too.
pub(super) fn is_below(path: &str) -> bool {
    let is_part = |part| !["", ".", ".."].contains(&part);
    !path.contains(['\\', '?', '#', '%']) && path.split('/').all(is_part)
}

/// The file that names the shards of a checkpoint.
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// The names that are closest, at most five.
fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> String {
    let common = |name: &str| name.chars().zip(wanted.chars()).take_while(|(a, b)| a == b).count();
    let mut names: Vec<&str> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort_by_key(|name| (std::cmp::Reverse(common(name)), name.len().abs_diff(wanted.len())));
    names.truncate(5);
    names.join(", ")
}

/// A licence that asks for more than to be named: its name and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct License {
    /// As on its page.
    pub name: &'static str,
    /// The address of its text.
    pub url: &'static str,
}

const SAM: License =
    License { name: "SAM License", url: "https://huggingface.co/facebook/sam3/blob/main/LICENSE" };
const LITETEXT: License = License {
    name: "Apache-2.0 by its card; SAM License and Apple's for the weights it was made from",
    url: "https://huggingface.co/vil-uob/sam3-litetext-s0",
};
const EFFICIENT: License = License {
    name: "Apache-2.0 by its card; SAM License and Apple's for the weights it was made from",
    url: "https://huggingface.co/Simon7108528/EfficientSAM3",
};
const DART: License = License {
    name: "not stated; SAM License for what it was made from",
    url: "https://huggingface.co/mehmetkeremturkcan/DART",
};

/// A model with a short name.
///
/// What stands here of it is its authors' page as of July 2026: no released file was opened by Ocelli's tests.
#[derive(Clone, Copy, Debug)]
pub struct KnownModel {
    /// The short name.
    pub name: &'static str,
    /// The repository or the file in it, as [`HubName`] reads it.
    pub source: &'static str,
    /// Size of what is downloaded in bytes, about.
    pub bytes: u64,
    /// Its terms.
    pub license: License,
    /// `true` if its owner has to grant access first.
    pub is_gated: bool,
    /// Its abilities beside finding boxes by phrases.
    pub can: &'static str,
    /// The short name of the checkpoint that has the rest of the model.
    pub base: Option<&'static str>,
    /// The source of its tokeniser, if it has none.
    pub(super) tokenizer: Option<&'static str>,
}

const WHOLE: &str = "exemplars, masks, memory tracker";
const DETECTOR: &str = "exemplars, masks";
const CLIP_TOKENIZER: &str = "vil-uob/sam3-litetext-s0:tokenizer.json";

const fn released(name: &'static str, source: &'static str, bytes: u64, license: License) -> KnownModel {
    KnownModel { name, source, bytes, license, is_gated: false, can: DETECTOR, base: None, tokenizer: None }
}

const fn efficient(name: &'static str, source: &'static str) -> KnownModel {
    KnownModel { tokenizer: Some(CLIP_TOKENIZER), ..released(name, source, 600_000_000, EFFICIENT) }
}

const fn dart(name: &'static str, source: &'static str, bytes: u64) -> KnownModel {
    KnownModel { base: Some("sam3"), ..released(name, source, bytes, DART) }
}

macro_rules! efficient_files {
    ($($name:literal: $file:literal),+) => {
        [$(efficient(
            concat!("efficientsam3-", $name),
            concat!("Simon7108528/EfficientSAM3:stage1_all_converted/efficient_sam3_", $file, "_mobileclip_s1.pth"),
        )),+]
    };
}

const SAM3: [KnownModel; 5] = [
    KnownModel { is_gated: true, can: WHOLE, ..released("sam3", "facebook/sam3", 3_450_000_000, SAM) },
    KnownModel {
        is_gated: true,
        tokenizer: Some(CLIP_TOKENIZER),
        ..released("sam3.1", "facebook/sam3.1:sam3.1_multiplex.pt", 3_500_000_000, SAM)
    },
    released("litetext-s0", "vil-uob/sam3-litetext-s0", 2_120_000_000, LITETEXT),
    released("litetext-s1", "vil-uob/sam3-litetext-s1", 2_200_000_000, LITETEXT),
    released("litetext-l", "vil-uob/sam3-litetext-l", 2_500_000_000, LITETEXT),
];
const EFFICIENTSAM3: [KnownModel; 9] = efficient_files!(
    "repvit-s": "repvit_s", "repvit-m": "repvit_m", "repvit-l": "repvit_l",
    "tinyvit-s": "tinyvit_s", "tinyvit-m": "tinyvit_m", "tinyvit-l": "tinyvit_l",
    "efficientvit-s": "efficientvit_s", "efficientvit-m": "efficientvit_m", "efficientvit-l": "efficientvit_l"
);
const STUDENTS: [KnownModel; 5] = [
    dart("dart-repvit-m2.3", "mehmetkeremturkcan/DART:repvit_m2_3_distilled.pt", 75_000_000),
    dart("dart-tinyvit-21m", "mehmetkeremturkcan/DART:tiny_vit_21m_distilled.pt", 56_000_000),
    dart("dart-efficientvit-l1", "mehmetkeremturkcan/DART:efficientvit_l1_distilled.pt", 31_000_000),
    dart("dart-efficientvit-l2", "mehmetkeremturkcan/DART:efficientvit_l2_distilled.pt", 38_000_000),
    dart("dart-pruned-16", "mehmetkeremturkcan/DART:pruned_16blocks.pt", 2_700_000_000),
];

impl KnownModel {
    /// All of them.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        SAM3.iter().chain(&EFFICIENTSAM3).chain(&STUDENTS)
    }

    /// The one of a short name, or whose repository is named.
    pub fn find(name: &str) -> Option<&'static Self> {
        Self::all().find(|known| known.name == name || known.source == name)
    }

    /// The terms of a repository, if they are known: those of all of its files and revisions.
    pub fn license_of(repository: &str) -> Option<License> {
        let is_of = |source: &str| source.split(':').next() == Some(repository);
        Self::all().find(|known| is_of(known.source)).map(|known| known.license)
    }
}

impl FromStr for HubName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text).ok_or_else(|| {
            let near = nearest(text, KnownModel::all().map(|known| known.name));
            let expected =
                format!("the name of a model, such as {near}, or a repository, owner/name[@revision][:file]");
            Error::argument("model", text, expected)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_repository_or_of_the_table_and_a_path_is_neither() {
        let name = |repository: &str, revision: &str, file: Option<&str>| {
            let (repository, revision, file) = (repository.into(), revision.into(), file.map(str::to_owned));
            Some(HubName { repository, revision, file })
        };
        for (text, expected) in [
            ("facebook/sam3", name("facebook/sam3", "main", None)),
            ("sam3", name("facebook/sam3", "main", None)),
            ("a/b@v1.0:x/y.pt", name("a/b", "v1.0", Some("x/y.pt"))),
            ("a/b@refs/pr/2", name("a/b", "refs/pr/2", None)),
            ("a/b:y.pt", name("a/b", "main", Some("y.pt"))),
            ("sam4", None),
            ("./a/b", None),
            ("/a/b", None),
            ("../b", None),
            ("a/b/", None),
            ("a/b/c", None),
            ("checkpoints/sam3.pt", None),
            ("a/b:../../x", None),
            ("a/b@..", None),
            ("a/b:/etc/x", None),
            ("a/b:x?y", None),
            ("a b/c", None),
            ("a\\b", None),
            ("", None),
        ] {
            assert_eq!(HubName::parse(text), expected, "{text}");
        }
        for known in KnownModel::all() {
            assert!(HubName::parse(known.name).is_some(), "{}", known.name);
            assert!(known.base.into_iter().chain(known.tokenizer).all(|name| HubName::parse(name).is_some()));
            assert_eq!(
                KnownModel::all().filter(|other| other.name == known.name).count(),
                1,
                "{}",
                known.name
            );
        }
        let unknown = "sam33".parse::<HubName>().expect_err("there is none").to_string();
        assert!(unknown.contains("such as sam3, sam3.1"), "{unknown}");
    }

    #[test]
    fn of_the_files_of_a_repository_only_those_of_the_model_are_chosen() {
        let choose = |name: &str, files: &[&str]| {
            let name = HubName::parse(name).expect("it is a name");
            name.choose(files).map(|chosen| chosen.join(" ")).map_err(|error| error.to_string())
        };
        let folder =
            ["README.md", "config.json", "model.safetensors", "sam3.pt", "tokenizer.json", "vocab.json"];
        assert_eq!(choose("a/b", &folder), Ok("model.safetensors config.json tokenizer.json".into()));
        assert_eq!(choose("a/b:sam3.pt", &folder), Ok("sam3.pt tokenizer.json".into()));
        let shards =
            [INDEX, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "config.json"];
        let all = format!("{} {} {INDEX} config.json", shards[1], shards[2]);
        assert_eq!(choose("a/b", &shards), Ok(all));
        assert_eq!(choose("a/b", &["x/a.pth", "README.md"]), Ok("x/a.pth".into()));
        for (name, files, expected) in [
            ("a/b:sam.pt", &folder[..], "there is no file sam.pt; there are sam3.pt"),
            ("a/b", &["README.md"], "it has no file of weights"),
            ("a/b", &["a.pt", "b.pt"], "several files could be meant: a.pt, b.pt; name one, as a/b:a.pt"),
        ] {
            let error = choose(name, files).expect_err("nothing can be chosen");
            assert!(error.contains(expected), "{error}");
        }
    }
}
