//! The functions of OpenVINO's C API that are in use, as `openvino/c/*.h` of version 2026.4 declares them.
//!
//! A status and an element type are integers here, and not enumerations: a later version may have values that this one
//! does not know.

use libloading::Library;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// `ov_status_e`; 0 is success.
pub(super) type Status = c_int;
/// `ov_element_type_e`.
pub(super) type Type = c_uint;

opaque!(Core, CompiledModel, InferRequest, Tensor, Port);

/// `ov_version_t`
#[repr(C)]
pub(super) struct Version {
    pub(super) build_number: *const c_char,
    pub(super) description: *const c_char,
}

/// `ov_available_devices_t`
#[repr(C)]
pub(super) struct Devices {
    pub(super) names: *mut *mut c_char,
    pub(super) size: usize,
}

/// `ov_shape_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) rank: i64,
    pub(super) dims: *mut i64,
}

/// `ov_property_t`
#[repr(C)]
pub(super) struct Property {
    pub(super) key: *const c_char,
    pub(super) value: *const c_char,
}

/// `ov_element_type_e` of the types that tensors have.
pub(super) mod element {
    use super::Type;

    pub(crate) const BOOLEAN: Type = 1;
    pub(crate) const F16: Type = 3;
    pub(crate) const F32: Type = 4;
    pub(crate) const I32: Type = 9;
    pub(crate) const I64: Type = 10;
    pub(crate) const U8: Type = 16;
}

macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)+) => {
        /// The functions of a library, by their names without `ov_`.
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)+
        }

        impl Functions {
            /// Finds every function, or returns the name of one that the library lacks.
            pub(super) fn of(library: &'static Library) -> Result<Self, &'static str> {
                Ok(Self {
                    // SAFETY: the type is the declaration of this symbol in the headers. That another library exports
                    // these names is not expected. The library is never unloaded.
                    $($name: *unsafe { library.get(concat!("ov_", stringify!($name), "\0").as_bytes()) }
                        .map_err(|_| concat!("ov_", stringify!($name)))?,)+
                })
            }
        }
    };
}

functions! {
    get_openvino_version(*mut Version) -> Status;
    version_free(*mut Version);
    get_last_err_msg() -> *const c_char;
    get_error_info(Status) -> *const c_char;
    free(*const c_char);

    core_create(*mut *mut Core) -> Status;
    core_get_available_devices(*const Core, *mut Devices) -> Status;
    available_devices_free(*mut Devices);
    core_get_property(*const Core, *const c_char, *const c_char, *mut *mut c_char) -> Status;
    core_compile_model_from_file_props(
        *const Core, *const c_char, *const c_char, usize, *const Property, *mut *mut CompiledModel
    ) -> Status;

    compiled_model_free(*mut CompiledModel);
    compiled_model_get_property(*const CompiledModel, *const c_char, *mut *mut c_char) -> Status;
    compiled_model_inputs_size(*const CompiledModel, *mut usize) -> Status;
    compiled_model_input_by_index(*const CompiledModel, usize, *mut *mut Port) -> Status;
    compiled_model_input_by_name(*const CompiledModel, *const c_char, *mut *mut Port) -> Status;
    compiled_model_outputs_size(*const CompiledModel, *mut usize) -> Status;
    compiled_model_output_by_index(*const CompiledModel, usize, *mut *mut Port) -> Status;
    compiled_model_output_by_name(*const CompiledModel, *const c_char, *mut *mut Port) -> Status;
    compiled_model_create_infer_request(*const CompiledModel, *mut *mut InferRequest) -> Status;
    port_get_any_name(*const Port, *mut *mut c_char) -> Status;
    port_get_element_type(*const Port, *mut Type) -> Status;
    output_const_port_free(*mut Port);

    infer_request_set_input_tensor_by_index(*mut InferRequest, usize, *const Tensor) -> Status;
    infer_request_set_output_tensor_by_index(*mut InferRequest, usize, *const Tensor) -> Status;
    infer_request_get_output_tensor_by_index(*const InferRequest, usize, *mut *mut Tensor) -> Status;
    infer_request_start_async(*mut InferRequest) -> Status;
    infer_request_wait(*mut InferRequest) -> Status;
    infer_request_free(*mut InferRequest);

    tensor_create_from_host_ptr(Type, Shape, *mut c_void, *mut *mut Tensor) -> Status;
    tensor_get_shape(*const Tensor, *mut Shape) -> Status;
    tensor_get_element_type(*const Tensor, *mut Type) -> Status;
    tensor_get_byte_size(*const Tensor, *mut usize) -> Status;
    tensor_data(*const Tensor, *mut *mut c_void) -> Status;
    tensor_free(*mut Tensor);
    shape_free(*mut Shape) -> Status;
}
