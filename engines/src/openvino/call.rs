//! Calls into OpenVINO's C API: each returns a `Result` whose error is one line, and what it creates has an owner.

use super::sys::{self, Functions, Status, Type, element};
use crate::c_text::{c_string, text};
use crate::library;
use crate::tensor::{ElementType, Tensor as HostTensor};
use std::ffi::{CStr, CString, c_char};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::{self, NonNull};

/// The first version with every function that is in use.
const OLDEST: &str = "2026.4";

/// Loads a library and returns the version of OpenVINO that it states (`2026.4.1`), or one line that says why it cannot
/// be used.
pub(super) fn version(path: &Path) -> Result<String, String> {
    open(path).map(|(_, version)| version)
}

fn open(path: &Path) -> Result<(Functions, String), String> {
    let library = library::open(path)?;
    // SAFETY: this function of every version since 2022.1 has the type of `sys::Functions::get_openvino_version`; it is
    // only looked up here.
    if unsafe { library.get::<unsafe extern "C" fn()>(b"ov_get_openvino_version\0") }.is_err() {
        return Err("the library is not OpenVINO: it has no `ov_get_openvino_version`".to_owned());
    }
    let functions = Functions::of(library)
        .map_err(|name| format!("the version is too old: it has no `{name}`; {OLDEST} or newer is needed"))?;
    let mut version = sys::Version { build_number: ptr::null(), description: ptr::null() };
    // SAFETY: the call fills in the structure, or fails.
    let status = unsafe { (functions.get_openvino_version)(&mut version) };
    // SAFETY: null, or the call above set it to a string that ends with a null byte.
    let build = unsafe { text(version.build_number) }.filter(|_| status == 0);
    let build = build.ok_or("the library states no version")?;
    // SAFETY: filled in above, and released once.
    unsafe { (functions.version_free)(&mut version) };
    // 2026.4.1-22982-e213a147257-releases/2026/4
    Ok((functions, build.split('-').next().unwrap_or(&build).to_owned()))
}

/// A loaded library and its core, for the life of the process.
#[derive(Clone, Copy)]
pub(super) struct Runtime {
    functions: &'static Functions,
    core: NonNull<sys::Core>,
}

// SAFETY: the core may be used from several threads at once (ov_core.h, "ov::Core" in OpenVINO's documentation), and the
// functions are constant.
unsafe impl Send for Runtime {}
// SAFETY: as above.
unsafe impl Sync for Runtime {}

impl Runtime {
    pub(super) fn start(path: &Path) -> Result<Self, String> {
        let (functions, _) = open(path)?;
        let functions: &'static Functions = Box::leak(Box::new(functions));
        // SAFETY: the call stores a new core, which is never freed.
        let core = created(functions, |core| unsafe { (functions.core_create)(core) })?;
        Ok(Self { functions, core })
    }

    /// The names of the devices that work on this machine: `CPU`, `GPU.0`.
    pub(super) fn devices(self) -> Result<Vec<String>, String> {
        let none = sys::Devices { names: ptr::null_mut(), size: 0 };
        // SAFETY: the core lives; the call fills in the list.
        let mut devices = stored(self.functions, none, |devices| unsafe {
            (self.functions.core_get_available_devices)(self.core.as_ptr(), devices)
        })?;
        let name = |index| {
            // SAFETY: the call made a list of `size` strings that end with a null byte, alive until they are freed below.
            unsafe { CStr::from_ptr(*devices.names.add(index)) }.to_string_lossy().into_owned()
        };
        let names = (0..devices.size).map(name).collect();
        // SAFETY: filled in above, and freed once, after the strings were copied.
        unsafe { (self.functions.available_devices_free)(&mut devices) };
        Ok(names)
    }

    pub(super) fn device_property(self, device: &str, key: &str) -> Result<String, String> {
        let (device, key) = (c_string(device)?, c_string(key)?);
        // SAFETY: the core lives, the names end with a null byte, and the call stores a new string.
        created_text(self.functions, |value| unsafe {
            (self.functions.core_get_property)(self.core.as_ptr(), device.as_ptr(), key.as_ptr(), value)
        })
    }

    /// Reads and compiles a file, or takes it from the cache that `properties` name.
    pub(super) fn compile_file(
        self,
        path: &Path,
        device: &str,
        properties: &[(&str, String)],
    ) -> Result<Compiled, String> {
        let (path, device) = (path_text(path)?, c_string(device)?);
        let texts = properties.iter().map(|(key, value)| Ok((c_string(key)?, c_string(value)?)));
        let texts = texts.collect::<Result<Vec<_>, String>>()?;
        let property =
            |(key, value): &(CString, CString)| sys::Property { key: key.as_ptr(), value: value.as_ptr() };
        let list: Vec<_> = texts.iter().map(property).collect();
        // SAFETY: the core lives; texts and the list of `len` properties live until the call returns; the call stores a
        // new compiled model.
        let model = created(self.functions, |compiled| unsafe {
            (self.functions.core_compile_model_from_file_props)(
                self.core.as_ptr(),
                path.as_ptr(),
                device.as_ptr(),
                list.len(),
                list.as_ptr(),
                compiled,
            )
        })?;
        Ok(Compiled { functions: self.functions, model })
    }
}

/// A model that is compiled for a device.
pub(super) struct Compiled {
    functions: &'static Functions,
    model: NonNull<sys::CompiledModel>,
}

// SAFETY: a compiled model is bound to no thread.
unsafe impl Send for Compiled {}

/// An input or an output of a compiled model.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Input,
    Output,
}

impl Compiled {
    pub(super) fn property(&self, key: &str) -> Result<String, String> {
        let key = c_string(key)?;
        // SAFETY: the model lives, the key ends with a null byte, and the call stores a new string.
        created_text(self.functions, |value| unsafe {
            (self.functions.compiled_model_get_property)(self.model.as_ptr(), key.as_ptr(), value)
        })
    }

    /// The number of inputs or outputs.
    pub(super) fn count(&self, side: Side) -> Result<usize, String> {
        let function = match side {
            Side::Input => self.functions.compiled_model_inputs_size,
            Side::Output => self.functions.compiled_model_outputs_size,
        };
        // SAFETY: the model lives, and the call stores a number.
        stored(self.functions, 0, |count| unsafe { function(self.model.as_ptr(), count) })
    }

    /// One name, of those that the input or output at this position has, and its element type.
    pub(super) fn at(&self, side: Side, position: usize) -> Result<(String, Type), String> {
        let function = match side {
            Side::Input => self.functions.compiled_model_input_by_index,
            Side::Output => self.functions.compiled_model_output_by_index,
        };
        // SAFETY: the model lives, and the call stores a new port or fails.
        self.describe(|port| unsafe { function(self.model.as_ptr(), position, port) })
    }

    /// As [`at`](Self::at), for the input or output that has this name among its names.
    pub(super) fn named(&self, side: Side, name: &str) -> Result<(String, Type), String> {
        let function = match side {
            Side::Input => self.functions.compiled_model_input_by_name,
            Side::Output => self.functions.compiled_model_output_by_name,
        };
        let name = c_string(name)?;
        // SAFETY: the model lives, the name ends with a null byte, and the call stores a new port or fails.
        self.describe(|port| unsafe { function(self.model.as_ptr(), name.as_ptr(), port) })
    }

    /// Frees the port.
    fn describe(&self, get: impl FnOnce(*mut *mut sys::Port) -> Status) -> Result<(String, Type), String> {
        let port = stored(self.functions, ptr::null_mut(), get)?;
        // SAFETY: `get` has just stored the port; the call stores a new string.
        let name =
            created_text(self.functions, |name| unsafe { (self.functions.port_get_any_name)(port, name) });
        // SAFETY: as above; the call stores a number.
        let element_type = stored(self.functions, 0, |number| unsafe {
            (self.functions.port_get_element_type)(port, number)
        });
        // SAFETY: it belongs to this function, and is freed once.
        unsafe { (self.functions.output_const_port_free)(port) };
        let element_type = element_type?;
        Ok((name?, element_type))
    }

    pub(super) fn request(&self) -> Result<Request, String> {
        // SAFETY: the model lives, and the call stores a new request.
        let request = created(self.functions, |request| unsafe {
            (self.functions.compiled_model_create_infer_request)(self.model.as_ptr(), request)
        })?;
        let inputs = self.count(Side::Input)?;
        let mut request = Request { functions: self.functions, request, inputs, own: Vec::new() };
        for index in 0..self.count(Side::Output)? {
            request.own.push(request.output_tensor(index)?);
        }
        Ok(request)
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        // SAFETY: this is its only owner; requests keep what they need alive.
        unsafe { (self.functions.compiled_model_free)(self.model.as_ptr()) }
    }
}

/// OpenVINO's number of an element type.
pub(super) fn foreign(element_type: ElementType) -> Type {
    match element_type {
        ElementType::F32 => element::F32,
        ElementType::F16 => element::F16,
        ElementType::I64 => element::I64,
        ElementType::I32 => element::I32,
        ElementType::U8 => element::U8,
        ElementType::Bool => element::BOOLEAN,
    }
}

/// A tensor of OpenVINO, whose memory is borrowed for `'m`.
pub(super) struct Tensor<'m> {
    functions: &'static Functions,
    tensor: NonNull<sys::Tensor>,
    memory: PhantomData<&'m mut [u8]>,
}

// SAFETY: a tensor is bound to no thread.
unsafe impl Send for Tensor<'_> {}

impl<'m> Tensor<'m> {
    /// A tensor whose elements are those of `own`, for reading.
    pub(super) fn over(request: &Request, own: &'m HostTensor) -> Result<Self, String> {
        let memory = own.bytes().map_err(|error| error.to_string())?;
        // SAFETY: the memory is borrowed for `'m`. A request only reads its inputs, and takes no other tensors that are
        // created here (`Request::run`).
        unsafe { Self::at(request, own, memory.as_ptr().cast_mut(), memory.len()) }
    }

    /// A tensor whose elements are those of `own`, for writing.
    pub(super) fn over_mut(request: &Request, own: &'m mut HostTensor) -> Result<Self, String> {
        let memory = own.bytes_mut().map_err(|error| error.to_string())?;
        let (address, size) = (memory.as_mut_ptr(), memory.len());
        // SAFETY: the memory is exclusively borrowed for `'m`.
        unsafe { Self::at(request, own, address, size) }
    }

    /// A tensor of the type and shape of `own`.
    ///
    /// # Safety
    /// At `address` there are `size` bytes until the end of `'m`, aligned for the type.
    unsafe fn at(request: &Request, own: &HostTensor, address: *mut u8, size: usize) -> Result<Self, String> {
        let (functions, element) = (request.functions, foreign(own.element_type()));
        let mut dims: Vec<i64> = own.shape().iter().map(|&size| size as i64).collect();
        let shape = sys::Shape { rank: dims.len() as i64, dims: dims.as_mut_ptr() };
        // SAFETY: the shape lives until the call returns, which copies it; the caller guarantees the memory; the call
        // stores a new tensor.
        let tensor = created(functions, |tensor| unsafe {
            (functions.tensor_create_from_host_ptr)(element, shape, address.cast(), tensor)
        })?;
        let tensor = Self { functions, tensor, memory: PhantomData };
        match tensor.byte_size()? {
            needed if needed == size => Ok(tensor),
            needed => Err(format!("a tensor needs {needed} bytes, and there are {size}")),
        }
    }

    pub(super) fn shape(&self) -> Result<Vec<usize>, String> {
        let scalar = sys::Shape { rank: 0, dims: ptr::null_mut() };
        // SAFETY: the tensor lives, and the call fills in the shape.
        let mut shape = stored(self.functions, scalar, |shape| unsafe {
            (self.functions.tensor_get_shape)(self.tensor.as_ptr(), shape)
        })?;
        let rank = usize::try_from(shape.rank).unwrap_or(0);
        // SAFETY: the call made a list of `rank` sizes, or none for a scalar, alive until it is freed below.
        let sizes = (0..rank).map(|axis| unsafe { *shape.dims.add(axis) });
        let sizes = sizes.map(|size| usize::try_from(size).unwrap_or(0)).collect();
        // SAFETY: filled in above, and freed once.
        check(self.functions, unsafe { (self.functions.shape_free)(&mut shape) })?;
        Ok(sizes)
    }

    pub(super) fn element(&self) -> Result<Type, String> {
        // SAFETY: the tensor lives, and the call stores a number.
        stored(self.functions, 0, |element| unsafe {
            (self.functions.tensor_get_element_type)(self.tensor.as_ptr(), element)
        })
    }

    /// The elements.
    pub(super) fn bytes(&self) -> Result<&[u8], String> {
        let size = self.byte_size()?;
        if size == 0 {
            return Ok(&[]);
        }
        // SAFETY: the tensor lives, and the call stores the address of its elements.
        let data = stored(self.functions, ptr::null_mut(), |data| unsafe {
            (self.functions.tensor_data)(self.tensor.as_ptr(), data)
        })?;
        if data.is_null() {
            return Err("a tensor has no memory".to_owned());
        }
        // SAFETY: the tensor has `size` bytes there while it lives; nothing writes to them, because no run can start
        // while the tensor of a request is borrowed from it.
        Ok(unsafe { std::slice::from_raw_parts(data.cast(), size) })
    }

    fn byte_size(&self) -> Result<usize, String> {
        // SAFETY: the tensor lives, and the call stores a number.
        stored(self.functions, 0, |size| unsafe {
            (self.functions.tensor_get_byte_size)(self.tensor.as_ptr(), size)
        })
    }
}

impl Drop for Tensor<'_> {
    fn drop(&mut self) {
        // SAFETY: this is its only owner; what else uses the tensor counts its references.
        unsafe { (self.functions.tensor_free)(self.tensor.as_ptr()) }
    }
}

/// Runs a compiled model.
pub(super) struct Request {
    functions: &'static Functions,
    request: NonNull<sys::InferRequest>,
    /// The number of inputs.
    inputs: usize,
    /// The request's own tensor for each output.
    own: Vec<Tensor<'static>>,
}

// SAFETY: a request is bound to no thread.
unsafe impl Send for Request {}

impl Request {
    /// Runs once. `inputs` has a tensor for every input of the model, `outputs` an entry for every output: the tensor to
    /// write to, or `None` for the request's own.
    ///
    /// # Panics
    /// If one of the lists has another length than the model.
    pub(super) fn run(
        &mut self,
        inputs: &[Tensor<'_>],
        outputs: &[Option<Tensor<'_>>],
    ) -> Result<(), String> {
        assert_eq!((inputs.len(), outputs.len()), (self.inputs, self.own.len()), "a tensor for each port");
        let request = self.request.as_ptr();
        for (index, tensor) in inputs.iter().enumerate() {
            // SAFETY: request and tensor live. The request keeps the address after this function has returned, and uses
            // it in the run below only: each later run sets every input first.
            let status = unsafe {
                (self.functions.infer_request_set_input_tensor_by_index)(
                    request,
                    index,
                    tensor.tensor.as_ptr(),
                )
            };
            check(self.functions, status)?;
        }
        for (index, tensor) in outputs.iter().enumerate() {
            let tensor = tensor.as_ref().map_or(self.own[index].tensor, |tensor| tensor.tensor);
            // SAFETY: as above; memory behind `outputs` is exclusively borrowed.
            let status = unsafe {
                (self.functions.infer_request_set_output_tensor_by_index)(request, index, tensor.as_ptr())
            };
            check(self.functions, status)?;
        }
        // Started and waited for, because `ov_infer_request_infer` of version 2026.4.1 with one thread loses the error of
        // a run that fails, and leaves the thread in a state in which the next run crashes.
        //
        // SAFETY: every tensor of the request was set above and is borrowed by this function, which waits for the end of
        // the run. `&mut self` keeps a second run out.
        check(self.functions, unsafe { (self.functions.infer_request_start_async)(request) })?;
        // SAFETY: the run was started, and it is over when the call returns, with an error or without one.
        check(self.functions, unsafe { (self.functions.infer_request_wait)(request) })
    }

    /// The number of outputs.
    pub(super) fn outputs(&self) -> usize {
        self.own.len()
    }

    pub(super) fn output_tensor<'t>(&self, index: usize) -> Result<Tensor<'t>, String> {
        // SAFETY: the request lives, and the call stores a new handle of the tensor.
        let tensor = created(self.functions, |tensor| unsafe {
            (self.functions.infer_request_get_output_tensor_by_index)(self.request.as_ptr(), index, tensor)
        })?;
        Ok(Tensor { functions: self.functions, tensor, memory: PhantomData })
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // SAFETY: this is its only owner, and no run is in progress.
        unsafe { (self.functions.infer_request_free)(self.request.as_ptr()) }
    }
}

/// The value that a call writes over `initial`.
fn stored<T>(functions: &Functions, initial: T, call: impl FnOnce(*mut T) -> Status) -> Result<T, String> {
    let mut value = initial;
    check(functions, call(&mut value))?;
    Ok(value)
}

/// The object that a call creates.
fn created<T>(functions: &Functions, call: impl FnOnce(*mut *mut T) -> Status) -> Result<NonNull<T>, String> {
    let pointer = stored(functions, ptr::null_mut(), call)?;
    NonNull::new(pointer).ok_or_else(|| "OpenVINO returned null".to_owned())
}

/// The text that a call creates.
fn created_text(
    functions: &Functions,
    call: impl FnOnce(*mut *mut c_char) -> Status,
) -> Result<String, String> {
    Ok(take(functions, stored(functions, ptr::null_mut(), call)?))
}

#[cfg(unix)]
fn path_text(path: &Path) -> Result<CString, String> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes()).map_err(|_| "the path has a null byte".to_owned())
}

#[cfg(not(unix))]
fn path_text(path: &Path) -> Result<CString, String> {
    c_string(path.to_str().ok_or("the path is not Unicode")?)
}

/// Takes over a string that a call has made.
fn take(functions: &Functions, made: *const c_char) -> String {
    // SAFETY: null, or made by a call of this library as a string that ends with a null byte.
    let copied = unsafe { text(made) };
    if copied.is_some() {
        // SAFETY: it is the caller's, and freed once.
        unsafe { (functions.free)(made) };
    }
    copied.unwrap_or_default()
}

/// The message of a failed call, in one line.
fn check(functions: &Functions, status: Status) -> Result<(), String> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: the call takes nothing and returns a new string or null.
    let message = take(functions, unsafe { (functions.get_last_err_msg)() });
    if !message.trim().is_empty() {
        return Err(short_reason(&message));
    }
    // SAFETY: any number may be passed; the result is null or a string that is never freed.
    let known = unsafe { text((functions.get_error_info)(status)) };
    Err(known.unwrap_or_else(|| format!("status {status}")))
}

/// The reason in one line, without the locations in OpenVINO's source.
fn short_reason(message: &str) -> String {
    let is_location = |line: &str| {
        line.starts_with("Exception from ")
            || line.starts_with("FrontEnd API failed with ")
            || line.starts_with("Check '") && line.contains(" failed at ")
    };
    let lines: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let reasons: Vec<&str> = lines.iter().copied().filter(|line| !is_location(line)).collect();
    let reasons = if reasons.is_empty() { lines } else { reasons };
    reasons.join("; ").trim_end_matches(['.', ' ', ';']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_lose_the_locations_in_the_source() {
        // Messages of OpenVINO 2026.4.1.
        let cases = [
            (
                "Exception from src/inference/src/cpp/core.cpp:132:\nException from src/plugins/intel_cpu/src/config.cpp:505:\n\
                 NotFound: Unsupported property NONSENSE by CPU plugin.\n\n\n",
                "NotFound: Unsupported property NONSENSE by CPU plugin",
            ),
            (
                "Exception from src/inference/src/cpp/core.cpp:132:\nCheck 'false' failed at src/frontends/x.cpp:151:\n\
                 FrontEnd API failed with OpConversionFailure:\nModel wasn't fully converted.\nSummary:\n\
                 -- No conversion rule found for operations: Frobnicate-17\n\n",
                "Model wasn't fully converted.; Summary:; -- No conversion rule found for operations: Frobnicate-17",
            ),
            ("Check 'a' failed at b.cpp:7:\n", "Check 'a' failed at b.cpp:7:"),
        ];
        for (message, expected) in cases {
            assert_eq!(short_reason(message), expected);
        }
    }
}
