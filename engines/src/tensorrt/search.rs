//! The search for TensorRT's shared library.

use super::probe::{Probed, probe};
use super::version::{Product, Version};
use crate::library::{Candidate, Finding, Place, system_folders};
use ocelli_error::{Error, ErrorKind, Result};
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The environment variable with the path of the library or its folder.
const VARIABLE: &str = "OCELLI_TENSORRT";

/// The search for TensorRT's shared library.
///
/// The places, in this order:
/// 1. the path given to [`with_path`](Self::with_path);
/// 2. the environment: `OCELLI_TENSORRT`;
/// 3. the folder of the running program, and `lib` in it;
/// 4. the folder `tensorrt` in `$OCELLI_HOME`, else in `$XDG_DATA_HOME/ocelli`, else in `~/.local/share/ocelli`;
/// 5. Python packages with `tensorrt` in their name, which hold NVIDIA's wheels, in `$VIRTUAL_ENV`, `$CONDA_PREFIX`,
///    `~/.local`, `/usr/local` and `/usr`;
/// 6. the system's library folders, as for [ONNX Runtime](crate::onnxruntime::LibrarySearch).
///
/// **The first place with a library decides.** If that library is broken, another product or an unsupported version, that is
/// an error: no later place is tried instead. An explicit place (1 and 2) must have one. In a folder, the library with the
/// highest version is used. Builds also need the ONNX parser, which must be beside the library.
///
/// The lean and the dispatch runtime, which run plans and do not build, are used only from an explicit place (1 and 2).
#[derive(Debug, Clone)]
pub struct TensorRtSearch {
    product: Product,
    named: Vec<(Place, PathBuf)>,
    folders: Vec<(Place, PathBuf)>,
}

/// A library that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) library: PathBuf,
    pub(super) version: Version,
    /// The parser, or why the library cannot build.
    pub(super) parser: Result<PathBuf, String>,
}

impl TensorRtSearch {
    /// The search for the product that this program was built for (TensorRT proper if for neither), with the variables of the
    /// process's environment.
    pub fn new() -> Self {
        Self::of(Product::COMPILED.unwrap_or(Product::TensorRt))
    }

    /// The search for a product, regardless of the one that this program was built for.
    pub fn of(product: Product) -> Self {
        let program = env::current_exe().ok().and_then(|program| program.parent().map(Path::to_path_buf));
        Self::from_surroundings(product, |name| env::var_os(name), program)
    }

    /// Searches an explicit path first: a library or its folder.
    pub fn with_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.named.insert(0, (Place::Given, path.into()));
        self
    }

    /// The product that is searched for.
    pub fn product(&self) -> Product {
        self.product
    }

    fn from_surroundings(
        product: Product,
        variable: impl Fn(&str) -> Option<OsString>,
        program: Option<PathBuf>,
    ) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let named = set(VARIABLE).map(|path| (Place::Environment(VARIABLE), path)).into_iter().collect();
        let home = set("OCELLI_HOME")
            .or_else(|| set("XDG_DATA_HOME").map(|data| data.join("ocelli")))
            .or_else(|| set("HOME").map(|home| home.join(".local/share/ocelli")));
        let beside = program.into_iter().flat_map(|folder| [folder.clone(), folder.join("lib")]);
        let installations =
            [set("VIRTUAL_ENV"), set("CONDA_PREFIX"), set("HOME").map(|home| home.join(".local"))];
        let installations =
            installations.into_iter().flatten().chain(["/usr/local", "/usr"].map(PathBuf::from));
        let packages = installations.flat_map(|installation| python_packages(&installation));
        let folders = beside
            .map(|folder| (Place::BesideProgram, folder))
            .chain(home.map(|home| (Place::SetupFolder, home.join("tensorrt"))))
            .chain(packages.map(|folder| (Place::Python, folder)))
            .chain(system_folders(set).into_iter().map(|folder| (Place::System, folder)))
            .collect();
        Self { product, named, folders }
    }

    /// Examines every place, for a report: a program uses the first that is not [`Finding::Missing`].
    ///
    /// Loads each library it finds to read its version.
    pub fn candidates(&self) -> Vec<Candidate> {
        let report = |(place, path, found): (Place, PathBuf, Option<Result<Found, String>>)| {
            let finding = match found {
                None => Finding::Missing,
                Some(Ok(found)) => Finding::Usable { version: found.version.to_string() },
                Some(Err(reason)) => Finding::Unusable { reason },
            };
            Candidate { place, path, finding }
        };
        self.walk().map(report).collect()
    }

    /// The library that the rules above select.
    pub(super) fn locate(&self) -> Result<Found> {
        let product = self.product;
        for (place, path, found) in self.walk() {
            match found {
                None => {}
                Some(Ok(found)) => return Ok(found),
                Some(Err(reason)) => {
                    let remedy = match place {
                        Place::Given => "name another file, or none to search for one".to_owned(),
                        Place::Environment(name) => format!("correct {name} or unset it"),
                        _ => format!("replace it, or {}", remedy(product)),
                    };
                    let message =
                        format!("cannot use {product}, {} ({place}): {reason}; {remedy}", path.display());
                    return Err(Error::new(ErrorKind::Unavailable, message));
                }
            }
        }
        let own = self.folders.iter().filter(|(place, _)| *place != Place::System);
        let own: Vec<_> = own.map(|(_, folder)| folder.display().to_string()).collect();
        let message = format!(
            "{product} not found, in {} and the system's library folders: {}",
            own.join(", "),
            remedy(product)
        );
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// Each place in order, examined lazily: the file, or the folder without one.
    fn walk(&self) -> impl Iterator<Item = (Place, PathBuf, Option<Result<Found, String>>)> + '_ {
        let named = self.named.iter().map(|(place, path)| {
            let file = if path.is_dir() {
                newest(path, library_prefix(self.product))
                    .or_else(|| runtimes(self.product).iter().find_map(|prefix| newest(path, prefix)))
            } else {
                // The loader would search its own folders for a bare file name; an absolute path means this file.
                Some(path.clone())
                    .filter(|path| path.exists())
                    .and_then(|path| std::path::absolute(path).ok())
            };
            match file {
                Some(file) => (*place, file.clone(), Some(self.examine(file))),
                // An explicit place without a library is an error.
                None => {
                    let absence = if path.is_dir() {
                        format!("the folder has no {}", library_prefix(self.product))
                    } else {
                        "no such file".to_owned()
                    };
                    (*place, path.clone(), Some(Err(absence)))
                }
            }
        });
        let folders =
            self.folders.iter().map(|(place, folder)| match newest(folder, library_prefix(self.product)) {
                Some(file) => (*place, file.clone(), Some(self.examine(file))),
                None => (*place, folder.clone(), None),
            });
        named.chain(folders)
    }

    fn examine(&self, library: PathBuf) -> Result<Found, String> {
        let Probed { version, builds } = probe(&library, self.product)?;
        let parser = if builds {
            parser_beside(&library, self.product, version)
        } else {
            Err(format!("{} is a runtime, which does not build plans", library.display()))
        };
        Ok(Found { library, version, parser })
    }
}

impl Default for TensorRtSearch {
    fn default() -> Self {
        Self::new()
    }
}

fn library_prefix(product: Product) -> &'static str {
    match product {
        Product::TensorRt => "libnvinfer.so",
        Product::TensorRtForRtx => "libtensorrt_rtx.so",
    }
}

fn parser_prefix(product: Product) -> &'static str {
    match product {
        Product::TensorRt => "libnvonnxparser.so",
        Product::TensorRtForRtx => "libtensorrt_onnxparser_rtx.so",
    }
}

/// Libraries that run plans and do not build them.
fn runtimes(product: Product) -> &'static [&'static str] {
    match product {
        Product::TensorRt => &["libnvinfer_lean.so", "libnvinfer_dispatch.so"],
        Product::TensorRtForRtx => &[],
    }
}

/// What to do if the library is missing.
pub(super) fn remedy(product: Product) -> String {
    match product {
        Product::TensorRt => format!("install TensorRT 11 and set {VARIABLE} to its folder"),
        Product::TensorRtForRtx => format!(
            "unpack the wheel that `pip download --no-deps onnxruntime-ep-nv-tensorrt-rtx-cu13` downloads and set \
             {VARIABLE} to its folder"
        ),
    }
}

/// The parser beside the library with the closest version and the same major number.
fn parser_beside(library: &Path, product: Product, version: Version) -> Result<PathBuf, String> {
    let prefix = parser_prefix(product);
    let absent = || format!("the ONNX parser is missing: no {prefix} beside {}", library.display());
    let folder = library.parent().ok_or_else(absent)?;
    let version = [version.major, version.minor, version.patch];
    let fitting = versions(folder, prefix).into_iter().filter(|(numbers, _)| {
        // Names have up to four numbers: libnvonnxparser.so, .so.11, .so.11.4.0.106.
        numbers.first().is_none_or(|major| *major == version[0])
    });
    let closeness = |numbers: &[u32]| numbers.iter().zip(version).take_while(|(a, b)| *a == b).count();
    let best = fitting.max_by(|(a, _), (b, _)| (closeness(a), a).cmp(&(closeness(b), b)));
    best.map(|(_, path)| path).ok_or_else(absent)
}

/// The file of the highest version in a folder.
fn newest(folder: &Path, prefix: &str) -> Option<PathBuf> {
    versions(folder, prefix).into_iter().max().map(|(_, path)| std::path::absolute(&path).unwrap_or(path))
}

/// The files in a folder whose names begin with `prefix`, with the versions in their names.
fn versions(folder: &Path, prefix: &str) -> Vec<(Vec<u32>, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let files =
        entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).filter(|path| path.is_file());
    let version = |path: &Path| -> Option<Vec<u32>> {
        let rest = path.file_name()?.to_str()?.strip_prefix(prefix)?;
        let version = rest.strip_prefix('.').or(rest.is_empty().then_some(""))?;
        version.split('.').filter(|part| !part.is_empty()).map(|part| part.parse().ok()).collect()
    };
    files.filter_map(|path| Some((version(&path)?, path))).collect()
}

/// The folders of NVIDIA's packages in a Python installation, those of the newest Python first.
fn python_packages(installation: &Path) -> Vec<PathBuf> {
    let list = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        let mut paths: Vec<_> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
        paths.sort();
        paths
    };
    let named = |path: &Path, test: &dyn Fn(&str) -> bool| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(test)
    };
    let mut pythons = list(&installation.join("lib"));
    pythons.retain(|path| named(path, &|name| name.starts_with("python3")));
    let minor = |path: &PathBuf| -> Option<u32> {
        path.file_name()?.to_str()?.strip_prefix("python3.")?.parse().ok()
    };
    pythons.sort_by_key(|path| std::cmp::Reverse(minor(path)));
    let sites =
        pythons.iter().flat_map(|python| ["site-packages", "dist-packages"].map(|site| python.join(site)));
    sites
        .flat_map(|site| list(&site))
        .filter(|path| named(path, &|name| name.contains("tensorrt")) && path.is_dir())
        .collect()
}

#[cfg(test)]
mod tests;
