//! Every node of the graphs for ONNX Runtime has a kernel on the GPU: the list of kernels is that of its CUDA provider
//! (golden/cuda_kernels), and no GPU is needed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::operators::{checkpoints, graphs};
use crate::parity::exported::{Exported, Outcome};
use ocelli::export::contract::{Precision, Prompting, Target};
use ocelli::export::{ExportOptions, MixedPrecision, Pruning};
use ocelli_onnx::schema::{GraphProto, ModelProto, NodeProto, ValueInfoProto, data_type};

/// A line of the list.
struct Kernel<'t> {
    inputs: Vec<&'t str>,
    is_variadic: bool,
    outputs: Vec<&'t str>,
    /// The types of each letter.
    types: HashMap<&'t str, Vec<&'t str>>,
}

/// The kernels of each operator.
struct Kernels<'t>(HashMap<&'t str, Vec<Kernel<'t>>>);

impl<'t> Kernels<'t> {
    fn parse(text: &'t str) -> Self {
        let mut kernels: HashMap<_, Vec<_>> = HashMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, rest) = line.split_once(' ').expect("a name, then types");
            let (inputs, rest) = rest.split_once("-> ").expect("inputs, then outputs");
            let is_variadic = inputs.contains("...");
            let inputs = inputs.split_whitespace().filter(|word| *word != "...").collect();
            let outputs = rest.split_whitespace().take_while(|word| !word.contains('=')).collect();
            let types = rest.split_whitespace().filter_map(|word| word.split_once('='));
            let types = types.map(|(letter, types)| (letter, types.split(',').collect())).collect();
            kernels.entry(name).or_default().push(Kernel { inputs, is_variadic, outputs, types });
        }
        Self(kernels)
    }

    /// The types of a node's outputs, unless no kernel accepts its inputs.
    fn outputs(&self, node: &NodeProto, inputs: &[Option<&'t str>]) -> Option<Vec<Option<&'t str>>> {
        let name = match node.domain.as_str() {
            "" => node.op_type.clone(),
            domain => format!("{domain}.{}", node.op_type),
        };
        let target =
            node.attribute.iter().find(|attribute| attribute.name == "to").map(|to| type_name(to.i as i32));
        self.0.get(name.as_str())?.iter().find_map(|kernel| kernel.outputs(inputs, target))
    }
}

impl<'t> Kernel<'t> {
    fn outputs(&self, inputs: &[Option<&'t str>], target: Option<&'t str>) -> Option<Vec<Option<&'t str>>> {
        let mut bound: HashMap<&str, &str> = HashMap::new();
        for (place, input) in inputs.iter().enumerate() {
            let last = self.is_variadic.then(|| self.inputs.last()).flatten();
            let formal = *self.inputs.get(place).or(last)?;
            let Some(input) = *input else { continue };
            let allowed = self.types.get(formal).is_none_or(|types| types.contains(&input));
            let is_letter = formal.starts_with(char::is_uppercase);
            if is_letter && (!allowed || *bound.entry(formal).or_insert(input) != input)
                || !is_letter && formal != input
            {
                return None;
            }
        }
        let output = |formal: &&'t str| match (self.types.get(*formal), target) {
            (Some(types), Some(target)) if !bound.contains_key(*formal) => {
                types.contains(&target).then_some(Some(target))
            }
            (Some(types), None) if types.len() == 1 => Some(Some(types[0])),
            _ if formal.starts_with(char::is_lowercase) => Some(Some(*formal)),
            _ => Some(bound.get(*formal).copied()),
        };
        self.outputs.iter().map(output).collect()
    }
}

fn type_name(data_type: i32) -> &'static str {
    match data_type {
        data_type::FLOAT => "float",
        data_type::FLOAT16 => "float16",
        data_type::BFLOAT16 => "bfloat16",
        data_type::INT64 => "int64",
        data_type::INT32 => "int32",
        data_type::INT8 => "int8",
        data_type::UINT8 => "uint8",
        data_type::BOOL => "bool",
        other => panic!("type {other} is not in the exporter"),
    }
}

fn element_type(input: &ValueInfoProto) -> i32 {
    let tensor = input.r#type.as_ref().and_then(|r#type| r#type.tensor_type.as_ref());
    tensor.expect("an input is a tensor").elem_type
}

/// The nodes without a kernel: operator and types of the inputs, with the name of one.
fn missing(graph: &GraphProto, kernels: &Kernels<'static>) -> BTreeMap<String, String> {
    let mut types: HashMap<&str, &'static str> = HashMap::new();
    types.extend(graph.initializer.iter().map(|one| (one.name.as_str(), type_name(one.data_type))));
    types.extend(graph.input.iter().map(|one| (one.name.as_str(), type_name(element_type(one)))));
    let mut missing = BTreeMap::new();
    for node in &graph.node {
        let inputs: Vec<_> = node.input.iter().map(|name| types.get(name.as_str()).copied()).collect();
        match kernels.outputs(node, &inputs) {
            Some(outputs) => {
                let known = node.output.iter().zip(outputs);
                types.extend(known.filter_map(|(name, found)| Some((name.as_str(), found?))));
            }
            None => {
                let inputs: Vec<_> = inputs.iter().map(|input| input.unwrap_or("?")).collect();
                missing.insert(format!("{}({})", node.op_type, inputs.join(", ")), node.name.clone());
            }
        }
    }
    missing
}

fn kernels() -> Kernels<'static> {
    Kernels::parse(include_str!("golden/cuda_kernels/kernels.txt"))
}

fn model_graph(model: ModelProto) -> GraphProto {
    model.graph.expect("a model has a graph")
}

#[test]
fn every_node_has_a_kernel_on_the_gpu() -> Outcome<()> {
    let kernels = kernels();
    let half = |precision| {
        // The other one is for TensorRT.
        let levels = MixedPrecision::ALL.into_iter().filter(|one| *one != MixedPrecision::Bf16Attention);
        levels.map(move |islands| ExportOptions {
            precision,
            mixed_precision: Some(islands),
            ..ExportOptions::default()
        })
    };
    let mut settings = vec![
        ExportOptions::default(),
        ExportOptions {
            pruning: Pruning { split_block: Some(1), ..Pruning::default() },
            ..ExportOptions::default()
        },
        ExportOptions { detection_only: true, ..ExportOptions::default() },
        ExportOptions { prompting: Prompting::Text, ..ExportOptions::default() },
    ];
    settings.extend(half(Precision::Fp16).chain(half(Precision::Bf16)));
    settings.push(ExportOptions {
        precision: Precision::Bf16,
        keep_fp32: ["vit".parse()?].into(),
        ..ExportOptions::default()
    });
    let folder = tempfile::tempdir()?;
    let (mut problems, mut nodes) = (BTreeSet::new(), 0);
    for (name, checkpoint) in checkpoints(folder.path())? {
        for options in &settings {
            let model = Exported::new(
                &checkpoint,
                &ExportOptions { target: Target::OnnxRuntime, ..options.clone() },
            )?;
            let (precision, islands) = (model.manifest.precision, model.manifest.mixed_precision);
            for (file, model) in graphs(&model)? {
                let graph = model_graph(model);
                nodes += graph.node.len();
                let found = missing(&graph, &kernels).into_iter();
                problems
                    .extend(found.map(|(what, node)| {
                        format!("{what}: {name}, {precision} {islands}, {file}, {node}")
                    }));
            }
        }
    }
    assert!(nodes > 10_000, "{nodes} nodes");
    let problems: Vec<_> = problems.into_iter().collect();
    assert!(
        problems.is_empty(),
        "{} problems, the first:\n{}",
        problems.len(),
        problems[..problems.len().min(20)].join("\n")
    );
    Ok(())
}

/// The list and the search distinguish types.
#[test]
fn missing_kernels_are_found() {
    let kernels = kernels();
    let node = |op: &str| NodeProto { op_type: op.into(), ..NodeProto::default() };
    let found = |op: &str, inputs: &[&'static str]| {
        let inputs: Vec<_> = inputs.iter().map(|&input| Some(input)).collect();
        kernels.outputs(&node(op), &inputs).map(|outputs| outputs[0].expect("a known type"))
    };
    for (op, inputs, expected) in [
        ("MatMul", &["float16", "float16"][..], Some("float16")),
        ("MatMul", &["float16", "float"], None),
        ("Pad", &["bfloat16", "int64"], None),
        ("Pad", &["float16", "int64"], Some("float16")),
        ("Shape", &["float16"], Some("int64")),
        ("Concat", &["float", "float", "float"], Some("float")),
        ("Concat", &["float", "float", "float16"], None),
        ("NoSuchOperator", &["float"], None),
    ] {
        assert_eq!(found(op, inputs), expected, "{op} {inputs:?}");
    }
}
