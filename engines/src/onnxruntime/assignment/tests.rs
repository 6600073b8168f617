use super::*;
use crate::onnxruntime::{CoreMlOptions, CudaOptions};
use ocelli_error::ErrorKind;
use ocelli_onnx::schema::{DimensionValue, NodeProto, TensorProto, ValueInfoProto, data_type};

fn assigned(provider: &str, operator: &str, name: &str) -> AssignedNode {
    let [provider, name, operator] = [provider, name, operator].map(str::to_owned);
    AssignedNode { provider, name, operator }
}

/// Nodes are written `name operator inputs… > outputs…`, an empty name `_`.
fn graph(nodes: &[&str]) -> GraphProto {
    let node = |text: &&str| {
        let (left, outputs) = text.split_once(" > ").expect("an arrow");
        let mut words = left.split_whitespace().map(|word| word.replace('_', ""));
        NodeProto {
            name: words.next().expect("a name, or _"),
            op_type: words.next().expect("an operator"),
            input: words.collect(),
            output: outputs.split_whitespace().map(str::to_owned).collect(),
            ..NodeProto::default()
        }
    };
    let input = |name: &str| ValueInfoProto::tensor(name, data_type::FLOAT, [DimensionValue::DimValue(300)]);
    GraphProto {
        node: nodes.iter().map(node).collect(),
        initializer: vec![TensorProto { name: "weights".to_owned(), ..TensorProto::default() }],
        input: vec![input("x"), input("weights"), input("mask")],
        ..GraphProto::default()
    }
}

#[test]
fn shape_arithmetic_depends_on_sizes_and_on_no_element() {
    let graph = graph(&[
        "shape Shape x > s",
        "count Gather s zero > n",
        "glue Concat n weights > t",
        "product MatMul x weights > p",
        "form Reshape p t > r",
        "after Shape r > s2",
        "added Add n s2 > q",
        // Two nodes of one name, and one without a name.
        "twin Add n n > a",
        "twin Add x x > b",
        "_ Add n n > c",
        "both Concat n mask > d",
        // Constants alone are folded; a node that is not folded computes in every run.
        "constant MatMul weights weights > f",
        "size Size mask > e",
    ]);
    let mut names: Vec<_> = shape_arithmetic(&graph).into_iter().collect();
    names.sort_unstable();
    assert_eq!(names, ["added", "after", "count", "glue", "shape", "size"]);
}

#[test]
fn only_shape_arithmetic_may_run_on_the_cpu() {
    let (cpu, cuda) = ("CPUExecutionProvider", "CUDAExecutionProvider");
    let matmul = || assigned(cuda, "MatMul", "product");
    let cases: [(&str, Vec<AssignedNode>, Option<&str>); 7] = [
        ("no nodes", vec![], None),
        ("all on the device", vec![matmul(), assigned(cuda, "Add", "sum")], None),
        (
            "shapes",
            vec![
                matmul(),
                assigned(cpu, "Shape", ""),
                assigned(cpu, "Size", "anything"),
                assigned(cpu, "Gather", "pick"),
                assigned(cpu, "Concat", "glue"),
            ],
            None,
        ),
        (
            "a gather of elements",
            vec![matmul(), assigned(cpu, "Gather", "rows")],
            Some("1 of 2 nodes would run on the CPU, and only shape arithmetic may: Gather `rows`; with"),
        ),
        (
            "nodes without a name",
            vec![matmul(), assigned(cpu, "Gather", ""), assigned(cpu, "Gather", "")],
            Some("2 of 3 nodes would run on the CPU, and only shape arithmetic may: Gather (2); with"),
        ),
        (
            "several operators",
            vec![
                assigned(cpu, "Resize", "up"),
                assigned(cpu, "Conv", "a"),
                assigned(cpu, "Conv", "b"),
                matmul(),
            ],
            Some("only shape arithmetic may: Conv (2, the first `a`), Resize `up`; with"),
        ),
        (
            "an operator of ONNX Runtime's own",
            vec![assigned(cpu, "MultiHeadAttention", "heads")],
            Some(
                "MultiHeadAttention `heads`; export the model with standard operators (target tensorrt): some of these \
                 are ONNX Runtime's own; with `cpu_fallback` they run there",
            ),
        ),
    ];
    let graph = || Ok(graph(&["s Shape x > s", "pick Gather s zero > n", "glue Concat n n > t"]));
    let provider = ExecutionProvider::Cuda(CudaOptions::default());
    let mut wrong = Vec::new();
    for (name, nodes, expected) in cases {
        let outcome = check("m.onnx", &provider, &nodes, false, &graph);
        let text = outcome.as_ref().err().map(ToString::to_string);
        let fits = match (&text, expected) {
            (None, None) => true,
            (Some(text), Some(expected)) => {
                text.starts_with("cannot run all of m.onnx on CUDA device 0: ") && text.contains(expected)
            }
            _ => false,
        };
        let kind = outcome.err().map(|error| error.kind());
        if !fits || kind != expected.map(|_| ErrorKind::Unavailable) {
            wrong.push(format!("{name}: expected {expected:?}, got {text:?}"));
        }
        if let Err(error) = check("m.onnx", &provider, &nodes, true, &graph) {
            wrong.push(format!("{name}, with CPU fallback: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_long_list_of_operators_is_cut() {
    let operators = ["A", "B", "C", "D", "E", "F", "G", "H", "I", "J"];
    let nodes: Vec<_> = operators.map(|operator| assigned("CPUExecutionProvider", operator, "")).into();
    let provider = ExecutionProvider::CoreMl(CoreMlOptions::default());
    let graph = || Ok(GraphProto::default());
    let error = check("m.onnx", &provider, &nodes, false, &graph).expect_err("none is shape arithmetic");
    assert!(error.to_string().contains("A, B, C, D, E, F, G, H and 2 other operators"), "{error}");
}
