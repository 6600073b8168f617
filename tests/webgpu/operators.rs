//! Every operator that the exporter emits, one by one: WebGPU against ONNX Runtime on the CPU.
//!
//! Each case is a graph of one node, as the exported files have it. A node alone cannot show a fault of ONNX Runtime's
//! fusions; the parity tests run the whole graphs.

use std::collections::BTreeSet;

use ocelli::engines::onnxruntime::{ExecutionProvider, OnnxRuntime, OnnxRuntimeEngine, OtherProvider};
use ocelli::engines::webgpu::WebGpu;
use ocelli::engines::{ElementType, Engine, Tensor};
use ocelli_onnx::Message;
use ocelli_onnx::schema::{
    AttributeProto, DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorTypeProto, TypeProto, ValueInfoProto, attribute_type, data_type,
};

/// The largest max|a − b| / max|b| that passes: the rounding of sums in another order.
const TOLERANCE: f32 = 1e-5;

/// Operators that GPUs may compute less exactly, and the largest error that Vulkan and WebGPU allow.
const INEXACT: [(&str, f32); 2] = [("Cos", 1.0 / 2048.0), ("Sin", 1.0 / 2048.0)];

/// A graph of one node.
struct Case {
    node: NodeProto,
    inputs: Vec<(&'static str, Tensor)>,
    weights: Vec<(&'static str, Tensor)>,
    /// The element type of the outputs.
    result: i32,
}

impl Case {
    /// The node's inputs are those named, in this order; an empty name leaves one out.
    fn new(operator: &str, names: &[&str]) -> Self {
        let (domain, op_type) = operator.rsplit_once('.').unwrap_or(("", operator));
        let node = NodeProto {
            input: names.iter().map(ToString::to_string).collect(),
            output: vec!["y".to_owned()],
            name: "node".to_owned(),
            op_type: op_type.to_owned(),
            domain: domain.to_owned(),
            ..NodeProto::default()
        };
        Self { node, inputs: Vec::new(), weights: Vec::new(), result: data_type::FLOAT }
    }

    fn input(mut self, name: &'static str, value: Tensor) -> Self {
        self.inputs.push((name, value));
        self
    }

    fn weight(mut self, name: &'static str, value: Tensor) -> Self {
        self.weights.push((name, value));
        self
    }

    fn attribute(mut self, name: &str, change: impl FnOnce(&mut AttributeProto)) -> Self {
        let mut attribute = AttributeProto { name: name.to_owned(), ..AttributeProto::default() };
        change(&mut attribute);
        self.node.attribute.push(attribute);
        self
    }

    fn int(self, name: &str, value: i64) -> Self {
        self.attribute(name, |a| (a.r#type, a.i) = (attribute_type::INT, value))
    }

    fn float(self, name: &str, value: f32) -> Self {
        self.attribute(name, |a| (a.r#type, a.f) = (attribute_type::FLOAT, value))
    }

    fn ints(self, name: &str, values: &[i64]) -> Self {
        self.attribute(name, |a| (a.r#type, a.ints) = (attribute_type::INTS, values.to_vec()))
    }

    fn text(self, name: &str, value: &str) -> Self {
        self.attribute(name, |a| (a.r#type, a.s) = (attribute_type::STRING, value.as_bytes().to_vec()))
    }

    fn gives(mut self, result: i32) -> Self {
        self.result = result;
        self
    }

    /// A second output.
    fn and_output(mut self) -> Self {
        self.node.output.push("z".to_owned());
        self
    }

    fn operator(&self) -> String {
        let NodeProto { domain, op_type, .. } = &self.node;
        if domain.is_empty() { op_type.clone() } else { format!("{domain}.{op_type}") }
    }

    fn encode(&self) -> Vec<u8> {
        let element = |value: &Tensor| match value.element_type() {
            ElementType::F32 => data_type::FLOAT,
            ElementType::Bool => data_type::BOOL,
            _ => data_type::INT64,
        };
        let sizes = |value: &Tensor| value.shape().iter().map(|&size| size as i64).collect::<Vec<_>>();
        let input = |(name, value): &(&str, Tensor)| {
            ValueInfoProto::tensor(
                name,
                element(value),
                sizes(value).into_iter().map(DimensionValue::DimValue),
            )
        };
        let weight = |(name, value): &(&'static str, Tensor)| TensorProto {
            name: (*name).to_owned(),
            dims: sizes(value),
            data_type: element(value),
            raw_data: Some(match value.as_f32() {
                Ok(floats) => floats.iter().flat_map(|value| value.to_le_bytes()).collect(),
                Err(_) => {
                    let integers = value.as_slice::<i64>().expect("a case has f32 and i64 alone");
                    integers.iter().flat_map(|value| value.to_le_bytes()).collect()
                }
            }),
            ..TensorProto::default()
        };
        let output = |name: &String| {
            let tensor_type = Some(TensorTypeProto { elem_type: self.result, shape: None });
            ValueInfoProto { name: name.clone(), r#type: Some(TypeProto { tensor_type }) }
        };
        let graph = GraphProto {
            node: vec![self.node.clone()],
            name: "case".to_owned(),
            initializer: self.weights.iter().map(weight).collect(),
            input: self.inputs.iter().map(input).collect(),
            output: self.node.output.iter().map(output).collect(),
        };
        let opset = |domain: &str, version| OperatorSetIdProto { domain: domain.to_owned(), version };
        let opset_import = vec![opset("", 20), opset("com.microsoft", 1)];
        ModelProto { ir_version: 9, graph: Some(graph), opset_import, ..ModelProto::default() }
            .encode_to_vec()
    }

    /// The largest error of the outputs; `f32::MAX` if shapes differ or a value is not a number.
    fn error(&self) -> Result<f32, String> {
        let model = self.encode();
        let run = |provider: ExecutionProvider| -> ocelli::Result<Vec<Tensor>> {
            let builder = OnnxRuntimeEngine::builder(&OnnxRuntime::load(None)?).with_threads(1);
            let mut engine = builder.with_provider(provider).build_from_memory(&model)?;
            let inputs: Vec<(&str, &Tensor)> =
                self.inputs.iter().map(|(name, value)| (*name, value)).collect();
            let mut tensors = vec![Tensor::empty(); self.node.output.len()];
            let mut outputs: Vec<(&str, &mut Tensor)> =
                self.node.output.iter().map(String::as_str).zip(&mut tensors).collect();
            engine.run(&inputs, &mut outputs)?;
            Ok(tensors)
        };
        let expected = run(ExecutionProvider::Cpu).map_err(|error| format!("on the CPU: {error}"))?;
        let found = provider().and_then(run).map_err(|error| error.to_string())?;
        let mut largest = 0.0_f32;
        for (a, b) in found.iter().zip(&expected) {
            let (shapes, a, b) = (a.shape() == b.shape(), numbers(a), numbers(b));
            if !shapes || a.iter().any(|value| !value.is_finite()) {
                return Ok(f32::MAX);
            }
            let scale = b.iter().fold(f32::MIN_POSITIVE, |most, value| most.max(value.abs()));
            largest = a.iter().zip(&b).fold(largest, |most, (a, b)| most.max((a - b).abs() / scale));
        }
        Ok(largest)
    }
}

/// The provider by its name: [`ExecutionProvider::WebGpu`] refuses what it computes wrongly. Nodes on the CPU are refused.
fn provider() -> ocelli::Result<ExecutionProvider> {
    let webgpu = WebGpu::load(None)?;
    let name = webgpu.provider(0)?.name().to_owned();
    let options = vec![("enableInt64".to_owned(), "1".to_owned())];
    Ok(ExecutionProvider::Other(OtherProvider { name, library: Some(webgpu.path().to_owned()), options }))
}

/// The values of a tensor, whatever its type.
fn numbers(tensor: &Tensor) -> Vec<f32> {
    if let Ok(flags) = tensor.as_slice::<bool>() {
        return flags.iter().map(|flag| f32::from(u8::from(*flag))).collect();
    }
    if let Ok(integers) = tensor.as_slice::<i64>() {
        return integers.iter().map(|integer| *integer as f32).collect();
    }
    tensor.as_f32().expect("a case has f32, i64 and bool alone").to_vec()
}

/// Values from −2 to 2 that differ.
fn floats(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let values = (0..count).map(|i| ((i * 37 + 11) % 101) as f32 / 25.0 - 2.0);
    Tensor::f32(shape, values.collect()).expect("the count is the shape's")
}

/// As [`floats`], from 0.1 on.
fn positive(shape: &[usize]) -> Tensor {
    let mut values = floats(shape);
    values.as_mut_slice::<f32>().expect("f32").iter_mut().for_each(|value| *value = value.abs() + 0.1);
    values
}

fn ints(values: &[i64]) -> Tensor {
    Tensor::i64(&[values.len()], values.to_vec()).expect("one axis")
}

fn flags(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    Tensor::new(shape, (0..count).map(|i| i % 3 == 0).collect::<Vec<bool>>())
        .expect("the count is the shape's")
}

fn scalar(value: f32) -> Tensor {
    Tensor::f32(&[], vec![value]).expect("one value")
}

/// One case at least for each operator of `tests/allowed_operators.txt`, in the forms that exported files have.
fn cases() -> Vec<Case> {
    let x = |shape: &[usize]| floats(shape);
    let mut cases = Vec::new();
    for operator in ["Abs", "Ceil", "Cos", "Gelu", "Identity", "Relu", "Sigmoid", "Sin"] {
        cases.push(Case::new(operator, &["x"]).input("x", x(&[2, 5, 24])));
        cases.push(Case::new(operator, &["x"]).input("x", x(&[3, 7])));
    }
    cases.push(Case::new("Log", &["x"]).input("x", positive(&[2, 5, 24])));
    for operator in ["Add", "Div", "Mul", "Sub"] {
        let shapes: [(&[usize], &[usize]); 6] = [
            (&[2, 5, 24], &[24]),
            (&[2, 5, 24], &[2, 5, 24]),
            (&[1, 6, 1, 2], &[1, 6, 9, 1]),
            (&[2, 3, 5, 1, 4], &[2, 3, 5, 4, 1]),
            (&[2, 3, 7], &[1]),
            (&[7, 3], &[3]),
        ];
        for (a, b) in shapes {
            cases.push(Case::new(operator, &["a", "b"]).input("a", x(a)).input("b", positive(b)));
        }
        cases.push(Case::new(operator, &["a", "b"]).weight("a", scalar(1.0)).input("b", positive(&[3, 5])));
        cases.push(Case::new(operator, &["a", "b"]).input("a", x(&[3, 5])).weight("b", scalar(-1.5)));
    }
    for (low, high) in [(Some(-1.0), Some(1.0)), (Some(0.0), None)] {
        let names: &[&str] = if high.is_some() { &["x", "low", "high"] } else { &["x", "low"] };
        let mut case = Case::new("Clip", names).input("x", x(&[2, 5, 24]));
        if let Some(low) = low {
            case = case.weight("low", scalar(low));
        }
        if let Some(high) = high {
            case = case.weight("high", scalar(high));
        }
        cases.push(case);
    }
    let mask = || Tensor::i64(&[2, 5], vec![1, 1, 0, 1, 0, 1, 1, 1, 1, 0]).expect("fits");
    cases.push(Case::new("Cast", &["x"]).input("x", mask()).int("to", i64::from(data_type::FLOAT)));
    for (axis, a, b) in [(0, [2, 3, 4], [1, 3, 4]), (1, [2, 1, 4], [2, 5, 4]), (2, [2, 3, 1], [2, 3, 1])] {
        cases.push(Case::new("Concat", &["a", "b"]).input("a", x(&a)).input("b", x(&b)).int("axis", axis));
    }
    cases
        .push(Case::new("Concat", &["a", "b"]).input("a", x(&[2, 3])).weight("b", x(&[1, 3])).int("axis", 0));
    for (kernel, stride, pad, bias) in [(1, 1, 0, true), (3, 1, 1, true), (14, 14, 0, false)] {
        let side = if kernel == 14 { 28 } else { 9 };
        let names: &[&str] = if bias { &["x", "w", "b"] } else { &["x", "w"] };
        let mut case = Case::new("Conv", names)
            .input("x", x(&[1, 3, side, side]))
            .weight("w", x(&[8, 3, kernel, kernel]))
            .ints("kernel_shape", &[kernel as i64; 2])
            .ints("strides", &[stride; 2])
            .ints("pads", &[pad; 4]);
        if bias {
            case = case.weight("b", x(&[8]));
        }
        cases.push(case);
    }
    cases.push(
        Case::new("ConvTranspose", &["x", "w", "b"])
            .input("x", x(&[1, 4, 5, 6]))
            .weight("w", x(&[4, 8, 2, 2]))
            .weight("b", x(&[8]))
            .ints("kernel_shape", &[2, 2])
            .ints("strides", &[2, 2]),
    );
    // Token embeddings, then columns that are taken apart.
    let ids = || Tensor::i64(&[2, 3], vec![4, 0, 9, 1, 1, 7]).expect("fits");
    cases
        .push(Case::new("Gather", &["w", "ids"]).weight("w", x(&[10, 8])).input("ids", ids()).int("axis", 0));
    cases.push(
        Case::new("Gather", &["x", "i"])
            .input("x", x(&[2, 6, 4]))
            .weight("i", ints(&[5, 0, 2]))
            .int("axis", 1),
    );
    cases.push(
        Case::new("Gather", &["x", "i"]).input("x", x(&[2, 3, 6])).weight("i", ints(&[1, 4])).int("axis", 2),
    );
    for shape in [&[1, 4, 5, 6][..], &[2, 4, 30]] {
        cases.push(
            Case::new("InstanceNormalization", &["x", "w", "b"])
                .input("x", x(shape))
                .weight("w", x(&[4]))
                .weight("b", positive(&[4]))
                .float("epsilon", 1e-5),
        );
    }
    for shape in [&[2, 5, 24][..], &[1, 3, 4, 24]] {
        cases.push(
            Case::new("LayerNormalization", &["x", "w", "b"])
                .input("x", x(shape))
                .weight("w", x(&[24]))
                .weight("b", positive(&[24]))
                .int("axis", -1)
                .float("epsilon", 1e-6),
        );
    }
    let products: [(&[usize], &[usize]); 6] = [
        (&[1, 16, 24], &[24, 40]),
        (&[3, 5, 7], &[7, 9]),
        (&[1, 64, 128], &[128, 128]),
        (&[2, 4, 16, 8], &[2, 4, 8, 33]),
        (&[2, 1, 1, 8], &[2, 1, 8, 5]),
        (&[1, 4, 40, 32], &[1, 4, 32, 40]),
    ];
    for (a, b) in products {
        let case = Case::new("MatMul", &["a", "b"]).input("a", x(a));
        cases.push(if b.len() == 2 { case.weight("b", x(b)) } else { case.input("b", x(b)) });
    }
    cases.push(
        Case::new("Pad", &["x", "p"])
            .input("x", x(&[1, 5, 6, 4]))
            .weight("p", ints(&[0, 0, 0, 0, 0, 3, 2, 0])),
    );
    cases
        .push(Case::new("Pad", &["x", "p"]).input("x", x(&[2, 3, 4])).weight("p", ints(&[0, 1, 0, 0, 0, 0])));
    cases.push(
        Case::new("ReduceSum", &["x", "axes"])
            .input("x", x(&[2, 5, 4]))
            .weight("axes", ints(&[1]))
            .int("keepdims", 1),
    );
    cases.push(
        Case::new("ReduceSum", &["x", "axes"])
            .input("x", x(&[2, 5, 4, 3]))
            .weight("axes", ints(&[2]))
            .int("keepdims", 1),
    );
    cases.push(Case::new("Reshape", &["x", "s"]).input("x", x(&[2, 6, 4])).weight("s", ints(&[0, 3, 2, -1])));
    let upsampled = Tensor::f32(&[4], vec![1.0, 1.0, 2.0, 2.0]).expect("fits");
    cases.push(
        Case::new("Resize", &["x", "", "scales"])
            .input("x", x(&[1, 4, 5, 6]))
            .weight("scales", upsampled)
            .text("mode", "nearest")
            .text("coordinate_transformation_mode", "asymmetric")
            .text("nearest_mode", "floor"),
    );
    for (start, end, axis) in [(0, 1, 2), (1, 3, 1), (2, 9, 2)] {
        cases.push(
            Case::new("Slice", &["x", "from", "to", "axes"])
                .input("x", x(&[2, 5, 9]))
                .weight("from", ints(&[start]))
                .weight("to", ints(&[end]))
                .weight("axes", ints(&[axis])),
        );
    }
    for shape in [&[2, 4, 16, 33][..], &[1, 4, 40, 40], &[3, 5, 1], &[1, 2, 3, 300]] {
        cases.push(Case::new("Softmax", &["x"]).input("x", x(shape)).int("axis", -1));
    }
    cases.push(
        Case::new("Split", &["x"])
            .input("x", x(&[2, 3, 8]))
            .int("axis", -1)
            .int("num_outputs", 2)
            .and_output(),
    );
    let permutations: [(&[usize], &[i64]); 7] = [
        (&[2, 3, 4, 5], &[0, 1, 3, 2]),
        (&[2, 3, 4, 5], &[0, 2, 1, 3]),
        (&[2, 3, 4], &[0, 2, 1]),
        (&[2, 3, 4, 5], &[0, 2, 3, 1]),
        (&[2, 3, 4, 5], &[0, 3, 1, 2]),
        (&[2, 3, 4, 5, 6], &[1, 3, 2, 4, 0]),
        (&[2, 3, 4, 5, 6], &[4, 0, 2, 1, 3]),
    ];
    for (shape, permutation) in permutations {
        cases.push(Case::new("Transpose", &["x"]).input("x", x(shape)).ints("perm", permutation));
    }
    cases
}

/// Those of the memory trackers: comparisons, choices, sizes.
fn choices() -> Vec<Case> {
    let x = floats;
    let mut cases = Vec::new();
    for operator in ["Equal", "Greater", "Less", "LessOrEqual"] {
        let case = Case::new(operator, &["a", "b"]).gives(data_type::BOOL);
        cases.push(case.input("a", x(&[2, 5, 24])).input("b", x(&[2, 1, 24])));
    }
    for operator in ["Less", "LessOrEqual"] {
        let case = Case::new(operator, &["a", "b"]).gives(data_type::BOOL);
        cases.push(case.input("a", ints(&[-1, 0, 1, 7])).weight("b", ints(&[1])));
    }
    let both = Case::new("And", &["a", "b"]).gives(data_type::BOOL);
    cases.push(both.input("a", flags(&[2, 5])).input("b", flags(&[5])));
    cases.push(Case::new("Not", &["x"]).gives(data_type::BOOL).input("x", flags(&[2, 5])));
    let choice = Case::new("Where", &["c", "a", "b"]);
    cases.push(choice.input("c", flags(&[2, 5, 1])).input("a", x(&[2, 5, 24])).input("b", x(&[1])));
    for operator in ["ReduceMax", "ReduceMean", "ReduceMin"] {
        for axis in [1, -1] {
            let case = Case::new(operator, &["x", "axes"]);
            cases.push(case.input("x", x(&[3, 40, 7])).weight("axes", ints(&[axis])));
        }
    }
    cases.push(Case::new("Sqrt", &["x"]).input("x", positive(&[2, 5, 24])));
    let size = Case::new("Shape", &["x"]).gives(data_type::INT64);
    cases.push(size.input("x", x(&[3, 5, 24])).int("start", 0).int("end", 1));
    let single = |value| Tensor::i64(&[], vec![value]).expect("one value");
    let range = Case::new("Range", &["from", "to", "step"]).gives(data_type::INT64);
    cases.push(range.weight("from", single(0)).input("to", single(9)).weight("step", single(1)));
    let expand = Case::new("Expand", &["x", "shape"]);
    cases.push(expand.input("x", x(&[1, 5, 24])).input("shape", ints(&[3, 5, 24])));
    cases
}

/// Graphs of one node that provider 0.4.0 computes wrongly without an error.
fn wrong() -> Vec<Case> {
    let tokens = |count: usize| floats(&[1, count, 4 * 32]);
    let attention = Case::new("com.microsoft.MultiHeadAttention", &["q", "k", "v"]).int("num_heads", 4);
    // 16 tokens are right.
    vec![attention.input("q", tokens(40)).input("k", tokens(40)).input("v", tokens(40))]
}

#[test]
#[ignore = "needs a software GPU: tests/fetch-software-gpu.sh"]
fn every_operator_alone_equals_the_cpu() {
    let mut problems = Vec::new();
    let mut covered = BTreeSet::new();
    let mut largest = (0.0, String::new());
    let cases: Vec<Case> = cases().into_iter().chain(choices()).collect();
    for (index, case) in cases.iter().enumerate() {
        let operator = case.operator();
        let shapes: Vec<_> =
            case.inputs.iter().chain(&case.weights).map(|(_, value)| value.shape()).collect();
        let inexact = INEXACT.iter().find(|(name, _)| *name == operator);
        let tolerance = inexact.map_or(TOLERANCE, |(_, tolerance)| *tolerance);
        match case.error() {
            Ok(error) if error <= tolerance => {
                if error > largest.0 && tolerance == TOLERANCE {
                    largest = (error, operator.clone());
                }
            }
            Ok(error) => problems.push(format!("case {index}, {operator} {shapes:?}: error {error:e}")),
            Err(why) => problems.push(format!("case {index}, {operator} {shapes:?}: {why}")),
        }
        covered.insert(operator);
    }
    let allowed = crate::operators::allowed();
    let missing = allowed.iter().filter(|operator| !covered.contains(*operator));
    problems.extend(missing.map(|operator| format!("{operator} has no case")));
    println!(
        "{} cases of {} operators, largest error {:e} in {}",
        cases.len(),
        covered.len(),
        largest.0,
        largest.1
    );
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The list of what is refused; a provider that is right needs no refusal.
#[test]
#[ignore = "needs a software GPU: tests/fetch-software-gpu.sh"]
fn the_operators_that_are_refused_are_wrong() {
    for case in wrong() {
        let operator = case.operator();
        let error = case.error().unwrap_or_else(|why| panic!("{operator}: {why}"));
        println!("{operator}: error {error}");
        assert!(error > 1e-2, "{operator} is right with this provider and adapter: error {error:e}");
        let refused = super::builder().and_then(|builder| builder.build_from_memory(&case.encode()));
        let message = refused.map(drop).expect_err("it is on the list").to_string();
        assert!(message.contains(&format!("computes {operator} wrongly")), "{message}");
    }
}
