//! The middle layers over [`BuildCalls`]: each call a result that says what failed where and why, each object an owner.

use super::calls::{
    BuildCalls, Builder, Config, Handle, Monitor, Network, NetworkTensor, Object, ParseError, Parser,
    ProfileShape, Setting, TimingCache,
};
use super::log::{Mark, tidy};
use crate::error::{Error, ErrorKind, Result};
use std::ffi::CString;
use std::path::Path;

/// An object that goes back to TensorRT when this is dropped.
struct Owned<'c, T: Object> {
    calls: &'c dyn BuildCalls,
    handle: Handle<T>,
}

impl<T: Object> Drop for Owned<'_, T> {
    fn drop(&mut self) {
        self.calls.destroy(T::CLASS, self.handle.address());
    }
}

/// The build of one ONNX file.
///
/// Fields are dropped in their order: what was made of something goes before it, and the timing cache outlives the
/// builder that uses it.
pub(super) struct Session<'c> {
    parser: Option<Owned<'c, Parser>>,
    network: Owned<'c, Network>,
    config: Owned<'c, Config>,
    builder: Owned<'c, Builder>,
    timing_cache: Option<Owned<'c, TimingCache>>,
    calls: &'c dyn BuildCalls,
    /// The file, for messages.
    onnx: String,
}

impl<'c> Session<'c> {
    /// Makes what every build needs.
    pub(super) fn open(calls: &'c dyn BuildCalls, onnx: &Path) -> Result<Self> {
        let onnx = onnx.display().to_string();
        let mark = calls.log().mark();
        let mut builder = owned(calls, calls.create_builder(), &onnx, mark)?;
        let config = owned(calls, calls.create_config(&mut builder.handle), &onnx, mark)?;
        let network = owned(calls, calls.create_network(&mut builder.handle), &onnx, mark)?;
        Ok(Self { parser: None, network, config, builder, timing_cache: None, calls, onnx })
    }

    /// Reads the file into the network.
    pub(super) fn parse(&mut self, path: &Path) -> Result<()> {
        let mark = self.calls.log().mark();
        let text = path.to_str().and_then(|path| CString::new(path).ok());
        let text = text.ok_or_else(|| {
            let message = format!("cannot read, {}: TensorRT takes paths in UTF-8 alone", self.onnx);
            Error::new(ErrorKind::InvalidArgument, message)
        })?;
        let parser = self.calls.create_parser(&mut self.network.handle);
        // The parser keeps the weights that the network points to, so it stays to the end.
        let parser = self.parser.insert(owned(self.calls, parser, &self.onnx, mark)?);
        if self.calls.parse_file(&mut parser.handle, &text) {
            return Ok(());
        }
        let errors = self.calls.parse_errors(&parser.handle);
        let reason = match errors.first() {
            None => format!(": {}", self.calls.log().since(mark)),
            // What is about no node, such as a file of weights that is missing, is told whole to the log alone.
            Some(error) if error.operator.is_empty() => {
                let mut said = self.calls.log().errors_since(mark);
                said.retain(|line| !line.contains(tidy(&error.description).as_str()));
                let said = if said.is_empty() { said.concat() } else { format!(" ({})", said.join("; ")) };
                format!("{}{said}", explain(&errors))
            }
            Some(_) => explain(&errors),
        };
        Err(Error::new(ErrorKind::InvalidModel, format!("cannot parse, {}{reason}", self.onnx)))
    }

    /// Inputs and outputs of the network.
    pub(super) fn tensors(&self) -> Result<[Vec<NetworkTensor>; 2]> {
        let [inputs, outputs] = self.calls.tensors(&self.network.handle);
        let whole = |tensors: Vec<Option<NetworkTensor>>| -> Option<Vec<NetworkTensor>> {
            tensors.into_iter().collect::<Option<Vec<_>>>().filter(|tensors| !tensors.is_empty())
        };
        whole(inputs).zip(whole(outputs)).map(|(inputs, outputs)| [inputs, outputs]).ok_or_else(|| {
            let message = format!("cannot build, {}: the network has no inputs or no outputs", self.onnx);
            Error::new(ErrorKind::InvalidModel, message)
        })
    }

    /// Tells the configuration something; `what` is it in words.
    pub(super) fn configure(&mut self, setting: &Setting, what: &str) -> Result<()> {
        let mark = self.calls.log().mark();
        if self.calls.configure(&mut self.config.handle, setting) {
            return Ok(());
        }
        let message =
            format!("cannot build, {}: {what} refused: {}", self.onnx, self.calls.log().since(mark));
        Err(Error::new(ErrorKind::InvalidArgument, message))
    }

    /// The sizes that the inputs may have.
    pub(super) fn add_profile(&mut self, shapes: &[ProfileShape]) -> Result<()> {
        let mark = self.calls.log().mark();
        if self.calls.add_profile(&mut self.builder.handle, &mut self.config.handle, shapes) {
            return Ok(());
        }
        let reason = self.calls.log().since(mark);
        let message = format!("cannot build, {}: the sizes of the inputs were refused: {reason}", self.onnx);
        Err(Error::new(ErrorKind::InvalidArgument, message))
    }

    /// Uses the measured times in `bytes`, or begins with none where it has no bytes; `false` if they are another
    /// version's, another GPU's, or damaged.
    pub(super) fn use_timing_cache(&mut self, bytes: &[u8]) -> Result<bool> {
        let mark = self.calls.log().mark();
        let cache = self.calls.create_timing_cache(&self.config.handle, bytes);
        let Some(handle) = cache else {
            if bytes.is_empty() {
                let reason = self.calls.log().since(mark);
                let message = format!("cannot build, {}: TensorRT made no timing cache: {reason}", self.onnx);
                return Err(Error::new(ErrorKind::Execution, message));
            }
            return Ok(false);
        };
        let cache = Owned { calls: self.calls, handle };
        let fits = self.calls.set_timing_cache(&mut self.config.handle, &cache.handle);
        if fits {
            self.timing_cache = Some(cache);
        }
        Ok(fits)
    }

    /// What is to be written, after a build.
    pub(super) fn timing_cache_bytes(&self) -> Option<Vec<u8>> {
        let cache = self.timing_cache.as_ref()?;
        self.calls.timing_cache_bytes(&cache.handle).filter(|bytes| !bytes.is_empty())
    }

    /// Builds.
    pub(super) fn build(&mut self, monitor: &dyn Monitor) -> Result<Vec<u8>> {
        let mark = self.calls.log().mark();
        let (builder, network, config) =
            (&mut self.builder.handle, &mut self.network.handle, &mut self.config.handle);
        let plan = self.calls.build(builder, network, config, monitor).filter(|plan| !plan.is_empty());
        plan.ok_or_else(|| {
            let message = format!("cannot build, {}: {}", self.onnx, self.calls.log().since(mark));
            Error::new(ErrorKind::Execution, message)
        })
    }
}

fn owned<'c, T: Object>(
    calls: &'c dyn BuildCalls,
    handle: Option<Handle<T>>,
    onnx: &str,
    mark: Mark,
) -> Result<Owned<'c, T>> {
    let handle = handle.ok_or_else(|| {
        let reason = calls.log().since(mark);
        let message = format!("cannot build, {onnx}: TensorRT made no {}: {reason}", T::CLASS);
        Error::new(ErrorKind::Unavailable, message)
    })?;
    Ok(Owned { calls, handle })
}

/// The first error, and how many there are; it begins with what follows the file's name.
fn explain(errors: &[ParseError]) -> String {
    let Some(error) = errors.first() else { return String::new() };
    let mut text = String::new();
    if !error.operator.is_empty() || !error.node_name.is_empty() {
        text += &match (error.node_name.as_str(), error.node) {
            ("", number) => format!(", node {number}"),
            (name, _) => format!(", node `{name}`"),
        };
        if !error.operator.is_empty() {
            text += &format!(" ({})", error.operator);
        }
    }
    text += &format!(": {}", tidy(&error.description));
    if errors.len() > 1 {
        text += &format!(" (and {} more errors)", errors.len() - 1);
    }
    text
}
