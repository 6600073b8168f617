//! The cases of the suite, in groups that share an engine.

use super::{Tolerance, WEIGHTS};
use crate::engine::Engine;
use crate::spec::EngineSpec;
use crate::tensor::Tensor;
use ocelli_error::{ErrorKind, Result};

/// Runs every group and returns a line for each case that failed.
pub(super) fn run_all<E: Engine>(
    mut make: impl FnMut() -> Result<E>,
    tolerance: Tolerance,
    spec: EngineSpec,
    largest_id: i64,
) -> Vec<String> {
    let mut suite = Suite { tolerance, spec, largest_id, failures: Vec::new() };
    type Group = fn(&mut Suite, &mut dyn Engine);
    let groups: [(&str, Group); 7] = [
        ("specification", Suite::specification),
        ("values", Suite::values),
        ("misuse", Suite::misuse),
        ("subsets", Suite::subsets),
        ("buffers", Suite::buffers),
        ("repetition", Suite::repetition),
        ("special values", Suite::special_values),
    ];
    for (name, group) in groups {
        let before = suite.failures.len();
        match make() {
            Ok(mut engine) => group(&mut suite, &mut engine),
            Err(error) => suite.failures.push(format!("cannot create the engine: {error}")),
        }
        for failure in &mut suite.failures[before..] {
            *failure = format!("{name}: {failure}");
        }
    }
    suite.failures
}

/// Roughly the largest value of `ids`; its double needs more than 32 bits.
pub(super) const LARGEST_ID: i64 = 2_000_000_014;

struct Suite {
    tolerance: Tolerance,
    spec: EngineSpec,
    largest_id: i64,
    failures: Vec<String>,
}

/// The inputs of one run.
struct Inputs {
    a: Tensor,
    b: Tensor,
    ids: Tensor,
}

impl Inputs {
    /// Values that differ in every element; a third of `ids` is zero.
    fn of_size(rows: usize, tokens: usize, largest_id: i64) -> Self {
        let floats = |offset: f32| {
            let values =
                (0..rows * 3).map(|index| offset + 0.37 * index as f32 * (1.0 - 2.0 * (index % 2) as f32));
            Tensor::f32(&[rows, 3], values.collect()).expect("rows × 3 values")
        };
        let ids = (0..rows * tokens).map(|index| (index as i64 % 3) * (index as i64 + largest_id / 2));
        let ids = Tensor::i64(&[rows, tokens], ids.collect()).expect("rows × tokens values");
        Self { a: floats(1.0), b: floats(-0.5), ids }
    }

    fn list(&self) -> [(&str, &Tensor); 3] {
        [("a", &self.a), ("b", &self.b), ("ids", &self.ids)]
    }

    /// The exact value of an output.
    fn expected(&self, output: &str) -> Tensor {
        let a = self.a.as_f32().expect("a is f32");
        let b = self.b.as_f32().expect("b is f32");
        let ids = self.ids.as_slice::<i64>().expect("ids are i64");
        let (rows, tokens) = (self.ids.shape()[0], self.ids.shape()[1]);
        let tensor = match output {
            "sum" => Tensor::f32(&[rows, 3], a.iter().zip(b).map(|(a, b)| a + b).collect()),
            "product" => {
                let cell = |row: &[f32], column: usize| (0..3).map(|k| row[k] * WEIGHTS[k][column]).sum();
                let values = a.chunks(3).flat_map(|row| (0..4).map(move |column| cell(row, column)));
                Tensor::f32(&[rows, 4], values.collect())
            }
            "doubled" => Tensor::i64(&[rows, tokens], ids.iter().map(|id| id * 2).collect()),
            _ => {
                let found: Vec<_> = (0..ids.len()).filter(|&index| ids[index] != 0).collect();
                let in_rows = found.iter().map(|index| (index / tokens) as i64);
                let in_tokens = found.iter().map(|index| (index % tokens) as i64);
                Tensor::i64(&[2, found.len()], in_rows.chain(in_tokens).collect())
            }
        };
        tensor.expect("as many values as the shape has")
    }
}

impl Suite {
    fn inputs(&self, rows: usize, tokens: usize) -> Inputs {
        Inputs::of_size(rows, tokens, self.largest_id)
    }

    /// The names of all outputs.
    fn all(&self) -> &'static [&'static str] {
        &ALL[..self.spec.outputs.len()]
    }

    fn fail(&mut self, message: impl Into<String>) {
        self.failures.push(message.into());
    }

    /// Runs the engine and compares the named outputs with their exact values.
    fn compare(
        &mut self,
        case: &str,
        engine: &mut dyn Engine,
        inputs: &Inputs,
        names: &[&str],
        into: &mut [Tensor],
    ) {
        let mut outputs: Vec<_> = names.iter().copied().zip(into.iter_mut()).collect();
        if let Err(error) = engine.run(&inputs.list(), &mut outputs) {
            return self.fail(format!("{case}: {error}"));
        }
        for (name, actual) in names.iter().zip(into.iter()) {
            let expected = inputs.expected(name);
            if actual.shape() != expected.shape() || actual.element_type() != expected.element_type() {
                self.fail(format!("{case}: `{name}` is {actual:?}, expected {expected:?}"));
            } else if let (Ok(expected), Ok(actual)) = (expected.as_f32(), actual.as_f32()) {
                let wrong = expected.iter().zip(actual).position(|(e, a)| !self.tolerance.allows(*e, *a));
                if let Some(index) = wrong {
                    let (expected, actual) = (expected[index], actual[index]);
                    self.fail(format!(
                        "{case}: `{name}`, element {index}: expected {expected}, got {actual}"
                    ));
                }
            } else if *actual != expected {
                self.fail(format!("{case}: `{name}` has wrong values"));
            }
        }
    }

    fn specification(&mut self, engine: &mut dyn Engine) {
        if *engine.spec() != self.spec {
            self.fail(format!("expected {:?}, got {:?}", self.spec, engine.spec()));
        }
        let description = engine.description();
        if description.trim().is_empty() || description.lines().count() != 1 {
            self.fail(format!("the description should be one line: {description:?}"));
        }
    }

    fn values(&mut self, engine: &mut dyn Engine) {
        let all = self.all();
        let mut tensors = empties(all.len());
        for (rows, tokens) in [(2, 3), (1, 1), (7, 5), (2, 3), (0, 3), (4, 0), (0, 0), (64, 32), (1, 9)] {
            let inputs = self.inputs(rows, tokens);
            self.compare(&format!("{rows} rows, {tokens} tokens"), engine, &inputs, all, &mut tensors);
        }
    }

    fn misuse(&mut self, engine: &mut dyn Engine) {
        let inputs = self.inputs(2, 3);
        let [a, b, ids] = inputs.list();
        let longer = Tensor::zeros::<f32>(&[3, 3]);
        let wider = Tensor::zeros::<f32>(&[2, 4]);
        let flat = Tensor::zeros::<f32>(&[6]);
        let deeper = Tensor::zeros::<f32>(&[2, 3, 1]);
        type Case<'c> = (&'c str, Vec<(&'c str, &'c Tensor)>, &'c [&'c str], &'c str);
        let cases: [Case<'_>; 13] = [
            ("an unknown input", vec![a, b, ids, ("c", b.1)], &["sum"], "`c`"),
            ("a misspelt input", vec![a, b, ("IDS", ids.1)], &["sum"], "`IDS`"),
            ("a missing input", vec![a, ids], &["sum"], "`b`"),
            ("no input", vec![], &["sum"], "`a`"),
            ("an input twice", vec![a, b, ids, b], &["sum"], "`b`"),
            ("an input of another type", vec![a, ("b", ids.1), ids], &["sum"], "`b`"),
            ("a named dimension with two sizes", vec![a, ("b", &longer), ids], &["sum"], "`rows`"),
            ("a fixed dimension of another size", vec![a, ("b", &wider), ids], &["sum"], "`b`"),
            ("one dimension too few", vec![a, ("b", &flat), ids], &["sum"], "`b`"),
            ("one dimension too many", vec![a, ("b", &deeper), ids], &["sum"], "`b`"),
            ("an unknown output", vec![a, b, ids], &["sum", "difference"], "`difference`"),
            ("an output twice", vec![a, b, ids], &["sum", "doubled", "sum"], "`sum`"),
            ("no output", vec![a, b, ids], &[], "output"),
        ];
        for (case, inputs, names, expected) in cases {
            let before = Tensor::f32(&[2], vec![4.0, 2.0]).expect("two values");
            let mut tensors = vec![before.clone(); names.len()];
            let mut outputs: Vec<_> = names.iter().copied().zip(&mut tensors).collect();
            match engine.run(&inputs, &mut outputs) {
                Ok(()) => self.fail(format!("{case}: it ran")),
                Err(error) => {
                    let text = error.to_string();
                    if error.kind() != ErrorKind::InvalidArgument
                        || !text.contains(expected)
                        || text.lines().count() != 1
                    {
                        self.fail(format!("{case}: expected one line that names {expected}, got {error:?}"));
                    }
                }
            }
            if tensors.iter().any(|tensor| *tensor != before) {
                self.fail(format!("{case}: an output was changed"));
            }
        }
        let all = self.all();
        self.compare("after misuse", engine, &inputs, all, &mut empties(all.len()));
    }

    fn subsets(&mut self, engine: &mut dyn Engine) {
        let inputs = self.inputs(3, 4);
        let all = self.all();
        // Each bit of the number is an output; the second order is the reverse of the specification's.
        for subset in 1_usize..1 << all.len() {
            let mut names: Vec<_> =
                (0..all.len()).filter(|bit| subset >> bit & 1 == 1).map(|bit| all[bit]).collect();
            for _ in 0..2 {
                let mut tensors = empties(names.len());
                self.compare(&format!("{names:?}"), engine, &inputs, &names, &mut tensors);
                names.reverse();
            }
        }
        let mut reversed = inputs.list();
        reversed.reverse();
        let mut sum = Tensor::empty();
        match engine.run(&reversed, &mut [("sum", &mut sum)]) {
            Ok(()) if sum.shape() == [3, 3] => {}
            other => self.fail(format!("inputs in another order: {other:?}, {sum:?}")),
        }
    }

    fn buffers(&mut self, engine: &mut dyn Engine) {
        let mut tensors = vec![
            Tensor::zeros::<i64>(&[500]),
            Tensor::zeros::<u8>(&[]),
            Tensor::zeros::<f32>(&[9, 9, 9]),
            Tensor::zeros::<f32>(&[0]),
        ];
        let all = self.all();
        tensors.truncate(all.len());
        let inputs = self.inputs(8, 6);
        self.compare("buffers of other types", engine, &inputs, all, &mut tensors);
        let before_run: Vec<_> = tensors.iter().map(memory).collect();
        for (rows, tokens) in [(8, 6), (2, 3), (0, 0), (8, 6)] {
            let case = format!("reused buffers, {rows} rows, {tokens} tokens");
            let inputs = self.inputs(rows, tokens);
            self.compare(&case, engine, &inputs, all, &mut tensors);
            for ((name, tensor), expected) in all.iter().zip(&tensors).zip(&before_run) {
                if memory(tensor) != *expected {
                    self.fail(format!("{case}: `{name}` was allocated again"));
                }
            }
        }
    }

    fn repetition(&mut self, engine: &mut dyn Engine) {
        let inputs = self.inputs(33, 7);
        let other = self.inputs(5, 2);
        let all = self.all();
        let mut first = empties(all.len());
        self.compare("the first run", engine, &inputs, all, &mut first);
        for run in 2..=10 {
            if run % 3 == 0 {
                self.compare("a run in between", engine, &other, all, &mut empties(all.len()));
            }
            let mut again = empties(all.len());
            self.compare(&format!("run {run}"), engine, &inputs, all, &mut again);
            for ((name, first), again) in all.iter().zip(&first).zip(&again) {
                if bits(first) != bits(again) {
                    self.fail(format!("run {run}: `{name}` differs in some bits from the first run"));
                }
            }
        }
    }

    fn special_values(&mut self, engine: &mut dyn Engine) {
        let mut inputs = self.inputs(2, 2);
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e30, -1e30];
        inputs.a.as_mut_slice::<f32>().expect("a is f32").copy_from_slice(&special);
        // Engines that compute in 16 bits turn 1e30 into infinity, so only values that every precision keeps are compared.
        let mut sum = Tensor::empty();
        if let Err(error) = engine.run(&inputs.list(), &mut [("sum", &mut sum)]) {
            return self.fail(error.to_string());
        }
        match sum.as_f32() {
            Ok([nan, infinity, negative, ..]) if nan.is_nan() && *infinity == f32::INFINITY => {
                if *negative != f32::NEG_INFINITY {
                    self.fail(format!("negative infinity became {negative}"));
                }
            }
            other => self.fail(format!("NaN and infinity became {other:?}")),
        }
    }
}

/// The names of the outputs; a specification may lack the last.
const ALL: [&str; 4] = ["sum", "product", "doubled", "positions"];

fn empties(count: usize) -> Vec<Tensor> {
    (0..count).map(|_| Tensor::empty()).collect()
}

/// The address and the capacity of a tensor's memory.
fn memory(tensor: &Tensor) -> (usize, usize) {
    let address = match (tensor.as_f32(), tensor.as_slice::<i64>()) {
        (Ok(data), _) => data.as_ptr() as usize,
        (_, Ok(data)) => data.as_ptr() as usize,
        _ => 0,
    };
    (address, tensor.capacity())
}

/// The elements as bits, so that NaN equals itself and −0 differs from 0.
fn bits(tensor: &Tensor) -> Vec<u64> {
    match (tensor.as_f32(), tensor.as_slice::<i64>()) {
        (Ok(data), _) => data.iter().map(|value| u64::from(value.to_bits())).collect(),
        (_, Ok(data)) => data.iter().map(|value| value.cast_unsigned()).collect(),
        _ => Vec::new(),
    }
}
