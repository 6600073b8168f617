//! Where ONNX Runtime's shared library is looked for.

use super::probe::probe;
use crate::error::{Error, ErrorKind, Result};
use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// Variables that name the library, in the order they are asked.
const VARIABLES: [&str; 2] = ["OCELLI_ONNXRUNTIME", "ORT_DYLIB_PATH"];

/// The version `make setup` fetches, for the remedy.
const VERSION: &str = "1.31.1";

/// The search for ONNX Runtime's shared library.
///
/// The places, in this order:
/// 1. the path given to [`with_path`](Self::with_path) (the programs' `--onnxruntime`);
/// 2. the environment: `OCELLI_ONNXRUNTIME`, then `ORT_DYLIB_PATH`;
/// 3. beside the running program, and in `lib` beside it;
/// 4. the folder `make setup` fills: `onnxruntime` in `$OCELLI_HOME`, else in `$XDG_DATA_HOME/ocelli`, else in
///    `~/.local/share/ocelli`;
/// 5. the folders of the system's loader: on Linux `LD_LIBRARY_PATH`, what `/etc/ld.so.conf` and `/etc/ld.so.conf.d`
///    list, `/usr/local/lib`, `/usr/lib64`, `/usr/lib`; on macOS `DYLD_LIBRARY_PATH`, `/opt/homebrew/lib`,
///    `/usr/local/lib`, `/usr/lib`; on Windows `PATH`.
///
/// **The first place that holds one decides.** If what lies there is broken or too old, that is an error: a later
/// place is never tried in its stead. A place that is named (1 and 2) must hold one; an empty variable counts as
/// unset. Where a folder is named or searched, the library in it with the highest version is meant.
#[derive(Debug, Clone)]
pub struct LibrarySearch {
    named: Vec<(Place, PathBuf)>,
    folders: Vec<(Place, PathBuf)>,
}

/// One of the places where a library is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Place {
    /// The path given by the caller, usually from a flag.
    Flag,
    /// The environment variable of this name.
    Environment(&'static str),
    /// The program's folder, or `lib` in it.
    BesideProgram,
    /// The folder that `make setup` fills.
    SetupFolder,
    /// A package of a Python installation.
    Python,
    /// A folder of the system's loader.
    System,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Environment(variable) => f.write_str(variable),
            Self::BesideProgram => f.write_str("beside the program"),
            Self::SetupFolder => f.write_str("setup folder"),
            Self::Python => f.write_str("Python package"),
            Self::System => f.write_str("system"),
        }
    }
}

/// What was found at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Which of the places this is.
    pub place: Place,
    /// The file, or the folder that was searched where there is no file.
    pub path: PathBuf,
    /// What lies there.
    pub finding: Finding,
}

/// What was found at a place where a library may lie.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// Nothing.
    Missing,
    /// A library of this version that can be used.
    Usable {
        /// As the library states it: `1.31.1`.
        version: String,
    },
    /// Something that cannot be used, and why.
    Unusable {
        /// One line, for people.
        reason: String,
    },
}

impl LibrarySearch {
    /// The search as the process's environment describes it, without a path of the caller's own.
    pub fn new() -> Self {
        let program = env::current_exe().ok().and_then(|program| program.parent().map(Path::to_path_buf));
        Self::from_surroundings(|name| env::var_os(name), program)
    }

    /// Puts a path before everything else: a library, or a folder that holds one.
    pub fn with_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.named.insert(0, (Place::Flag, path.into()));
        self
    }

    fn from_surroundings(variable: impl Fn(&str) -> Option<OsString>, program: Option<PathBuf>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let named =
            VARIABLES.iter().filter_map(|name| Some((Place::Environment(name), set(name)?))).collect();

        let home = set("OCELLI_HOME")
            .or_else(|| set("XDG_DATA_HOME").map(|data| data.join("ocelli")))
            .or_else(|| {
                set(if cfg!(windows) { "USERPROFILE" } else { "HOME" })
                    .map(|home| home.join(".local/share/ocelli"))
            });
        let beside = program.into_iter().flat_map(|folder| [folder.clone(), folder.join("lib")]);
        let folders = beside
            .map(|folder| (Place::BesideProgram, folder))
            .chain(home.map(|home| (Place::SetupFolder, home.join("onnxruntime"))))
            .chain(system_folders(set).into_iter().map(|folder| (Place::System, folder)))
            .collect();

        Self { named, folders }
    }

    /// Looks at every place, for a report: the first that is not [`Finding::Missing`] is the one a program uses.
    ///
    /// Loads each library it finds to ask its version.
    pub fn candidates(&self) -> Vec<Candidate> {
        self.walk().collect()
    }

    /// The library that the rules above choose, and its version.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if no place holds one, a named place does not, or the first that does is not
    /// usable; the message says what to do.
    pub fn locate(&self) -> Result<(PathBuf, String)> {
        for candidate in self.walk() {
            let Candidate { place, path, finding } = candidate;
            match finding {
                Finding::Usable { version } => return Ok((path, version)),
                Finding::Unusable { reason } => {
                    let remedy = match place {
                        Place::Flag => "name another file, or none to search for one".to_owned(),
                        Place::Environment(name) => format!("correct {name} or unset it"),
                        _ => format!("replace it, or {}", remedy()),
                    };
                    let message =
                        format!("cannot use ONNX Runtime, {} ({place}): {reason}; {remedy}", path.display());
                    return Err(Error::new(ErrorKind::Unavailable, message));
                }
                Finding::Missing => {}
            }
        }
        let own = self.folders.iter().filter(|(place, _)| *place != Place::System);
        let own: Vec<_> = own.map(|(_, folder)| folder.display().to_string()).collect();
        let places = own.join(", ");
        let message =
            format!("ONNX Runtime not found, in {places} and the system's library folders: {}", remedy());
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// Each place in order, looked at only when it is asked for.
    fn walk(&self) -> impl Iterator<Item = Candidate> + '_ {
        let named = self.named.iter().map(|(place, path)| Candidate {
            place: *place,
            path: path.clone(),
            finding: Finding::Missing,
        });
        let named = named.map(|candidate| match look_at(&candidate.path) {
            Some(file) => examine(candidate.place, file),
            // A named place that holds nothing is as wrong as one that holds something broken.
            None => {
                Candidate { finding: Finding::Unusable { reason: absence(&candidate.path) }, ..candidate }
            }
        });
        let folders = self.folders.iter().map(|(place, folder)| match library_in(folder) {
            Some(file) => examine(*place, file),
            None => Candidate { place: *place, path: folder.clone(), finding: Finding::Missing },
        });
        named.chain(folders)
    }
}

impl Default for LibrarySearch {
    fn default() -> Self {
        Self::new()
    }
}

fn remedy() -> String {
    format!(
        "run `make setup` in the source tree, or unpack the wheel that `pip download --no-deps \
         onnxruntime=={VERSION}` brings and pass its library with --onnxruntime PATH or OCELLI_ONNXRUNTIME"
    )
}

fn examine(place: Place, file: PathBuf) -> Candidate {
    let finding = match probe(&file) {
        Ok(version) => Finding::Usable { version },
        Err(reason) => Finding::Unusable { reason },
    };
    Candidate { place, path: file, finding }
}

/// The file at a path, or in it if it is a folder.
fn look_at(path: &Path) -> Option<PathBuf> {
    let file = if path.is_dir() { library_in(path)? } else { path.to_path_buf() };
    // The loader takes a bare file name for a name to search for; made absolute it means the file that was named.
    if file.exists() { std::path::absolute(file).ok() } else { None }
}

fn absence(path: &Path) -> String {
    if path.is_dir() { "the folder holds no libonnxruntime".to_owned() } else { "no such file".to_owned() }
}

/// The ONNX Runtime library of the highest version in a folder.
fn library_in(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?;
    let files =
        entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).filter(|path| path.is_file());
    let versioned = files.filter_map(|path| Some((library_version(path.file_name()?.to_str()?)?, path)));
    versioned.max().map(|(_, path)| path)
}

/// The version in the file name of an ONNX Runtime library, empty where it states none; `None` for other files, such
/// as the libraries of its execution providers.
fn library_version(name: &str) -> Option<Vec<u32>> {
    let version = if let Some(rest) = name.strip_prefix("libonnxruntime.so") {
        rest.strip_prefix('.').or(rest.is_empty().then_some(""))?
    } else if let Some(rest) =
        name.strip_prefix("libonnxruntime").and_then(|rest| rest.strip_suffix(".dylib"))
    {
        rest.strip_prefix('.').or(rest.is_empty().then_some(""))?
    } else if name.eq_ignore_ascii_case("onnxruntime.dll") {
        ""
    } else {
        return None;
    };
    version.split('.').filter(|part| !part.is_empty()).map(|part| part.parse().ok()).collect()
}

/// Where the system's loader looks for libraries.
pub(crate) fn system_folders(set: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let (variable, fixed): (_, &[&str]) = if cfg!(target_os = "macos") {
        ("DYLD_LIBRARY_PATH", &["/opt/homebrew/lib", "/usr/local/lib", "/usr/lib"])
    } else if cfg!(windows) {
        ("PATH", &[])
    } else {
        ("LD_LIBRARY_PATH", &["/usr/local/lib", "/usr/lib64", "/usr/lib"])
    };
    let listed = set(variable).map(|paths| env::split_paths(&paths).collect::<Vec<_>>()).unwrap_or_default();
    let listed = listed.into_iter().filter(|folder| folder.is_absolute());
    listed.chain(configured_folders()).chain(fixed.iter().map(PathBuf::from)).collect()
}

/// The folders that glibc's loader is configured with; none on other systems, which do not have the files.
fn configured_folders() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/etc/ld.so.conf.d").into_iter().flatten();
    let mut files: Vec<_> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    files.sort();
    files.insert(0, PathBuf::from("/etc/ld.so.conf"));
    let texts = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
    texts
        .flat_map(|text| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>())
        .filter(|line| line.starts_with('/'))
        .map(PathBuf::from)
        .collect()
}

#[cfg(test)]
mod tests;
