//! The evaluations of several configurations: models, engines, number formats, sizes.

use std::io::{self, Write};
use std::path::Path;

use ocelli::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::table::percent;
use crate::table::{columns, printable, row};

/// Evaluations of several configurations on the same images, in the order in which they are listed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfigurationsReport {
    /// One for each configuration.
    pub configurations: Vec<ConfigurationReport>,
}

/// The evaluation of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfigurationReport {
    /// Its name.
    pub name: String,
    /// The key of everything that its figures depend on.
    pub key: String,
    /// The JSON of its [`EvalReport`](super::EvalReport).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Value>,
    /// The reason why it failed, or why it is incomplete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl ConfigurationReport {
    /// A figure of the report, by its JSON pointer.
    fn figure(&self, pointer: &str) -> Option<f64> {
        self.report.as_ref()?.pointer(pointer)?.as_f64()
    }

    /// The images and classes of the evaluation, in a line.
    fn truth(&self) -> Option<String> {
        let report = self.report.as_ref()?;
        let truth = printable(report["truth"].as_str()?);
        // Reports of earlier versions have "things".
        let instances = report.get("instances").unwrap_or(&report["things"]);
        let (images, classes) = (&report["images"], &report["classes"]);
        Some(format!("{truth}   {images} images   {instances} instances   {classes} classes"))
    }
}

impl ConfigurationsReport {
    /// Reads the JSON of a report.
    ///
    /// # Errors
    /// [`Io`](ocelli::ErrorKind::Io) if the file cannot be read, [`Mismatch`](ocelli::ErrorKind::Mismatch) if it is another one.
    pub fn open(path: &Path) -> Result<Self> {
        let text = std::fs::read(path).map_err(|e| Error::io("cannot read the report", path, e))?;
        serde_json::from_slice(&text).map_err(|e| {
            let message = format!("{}: it is no report of configurations; name another file", path.display());
            Error::mismatch(message).with_source(e)
        })
    }

    /// The evaluation with this key, if it was completed.
    pub fn finished(&self, key: &str) -> Option<&ConfigurationReport> {
        self.configurations.iter().find(|one| one.key == key && one.report.is_some() && one.error.is_none())
    }

    /// Writes a table with a row for each configuration: average precision in percent, the median time of an image, and peak
    /// memory. A configuration without figures has its reason in the row.
    ///
    /// # Errors
    /// Errors of `writer`.
    pub fn write_table(&self, mut writer: impl Write) -> io::Result<()> {
        let mut truths: Vec<String> =
            self.configurations.iter().filter_map(ConfigurationReport::truth).collect();
        truths.dedup();
        for truth in &truths {
            writeln!(writer, "{truth}")?;
        }
        let has_masks = self
            .configurations
            .iter()
            .any(|one| one.report.as_ref().is_some_and(|report| report.pointer("/models/0/segm").is_some()));
        let mut heading = vec!["AP", "AP50", "AP_S", "AP_L", "ms an image", "peak MiB"];
        if has_masks {
            heading.insert(4, "mask AP");
        }
        let mut rows = vec![row("configuration", heading)];
        for one in &self.configurations {
            let mut figures = ["ap", "ap50", "ap_small", "ap_large"]
                .map(|name| percent(one.figure(&format!("/models/0/bbox/{name}"))))
                .to_vec();
            if has_masks {
                figures.push(percent(one.figure("/models/0/segm/ap")));
            }
            let number = |pointer, digits: usize| {
                one.figure(pointer).map_or_else(|| "–".into(), |value| format!("{value:.digits$}"))
            };
            figures.extend([number("/models/0/timing_ms/total/p50", 1), number("/peak_memory_mib", 0)]);
            rows.push(row(&one.name, figures));
        }
        // Reasons are as long as they are: they follow the columns.
        let reasons = std::iter::once(None).chain(self.configurations.iter().map(|one| one.error.as_ref()));
        columns(&rows, 1).lines().zip(reasons).try_for_each(|(line, reason)| {
            let reason = reason.map(|reason| format!("   {}", printable(reason))).unwrap_or_default();
            writeln!(writer, "  {line}{reason}")
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use ocelli::ErrorKind;

    use super::*;

    fn report() -> ConfigurationsReport {
        let evaluated = |ap: f64, ms: f64| {
            json!({
                "truth": "instances.json", "images": 2, "instances": 5, "classes": 3, "peak_memory_mib": 812.4,
                "models": [{"bbox": {"ap": ap, "ap50": 0.5, "ap_small": null, "ap_large": 0.75}, "timing_ms": {"total": {"p50": ms}}}],
            })
        };
        let one = |name: &str, report: Option<Value>, error: Option<&str>| ConfigurationReport {
            name: name.into(),
            key: format!("key of {name}"),
            report,
            error: error.map(String::from),
        };
        ConfigurationsReport {
            configurations: vec![
                one("whole", Some(evaluated(0.4567, 1234.56)), None),
                one("too large", None, Some("out of memory\n")),
                one("some images", Some(evaluated(0.1, 9.0)), Some("1 of 2 images failed")),
            ],
        }
    }

    #[test]
    fn a_row_has_figures_or_a_reason() -> io::Result<()> {
        let mut table = Vec::new();
        report().write_table(&mut table)?;
        let table = String::from_utf8_lossy(&table);
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 5, "{table}");
        assert_eq!(lines[0].join(" "), "instances.json 2 images 5 instances 3 classes");
        assert_eq!(lines[1].join(" "), "configuration AP AP50 AP_S AP_L ms an image peak MiB");
        assert_eq!(lines[2], ["whole", "45.7", "50.0", "–", "75.0", "1234.6", "812"]);
        assert_eq!(lines[3].join(" "), "too large – – – – – – out of memory\u{FFFD}");
        assert_eq!(lines[4].join(" "), "some images 10.0 50.0 – 75.0 9.0 812 1 of 2 images failed");
        Ok(())
    }

    #[test]
    fn what_is_complete_is_found_again() -> Result<()> {
        let folder = tempfile::tempdir().map_err(|e| Error::io("no folder", Path::new(""), e))?;
        let path = folder.path().join("report.json");
        let json = serde_json::to_vec(&report()).expect("it is plain data");
        std::fs::write(&path, json).expect("the folder is writable");
        let known = ConfigurationsReport::open(&path)?;
        assert_eq!(known, report());
        assert_eq!(known.finished("key of whole").map(|one| &*one.name), Some("whole"));
        for other in ["key of too large", "key of some images", "whole"] {
            assert_eq!(known.finished(other), None, "{other}");
        }
        std::fs::write(&path, r#"{"images": []}"#).expect("the folder is writable");
        let error = ConfigurationsReport::open(&path).expect_err("another report");
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        Ok(())
    }
}
