//! Calls into Vulkan's loader, which lists the adapters, and the check of the provider's library.
//!
//! Structures and functions are those of Vulkan 1.0 (`vulkan_core.h`), which every loader exports.

use super::adapter::{Adapter, AdapterKind};
use crate::library;
use libloading::{Library, Symbol};
use ocelli_error::{Error, Result};
use std::ffi::{CStr, c_char, c_void};
use std::fmt::Display;
use std::mem::zeroed;
use std::path::Path;
use std::ptr;

/// `VK_ERROR_INCOMPATIBLE_DRIVER`: the loader found no driver.
const NO_DRIVER: i32 = -9;
/// `VK_INCOMPLETE`: an adapter appeared between two calls.
const INCOMPLETE: i32 = 5;

type Instance = *mut c_void;
type PhysicalDevice = *mut c_void;
type Create = unsafe extern "system" fn(*const InstanceCreateInfo, *const c_void, *mut Instance) -> i32;
type Enumerate = unsafe extern "system" fn(Instance, *mut u32, *mut PhysicalDevice) -> i32;
type Describe = unsafe extern "system" fn(PhysicalDevice, *mut Properties);
type Destroy = unsafe extern "system" fn(Instance, *const c_void);

/// `VkInstanceCreateInfo`.
#[repr(C)]
struct InstanceCreateInfo {
    structure_type: u32,
    next: *const c_void,
    flags: u32,
    application: *const c_void,
    layer_count: u32,
    layers: *const *const c_char,
    extension_count: u32,
    extensions: *const *const c_char,
}

/// `VkPhysicalDeviceProperties`, 824 bytes.
#[repr(C)]
struct Properties {
    api_version: u32,
    driver_version: u32,
    vendor_id: u32,
    device_id: u32,
    device_type: u32,
    name: [c_char; 256],
    cache_uuid: [u8; 16],
    limits_and_sparse: [u64; 66],
}

const _: () = assert!(size_of::<Properties>() == 824);

/// Releases the instance after its adapters were read.
struct Owned {
    instance: Instance,
    destroy: Destroy,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: `vkCreateInstance` created it, it is destroyed once, and nothing made from it lives on.
        unsafe { (self.destroy)(self.instance, ptr::null()) };
    }
}

/// The adapters that a loader of Vulkan lists, in its order.
pub(super) fn vulkan_adapters(loader: &str) -> Result<Vec<Adapter>> {
    let library = library::open(Path::new(loader)).map_err(|reason| {
        unavailable(format!(
            "Vulkan's loader is missing ({reason}); install it (Debian: apt-get install libvulkan1)"
        ))
    })?;
    let no_driver = || {
        unavailable(
            "Vulkan's loader has no driver for a GPU; install it (Debian: mesa-vulkan-drivers for AMD and Intel, NVIDIA's \
             driver for NVIDIA), and see that this user may open /dev/dri",
        )
    };

    // SAFETY: the types of the four functions are their declarations in vulkan_core.h, which are stable.
    let create = unsafe { function::<Create>(library, loader, "vkCreateInstance") }?;
    // SAFETY: as above.
    let enumerate = unsafe { function::<Enumerate>(library, loader, "vkEnumeratePhysicalDevices") }?;
    // SAFETY: as above.
    let describe = unsafe { function::<Describe>(library, loader, "vkGetPhysicalDeviceProperties") }?;
    // SAFETY: as above.
    let destroy = unsafe { function::<Destroy>(library, loader, "vkDestroyInstance") }?;

    // SAFETY: numbers and raw pointers, of which zero is valid.
    let info = InstanceCreateInfo { structure_type: 1, ..unsafe { zeroed() } };
    let mut instance = ptr::null_mut();
    // SAFETY: `info` is initialised, requests no layers and no extensions, and outlives the call; the result is filled in.
    let result = unsafe { create(&info, ptr::null(), &mut instance) };
    match result {
        0 => {}
        NO_DRIVER => return Err(no_driver()),
        code => {
            return Err(unavailable(format!(
                "Vulkan's loader fails with code {code}; check the GPU's driver"
            )));
        }
    }
    let owned = Owned { instance, destroy: *destroy };

    let mut count = 0;
    // SAFETY: the instance lives; without an array the call only counts.
    let result = unsafe { enumerate(owned.instance, &mut count, ptr::null_mut()) };
    let mut devices = vec![ptr::null_mut(); usize::try_from(count).unwrap_or(0)];
    if result == 0 && count > 0 {
        // SAFETY: the array has `count` entries.
        let result = unsafe { enumerate(owned.instance, &mut count, devices.as_mut_ptr()) };
        let filled = if result == 0 || result == INCOMPLETE { count } else { 0 };
        devices.truncate(usize::try_from(filled).unwrap_or(0));
    }
    if devices.is_empty() || result != 0 {
        return Err(no_driver());
    }
    let adapters = devices.into_iter().map(|device| {
        // SAFETY: numbers and arrays of them, of which zero is valid.
        let mut properties: Properties = unsafe { zeroed() };
        // SAFETY: the device is the instance's, which lives; the structure has the size of Vulkan's and is filled in.
        unsafe { describe(device, &mut properties) };
        adapter(&properties)
    });
    Ok(adapters.collect())
}

fn unavailable(reason: impl Display) -> Error {
    Error::unavailable(format!("no WebGPU adapter: {reason}"))
}

/// # Safety
/// `F` must be the type of the function.
unsafe fn function<F>(library: &'static Library, loader: &str, name: &str) -> Result<Symbol<'static, F>> {
    // SAFETY: guaranteed by the caller.
    unsafe { library.get::<F>(name.as_bytes()) }
        .map_err(|_| unavailable(format!("{loader} has no {name}, which every loader of Vulkan has")))
}

fn adapter(properties: &Properties) -> Adapter {
    let bytes = properties.name.map(|byte| byte.to_ne_bytes()[0]);
    let name = CStr::from_bytes_until_nul(&bytes).map(|name| name.to_string_lossy().into_owned());
    let kind = match properties.device_type {
        1 => AdapterKind::Integrated,
        2 => AdapterKind::Discrete,
        4 => AdapterKind::Software,
        _ => AdapterKind::Other,
    };
    // The identifier of the driver's cache of shaders changes with every build of a driver.
    let build: String = properties.cache_uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    Adapter {
        name: name.unwrap_or_default(),
        kind,
        vendor_id: properties.vendor_id,
        device_id: properties.device_id,
        driver: Some(format!("{:#x}, build {build}", properties.driver_version)),
    }
}

/// Loads a library and checks that it is a plugin of ONNX Runtime.
pub(super) fn check_provider(path: &Path) -> Result<(), String> {
    let library = library::open(path)?;
    // SAFETY: the symbol is only looked up, and never called with this type.
    let factories = unsafe { library.get::<unsafe extern "C" fn()>(b"CreateEpFactories\0") };
    factories
        .map(drop)
        .map_err(|_| "the library is no provider of ONNX Runtime: it has no `CreateEpFactories`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ocelli_error::ErrorKind;

    #[test]
    fn a_missing_loader_is_an_error_with_the_package() {
        let error = vulkan_adapters("libvulkan-of-no-machine.so.1").expect_err("there is no such library");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let text = error.to_string();
        assert!(
            text.starts_with("no WebGPU adapter: Vulkan's loader is missing (libvulkan-of-no-machine.so.1: "),
            "{text}"
        );
        assert!(text.ends_with("apt-get install libvulkan1)"), "{text}");
    }

    #[test]
    fn another_library_is_no_loader() {
        let error = vulkan_adapters("libc.so.6").expect_err("the C library has no Vulkan");
        assert!(error.to_string().contains("libc.so.6 has no vkCreateInstance"), "{error}");
    }
}
