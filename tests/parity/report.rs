//! All comparisons of a test, so that one run shows every difference.

use std::collections::BTreeMap;
use std::fmt::Write;

use ocelli::engines::Tensor;

use super::exported::Outcome;
use super::golden::f32s;

/// The largest max|a − b| / max|b| that passes.
pub const TOLERANCE: f64 = 1e-4;

/// One comparison, or the reason why it failed.
struct Row {
    case: String,
    output: String,
    outcome: Result<f64, String>,
}

impl Row {
    fn passes(&self, tolerance: f64) -> bool {
        self.outcome.as_ref().is_ok_and(|error| *error <= tolerance)
    }
}

/// The comparisons of one test.
pub struct Report {
    rows: Vec<Row>,
    case: String,
    tolerance: f64,
}

impl Default for Report {
    fn default() -> Self {
        Self::with_tolerance(TOLERANCE)
    }
}

impl Report {
    /// A report with another limit than [`TOLERANCE`].
    pub fn with_tolerance(tolerance: f64) -> Self {
        Self { rows: Vec::new(), case: String::new(), tolerance }
    }

    /// Starts a case; later comparisons belong to it.
    pub fn begin(&mut self, case: impl Into<String>) {
        self.case = case.into();
    }

    /// Runs the checks of a case; an error becomes a line of the report.
    pub fn check(&mut self, case: impl Into<String>, checks: impl FnOnce(&mut Self) -> Outcome<()>) {
        self.begin(case);
        if let Err(error) = checks(self) {
            self.problem("(stopped)", error.to_string());
        }
    }

    /// Compares an output with the reference.
    pub fn compare(&mut self, output: impl Into<String>, ours: &Tensor, reference: &Tensor) {
        let outcome = if ours.shape() == reference.shape() {
            Ok(error(f32s(ours), f32s(reference)))
        } else {
            Err(format!("shape {:?}, expected {:?}", ours.shape(), reference.shape()))
        };
        self.rows.push(Row { case: self.case.clone(), output: output.into(), outcome });
    }

    /// Reports a problem that is not a difference of numbers.
    pub fn problem(&mut self, output: impl Into<String>, what: impl Into<String>) {
        self.rows.push(Row { case: self.case.clone(), output: output.into(), outcome: Err(what.into()) });
    }

    /// Reports whether a fact holds.
    pub fn expect(&mut self, what: impl Into<String>, holds: bool) {
        let outcome = if holds { Ok(0.0) } else { Err("does not hold".into()) };
        self.rows.push(Row { case: self.case.clone(), output: what.into(), outcome });
    }

    /// Prints the largest error of each case.
    ///
    /// # Panics
    /// With a table of all failures, if any, and if nothing was compared.
    pub fn finish(self, what: &str) {
        assert!(!self.rows.is_empty(), "{what}: nothing was compared");
        let mut cases: BTreeMap<&str, (usize, f64, &str)> = BTreeMap::new();
        for row in &self.rows {
            let worst = cases.entry(&row.case).or_insert((0, -1.0, ""));
            worst.0 += 1;
            let error = *row.outcome.as_ref().unwrap_or(&f64::INFINITY);
            if error > worst.1 {
                (worst.1, worst.2) = (error, &row.output);
            }
        }
        println!("{what}: {} comparisons", self.rows.len());
        for (case, (count, error, output)) in cases {
            println!("  {case:<44} {count:>4}   worst {error:8.1e}   {output}");
        }
        let mut table = String::new();
        let failing: Vec<&Row> = self.rows.iter().filter(|row| !row.passes(self.tolerance)).collect();
        for Row { case, output, outcome } in &failing {
            let text = match outcome {
                Ok(error) => format!("{error:.2e}"),
                Err(problem) => problem.clone(),
            };
            writeln!(table, "  {case:<44} {output:<36} {text}").expect("writing to memory does not fail");
        }
        assert!(failing.is_empty(), "{what}: {} of {} fail:\n{table}", failing.len(), self.rows.len());
    }
}

/// max|a − b| / max|b|; infinite if a value is NaN.
fn error(ours: &[f32], reference: &[f32]) -> f64 {
    let pairs = ours.iter().zip(reference).map(|(a, b)| (f64::from(*a) - f64::from(*b)).abs());
    let difference = pairs.fold(0.0, |most: f64, d| if d.is_finite() { most.max(d) } else { f64::INFINITY });
    let largest = reference.iter().fold(0.0, |most: f64, b| most.max(f64::from(b.abs())));
    if difference == 0.0 { 0.0 } else { difference / largest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors() {
        let cases: [(&[f32], &[f32], f64); 6] = [
            (&[1.0, -4.0], &[1.0, -4.0], 0.0),
            (&[1.0, -3.0], &[1.0, -4.0], 0.25),
            (&[0.0], &[0.0], 0.0),
            (&[0.5], &[0.0], f64::INFINITY),
            (&[f32::NAN, 1.0], &[2.0, 1.0], f64::INFINITY),
            (&[2.0], &[f32::NAN], f64::INFINITY),
        ];
        let wrong: Vec<_> = cases.iter().filter(|(a, b, expected)| error(a, b) != *expected).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
