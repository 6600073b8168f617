//! Runs programs in a temporary folder, with a cache in it. Exported models are those of all tests: exporting takes longer than
//! most tests.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
#[cfg(unix)]
use std::sync::OnceLock;

/// A program, or a command of one.
#[derive(Clone, Copy)]
pub struct Program<'a>(&'a str, Option<&'a str>);

impl<'a> From<&'a str> for Program<'a> {
    fn from(program: &'a str) -> Self {
        Self(program, None)
    }
}

impl<'a> From<[&'a str; 2]> for Program<'a> {
    fn from([program, command]: [&'a str; 2]) -> Self {
        Self(program, Some(command))
    }
}

/// A folder to run programs in. Paths in arguments are relative to it.
pub struct Place {
    folder: tempfile::TempDir,
    /// Variables of the programs.
    pub variables: Vec<(&'static str, PathBuf)>,
}

/// The exit status and output of a program.
#[derive(Debug)]
pub struct Outcome {
    /// The exit status; `None` after a signal.
    pub status: Option<i32>,
    /// Its stdout.
    pub stdout: String,
    /// Its stderr.
    pub stderr: String,
}

/// Arguments that must be an error.
pub struct Refusal<'a> {
    /// The arguments, separated by `|`, because some contain spaces.
    pub arguments: &'a str,
    /// 1 for a failure, 2 for wrong usage.
    pub status: i32,
    /// Parts of the message: the place, the reason, the remedy.
    pub words: &'a [&'a str],
}

/// A row of a table of errors.
pub const fn refusal<'a>(arguments: &'a str, status: i32, words: &'a [&'a str]) -> Refusal<'a> {
    Refusal { arguments, status, words }
}

impl Place {
    /// A place whose programs find no library of `make setup`: they run on the embedded engine, which starts in a third of the
    /// time. The video library is found.
    pub fn new() -> Self {
        let mut place = Self::without_libraries();
        place.variables.extend(video_library().map(|folder| ("OCELLI_VIDEO", folder)));
        place
    }

    /// A place whose programs find the libraries of `make setup`.
    pub fn with_libraries() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be created");
        let place = Self { folder, variables: Vec::new() };
        place.folder("cache");
        #[cfg(unix)]
        std::os::unix::fs::symlink(models(), place.path("cache/models")).expect("links can be made");
        place
    }

    /// With exported models of its own: for tests of the cache.
    pub fn with_empty_cache(self) -> Self {
        std::fs::remove_dir_all(self.path("cache")).expect("it was created");
        self
    }

    /// As a machine without the libraries of `make setup` and `make opencv`.
    pub fn without_libraries() -> Self {
        let mut place = Self::with_libraries();
        place.variables.push(("OCELLI_HOME", place.path("cache/none")));
        place
    }

    /// As a machine without an NVIDIA GPU.
    pub fn without_gpu(mut self) -> Self {
        self.variables.push(("CUDA_VISIBLE_DEVICES", PathBuf::new()));
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file, and creates its folders.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("it is in the temporary folder"))
            .expect("folders can be created");
        std::fs::write(path, content).expect("the temporary folder can be written to");
    }

    pub fn folder(&self, name: &str) {
        std::fs::create_dir_all(self.path(name)).expect("the temporary folder can be written to");
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub fn json(&self, name: &str) -> serde_json::Value {
        serde_json::from_slice(&self.read(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Copies the files of a folder, without subfolders.
    pub fn copy_folder(&self, from: impl AsRef<Path>, name: &str) {
        let from = from.as_ref();
        self.folder(name);
        for entry in std::fs::read_dir(from).unwrap_or_else(|e| panic!("{}: {e}", from.display())).flatten() {
            if entry.path().is_file() {
                let to = self.path(name).join(entry.file_name());
                std::fs::copy(entry.path(), to).expect("files of the project can be copied");
            }
        }
    }

    /// Every path below the folder, except the cache.
    pub fn paths(&self) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).expect("the temporary folder can be read").flatten() {
                let path = entry.path();
                if path == self.path("cache") {
                    continue;
                }
                found.insert(
                    path.strip_prefix(self.folder.path()).expect("it is below the folder").to_owned(),
                );
                if path.is_dir() {
                    folders.push(path);
                }
            }
        }
        found
    }

    pub fn command<'a>(&self, program: impl Into<Program<'a>>, arguments: &[&str]) -> Command {
        let Program(program, name) = program.into();
        let mut command = Command::new(program);
        command.args(name).args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("OCELLI_CACHE", self.path("cache")).env_remove("OCELLI_LOG").env("COLUMNS", "80");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    pub fn run<'a>(&self, program: impl Into<Program<'a>>, arguments: &[&str]) -> Outcome {
        outcome(&mut self.command(program, arguments))
    }

    /// Runs a program that must succeed; returns stdout.
    pub fn succeed<'a>(&self, program: impl Into<Program<'a>>, arguments: &[&str]) -> String {
        let outcome = self.run(program, arguments);
        assert_eq!(outcome.status, Some(0), "{arguments:?}: {outcome:?}");
        assert!(!outcome.stderr.contains("panicked"), "{arguments:?}: {outcome:?}");
        outcome.stdout
    }

    /// Starts a program with stdout and stderr piped.
    pub fn start<'a>(&self, program: impl Into<Program<'a>>, arguments: &[&str]) -> Child {
        let mut command = self.command(program, arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
    }

    /// Runs every row and reports those that do not fail as expected. No file may remain.
    pub fn refuses<'a>(&self, program: impl Into<Program<'a>>, rows: &[Refusal<'_>]) {
        let program = program.into();
        let before = self.paths();
        let mut wrong = Vec::new();
        for row in rows {
            let arguments: Vec<&str> = row.arguments.split('|').collect();
            let refused = self.run(program, &arguments).is_refusal(row.status, row.words);
            wrong.extend(refused.err().map(|e| format!("{}: {e}", row.arguments)));
            let left: Vec<_> = self.paths().difference(&before).cloned().collect();
            if !left.is_empty() {
                wrong.push(format!("{}: left {left:?} behind", row.arguments));
                left.iter().filter(|path| self.folder.path().join(path).is_file()).for_each(|path| {
                    drop(std::fs::remove_file(self.folder.path().join(path)));
                });
            }
        }
        assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
    }
}

pub fn outcome(command: &mut Command) -> Outcome {
    let output = command.output().expect("the program starts");
    Outcome {
        status: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Outcome {
    /// Checks the status, and that stderr ends with one line `error: …` that contains the parts.
    pub fn is_refusal(&self, status: i32, words: &[&str]) -> Result<(), String> {
        let errors: Vec<&str> = self.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        let missing: Vec<_> = words.iter().filter(|word| !self.stderr.contains(*word)).collect();
        let known = [
            "error: ",
            "model: ",
            "the built-in model does not know ",
            "engine: ",
            "warning: ",
            "exporting ",
            "writing ",
            "progress: ",
            "→ ",
            "--skip-blocks and --mask-blocks: ",
        ];
        let foreign = self.stderr.lines().find(|line| !known.iter().any(|start| line.starts_with(start)));
        let complaint = if self.stderr.contains("panicked") {
            "panicked".into()
        } else if self.status != Some(status) {
            format!("expected status {status}")
        } else if errors.len() != 1 || self.stderr.lines().last() != errors.last().copied() {
            "expected one line `error: …` at the end".into()
        } else if let Some(line) = foreign {
            format!("unexpected line {line:?}")
        } else if !missing.is_empty() {
            format!("expected {missing:?} in the message")
        } else {
            return Ok(());
        };
        Err(format!("{complaint}: {self:?}"))
    }
}

/// The exported models of all places. A new build has other ones, because the exporter may be another.
#[cfg(unix)]
fn models() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let program = std::env::current_exe().expect("this program has a path");
        let built = program.metadata().and_then(|file| file.modified()).expect("it is there");
        let built = built.duration_since(std::time::UNIX_EPOCH).expect("it is later").as_nanos();
        let name = program.file_name().expect("it is a file").to_string_lossy().into_owned();
        let all = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("models-{name}"));
        let folder = all.join(built.to_string());
        std::fs::create_dir_all(&folder).expect("the folder of the tests can be written to");
        let entries = std::fs::read_dir(&all).expect("it was created").flatten().map(|entry| entry.path());
        // Another run of this program may do the same.
        entries.filter(|path| *path != folder).for_each(|path| drop(std::fs::remove_dir_all(path)));
        folder
    })
}

/// The folder of the video library that `make opencv` builds, if it is there.
fn video_library() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from);
    let home = set("OCELLI_HOME").or_else(|| set("XDG_DATA_HOME").map(|data| data.join("ocelli")));
    let home = home.or_else(|| set("HOME").map(|home| home.join(".local/share/ocelli")));
    home.map(|home| home.join("video")).filter(|folder| folder.is_dir())
}
