//! The search for shared libraries that are loaded at run time.
//!
//! Every library is searched for in the same places, in this order:
//! 1. the path that the caller gives: the library, or a folder that holds it;
//! 2. environment variables, which also name the library or its folder: `OCELLI_ONNXRUNTIME`, then `ORT_DYLIB_PATH`, for
//!    ONNX Runtime; `OCELLI_WEBGPU` for its WebGPU provider; `OCELLI_OPENVINO` for OpenVINO; `OCELLI_TENSORRT` for
//!    TensorRT, and `OCELLI_TENSORRT_PART` for Ocelli's parts for it; `OCELLI_VIDEO` for the video library;
//! 3. the folder of the running program, and `lib` in it;
//! 4. if the program runs inside Python, the packages of that interpreter ([`set_python_packages`]);
//! 5. the setup folder: `onnxruntime`, `onnxruntime-ep-webgpu`, `openvino`, `tensorrt`, `tensorrt-part` or `video` in
//!    `$OCELLI_HOME`, else in `$XDG_DATA_HOME/ocelli`, else in `~/.local/share/ocelli`;
//! 6. Python packages that include the library, in `$VIRTUAL_ENV`, `$CONDA_PREFIX`, `~/.local`, `/usr/local` and `/usr`:
//!    `onnxruntime`, `onnxruntime_ep_webgpu`, `openvino`, for TensorRT every package with `tensorrt` in its name, and for
//!    Ocelli's parts `ocelli`;
//! 7. the folders of the system's loader: on Linux `LD_LIBRARY_PATH`, the folders that `/etc/ld.so.conf` and
//!    `/etc/ld.so.conf.d` list, `/usr/local/lib`, `/usr/lib64` and `/usr/lib`; on macOS `DYLD_LIBRARY_PATH`,
//!    `/opt/homebrew/lib`, `/usr/local/lib` and `/usr/lib`; on Windows `PATH`.
//!
//! **The first place that holds the library decides.** If that library is broken or too old, the search fails: it never
//! falls back to a later place. A path from the caller or from a variable must exist; an empty variable counts as unset.
//! Of several versions in one folder, the highest is used.
//!
//! TensorRT's lean and dispatch runtimes, which run plans and cannot build them, are used only from the first two places.

#[allow(unsafe_code)]
mod open;

use ocelli_error::{Error, Result};
use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

pub use open::open;

/// The names of a library, and the places where it is found besides the [common ones](self).
#[derive(Debug)]
pub struct Library {
    /// For messages: `ONNX Runtime`.
    pub name: &'static str,
    /// File names without prefix, version and extension: `onnxruntime` stands for `libonnxruntime.so.1.31.1`,
    /// `libonnxruntime.dylib` and `onnxruntime.dll`. Of several, the first that a folder holds is used.
    pub stems: &'static [&'static str],
    /// Further stems, which are used only if the caller or a variable names their folder.
    pub stems_if_named: &'static [&'static str],
    /// Environment variables that name the library or its folder, in the order in which they are read.
    pub variables: &'static [&'static str],
    /// The library's folder in the setup folder.
    pub setup_folder: &'static str,
    /// Folders in a Python `site-packages` that hold the library; `*` stands for any characters: `nvidia/*/lib`.
    pub python_packages: &'static [&'static str],
    /// The extra of the Python package `ocelli` that installs it.
    pub python_extra: Option<&'static str>,
    /// The remedy if it is missing; error messages end with this.
    pub remedy: &'static str,
    /// Loads a file and returns the version it states, or one line that says why it cannot be used.
    pub version: fn(&Path) -> Result<String, String>,
}

impl Library {
    /// Every place that is searched, and what it holds: the first that is not [`Finding::Missing`] decides.
    ///
    /// Loads each library it finds to read its version.
    pub fn candidates(&'static self, given: Option<&Path>) -> Vec<Candidate> {
        LibrarySearch::new(self, given).walk().collect()
    }

    /// The place that decides, and what it holds; `None` if the library is nowhere.
    pub fn find(&'static self, given: Option<&Path>) -> Option<Candidate> {
        LibrarySearch::new(self, given).walk().find(|candidate| candidate.finding != Finding::Missing)
    }

    /// The library as `loaded` holds it, or after it was found and `start`ed: one file in the life of a process.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if no library is found, if it cannot be started, or
    /// if another one is loaded.
    pub fn load_once<T: Clone>(
        &'static self,
        given: Option<&Path>,
        loaded: &Mutex<Option<(PathBuf, T)>>,
        start: impl FnOnce(&Path, String) -> Result<T, String>,
    ) -> Result<T> {
        let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let (path, version) = LibrarySearch::new(self, given).locate()?;
        let (name, file) = (self.name, path.display());
        let message = match &*loaded {
            Some((same, runtime)) if is_same_file(&path, same) => return Ok(runtime.clone()),
            Some((other, _)) => {
                let other = other.display();
                format!("cannot load {name}, {file}: this process has loaded {other}, and can load only one")
            }
            None => match start(&path, version.clone()) {
                Ok(runtime) => {
                    tracing::debug!(path = %file, %version, "{name} loaded");
                    *loaded = Some((path, runtime.clone()));
                    return Ok(runtime);
                }
                Err(reason) => format!("cannot start {name}, {file}: {reason}"),
            },
        };
        Err(Error::unavailable(message))
    }
}

/// The `site-packages` folders of the interpreter that this program runs in.
static PYTHON_PACKAGES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Sets the `site-packages` folders of the Python interpreter that this program runs in, for programs that are extension
/// modules. Libraries are searched for there before the setup folder.
pub fn set_python_packages(folders: Vec<PathBuf>) {
    *PYTHON_PACKAGES.lock().unwrap_or_else(PoisonError::into_inner) = folders;
}

/// The search for one library.
#[derive(Debug, Clone)]
pub struct LibrarySearch {
    library: &'static Library,
    /// In the order of the search; a named path may be a file.
    places: Vec<(Place, PathBuf)>,
    /// Set if the program runs inside Python.
    in_python: bool,
}

/// One of the places where a library is searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Place {
    /// The path that the caller gave.
    Given,
    /// The environment variable of this name.
    Environment(&'static str),
    /// The program's folder, or `lib` in it.
    BesideProgram,
    /// The folder that `make setup` fills.
    SetupFolder,
    /// A package of a Python environment.
    Python,
    /// A folder of the system's loader.
    System,
}

impl Place {
    /// `true` if the place was named for this library, and so must hold it.
    fn is_named(self) -> bool {
        matches!(self, Self::Given | Self::Environment(_))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given => f.write_str("given path"),
            Self::Environment(variable) => f.write_str(variable),
            Self::BesideProgram => f.write_str("beside the program"),
            Self::SetupFolder => f.write_str("setup folder"),
            Self::Python => f.write_str("Python package"),
            Self::System => f.write_str("system"),
        }
    }
}

/// A place that was searched, and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The place.
    pub place: Place,
    /// The library, or the folder that was searched if it holds none.
    pub path: PathBuf,
    /// The outcome of the search there.
    pub finding: Finding,
}

/// The contents of a place.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// No library.
    Missing,
    /// A library that can be used.
    Usable {
        /// As the library states it: `1.31.1`.
        version: String,
    },
    /// A library that cannot be used.
    Unusable {
        /// Why, in one line.
        reason: String,
    },
}

impl LibrarySearch {
    /// The search in the places of this process's environment, after the path that the caller gives.
    pub fn new(library: &'static Library, given: Option<&Path>) -> Self {
        let program = env::current_exe().ok().and_then(|program| program.parent().map(Path::to_path_buf));
        let mut search = Self::in_environment(library, given, |name| env::var_os(name), program);
        search.add_interpreter(&PYTHON_PACKAGES.lock().unwrap_or_else(PoisonError::into_inner));
        search
    }

    /// Adds the `site-packages` folders of the interpreter that this program runs in: before what is installed for the whole
    /// machine, because they are more specific.
    pub(crate) fn add_interpreter(&mut self, sites: &[PathBuf]) {
        let is_general = |(place, _): &(Place, PathBuf)| {
            matches!(place, Place::SetupFolder | Place::Python | Place::System)
        };
        let at = self.places.iter().position(is_general).unwrap_or(self.places.len());
        self.places.splice(at..at, packages_in(sites, self.library));
        self.in_python = !sites.is_empty();
    }

    /// The search with these environment variables, for a program in this folder.
    pub(crate) fn in_environment(
        library: &'static Library,
        given: Option<&Path>,
        variable: impl Fn(&str) -> Option<OsString>,
        program: Option<PathBuf>,
    ) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let named = library.variables.iter().filter_map(|name| Some((Place::Environment(name), set(name)?)));
        let home = set(if cfg!(windows) { "USERPROFILE" } else { "HOME" });
        let setup = set("OCELLI_HOME")
            .or_else(|| set("XDG_DATA_HOME").map(|data| data.join("ocelli")))
            .or_else(|| home.as_ref().map(|home| home.join(".local/share/ocelli")));
        let setup = setup.map(|folder| folder.join(library.setup_folder));
        let beside = program.into_iter().flat_map(|folder| [folder.clone(), folder.join("lib")]);
        let environments = [set("VIRTUAL_ENV"), set("CONDA_PREFIX"), home.map(|home| home.join(".local"))]
            .into_iter()
            .flatten();
        let environments = environments.chain(["/usr/local", "/usr"].map(PathBuf::from));
        let sites: Vec<PathBuf> = environments.flat_map(|environment| site_packages(&environment)).collect();
        let given = given.map(|path| (Place::Given, path.to_path_buf())).into_iter();
        let places = given
            .chain(named)
            .chain(beside.map(|folder| (Place::BesideProgram, folder)))
            .chain(setup.map(|folder| (Place::SetupFolder, folder)))
            .chain(packages_in(&sites, library))
            .chain(system_folders(set).into_iter().map(|folder| (Place::System, folder)))
            .collect();
        Self { library, places, in_python: false }
    }

    /// The library that the search decides for, and its version.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if no place holds one, a named place does not, or the
    /// first that does cannot be used; the message names the places and the remedy.
    pub fn locate(&self) -> Result<(PathBuf, String)> {
        let Library { name, remedy, python_extra, .. } = self.library;
        let remedy = match python_extra.filter(|_| self.in_python) {
            Some(extra) => format!("`pip install \"ocelli-vision[{extra}]\"`, or {remedy}"),
            None => (*remedy).to_owned(),
        };
        let mut searched = Vec::new();
        for Candidate { place, path, finding } in self.walk() {
            match finding {
                Finding::Usable { version } => return Ok((path, version)),
                Finding::Unusable { reason } => {
                    let remedy = match place {
                        Place::Given => "give another path, or none to search for the library".to_owned(),
                        Place::Environment(variable) => format!("correct {variable} or unset it"),
                        _ => format!("replace it, or {remedy}"),
                    };
                    let message =
                        format!("cannot use {name}, {} ({place}): {reason}; {remedy}", path.display());
                    return Err(Error::unavailable(message));
                }
                Finding::Missing if place == Place::System => {}
                Finding::Missing => searched.push(path.display().to_string()),
            }
        }
        let searched = searched.join(", ");
        let message = format!("{name} not found in {searched} and the system's library folders: {remedy}");
        Err(Error::unavailable(message))
    }

    /// Each place in order, searched when the iterator reaches it.
    pub(crate) fn walk(&self) -> impl Iterator<Item = Candidate> + '_ {
        self.places.iter().map(|&(place, ref path)| {
            let finding = match self.library_at(place, path) {
                Some(path) => {
                    let finding = match (self.library.version)(&path) {
                        Ok(version) => Finding::Usable { version },
                        Err(reason) => Finding::Unusable { reason },
                    };
                    return Candidate { place, path, finding };
                }
                None if !place.is_named() => Finding::Missing,
                None if path.is_dir() => {
                    let reason = format!("the folder holds no lib{}", self.library.stems.join(" or lib"));
                    Finding::Unusable { reason }
                }
                None => Finding::Unusable { reason: "no such file".to_owned() },
            };
            Candidate { place, path: path.clone(), finding }
        })
    }

    /// The library at a path, or in it if the path is a folder. Absolute: the loader searches for a bare file name.
    fn library_at(&self, place: Place, path: &Path) -> Option<PathBuf> {
        let Library { stems, stems_if_named, .. } = self.library;
        let file = if place.is_named() && !path.is_dir() {
            path.exists().then(|| path.to_path_buf())?
        } else {
            let further = stems_if_named.iter().filter(|_| place.is_named());
            stems.iter().chain(further).find_map(|stem| newest(path, stem))?
        };
        std::path::absolute(file).ok()
    }
}

/// The Python packages with the library in some `site-packages`.
fn packages_in(sites: &[PathBuf], library: &'static Library) -> Vec<(Place, PathBuf)> {
    let folders = sites
        .iter()
        .flat_map(|site| library.python_packages.iter().flat_map(move |name| matching_folders(site, name)));
    folders.map(|folder| (Place::Python, folder)).collect()
}

/// `true` if two paths lead to the same file.
pub(crate) fn is_same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

/// The library of the highest version in a folder.
pub(crate) fn newest(folder: &Path, stem: &str) -> Option<PathBuf> {
    versions(folder, stem).max().map(|(_, path)| path)
}

/// The libraries of one name in a folder, with the versions in their file names.
pub(crate) fn versions(folder: &Path, stem: &str) -> impl Iterator<Item = (Vec<u32>, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path()).filter(|path| path.is_file());
    files.filter_map(move |path| Some((version_in_name(stem, path.file_name()?.to_str()?)?, path)))
}

/// The version in a library's file name, empty if the name has none; `None` for other files.
fn version_in_name(stem: &str, name: &str) -> Option<Vec<u32>> {
    if let Some(rest) = name.strip_prefix("lib").and_then(|rest| rest.strip_prefix(stem)) {
        return numbers(rest.strip_suffix(".dylib").or_else(|| rest.strip_prefix(".so"))?, '.');
    }
    let name = name.to_ascii_lowercase();
    numbers(name.strip_suffix(".dll")?.strip_prefix(&stem.to_ascii_lowercase())?, '_')
}

/// `.1.31.1` as numbers.
fn numbers(version: &str, separator: char) -> Option<Vec<u32>> {
    if version.is_empty() {
        return Some(Vec::new());
    }
    version.strip_prefix(separator)?.split(separator).map(|number| number.parse().ok()).collect()
}

/// The `site-packages` folders of a Python environment, of the newest Python first.
fn site_packages(environment: &Path) -> Vec<PathBuf> {
    let minor = |python: &PathBuf| -> Option<u32> {
        python.file_name()?.to_str()?.strip_prefix("python3.")?.parse().ok()
    };
    let mut pythons = matching_folders(environment, "lib/python3*");
    pythons.sort_by_key(|python| std::cmp::Reverse(minor(python)));
    let sites =
        pythons.iter().flat_map(|python| ["site-packages", "dist-packages"].map(|site| python.join(site)));
    // The layout on Windows.
    sites.chain([environment.join("Lib/site-packages")]).filter(|site| site.is_dir()).collect()
}

/// The folders below `root` that match a relative path, sorted; `*` stands for any characters within one name.
fn matching_folders(root: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut folders = vec![root.to_path_buf()];
    for part in pattern.split('/') {
        let below = |folder: &PathBuf| match glob::Pattern::new(part) {
            Ok(pattern) if part.contains('*') => {
                let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
                entries
                    .map(|e| e.path())
                    .filter(|path| {
                        path.file_name().is_some_and(|name| pattern.matches(&name.to_string_lossy()))
                    })
                    .collect()
            }
            _ => vec![folder.join(part)],
        };
        folders = folders.iter().flat_map(below).filter(|path| path.is_dir()).collect();
        folders.sort();
    }
    folders
}

/// The folders of the system's loader.
fn system_folders(set: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
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

/// The folders that glibc's loader is configured with; empty on systems without its configuration files.
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
