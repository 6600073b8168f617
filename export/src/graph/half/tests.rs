use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::super::{Dim, Element, Graph, Parts, Role, Value};
use super::HalfRules;
use super::checker::check;
use crate::calibration::Calibration;
use crate::checkpoint::Checkpoint;
use crate::contract::{Precision, Target, file};
use crate::exporter::ExportOptions;
use crate::mixed_precision::{Block, Family, MixedPrecision};
use crate::model::{Plan, Section};
use crate::prune::Pruning;

fn rules(islands: MixedPrecision) -> HalfRules {
    HalfRules { half: Element::F16, islands, casts_for_sums: true, kept: Vec::new() }
}

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/parity")
}

fn plain() -> Checkpoint {
    Checkpoint::open(&goldens().join("plain")).expect("goldens are in the repository")
}

/// Nodes in order, as `Add:f16`; casts as `>f16`.
fn summary(graph: &Graph<'_>) -> String {
    let graph = graph.parts.borrow();
    let words = graph.nodes.iter().map(|node| match node.proto.op_type.as_str() {
        "Cast" => format!(">{}", node.element.suffix()),
        op => format!("{op}:{}", node.element.suffix()),
    });
    words.collect::<Vec<_>>().join(" ")
}

const DIMS: [Dim; 2] = [Dim::Fixed(4), Dim::Fixed(6)];

fn vector(g: &Graph<'_>, name: &str) -> Value {
    g.constant(name, &[6], &[0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
}

fn norm(g: &Graph<'_>, x: &Value) -> Value {
    let (scale, bias) = (vector(g, "scale"), g.constant("bias", &[6], &[0.0; 6]));
    g.layer_norm(x, &scale, &bias, 1e-5)
}

fn sum_then_norm(g: &Graph<'_>, x: &Value) {
    let weight = vector(g, "weight");
    let x = g.add(x, &weight);
    let x = norm(g, &x);
    let out = g.add(&x, &weight);
    g.output("out", &out, &DIMS);
}

fn moved(g: &Graph<'_>, x: &Value) {
    let x = g.unary("Sigmoid", x);
    let x = g.reshape(&x, &[6, 4].map(Dim::from));
    let x = g.transpose(&x, &[1, 0]);
    let x = g.softmax(&x);
    let x = g.reshape(&x, &[6, 4].map(Dim::from));
    let x = g.unary("Sigmoid", &x);
    let x = g.reshape(&x, &DIMS);
    g.output("out", &x, &DIMS);
}

fn shared(g: &Graph<'_>, x: &Value) {
    let a = g.unary("Sigmoid", x);
    let b = g.softmax(&a);
    let c = norm(g, &a);
    let d = g.add(&b, &c);
    let e = g.add(&a, &b);
    let e = g.add(&d, &e);
    g.output("out", &e, &DIMS);
}

fn constant_in_both(g: &Graph<'_>, x: &Value) {
    let table = vector(g, "table");
    let a = g.add(x, &table);
    let b = g.as_role(Role::Exact, |g| g.mul(&a, &table));
    g.output("out", &b, &DIMS);
}

fn mask(g: &Graph<'_>, x: &Value) {
    let ids = g.input("mask", Element::I64, &DIMS);
    let [_, bias] = g.padding(&ids);
    let bias = g.reshape(&bias, &DIMS);
    let out = g.add(x, &bias);
    g.output("out", &out, &DIMS);
}

fn resized(g: &Graph<'_>, x: &Value) {
    let x = g.reshape(x, &[1, 1, 4, 6].map(Dim::from));
    let x = g.upsample2(&x);
    let x = g.unary("Sigmoid", &x);
    let x = g.upsample2(&x);
    g.output("out", &x, &[1, 1, 16, 24].map(Dim::from));
}

fn two_blocks(g: &Graph<'_>, x: &Value) {
    let mut x = x.clone();
    for name in ["vit.0", "vit.1", "neck"] {
        g.block(name.parse::<Block>().expect("a name"));
        x = g.unary("Sigmoid", &x);
    }
    g.output("out", &x, &DIMS);
}

fn convolution(g: &Graph<'_>, x: &Value) {
    let x = g.unary("Sigmoid", x);
    let x = g.reshape(&x, &[1, 6, 2, 2].map(Dim::from));
    let kernel = g.constant("kernel", &[3, 6, 1, 1], &[0.1; 18]);
    let x = g.conv(&x, &kernel, None, 1, 0);
    let x = g.unary("Sigmoid", &x);
    g.output("out", &x, &[1, 3, 2, 2].map(Dim::from));
}

fn joined(g: &Graph<'_>, x: &Value) {
    let exact = g.as_role(Role::Exact, |g| g.unary("Sigmoid", x));
    let half = g.unary("Sigmoid", x);
    let wide = g.concat(&[&exact, &half], 0, 8);
    let wide = g.as_role(Role::Exact, |g| g.unary("Sigmoid", &wide));
    g.output("wide", &wide, &[8, 6].map(Dim::from));
    let narrow = g.concat(&[&exact, &half], 1, 12);
    let narrow = g.unary("Sigmoid", &narrow);
    g.output("narrow", &narrow, &[4, 12].map(Dim::from));
}

fn branch(g: &Graph<'_>, x: &Value) {
    let x = g.unary("Sigmoid", x);
    let weight = g.constant("weight", &[6, 6], &[0.1; 36]);
    let bias = vector(g, "bias");
    let y = g.matmul(&x, &weight);
    let y = g.as_role(Role::Product, |g| g.add(&y, &bias));
    let y = g.unary("Relu", &y);
    let y = g.matmul(&y, &weight);
    let out = g.add(&x, &y);
    g.output("out", &out, &DIMS);
}

fn attention(g: &Graph<'_>, x: &Value) {
    let x = g.unary("Sigmoid", x);
    let keys = g.transpose(&x, &[1, 0]);
    let scores = g.as_role(Role::Attention, |g| g.matmul(&x, &keys));
    let weights = g.softmax(&scores);
    let mixed = g.as_role(Role::Attention, |g| g.matmul(&weights, &x));
    g.output("out", &mixed, &DIMS);
}

fn of_a_prompt(g: &Graph<'_>, x: &Value) {
    let weight = g.constant("weight", &[6, 6], &[0.1; 36]);
    let out = g.as_role(Role::PromptProduct, |g| g.matmul(x, &weight));
    g.output("out", &out, &DIMS);
}

#[test]
fn casts_are_added_between_formats() {
    use MixedPrecision::{Accumulate, AccumulateLinear, Attention, Bf16Attention, None};
    let kept = |block: &str| HalfRules { kept: vec![block.parse().expect("a name")], ..rules(None) };
    let bf16 = || HalfRules { half: Element::Bf16, ..rules(None) };
    type Build = fn(&Graph<'_>, &Value);
    let cases: Vec<(&str, Build, HalfRules, &str)> = vec![
        ("all half", sum_then_norm, rules(None), ">f16 Add:f16 LayerNormalization:f16 Add:f16 >f32"),
        (
            "a norm is an island",
            sum_then_norm,
            rules(Attention),
            ">f16 Add:f16 >f32 LayerNormalization:f32 >f16 Add:f16 >f32",
        ),
        (
            "moves are half where possible",
            moved,
            rules(Attention),
            ">f16 Sigmoid:f16 Reshape:f16 Transpose:f16 >f32 Softmax:f32 >f16 Reshape:f16 Sigmoid:f16 Reshape:f16 >f32",
        ),
        (
            "a value is cast once",
            shared,
            rules(Attention),
            ">f16 Sigmoid:f16 >f32 Softmax:f32 LayerNormalization:f32 >f16 >f16 Add:f16 Add:f16 Add:f16 >f32",
        ),
        (
            "a constant in two formats",
            constant_in_both,
            rules(None),
            ">f16 Add:f16 >f32 Mul:f32 Identity:f32",
        ),
        (
            "a mask is cast once",
            mask,
            rules(None),
            ">f16 Sub:f16 Mul:f16 Reshape:f16 Reshape:f16 >f16 Add:f16 >f32",
        ),
        (
            "a mask in 32 bits is cast once",
            mask,
            rules(Attention),
            ">f32 Sub:f32 Mul:f32 >f16 Reshape:f16 Reshape:f16 >f16 Add:f16 >f32",
        ),
        (
            "scales stay in 32 bits",
            resized,
            rules(None),
            ">f16 Reshape:f16 Resize:f16 Sigmoid:f16 Resize:f16 >f32",
        ),
        (
            "no resizing in bfloat16",
            resized,
            bf16(),
            "Reshape:f32 Resize:f32 >bf16 Sigmoid:bf16 >f32 Resize:f32 Identity:f32",
        ),
        (
            "a block in 32 bits",
            two_blocks,
            kept("vit.1"),
            ">f16 Sigmoid:f16 >f32 Sigmoid:f32 >f16 Sigmoid:f16 >f32",
        ),
        ("a family in 32 bits", two_blocks, kept("vit"), "Sigmoid:f32 Sigmoid:f32 >f16 Sigmoid:f16 >f32"),
        (
            "no convolution in bfloat16",
            convolution,
            bf16(),
            ">bf16 Sigmoid:bf16 Reshape:bf16 >f32 Conv:f32 >bf16 Sigmoid:bf16 >f32",
        ),
        (
            "both formats joined",
            joined,
            rules(None),
            "Sigmoid:f32 >f16 Sigmoid:f16 >f32 Concat:f32 Sigmoid:f32 Identity:f32 >f16 Concat:f16 Sigmoid:f16 >f32",
        ),
        (
            "linear layers sum in half",
            branch,
            rules(Accumulate),
            ">f16 Sigmoid:f16 MatMul:f16 Add:f16 Relu:f16 MatMul:f16 Add:f16 >f32",
        ),
        (
            "linear layers sum in 32 bits",
            branch,
            rules(AccumulateLinear),
            ">f16 Sigmoid:f16 >f32 >f32 MatMul:f32 >f16 Add:f16 Relu:f16 >f32 MatMul:f32 >f16 Add:f16 >f32",
        ),
        ("a prompt's product", of_a_prompt, rules(None), ">f16 MatMul:f16 >f32"),
        (
            "a prompt's product in 32 bits has a weight in half",
            of_a_prompt,
            rules(Attention),
            ">f32 MatMul:f32 Identity:f32",
        ),
        (
            "attention sums in half",
            attention,
            rules(None),
            ">f16 Sigmoid:f16 Transpose:f16 MatMul:f16 Softmax:f16 MatMul:f16 >f32",
        ),
        (
            "attention sums in 32 bits",
            attention,
            rules(Accumulate),
            ">f16 Sigmoid:f16 Transpose:f16 >f32 >f32 MatMul:f32 >f16 Softmax:f16 >f32 MatMul:f32 >f16 >f32",
        ),
        (
            "attention in bfloat16",
            attention,
            rules(Bf16Attention),
            ">f16 Sigmoid:f16 Transpose:f16 >bf16 >f32 >bf16 >f32 MatMul:f32 >bf16 Softmax:bf16 >f32 MatMul:f32 >bf16 >f32",
        ),
        (
            "moves around attention in bfloat16",
            moved,
            rules(Bf16Attention),
            ">f16 Sigmoid:f16 Reshape:f16 Transpose:f16 >bf16 Softmax:bf16 >f16 Reshape:f16 Sigmoid:f16 Reshape:f16 >f32",
        ),
        (
            "ONNX Runtime sums in 32 bits without casts",
            attention,
            HalfRules { casts_for_sums: false, ..rules(Accumulate) },
            ">f16 Sigmoid:f16 Transpose:f16 MatMul:f16 Softmax:f16 MatMul:f16 >f32",
        ),
        (
            "attention as a whole",
            attention,
            rules(Attention),
            ">f16 Sigmoid:f16 Transpose:f16 >f32 >f32 MatMul:f32 Softmax:f32 MatMul:f32 Identity:f32",
        ),
    ];
    let checkpoint = plain();
    let mut wrong = Vec::new();
    for (what, build, rules, expected) in cases {
        let graph = Graph::new("tiny", checkpoint.weights());
        let x = graph.input("x", Element::F32, &DIMS);
        build(&graph, &x);
        let graph = graph.in_half(&rules);
        wrong.extend(check(&graph).iter().map(|problem| format!("{what}: {problem}")));
        wrong.extend(graph.parts.borrow().fault.iter().map(|fault| format!("{what}: {fault}")));
        let found = summary(&graph);
        if found != expected {
            wrong.push(format!("{what}:\n  {found}, expected\n  {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_checker_reports_mixed_types_and_needless_casts() {
    let checkpoint = plain();
    let mut wrong = Vec::new();
    let mut expect = |what: &str, word: &str, spoil: &dyn Fn(&mut Parts<'_>)| {
        let graph = Graph::new("tiny", checkpoint.weights());
        let x = graph.input("x", Element::F32, &DIMS);
        sum_then_norm(&graph, &x);
        let mut graph = graph.in_half(&rules(MixedPrecision::Attention));
        spoil(graph.parts.get_mut());
        let problems = check(&graph);
        if !problems.iter().any(|problem| problem.contains(word)) {
            wrong.push(format!("{what}: {problems:?}"));
        }
    };
    let cast_to = |graph: &Parts<'_>, output: &str| {
        let place = graph.nodes.iter().position(|node| node.proto.output[0] == output);
        place.expect("the graph has this cast")
    };
    expect("a cast that is left out", "inputs of types", &|graph| {
        let place = cast_to(graph, "x.f16");
        graph.nodes.remove(place);
        graph.nodes[0].proto.input[0] = "x".into();
    });
    expect("there and back", "a second cast", &|graph| {
        let place = graph.nodes.iter().position(|node| node.proto.op_type == "LayerNormalization");
        graph.nodes[place.expect("it has one")].proto.op_type = "Identity".into();
    });
    expect("a weight in the wrong format", "inputs of types", &|graph| {
        let weight = graph.initializers.iter_mut().find(|i| i.value.name == "weight");
        weight.expect("it has one").value.element = Element::F32;
    });
    expect("an output in half", "output out is", &|graph| {
        let last = graph.nodes.last_mut().expect("it has nodes");
        last.proto.op_type = "Identity".into();
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn graphs<'w>(plan: &Plan<'w>) -> Vec<Graph<'w>> {
    let built = |file: &str, build: &dyn Fn(&Graph<'w>)| {
        let graph = plan.graph(file);
        build(&graph);
        graph
    };
    let sections: &[_] = match plan.options.pruning.split_block {
        Some(_) => &[Section::First, Section::Second],
        None => &[Section::Whole],
    };
    let backbones = sections.iter().map(|section| built(file::BACKBONE, &|g| plan.backbone(g, *section)));
    let others = [
        built(file::TEXT_ENCODER, &|g| plan.text_encoder(g)),
        built(file::EXEMPLAR_ENCODER, &|g| plan.exemplar_encoder(g)),
        built(file::ENCODER_DECODER, &|g| plan.encoder_decoder(g)),
        built(file::MASK_HEAD, &|g| plan.mask_head(g)),
    ];
    backbones.chain(others).collect()
}

/// Nodes that compute positions, boxes and scores and are not in 32 bits.
fn inexact(graph: &Graph<'_>) -> Vec<String> {
    let exact = |node: &&super::Node| {
        let (name, op) = (&node.proto.name, node.proto.op_type.as_str());
        let head = ["box_head/", "presence_head/"].iter().any(|head| name.contains(head));
        let last = matches!(op, "MatMul" | "Add" | "Sigmoid" | "Clip");
        (head && last) || ["Log", "Sin", "Cos"].contains(&op)
    };
    let graph = graph.parts.borrow();
    let wrong = graph.nodes.iter().filter(exact).filter(|node| node.element != Element::F32);
    wrong.map(|node| node.proto.name.clone()).collect()
}

/// The products in 8 bits of a calibrated precision, in half-precision graphs: both factors have 8 bits,
/// with a scale for the input and one for every output channel.
#[test]
fn calibrated_graphs_multiply_codes() {
    let mut wrong = Vec::new();
    let mut products = 0;
    for name in ["plain", "released", "padded"] {
        let checkpoint = Checkpoint::open(&goldens().join(name)).expect("goldens are in the repository");
        let config = checkpoint.config();
        let plain = Plan {
            checkpoint: &checkpoint,
            imgsz: config.vision.image_size,
            tracker: false,
            options: ExportOptions { target: Target::TensorRt, observes: true, ..ExportOptions::default() },
        };
        let mut calibration = Calibration::default();
        for graph in graphs(&plain) {
            let parts = graph.parts.borrow();
            let layers = parts.outputs.iter().filter_map(|output| Calibration::layer_of(&output.name));
            layers.for_each(|layer| calibration.observe(layer, 3.0).expect("it is finite"));
        }
        let kept = BTreeSet::from([Block::layer(Family::Vit, 0)]);
        for (precision, element) in [(Precision::Fp8, Element::F8), (Precision::Int8Static, Element::I8)] {
            for kept in [&BTreeSet::new(), &kept] {
                let options = ExportOptions {
                    precision,
                    observes: false,
                    calibration: Some(calibration.clone()),
                    keep_fp32: kept.clone(),
                    ..plain.options.clone()
                };
                let plan = Plan { options, ..plain };
                let rules = HalfRules {
                    half: Element::F16,
                    islands: MixedPrecision::Accumulate,
                    casts_for_sums: true,
                    kept: kept.iter().copied().collect(),
                };
                for graph in graphs(&plan) {
                    let place = format!("{name}, {precision}, {kept:?}, {}", graph.name);
                    wrong.extend(graph.parts.borrow().fault.iter().map(|fault| format!("{place}: {fault}")));
                    let layers = match graph.name.as_str() {
                        "backbone" => 6 * (config.vision.stack.layers - kept.len()),
                        "encoder_decoder" => 8 * config.encoder.layers,
                        _ => 0,
                    };
                    let graph = graph.in_half(&rules);
                    wrong.extend(check(&graph).iter().map(|problem| format!("{place}: {problem}")));
                    let found = of_codes(&graph, element, &mut wrong);
                    if found != layers {
                        wrong.push(format!("{place}: {found} products in 8 bits, expected {layers}"));
                    }
                    products += found;
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} problems, the first:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(20)].join("\n")
    );
    assert!(products > 100, "{products} products");
}

/// The number of products of two dequantized factors; adds what is wrong with one.
fn of_codes(graph: &Graph<'_>, element: Element, wrong: &mut Vec<String>) -> usize {
    let graph = graph.parts.borrow();
    let made_by = |name: &String| graph.nodes.iter().find(|node| node.proto.output.contains(name));
    let value =
        |name: &String| graph.initializers.iter().find(|one| one.value.name == *name).map(|one| &one.value);
    let mut count = 0;
    for product in graph.nodes.iter().filter(|node| node.proto.op_type == "MatMul") {
        let factors: Vec<_> = product.proto.input.iter().filter_map(made_by).collect();
        let [input, weight] = factors.as_slice() else { continue };
        if weight.proto.op_type != "DequantizeLinear" {
            continue;
        }
        count += 1;
        let [codes, scales] = weight.proto.input.as_slice() else {
            wrong.push(format!("{}: a zero point", weight.proto.name));
            continue;
        };
        let (Some(codes), Some(scales)) = (value(codes), value(scales)) else {
            wrong.push(format!("{}: not constant", weight.proto.name));
            continue;
        };
        let axis = weight.proto.attribute.iter().find(|one| one.name == "axis").map(|one| one.i);
        let quantized = made_by(&input.proto.input[0]);
        let is_right = codes.element == element
            && scales.dims == codes.dims[1..]
            && axis == Some(1)
            && input.proto.op_type == "DequantizeLinear"
            && quantized.is_some_and(|node| node.proto.op_type == "QuantizeLinear")
            && quantized.is_some_and(|node| node.proto.input[1..] == input.proto.input[1..])
            && value(&input.proto.input[1]).is_some_and(|scale| scale.dims.is_empty())
            && value(&input.proto.input[2])
                .is_some_and(|zero| zero.element == element && zero.dims.is_empty());
        if !is_right {
            wrong.push(format!("{}: {codes:?} {scales:?} {axis:?}", product.proto.name));
        }
    }
    count
}

/// Every graph of every golden, for both targets and both formats, with every set of islands and with each block in 32
/// bits.
#[test]
fn every_graph_is_strongly_typed() {
    let mut wrong = Vec::new();
    let mut checked = 0;
    let names = ["padded", "patch16", "plain", "released", "small_grid", "tiled"];
    for name in names {
        let checkpoint = Checkpoint::open(&goldens().join(name)).expect("goldens are in the repository");
        let config = checkpoint.config();
        let kept = config.blocks().into_iter().map(|block| (MixedPrecision::None, vec![block]));
        let settings: Vec<_> =
            MixedPrecision::ALL.map(|islands| (islands, vec![])).into_iter().chain(kept).collect();
        for target in [Target::OnnxRuntime, Target::TensorRt] {
            for (at, (islands, kept)) in settings.iter().enumerate() {
                let plan = Plan {
                    checkpoint: &checkpoint,
                    imgsz: config.vision.image_size,
                    tracker: false,
                    options: ExportOptions {
                        target,
                        precision: Precision::Fp16,
                        detection_only: at % 2 == 1,
                        pruning: Pruning { split_block: (at % 3 == 1).then_some(1), ..Pruning::default() },
                        ..ExportOptions::default()
                    },
                };
                for half in [Element::F16, Element::Bf16] {
                    let rules = HalfRules {
                        half,
                        islands: *islands,
                        casts_for_sums: target == Target::TensorRt,
                        kept: kept.clone(),
                    };
                    for graph in graphs(&plan) {
                        let graph = graph.in_half(&rules);
                        let place =
                            format!("{name}, {target:?}, {half:?}, {islands}, {kept:?}, {}", graph.name);
                        wrong.extend(
                            graph.parts.borrow().fault.iter().map(|fault| format!("{place}: {fault}")),
                        );
                        wrong.extend(check(&graph).iter().map(|problem| format!("{place}: {problem}")));
                        wrong.extend(inexact(&graph).iter().map(|name| format!("{place}: {name} is half")));
                        checked += 1;
                    }
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} problems, the first:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(20)].join("\n")
    );
    assert!(checked > 1000, "{checked} graphs");
}
