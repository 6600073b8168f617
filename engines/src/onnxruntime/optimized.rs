//! Models as ONNX Runtime rewrote them, kept so that a later start need not rewrite them again.

use super::OptimizationLevel;
use crate::error::{Error, ErrorKind, Result};
use ort::session::Session;
use ort::session::builder::SessionBuilder;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::UNIX_EPOCH;

/// One rewritten model: a folder with the graph and its weights.
pub(super) struct Entry<'a> {
    original: &'a Path,
    level: OptimizationLevel,
    folder: PathBuf,
}

const GRAPH: &str = "model.onnx";
const WEIGHTS: &str = "model.onnx.data";

impl<'a> Entry<'a> {
    pub(super) fn new(
        cache: &Path,
        model: &'a Path,
        version: &str,
        level: OptimizationLevel,
    ) -> Result<Self> {
        let unreadable = |error: std::io::Error| {
            let message = format!("cannot read the model, {}: {error}", model.display());
            Error::new(ErrorKind::InvalidModel, message).with_source(error)
        };
        let path = model.canonicalize().map_err(unreadable)?;
        let metadata = path.metadata().map_err(unreadable)?;
        let changed = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let key = format!(
            "{}\n{}\n{changed:?}\n{version}\n{level:?}\n{}",
            path.display(),
            metadata.len(),
            processor()
        );
        let stem = path.file_stem().map_or_else(|| "model".into(), |stem| stem.to_string_lossy());
        let folder = cache.join(format!("{stem}-{:016x}", fnv1a(key.as_bytes())));
        Ok(Self { original: model, level, folder })
    }

    /// Loads the rewritten model, or the original while storing what it becomes.
    ///
    /// `load` takes the file, the level, and where to store.
    pub(super) fn load_or_make(
        &self,
        load: impl Fn(&Path, OptimizationLevel, Option<&Path>) -> Result<Session>,
    ) -> Result<Session> {
        let graph = self.folder.join(GRAPH);
        if graph.is_file() {
            return load(&graph, OptimizationLevel::Disabled, None).map_err(|error| {
                let remedy = format!("{error}; delete {}, it is made again", self.folder.display());
                Error::new(error.kind(), remedy)
            });
        }
        let scratch = self.scratch();
        fs::create_dir_all(&scratch).map_err(|error| self.cannot_store(error))?;
        let session = load(self.original, self.level, Some(&scratch.join(GRAPH)));
        let placed = match &session {
            Ok(_) => fs::rename(&scratch, &self.folder),
            Err(_) => Ok(()),
        };
        // Only what was not placed is still there.
        let _ = fs::remove_dir_all(&scratch);
        match placed {
            // Another process was faster; its entry is the same.
            Err(_) if graph.is_file() => session,
            Err(error) => Err(self.cannot_store(error)),
            Ok(()) => session,
        }
    }

    /// A folder of this call's own beside the entry, so that placing it is one rename.
    fn scratch(&self) -> PathBuf {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        self.folder.with_extension(format!("{}-{call}.tmp", std::process::id()))
    }

    fn cannot_store(&self, error: std::io::Error) -> Error {
        let message = format!("cannot store the optimised model, {}: {error}", self.folder.display());
        Error::new(ErrorKind::InvalidArgument, message).with_source(error)
    }
}

/// Makes the session store the rewritten model, its weights in a file of their own: one file ends at 2 GB.
pub(super) fn store(builder: SessionBuilder, graph: &Path) -> ort::Result<SessionBuilder> {
    Ok(builder
        .with_optimized_model_path(graph)?
        .with_config_entry("session.optimized_model_external_initializers_file_name", WEIGHTS)?
        .with_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")?)
}

/// What of the processor decides which layout ONNX Runtime chooses.
fn processor() -> String {
    let architecture = std::env::consts::ARCH;
    #[cfg(target_arch = "x86_64")]
    let features = [
        ("avx2", std::arch::is_x86_feature_detected!("avx2")),
        ("avx512f", std::arch::is_x86_feature_detected!("avx512f")),
        ("avx512vnni", std::arch::is_x86_feature_detected!("avx512vnni")),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let features: [(&str, bool); 0] = [];
    let features = features.iter().filter(|(_, present)| *present).map(|(name, _)| *name);
    features.fold(architecture.to_owned(), |text, name| text + " " + name)
}

/// The 64-bit FNV-1a hash: the same in every build, unlike the standard library's.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_belongs_to_everything_that_decides_what_is_in_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = |name: &str, content: &str| {
            let path = folder.path().join(name);
            fs::write(&path, content).expect("a file");
            path
        };
        let (first, second, longer) = (file("a.onnx", "x"), file("b.onnx", "x"), file("c.onnx", "xy"));
        let entry = |model: &Path, version: &str, level| {
            Entry::new(folder.path(), model, version, level).expect("the file can be read").folder
        };
        let all = OptimizationLevel::All;
        let known = entry(&first, "1.31.1", all);
        assert_eq!(known, entry(&first, "1.31.1", all));
        let others = [
            entry(&second, "1.31.1", all),
            entry(&longer, "1.31.1", all),
            entry(&first, "1.31.2", all),
            entry(&first, "1.31.1", OptimizationLevel::Basic),
        ];
        assert!(!others.contains(&known), "{known:?} {others:?}");
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
