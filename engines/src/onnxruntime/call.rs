//! The calls into ONNX Runtime that `ort` has no safe form of: a run that writes into memory of the caller, tensors at an
//! address of a device, where nodes were placed, and providers by name.
//!
//! `ort` fills outputs that it owns; copying them out would cost a pass over every feature map. The C function takes
//! outputs that exist already, checks their type and shape, and writes into them.

use super::placement::PlacedNode;
use crate::tensor::ElementType;
use half::f16;
use ort::memory::MemoryInfo;
use ort::session::builder::SessionBuilder;
use ort::session::{RunOptions, Session};
use ort::value::{DynValue, DynValueRef, DynValueRefMut, PrimitiveTensorElementType, Shape, TensorRefMut};
use ort::{AsPointer, sys};
use std::ffi::{CStr, CString, c_char};
use std::ptr::{self, NonNull};

/// Runs the session with these inputs; outputs that bring a value are written into it, the others are returned at
/// their position.
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

/// A tensor of ONNX Runtime's whose elements are the memory at `address`, where `memory` says.
///
/// # Safety
/// From `address` on there is memory of that kind, as large as type and shape say and aligned for the type, which lives
/// until the value is dropped; while a run uses the value, nobody else writes there, and where the run writes, nobody
/// reads.
pub(super) unsafe fn value_at(
    memory: &MemoryInfo<'static>,
    address: u64,
    element_type: ElementType,
    shape: &[usize],
) -> ort::Result<DynValueRefMut<'static>> {
    unsafe fn typed<T: PrimitiveTensorElementType + std::fmt::Debug>(
        memory: MemoryInfo<'static>,
        address: u64,
        shape: Shape,
    ) -> ort::Result<DynValueRefMut<'static>> {
        // SAFETY: the caller's promise.
        let value = unsafe { TensorRefMut::<T>::from_raw(memory, address as *mut _, shape) }?;
        Ok(value.into_dyn())
    }
    let (memory, shape): (_, Shape) = (memory.to_owned(), shape.iter().map(|&size| size as i64).collect());
    // SAFETY: the caller's promise, which names the type.
    unsafe {
        match element_type {
            ElementType::F32 => typed::<f32>(memory, address, shape),
            ElementType::F16 => typed::<f16>(memory, address, shape),
            ElementType::I64 => typed::<i64>(memory, address, shape),
            ElementType::I32 => typed::<i32>(memory, address, shape),
            ElementType::U8 => typed::<u8>(memory, address, shape),
            ElementType::Bool => typed::<bool>(memory, address, shape),
        }
    }
}

/// Adds a provider by its name, with options as its documentation names them.
pub(super) fn append_provider(
    session: &mut SessionBuilder,
    name: &str,
    options: &[(String, String)],
) -> ort::Result<()> {
    let text =
        |text: &str| CString::new(text).map_err(|_| ort::Error::new(format!("{text:?} has a null byte")));
    let name = text(name)?;
    let keys = options.iter().map(|(key, _)| text(key)).collect::<ort::Result<Vec<_>>>()?;
    let values = options.iter().map(|(_, value)| text(value)).collect::<ort::Result<Vec<_>>>()?;
    let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
    let (keys, values) = (pointers(&keys), pointers(&values));
    // SAFETY: name, keys and values end with a null byte and outlive the call, which copies them; the arrays are as long
    // as is said. `&mut` keeps others away from the options.
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

/// The providers that the loaded library was built with, the best first as it counts.
pub(super) fn built_in_providers() -> ort::Result<Vec<String>> {
    let (mut names, mut count) = (ptr::null_mut(), 0);
    // SAFETY: both are filled in by the call.
    let status = unsafe { (ort::api().GetAvailableProviders)(&mut names, &mut count) };
    check(status)?;
    let length = usize::try_from(count).unwrap_or(0);
    let providers = (0..length).map(|index| {
        // SAFETY: the call made an array of `count` texts that end with a null byte, alive until it is released below.
        unsafe { CStr::from_ptr(*names.add(index)) }.to_string_lossy().into_owned()
    });
    let providers = providers.collect();
    // SAFETY: what the call made, released once; the texts were copied.
    let status = unsafe { (ort::api().ReleaseAvailableProviders)(names, count) };
    check(status)?;
    Ok(providers)
}

/// Which provider each node of the model was given to, in a session that was told to remember it.
pub(super) fn placement(session: &Session) -> ort::Result<Vec<PlacedNode>> {
    let api = ort::api();
    let mut parts: *const *const sys::OrtEpAssignedSubgraph = ptr::null();
    let mut count = 0;
    // SAFETY: the session lives; both results are filled in by the call and stay the session's.
    check(unsafe { (api.Session_GetEpGraphAssignmentInfo)(session.ptr(), &mut parts, &mut count) })?;
    let mut placed = Vec::new();
    for index in 0..count {
        // SAFETY: the array has `count` entries and lives as long as the session.
        let part = unsafe { *parts.add(index) };
        let mut provider = ptr::null();
        // SAFETY: the entry is the session's; the text is too.
        check(unsafe { (api.EpAssignedSubgraph_GetEpName)(part, &mut provider) })?;
        let mut nodes: *const *const sys::OrtEpAssignedNode = ptr::null();
        let mut count = 0;
        // SAFETY: as above.
        check(unsafe { (api.EpAssignedSubgraph_GetNodes)(part, &mut nodes, &mut count) })?;
        for index in 0..count {
            // SAFETY: the array has `count` entries and lives as long as the session.
            let node = unsafe { *nodes.add(index) };
            let (mut name, mut operator) = (ptr::null(), ptr::null());
            // SAFETY: the node and the texts that are filled in are the session's.
            check(unsafe { (api.EpAssignedNode_GetName)(node, &mut name) })?;
            // SAFETY: as above.
            check(unsafe { (api.EpAssignedNode_GetOperatorType)(node, &mut operator) })?;
            // SAFETY: each is null or a text that ends with a null byte and lives as long as the session.
            let [provider, name, operator] = unsafe { [copy(provider), copy(name), copy(operator)] };
            placed.push(PlacedNode { provider, name, operator });
        }
    }
    Ok(placed)
}

fn check(status: sys::OrtStatusPtr) -> ort::Result<()> {
    // SAFETY: callers hand the status of the call they just made on, once.
    unsafe { ort::Error::result_from_status(status) }
}

/// # Safety
/// The text is null or ends with a null byte.
unsafe fn copy(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
