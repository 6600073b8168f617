//! One model in OpenVINO.

use super::call::{Compiled, Request, Side, Tensor as Foreign, foreign};
use crate::engine::Engine;
use crate::spec::{EngineSpec, TensorSpec, check_outputs, check_residence, check_run, input_named, position};
use crate::tensor::{ElementType, Tensor};
use ocelli_error::{Error, Result};

/// A model that OpenVINO runs.
///
/// Inputs are read in place. An output whose shape follows from the inputs (each of its named dimensions is one of an
/// input) is written into the caller's tensor; an output whose shape depends on the data, and one of `bool`, is copied
/// once. Every run computes all outputs. Sizes of named dimensions may change from run to run; nothing is compiled again.
///
/// OpenVINO computes 64-bit integers in 32 bits. An input outside of that range is refused; a result outside of it wraps
/// around.
pub struct OpenVinoEngine {
    request: Request,
    spec: EngineSpec,
    /// For each input of the compiled model, its position in the specification.
    inputs: Vec<usize>,
    /// For each output of the specification, its position in the compiled model.
    outputs: Vec<usize>,
    from_cache: bool,
    model: String,
    description: String,
}

impl OpenVinoEngine {
    pub(super) fn new(
        compiled: &Compiled,
        spec: EngineSpec,
        model: String,
        description: String,
    ) -> Result<Self, String> {
        let mut inputs = vec![None; compiled.count(Side::Input)?];
        for (position, input) in spec.inputs.iter().enumerate() {
            // OpenVINO drops inputs that no operator uses.
            if compiled.named(Side::Input, &input.name).is_ok() {
                inputs[locate(compiled, Side::Input, position, input)?] = Some(position);
            }
        }
        let inputs = inputs.into_iter().collect::<Option<_>>().ok_or("it has inputs that the file lacks")?;
        let outputs = spec.outputs.iter().enumerate();
        let outputs = outputs.map(|(position, output)| locate(compiled, Side::Output, position, output));
        let outputs = outputs.collect::<Result<_, _>>()?;
        let from_cache =
            matches!(compiled.property("LOADED_FROM_CACHE").as_deref(), Ok("YES" | "true" | "1"));
        Ok(Self { request: compiled.request()?, spec, inputs, outputs, from_cache, model, description })
    }

    /// `true` if the compiled model came from the [cache](super::OpenVinoBuilder::with_cache).
    pub fn is_from_cache(&self) -> bool {
        self.from_cache
    }
}

/// The position of an input or output in the compiled model, which keeps the order of the file.
///
/// A tensor may have several names there, such as that of an inner tensor, and two outputs of the file may be one tensor:
/// then it has both of their names, and each has its own position.
fn locate(compiled: &Compiled, side: Side, position: usize, spec: &TensorSpec) -> Result<usize, String> {
    let wanted = compiled.named(side, &spec.name)?;
    let expected = foreign(spec.element_type);
    if wanted.1 != expected {
        return Err(format!(
            "`{}` has element type {} after compilation, expected {expected}",
            spec.name, wanted.1
        ));
    }
    let count = compiled.count(side)?;
    let order = [position].into_iter().chain(0..count).filter(|&at| at < count);
    for at in order {
        if compiled.at(side, at)? == wanted {
            return Ok(at);
        }
    }
    Err(format!("`{}` is missing after compilation", spec.name))
}

impl Engine for OpenVinoEngine {
    fn spec(&self) -> &EngineSpec {
        &self.spec
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn run(&mut self, inputs: &[(&str, &Tensor)], outputs: &mut [(&str, &mut Tensor)]) -> Result<()> {
        let Self { request, spec, model, .. } = self;
        let bindings = check_run(spec, inputs, outputs)?;
        check_residence(None, inputs, outputs)?;
        inputs.iter().try_for_each(|(name, tensor)| check_integers(name, tensor))?;
        let failed = |reason: String| Error::execution(format!("cannot run the model, {model}: {reason}"));

        let mut given = Vec::with_capacity(inputs.len());
        for &position in &self.inputs {
            let tensor = input_named(inputs, &spec.inputs[position].name);
            given.push(Foreign::over(request, tensor).map_err(failed)?);
        }
        let mut targets: Vec<_> = std::iter::repeat_with(|| None).take(request.outputs()).collect();
        let mut wanted = Vec::with_capacity(outputs.len());
        for (name, tensor) in outputs.iter_mut() {
            let in_spec = position(&spec.outputs, name);
            let (output, position) = (&spec.outputs[in_spec], self.outputs[in_spec]);
            let known = bindings.shape_of(output).filter(|_| output.element_type != ElementType::Bool);
            if let Some(shape) = &known {
                tensor.reset_to(output.element_type, shape)?;
                targets[position] = Some(Foreign::over_mut(request, tensor).map_err(failed)?);
            }
            wanted.push(RequestedOutput { output, position, known });
        }

        request.run(&given, &targets).map_err(failed)?;
        for RequestedOutput { output, position, known } in &wanted {
            if let (Some(shape), Some(target)) = (known, &targets[*position]) {
                let actual = target.shape().map_err(failed)?;
                if actual != *shape {
                    let name = &output.name;
                    return Err(failed(format!("output `{name}`: expected shape {shape:?}, got {actual:?}")));
                }
            }
        }
        drop(targets);
        for ((_, tensor), RequestedOutput { output, position, known }) in outputs.iter_mut().zip(wanted) {
            if known.is_none() {
                copy(request, position, output.element_type, tensor).map_err(failed)?;
            }
        }
        check_outputs(spec, &bindings, outputs)
    }
}

/// An output that a run requests.
struct RequestedOutput<'s> {
    output: &'s TensorSpec,
    /// In the compiled model.
    position: usize,
    /// Its shape, if the engine writes into the caller's tensor.
    known: Option<Vec<usize>>,
}

/// Copies an output that OpenVINO owns.
fn copy(
    request: &Request,
    position: usize,
    element_type: ElementType,
    tensor: &mut Tensor,
) -> Result<(), String> {
    let own = request.output_tensor(position)?;
    if own.element()? != foreign(element_type) {
        return Err("an output changed its element type".to_owned());
    }
    tensor.reset_to(element_type, &own.shape()?).map_err(|error| error.to_string())?;
    let bytes = own.bytes()?;
    let copied = tensor.fill_bytes(|target| {
        target.copy_from_slice(bytes);
        Ok(())
    });
    copied.map_err(|error| error.to_string())
}

debug_as!(OpenVinoEngine, it => "OpenVinoEngine({}: {})", it.description, it.model);

/// OpenVINO would drop the upper 32 bits.
fn check_integers(name: &str, tensor: &Tensor) -> Result<()> {
    if tensor.element_type() != ElementType::I64 {
        return Ok(());
    }
    match tensor.as_slice::<i64>()?.iter().find(|&&value| i32::try_from(value).is_err()) {
        Some(value) => Err(Error::invalid_argument(format!(
            "input `{name}`: expected integers of 32 bits, in which OpenVINO computes, got {value}"
        ))),
        None => Ok(()),
    }
}
