//! The suite passes a correct engine and detects faults.

use super::*;
use crate::fake::FakeEngine;
use crate::spec::check_run;
use crate::tensor::Tensor;

fn input<'t>(inputs: &[(&str, &'t Tensor)], name: &str) -> &'t Tensor {
    inputs.iter().find(|(known, _)| *known == name).expect("the engine checked the names").1
}

/// The network in Rust.
pub(crate) fn compute(inputs: &[(&str, &Tensor)], outputs: &mut [(&str, &mut Tensor)]) -> Result<()> {
    let (a, b) = (input(inputs, "a").as_f32()?, input(inputs, "b").as_f32()?);
    let ids = input(inputs, "ids");
    let (rows, tokens) = (ids.shape()[0], ids.shape()[1]);
    let ids = ids.as_slice::<i64>()?;
    for (name, tensor) in outputs {
        match *name {
            "sum" => {
                for ((sum, a), b) in tensor.reset_f32(&[rows, 3]).iter_mut().zip(a).zip(b) {
                    *sum = a + b;
                }
            }
            "product" => {
                for (index, cell) in tensor.reset_f32(&[rows, 4]).iter_mut().enumerate() {
                    let row = &a[index / 4 * 3..][..3];
                    *cell = row.iter().zip(&WEIGHTS).map(|(a, weights)| a * weights[index % 4]).sum();
                }
            }
            "doubled" => {
                for (doubled, id) in tensor.reset::<i64>(&[rows, tokens]).iter_mut().zip(ids) {
                    *doubled = 2 * id;
                }
            }
            _ => {
                let found: Vec<_> = (0..ids.len()).filter(|&index| ids[index] != 0).collect();
                let data = tensor.reset::<i64>(&[2, found.len()]);
                for (position, index) in found.iter().enumerate() {
                    data[position] = (index / tokens) as i64;
                    data[found.len() + position] = (index % tokens) as i64;
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_correct_engine_passes() {
    let outcome = check(|| Ok(FakeEngine::new(spec(), compute)), Tolerance::F32);
    assert!(outcome.is_ok(), "{outcome:?}");
}

/// An engine that ignores misuse.
struct Careless(EngineSpec);

impl Engine for Careless {
    fn spec(&self) -> &EngineSpec {
        &self.0
    }

    fn description(&self) -> &str {
        "careless"
    }

    fn run(&mut self, inputs: &[(&str, &Tensor)], outputs: &mut [(&str, &mut Tensor)]) -> Result<()> {
        if check_run(&self.0, inputs, outputs).is_ok() { compute(inputs, outputs) } else { Ok(()) }
    }
}

#[test]
fn every_fault_is_detected() {
    type Compute = fn(&[(&str, &Tensor)], &mut [(&str, &mut Tensor)]) -> Result<()>;
    let faults: [(&str, Compute, &str); 4] = [
        (
            "values that are slightly wrong",
            |inputs, outputs| {
                compute(inputs, outputs)?;
                for value in
                    outputs.iter_mut().filter_map(|(_, tensor)| tensor.as_mut_slice::<f32>().ok()).flatten()
                {
                    *value += 1e-4;
                }
                Ok(())
            },
            "values: 2 rows, 3 tokens: `sum`, element 0: expected 0.5, got 0.5001",
        ),
        (
            "another buffer each time",
            |inputs, outputs| {
                for (_, tensor) in outputs.iter_mut() {
                    let larger = Tensor::zeros::<f32>(&[tensor.capacity() + 100]);
                    **tensor = larger;
                }
                compute(inputs, outputs)
            },
            "buffers: reused buffers, 8 rows, 6 tokens: `sum` was allocated again",
        ),
        (
            "no shape for zero rows",
            |inputs, outputs| {
                compute(inputs, outputs)?;
                if inputs[0].1.is_empty() {
                    outputs.iter_mut().for_each(|(_, tensor)| **tensor = Tensor::empty());
                }
                Ok(())
            },
            "values: 0 rows, 3 tokens: output `sum`: expected shape [rows, 3], got [0]",
        ),
        (
            "NaN replaced",
            |inputs, outputs| {
                compute(inputs, outputs)?;
                for value in
                    outputs.iter_mut().filter_map(|(_, tensor)| tensor.as_mut_slice::<f32>().ok()).flatten()
                {
                    *value = value.max(f32::MIN);
                }
                Ok(())
            },
            "special values: NaN and infinity became",
        ),
    ];
    let mut missed = Vec::new();
    for (fault, compute, expected) in faults {
        match check(|| Ok(FakeEngine::new(spec(), compute)), Tolerance::F32) {
            Err(failures) if failures.lines().iter().any(|line| line.starts_with(expected)) => {}
            other => missed.push(format!("{fault}: {other:?}")),
        }
    }

    let mut renamed = spec();
    renamed.outputs[0].name = "total".to_owned();
    match check(|| Ok(FakeEngine::new(renamed.clone(), compute)), Tolerance::F32) {
        Err(failures) if failures.lines()[0].starts_with("specification: expected") => {}
        other => missed.push(format!("another specification: {other:?}")),
    }

    let mut calls = 0;
    let drifting = |_: ()| {
        FakeEngine::new(spec(), move |inputs, outputs| {
            compute(inputs, outputs)?;
            calls += 1;
            for value in
                outputs.iter_mut().filter_map(|(_, tensor)| tensor.as_mut_slice::<f32>().ok()).flatten()
            {
                *value = f32::from_bits(value.to_bits() ^ (calls & 1));
            }
            Ok(())
        })
    };
    match check(|| Ok(drifting(())), Tolerance::F32) {
        Err(failures) if failures.lines().iter().any(|line| line.starts_with("repetition: run ")) => {}
        other => missed.push(format!("a bit that flips: {other:?}")),
    }

    match check(|| Ok(Careless(spec())), Tolerance::F32) {
        Err(failures) if failures.lines().iter().filter(|line| line.ends_with(": it ran")).count() == 13 => {}
        other => missed.push(format!("no checks: {other:?}")),
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
