use super::*;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
struct ModelProto {
    #[prost(int64, tag = "1")]
    ir_version: i64,
    #[prost(message, optional, tag = "7")]
    graph: Option<GraphProto>,
    #[prost(string, tag = "2")]
    producer: String,
}

#[derive(Clone, PartialEq, Message)]
struct GraphProto {
    #[prost(message, repeated, tag = "1")]
    node: Vec<NodeProto>,
    #[prost(message, repeated, tag = "5")]
    initializer: Vec<TensorProto>,
    #[prost(message, repeated, tag = "11")]
    input: Vec<ValueInfoProto>,
}

#[derive(Clone, PartialEq, Message)]
struct NodeProto {
    #[prost(string, repeated, tag = "1")]
    input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    output: Vec<String>,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    op_type: String,
    #[prost(bytes = "vec", tag = "5")]
    attribute: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorProto {
    #[prost(string, tag = "8")]
    name: String,
    #[prost(bytes = "vec", tag = "9")]
    raw_data: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct ValueInfoProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    r#type: Option<TypeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct TypeProto {
    #[prost(message, optional, tag = "1")]
    tensor_type: Option<TensorTypeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorTypeProto {
    #[prost(int32, tag = "1")]
    elem_type: i32,
    #[prost(message, optional, tag = "2")]
    shape: Option<ShapeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct ShapeProto {
    #[prost(message, repeated, tag = "1")]
    dim: Vec<DimensionProto>,
}

#[derive(Clone, PartialEq, Message)]
struct DimensionProto {
    #[prost(int64, optional, tag = "1")]
    dim_value: Option<i64>,
    #[prost(string, optional, tag = "2")]
    dim_param: Option<String>,
}

/// Nodes are written `name operator inputs… > outputs…`.
fn model(nodes: &[&str]) -> Vec<u8> {
    let node = |text: &&str| {
        let (left, outputs) = text.split_once(" > ").expect("an arrow");
        let mut words = left.split_whitespace().map(|word| word.replace('_', ""));
        NodeProto {
            name: words.next().expect("a name, or _"),
            op_type: words.next().expect("an operator"),
            input: words.collect(),
            output: outputs.split_whitespace().map(str::to_owned).collect(),
            attribute: vec![7; 3],
        }
    };
    let input = |name: &str, dim: Vec<DimensionProto>| {
        let tensor_type = TensorTypeProto { elem_type: 1, shape: Some(ShapeProto { dim }) };
        let r#type = Some(TypeProto { tensor_type: Some(tensor_type) });
        ValueInfoProto { name: name.to_owned(), r#type }
    };
    let fixed = |size| DimensionProto { dim_value: Some(size), dim_param: None };
    let named = |name: &str| DimensionProto { dim_value: None, dim_param: Some(name.to_owned()) };
    let graph = GraphProto {
        node: nodes.iter().map(node).collect(),
        initializer: vec![TensorProto { name: "weights".to_owned(), raw_data: vec![1; 300] }],
        input: vec![
            input("x", vec![fixed(1), named("classes"), fixed(300)]),
            input("weights", vec![fixed(75)]),
            input("mask", vec![named("classes"), DimensionProto::default()]),
        ],
    };
    ModelProto { ir_version: 8, producer: "tests".to_owned(), graph: Some(graph) }.encode_to_vec()
}

#[test]
fn inputs_have_names_and_shapes() {
    let graph = Graph::of_bytes(&model(&[])).expect("it is a model");
    let input = |name: &str, dims: &[Dim]| Input { name: name.to_owned(), dims: dims.to_vec() };
    let expected = [
        input("x", &[Dim::Fixed(1), Dim::named("classes"), Dim::Fixed(300)]),
        input("mask", &[Dim::named("classes"), Dim::named("")]),
    ];
    assert_eq!(graph.inputs, expected);
}

#[test]
fn nodes_that_see_sizes_and_no_element_compute_from_shapes() {
    let nodes = [
        "shape Shape x > s",
        "count Gather s zero > n",
        "glue Concat n weights > t",
        "product MatMul x weights > p",
        "form Reshape p t > r",
        "after Shape r > s2",
        "added Add n s2 > q",
        // Two of one name, and one of none.
        "twin Add n n > a",
        "twin Add x x > b",
        "_ Add n n > c",
        "both Concat n mask > d",
        // Constants alone are folded; what is not is computed in every run.
        "constant MatMul weights weights > f",
        "size Size mask > e",
    ];
    let graph = Graph::of_bytes(&model(&nodes)).expect("it is a model");
    let mut names: Vec<_> = graph.from_shapes.iter().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["added", "after", "count", "glue", "shape", "size"]);
}

#[test]
fn what_is_no_model_is_an_error_or_empty_and_never_more() {
    let good = model(&["product MatMul x weights > p"]);
    let mut wrong = Vec::new();
    for length in 0..good.len() {
        // A file cut between two records is a model of less.
        if let Ok(graph) = Graph::of_bytes(&good[..length])
            && !graph.inputs.is_empty()
        {
            wrong.push(length);
        }
    }
    let mut damaged = good.clone();
    for position in 0..damaged.len() {
        let kept = std::mem::replace(&mut damaged[position], 0xff);
        // It may be read as something else, but it is read to an end.
        let _ = Graph::of_bytes(&damaged);
        damaged[position] = kept;
    }
    assert!(wrong.is_empty(), "cut to {wrong:?}");
}
