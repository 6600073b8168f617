//! The one call into ONNX Runtime that `ort` has no safe form of: a run that writes into memory of the caller.
//!
//! `ort` fills outputs that it owns; copying them out would cost a pass over every feature map. The C function takes
//! outputs that exist already, checks their type and shape, and writes into them.

use ort::AsPointer;
use ort::session::{RunOptions, Session};
use ort::value::{DynValue, DynValueRef, DynValueRefMut};
use std::ffi::{CStr, c_char};
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
    // SAFETY: the status is the one just returned, owned by the caller, and handed on once.
    unsafe { ort::Error::result_from_status(status) }?;

    let given = outputs.iter().map(|(_, value)| value.is_some());
    let produced = output_values.into_iter().zip(given).map(|(value, given)| match NonNull::new(value) {
        // SAFETY: an output that was null before a successful run is a new value, owned by the caller, and wrapped
        // once. It is released before the session: the caller holds it no longer than the borrow of the engine.
        Some(value) if !given => Some(unsafe { DynValue::from_ptr(value, Some(session.allocator())) }),
        _ => None,
    });
    Ok(produced.collect())
}
