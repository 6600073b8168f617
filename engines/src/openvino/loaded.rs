//! The library of this process, and the devices that it finds.

use super::call::{self, Runtime};
use super::device::{DeviceReport, OpenVinoDevice, takes_amx};
use crate::library::Library;
use ocelli_error::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The OpenVINO of this process.
///
/// Cloning is cheap and gives the same one. It is never unloaded.
#[derive(Clone)]
pub struct OpenVino {
    loaded: Arc<Loaded>,
}

struct Loaded {
    path: PathBuf,
    version: String,
    runtime: Runtime,
}

/// The library, and where it is searched.
pub static LIBRARY: Library = Library {
    name: "OpenVINO",
    stems: &["openvino_c"],
    stems_if_named: &[],
    variables: &["OCELLI_OPENVINO"],
    setup_folder: "openvino",
    python_packages: &["openvino/libs"],
    python_extra: Some("cpu"),
    remedy: "run `make setup` in the source tree, or `pip install openvino==2026.4.1`, or set OCELLI_OPENVINO to the path \
             of libopenvino_c",
    version: call::version,
};

/// The loaded library. Its parts find each other by name, so that two versions in one process would mix.
static LOADED: Mutex<Option<(PathBuf, OpenVino)>> = Mutex::new(None);

impl OpenVino {
    /// Loads the library at `path` or in the folder `path`, or without a path the one that the
    /// [search](crate::library) finds. Returns the loaded one if it is the same file.
    ///
    /// The file is `libopenvino_c`; the rest of OpenVINO, the plugins of the devices included, is beside it.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if no library is found, if it is corrupt or too old,
    /// or if the process has loaded another one.
    pub fn load(path: Option<&Path>) -> Result<Self> {
        LIBRARY.load_once(path, &LOADED, |path, version| {
            let runtime = Runtime::start(path)?;
            Ok(Self { loaded: Arc::new(Loaded { path: path.to_owned(), version, runtime }) })
        })
    }

    /// The version that the library states: `2026.4.1`.
    pub fn version(&self) -> &str {
        &self.loaded.version
    }

    /// The file it was loaded from.
    pub fn path(&self) -> &Path {
        &self.loaded.path
    }

    /// The devices that work on this machine, with the number formats in which they compute.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if the library does not list them.
    pub fn devices(&self) -> Result<Vec<DeviceReport>> {
        let runtime = self.runtime();
        let names = runtime.devices().map_err(|reason| self.unavailable(&reason))?;
        let report = |name: String| {
            let property =
                |key| runtime.device_property(&name, key).map_err(|reason| self.unavailable(&reason));
            let mut formats = property("OPTIMIZATION_CAPABILITIES")?;
            if takes_amx(&name) {
                formats = formats.replace("BF16", "");
            }
            Ok(DeviceReport::new(&name, &property("FULL_DEVICE_NAME")?, &formats))
        };
        names.into_iter().map(report).collect()
    }

    /// Checks that this machine has the device. [`OpenVinoDevice::Auto`] always passes.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if it does not; the message lists the devices that it
    /// has.
    pub fn check_device(&self, device: OpenVinoDevice) -> Result<()> {
        let names = self.runtime().devices().map_err(|reason| self.unavailable(&reason))?;
        if device.is_among(&names) {
            return Ok(());
        }
        let what = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Err(Error::unavailable(format!(
            "OpenVINO, {}: no device {device} on this machine, which has {what}; {}",
            self.path().display(),
            device.remedy()
        )))
    }

    pub(super) fn runtime(&self) -> Runtime {
        self.loaded.runtime
    }

    pub(super) fn unavailable(&self, reason: &str) -> Error {
        Error::unavailable(format!("OpenVINO, {}: {reason}", self.path().display()))
    }
}

debug_as!(OpenVino, it => "OpenVino {} ({})", it.version(), it.path().display());
