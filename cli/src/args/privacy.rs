//! `--blur` and `--redact`.

use clap::Args;
use ocelli::draw::{Redaction, RedactionStyle};

use super::OUTPUT;
use crate::usage;

/// Which classes are made unrecognisable.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = OUTPUT)]
pub struct PrivacyArgs {
    /// Blur the instances of these classes in all images and videos that are written or shown
    #[arg(long, num_args = 1.., value_delimiter = ',', value_name = "CLASS", conflicts_with = "redact")]
    blur: Vec<String>,
    /// As --blur, but black
    #[arg(long, num_args = 1.., value_delimiter = ',', value_name = "CLASS")]
    redact: Vec<String>,
}

impl PrivacyArgs {
    /// The redaction that is asked for, if any; `labels` are the classes by id.
    ///
    /// # Errors
    /// If a class is not detected.
    pub fn redaction(&self, labels: &[&str]) -> anyhow::Result<Option<Redaction>> {
        let (flag, style, names) = match (self.blur.is_empty(), self.redact.is_empty()) {
            (true, true) => return Ok(None),
            (false, _) => ("--blur", RedactionStyle::Blur, &self.blur),
            _ => ("--redact", RedactionStyle::Fill, &self.redact),
        };
        let id = |name: &String| {
            let found = labels.iter().position(|label| *label == name.trim());
            found.ok_or_else(|| {
                let known = labels.join(", ");
                usage(format!(
                    "{flag}, {name}: it is not detected; add it to --classes, or name one of {known}"
                ))
            })
        };
        let classes = names.iter().map(id).collect::<anyhow::Result<Vec<usize>>>()?;
        Ok(Some(Redaction::new(style, classes)))
    }
}
