//! Any GPU with Vulkan, Direct3D 12 or Metal, through ONNX Runtime's WebGPU provider.
//!
//! The provider is a library of its own, which [`WebGpu::load`] [searches for](crate::library). [`WebGpu::provider`] is the
//! [`ExecutionProvider`] that runs models on an [adapter](adapters), which is WebGPU's name for a GPU and its driver.
//!
//! ```no_run
//! use ocelli_engines::onnxruntime::{OnnxRuntime, OnnxRuntimeEngine};
//! use ocelli_engines::webgpu::WebGpu;
//!
//! # fn main() -> ocelli_engines::Result<()> {
//! let runtime = OnnxRuntime::load(None)?;
//! let webgpu = WebGpu::load(None)?;
//! let provider = webgpu.provider(0)?;
//! let engine = OnnxRuntimeEngine::builder(&runtime).with_provider(provider).build_from_file("backbone.onnx")?;
//! # Ok(())
//! # }
//! ```
//!
//! **Software adapters** run on the CPU and are slower than every engine for CPUs, so that they are for tests: they are used
//! only if the environment variable [`ALLOW_SOFTWARE`] is 1, which the provider reads as well.
//!
//! A process has one adapter: the provider creates its device once.

mod adapter;
#[allow(unsafe_code)]
mod call;

pub use adapter::{Adapter, AdapterKind};

use crate::library::{Library, LibrarySearch};
use crate::onnxruntime::{ExecutionProvider, OtherProvider, WEBGPU};
use ocelli_error::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The environment variable that allows software adapters if it is 1.
pub const ALLOW_SOFTWARE: &str = "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER";

/// The library, and where it is searched.
pub static LIBRARY: Library = Library {
    name: "ONNX Runtime's WebGPU provider",
    stems: &["onnxruntime_providers_webgpu"],
    stems_if_named: &[],
    variables: &["OCELLI_WEBGPU"],
    setup_folder: "onnxruntime-ep-webgpu",
    python_packages: &["onnxruntime_ep_webgpu"],
    python_extra: None,
    remedy: "run `make setup` in the source tree, or `pip install onnxruntime-ep-webgpu==0.4.0`, or set OCELLI_WEBGPU to the \
             path of the library",
    version,
};

/// The adapter that this process has used, by its number.
static USED: Mutex<Option<usize>> = Mutex::new(None);

/// The provider's library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebGpu {
    path: PathBuf,
    version: String,
}

impl WebGpu {
    /// Finds the library at `path` or in the folder `path`, or without a path the one that the [search](crate::library)
    /// finds.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if no library is found, or if it cannot be loaded.
    pub fn load(path: Option<&Path>) -> Result<Self> {
        let (path, version) = LibrarySearch::new(&LIBRARY, path).locate()?;
        Ok(Self { path, version })
    }

    /// The version that its package states, `0.4.0`, or `unknown` if nothing beside the library does.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The library's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The provider on the adapter of this number in [`adapters`], and the adapter.
    ///
    /// The provider chooses the adapter by a preference: the fastest, or the one that needs the least power. So the first
    /// adapter can be requested, and the first integrated GPU beside a discrete one.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if there is no such adapter, if it is a software
    /// adapter and [`ALLOW_SOFTWARE`] is not set, if the provider cannot be made to choose it, or if this process uses
    /// another one.
    pub fn provider_and_adapter(&self, ordinal: usize) -> Result<(ExecutionProvider, Adapter)> {
        let allow_software = std::env::var_os(ALLOW_SOFTWARE).is_some_and(|value| value == "1");
        let chosen = adapter::choose(adapters()?, ordinal, allow_software)?;
        let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = used.filter(|other| *other != ordinal) {
            return Err(Error::unavailable(format!(
                "WebGPU adapter {ordinal}, {}: this process uses adapter {other}, and can use only one; start another process",
                chosen.adapter.name
            )));
        }
        *used = Some(ordinal);
        let power = if chosen.low_power { "low-power" } else { "high-performance" };
        // Integers of 64 bits, such as ids and masks, are computed in 32 bits on the GPU; without that their nodes would run on the CPU.
        let options = [("enableInt64", "1"), ("powerPreference", power)];
        let provider = OtherProvider {
            name: WEBGPU.to_owned(),
            library: Some(self.path.clone()),
            options: options.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        };
        Ok((ExecutionProvider::WebGpu(provider), chosen.adapter))
    }

    /// The provider of [`provider_and_adapter`](Self::provider_and_adapter).
    pub fn provider(&self, ordinal: usize) -> Result<ExecutionProvider> {
        self.provider_and_adapter(ordinal).map(|(provider, _)| provider)
    }
}

/// The adapters of this machine, in the order in which the provider prefers them: discrete GPUs, integrated ones, software
/// adapters, others.
///
/// They are read from Vulkan's loader. On Windows and macOS, where the provider does not use Vulkan, there is one entry for
/// the adapter that the system prefers.
///
/// # Errors
/// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if there is none: no loader, or a loader without a
/// driver; the message says what to install.
pub fn adapters() -> Result<Vec<Adapter>> {
    if cfg!(any(windows, target_os = "macos")) {
        return Ok(vec![Adapter::of_the_system()]);
    }
    let mut found = call::vulkan_adapters("libvulkan.so.1")?;
    adapter::sort(&mut found);
    Ok(found)
}

/// Checks that a file is a provider's library, and reads its version from the package that it is in.
fn version(path: &Path) -> Result<String, String> {
    call::check_provider(path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    // Written by `make setup`; packages of Python have it in the name of a folder.
    let stated = std::fs::read_to_string(folder.join("version")).ok().map(|text| text.trim().to_owned());
    let stated = stated.filter(|text| text.starts_with(|first: char| first.is_ascii_digit()));
    Ok(stated.or_else(|| version_of_package(folder)).unwrap_or_else(|| "unknown".to_owned()))
}

/// `0.4.0` of the folder `onnxruntime_ep_webgpu-0.4.0.dist-info` beside the package's.
fn version_of_package(package: &Path) -> Option<String> {
    let prefix = format!("{}-", package.file_name()?.to_str()?);
    let entries = std::fs::read_dir(package.parent()?).ok()?.flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .find_map(|name| Some(name.strip_prefix(&prefix)?.strip_suffix(".dist-info")?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ocelli_error::ErrorKind;

    #[test]
    fn the_version_is_that_of_the_package() {
        let site = tempfile::tempdir().expect("a temporary folder");
        let package = site.path().join("onnxruntime_ep_webgpu");
        for folder in [&package, &site.path().join("onnxruntime_ep_webgpu-0.4.1.dist-info")] {
            std::fs::create_dir(folder).expect("the folder is new");
        }
        assert_eq!(version_of_package(&package).as_deref(), Some("0.4.1"));
        assert_eq!(version_of_package(&site.path().join("other")), None);
    }

    #[test]
    fn another_library_is_refused() {
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let error = WebGpu::load(Some(&text)).expect_err("it is no library");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().starts_with("cannot use ONNX Runtime's WebGPU provider, "), "{error}");
    }
}
