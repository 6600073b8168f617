//! Calls into ONNX Runtime's C API for which `ort` has no safe function: its version before it is bound, runs that write
//! into the caller's memory, tensors at a device address, nodes by provider, and providers by name.
//!
//! `ort` fills outputs that it owns; copying them out would cost a pass over every feature map. The C function accepts
//! existing outputs, checks their type and shape, and writes into them.

use super::assignment::AssignedNode;
use crate::c_text::{c_string, text};
use crate::library;
use crate::tensor::ElementType;
use ort::device::Device;
use ort::memory::{Allocator, MemoryInfo};
use ort::session::builder::SessionBuilder;
use ort::session::{RunOptions, Session};
use ort::sys::{ORT_API_VERSION, OrtApiBase};
use ort::value::{DynValue, DynValueRef, DynValueRefMut, TensorElementType};
use ort::{AsPointer, sys};
use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::ptr::{self, NonNull};

/// Loads a library and returns the version of ONNX Runtime that it states, or one line that says why it cannot be used.
///
/// `ort` panics if a library lacks the API of its version, and never unloads a library. So libraries are tested before `ort`
/// loads them.
pub(super) fn version(path: &Path) -> Result<String, String> {
    let library = library::open(path)?;
    // SAFETY: the type is the declaration of this symbol in onnxruntime_c_api.h, unchanged since version 1.0. That
    // another library exports this name is not expected.
    let base = unsafe { library.get::<unsafe extern "C" fn() -> *const OrtApiBase>(b"OrtGetApiBase\0") }
        .map_err(|_| "the library is not ONNX Runtime: it has no `OrtGetApiBase`".to_owned())?;
    // SAFETY: as above; the function takes nothing and returns a pointer to a static or null.
    let base = unsafe { base().as_ref() }.ok_or("`OrtGetApiBase` returned null")?;

    // SAFETY: the library filled in `base` and is never unloaded, so it outlives every use of the string.
    let version = unsafe { (base.GetVersionString)() };
    // SAFETY: null, or documented to end with a null byte and never to be freed.
    let version = unsafe { text(version) }.ok_or("the library states no version")?;

    // SAFETY: any number may be requested; the result is null for one that is not supported.
    let api = unsafe { (base.GetApi)(ORT_API_VERSION) };
    let minor: Option<u32> = version.split('.').nth(1).and_then(|minor| minor.parse().ok());
    if minor.is_none_or(|minor| minor < ORT_API_VERSION) {
        return Err(format!("version {version} is too old: 1.{ORT_API_VERSION} or newer is needed"));
    }
    if api.is_null() {
        return Err(format!("version {version} has no API 1.{ORT_API_VERSION}"));
    }
    Ok(version)
}

/// Runs the session. Outputs that have a value are written into it; the values of the others are returned at their
/// position.
pub(super) fn run(
    session: &mut Session,
    options: &RunOptions,
    inputs: &[(&CStr, DynValueRef<'_>)],
    outputs: &mut [(&CStr, Option<DynValueRefMut<'_>>)],
) -> ort::Result<Vec<Option<DynValue>>> {
    let input_names: Vec<*const c_char> = inputs.iter().map(|(name, _)| name.as_ptr()).collect();
    let input_values: Vec<_> = inputs.iter().map(|(_, value)| value.ptr()).collect();
    let output_names: Vec<*const c_char> = outputs.iter().map(|(name, _)| name.as_ptr()).collect();
    let mut output_values: Vec<_> = outputs
        .iter()
        .map(|(_, value)| value.as_ref().map_or(ptr::null_mut(), |value| value.ptr().cast_mut()))
        .collect();

    // SAFETY: each pair of arrays has the length that is passed with it, and what they point to is borrowed for this
    // call: names end with a null byte, inputs are only read, and memory behind an output is exclusively borrowed by
    // its `DynValueRefMut`. ONNX Runtime compares type and shape of a given output before it writes. `&mut Session`
    // keeps a second run out; the run is over when the call returns.
    let status = unsafe {
        (ort::api().Run)(
            session.ptr().cast_mut(),
            options.ptr(),
            input_names.as_ptr(),
            input_values.as_ptr(),
            input_values.len(),
            output_names.as_ptr(),
            output_names.len(),
            output_values.as_mut_ptr(),
        )
    };
    check(status)?;

    let given = outputs.iter().map(|(_, value)| value.is_some());
    let produced = output_values.into_iter().zip(given).map(|(value, given)| match NonNull::new(value) {
        // SAFETY: an output that was null before a successful run is a new value, owned by the caller, and wrapped
        // once. It is released before the session: the caller holds it no longer than the borrow of the engine.
        Some(value) if !given => Some(unsafe { DynValue::from_ptr(value, Some(session.allocator())) }),
        _ => None,
    });
    Ok(produced.collect())
}

/// A kind of memory: ONNX Runtime's description of it.
pub(crate) struct Memory {
    /// Of `_owner`, or of a provider's device, which ONNX Runtime keeps for the life of the process.
    info: NonNull<sys::OrtMemoryInfo>,
    _owner: Option<MemoryInfo<'static>>,
}

// SAFETY: the description is only read.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn owned(info: MemoryInfo<'static>) -> Self {
        let ptr = NonNull::new(info.ptr().cast_mut()).expect("ort checked it");
        Self { info: ptr, _owner: Some(info) }
    }

    /// The memory of a provider's device. `None` if the provider has none.
    pub(super) fn of_device(device: &Device<'_>) -> Option<Self> {
        // SAFETY: the device is registered in the environment, which is never released.
        let info = unsafe {
            (ort::api().EpDevice_MemoryInfo)(
                device.ptr(),
                sys::OrtDeviceMemoryType::OrtDeviceMemoryType_DEFAULT,
            )
        };
        Some(Self { info: NonNull::new(info.cast_mut())?, _owner: None })
    }

    pub(super) fn info(&self) -> *const sys::OrtMemoryInfo {
        self.info.as_ptr()
    }
}

/// The types of elements, here and in ONNX Runtime.
pub(super) const ELEMENT_TYPES: [(ElementType, TensorElementType); 6] = [
    (ElementType::F32, TensorElementType::Float32),
    (ElementType::F16, TensorElementType::Float16),
    (ElementType::I64, TensorElementType::Int64),
    (ElementType::I32, TensorElementType::Int32),
    (ElementType::U8, TensorElementType::Uint8),
    (ElementType::Bool, TensorElementType::Bool),
];

/// A tensor of ONNX Runtime whose elements are the memory at `address` of this kind.
///
/// # Safety
/// At `address` there is memory of that kind, large enough for type and shape and aligned for the type. It lives until
/// the value is dropped. While a run uses the value, nothing else writes there; if the run writes there, nothing else reads.
pub(super) unsafe fn value_at(
    memory: &Memory,
    address: u64,
    element_type: ElementType,
    shape: &[usize],
) -> ort::Result<DynValue> {
    let bytes = shape.iter().product::<usize>() * element_type.size();
    let shape: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
    let known = ELEMENT_TYPES.into_iter().find(|(own, _)| *own == element_type);
    let (_, element_type) = known.expect("every element type is in the table");
    let mut value = ptr::null_mut();
    // SAFETY: the description lives as long as `memory`, and the value copies it. The shape is read during the call.
    // What the caller guarantees of the address holds until the value is dropped.
    check(unsafe {
        (ort::api().CreateTensorWithDataAsOrtValue)(
            memory.info(),
            address as *mut _,
            bytes,
            shape.as_ptr(),
            shape.len(),
            element_type.into(),
            &mut value,
        )
    })?;
    let value = NonNull::new(value).ok_or_else(|| ort::Error::new("ONNX Runtime returned no tensor"))?;
    // SAFETY: the call above made it, and it is wrapped once. It does not own its elements, so that no allocator has to
    // outlive it; the default one is never released.
    Ok(unsafe { DynValue::from_ptr(value, Some(&Allocator::default())) })
}

/// Adds a provider by its name, with the options that its documentation names.
pub(super) fn append_provider(
    session: &mut SessionBuilder,
    name: &str,
    options: &[(String, String)],
) -> ort::Result<()> {
    let text = |text: &str| c_string(text).map_err(ort::Error::new);
    let name = text(name)?;
    let keys = options.iter().map(|(key, _)| text(key)).collect::<ort::Result<Vec<_>>>()?;
    let values = options.iter().map(|(_, value)| text(value)).collect::<ort::Result<Vec<_>>>()?;
    let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
    let (keys, values) = (pointers(&keys), pointers(&values));
    // SAFETY: name, keys and values end with a null byte and outlive the call, which copies them; the arrays have
    // the length that is passed. `&mut` makes the access to the options exclusive.
    let status = unsafe {
        (ort::api().SessionOptionsAppendExecutionProvider)(
            session.ptr_mut(),
            name.as_ptr(),
            keys.as_ptr(),
            values.as_ptr(),
            keys.len(),
        )
    };
    check(status)
}

/// The providers that the loaded library was built with, in its order of preference.
pub(super) fn built_in_providers() -> ort::Result<Vec<String>> {
    let (mut names, mut count) = (ptr::null_mut(), 0);
    // SAFETY: both are filled in by the call.
    let status = unsafe { (ort::api().GetAvailableProviders)(&mut names, &mut count) };
    check(status)?;
    let length = usize::try_from(count).unwrap_or(0);
    let providers = (0..length).map(|index| {
        // SAFETY: the call made an array of `count` strings that end with a null byte, alive until they are released below.
        unsafe { CStr::from_ptr(*names.add(index)) }.to_string_lossy().into_owned()
    });
    let providers = providers.collect();
    // SAFETY: the call above made them; they are released once, after the strings were copied.
    let status = unsafe { (ort::api().ReleaseAvailableProviders)(names, count) };
    check(status)?;
    Ok(providers)
}

/// The provider of each node of the model, in a session that was configured to record it.
pub(super) fn assigned_nodes(session: &Session) -> ort::Result<Vec<AssignedNode>> {
    let api = ort::api();
    let mut parts: *const *const sys::OrtEpAssignedSubgraph = ptr::null();
    let mut count = 0;
    // SAFETY: the session lives; the call fills in both results, which stay the session's.
    check(unsafe { (api.Session_GetEpGraphAssignmentInfo)(session.ptr(), &mut parts, &mut count) })?;
    let mut assigned = Vec::new();
    for index in 0..count {
        // SAFETY: the array has `count` entries and lives as long as the session.
        let part = unsafe { *parts.add(index) };
        let mut provider = ptr::null();
        // SAFETY: the entry and the string are the session's.
        check(unsafe { (api.EpAssignedSubgraph_GetEpName)(part, &mut provider) })?;
        let mut nodes: *const *const sys::OrtEpAssignedNode = ptr::null();
        let mut count = 0;
        // SAFETY: as above.
        check(unsafe { (api.EpAssignedSubgraph_GetNodes)(part, &mut nodes, &mut count) })?;
        for index in 0..count {
            // SAFETY: the array has `count` entries and lives as long as the session.
            let node = unsafe { *nodes.add(index) };
            let (mut name, mut operator) = (ptr::null(), ptr::null());
            // SAFETY: the node and the strings are the session's.
            check(unsafe { (api.EpAssignedNode_GetName)(node, &mut name) })?;
            // SAFETY: as above.
            check(unsafe { (api.EpAssignedNode_GetOperatorType)(node, &mut operator) })?;
            // SAFETY: each is null or a string that ends with a null byte and lives as long as the session.
            let [provider, name, operator] =
                [provider, name, operator].map(|part| unsafe { text(part) }.unwrap_or_default());
            assigned.push(AssignedNode { provider, name, operator });
        }
    }
    Ok(assigned)
}

pub(super) fn check(status: sys::OrtStatusPtr) -> ort::Result<()> {
    // SAFETY: callers pass the status of each call once.
    unsafe { ort::Error::result_from_status(status) }
}
