//! The WebGPU provider is not safe by its options alone: operators that it computes wrongly are refused, errors of the device, which
//! it writes into the log alone, fail the run, and sessions take turns.

use ocelli_error::{Error, ErrorKind, Result};
use ocelli_onnx::schema::GraphProto;
use ort::session::Session;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Operators, with their domain, that provider 0.4.0 computes wrongly without an error.
const WRONG: [(&str, &str); 1] = [("com.microsoft", "MultiHeadAttention")];

/// The first error of the device since a run asked for it. The adapter belongs to the process, and so do its errors.
static ERROR: Mutex<Option<String>> = Mutex::new(None);

/// Held by the thread that uses the device: the sessions of a process share one command encoder and one set of buffers,
/// without a lock of their own.
static DEVICE: Mutex<()> = Mutex::new(());

/// Waits until no other thread uses the device.
pub(super) fn exclusive() -> MutexGuard<'static, ()> {
    DEVICE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A session, which is released while no other thread uses its device.
pub(super) struct ReleasedAlone {
    /// `None` only while it is dropped.
    session: Option<Session>,
    /// Set if the session is of this provider.
    is_webgpu: bool,
}

impl ReleasedAlone {
    pub(super) fn new(session: Session, is_webgpu: bool) -> Self {
        Self { session: Some(session), is_webgpu }
    }

    /// The turn of this session on its device, if sessions take turns there.
    pub(super) fn turn(&self) -> Option<MutexGuard<'static, ()>> {
        self.is_webgpu.then(exclusive)
    }
}

impl Drop for ReleasedAlone {
    fn drop(&mut self) {
        let _turn = self.turn();
        self.session = None;
    }
}

impl Deref for ReleasedAlone {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session.as_ref().expect("it is present until it is dropped")
    }
}

impl DerefMut for ReleasedAlone {
    fn deref_mut(&mut self) -> &mut Session {
        self.session.as_mut().expect("it is present until it is dropped")
    }
}

/// Fails if the model has an operator that the provider computes wrongly.
pub(super) fn refuse_wrong_operators(model: &str, graph: &GraphProto) -> Result<()> {
    let is_wrong = |domain: &str, operator: &str| WRONG.contains(&(domain, operator));
    match graph.node.iter().find(|node| is_wrong(&node.domain, &node.op_type)) {
        None => Ok(()),
        Some(node) => {
            let message = format!(
                "cannot run {model} on WebGPU: its provider computes {}.{} wrongly, and the model has it (`{}`); export the \
                 model with standard operators (target tensorrt)",
                node.domain, node.op_type, node.name
            );
            Err(Error::new(ErrorKind::Mismatch, message))
        }
    }
}

/// Keeps a message of ONNX Runtime's log if it is an error of the device.
pub(super) fn note(message: &str) {
    if message.contains("WebGPU device error") || message.contains("WebGPU device lost") {
        let line: String = message.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        ERROR.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(line);
    }
}

/// The error of the device since the last call.
pub(super) fn take_error() -> Option<String> {
    ERROR.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The remedy if the provider does not start for this reason.
pub(super) fn remedy(reason: &str) -> &'static str {
    if reason.contains("found no device") {
        "; ONNX Runtime finds GPUs through the system (on Linux in /sys/class/drm); with \
         ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER=1 it takes what Vulkan has even so"
    } else if reason.contains("Failed to get a WebGPU adapter")
        || reason.contains("Failed to get a WebGPU device")
    {
        "; the GPU's driver lacks what WebGPU needs: update it, or choose another engine"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ocelli_onnx::schema::NodeProto;

    fn graph(domain: &str, operator: &str) -> GraphProto {
        let node = NodeProto {
            name: "block 3".to_owned(),
            domain: domain.to_owned(),
            op_type: operator.to_owned(),
            ..NodeProto::default()
        };
        GraphProto { node: vec![node], ..GraphProto::default() }
    }

    #[test]
    fn operators_that_are_wrong_are_refused_with_the_remedy() {
        let error = refuse_wrong_operators("m.onnx", &graph("com.microsoft", "MultiHeadAttention"));
        let error = error.expect_err("it is wrong");
        assert_eq!(error.kind(), ErrorKind::Mismatch);
        let text = error.to_string();
        assert!(
            text.contains("com.microsoft.MultiHeadAttention wrongly, and the model has it (`block 3`)"),
            "{text}"
        );
        assert!(text.contains("target tensorrt"), "{text}");
        for (domain, operator) in [("", "MultiHeadAttention"), ("", "MatMul")] {
            refuse_wrong_operators("m.onnx", &graph(domain, operator)).expect("it is not on the list");
        }
    }

    #[test]
    fn errors_of_the_device_are_kept_until_a_run_asks() {
        note("Some other message");
        assert_eq!(take_error(), None);
        note("WebGPU device error(2): Buffer\n is too large");
        note("WebGPU device error(2): a later one");
        assert_eq!(take_error().as_deref(), Some("WebGPU device error(2): Buffer is too large"));
        assert_eq!(take_error(), None);
    }
}
