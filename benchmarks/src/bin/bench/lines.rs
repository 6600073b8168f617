//! JSON lines on stdout and, if wanted, at the end of a file.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use ocelli_benchmarks::machine::Machine;
use ocelli_cli::print;
use serde::Serialize;

/// Where the lines of a measurement go, and the machine they are from.
pub struct Lines {
    /// This machine.
    pub machine: Machine,
    file: Option<File>,
}

impl Lines {
    /// Lines that are also appended to `NAME.jsonl` in a folder, which is created if missing.
    pub fn new(name: &str, folder: Option<&Path>) -> anyhow::Result<Self> {
        let open = |folder: &Path| {
            std::fs::create_dir_all(folder)?;
            File::options().create(true).append(true).open(folder.join(format!("{name}.jsonl")))
        };
        Ok(Self { machine: Machine::here(), file: folder.map(open).transpose()? })
    }

    pub fn write(&self, line: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_string(line)?;
        print(|out| writeln!(out, "{text}"))?;
        self.keep_text(&text)
    }

    /// Writes a line to the file alone.
    pub fn keep(&self, line: &impl Serialize) -> anyhow::Result<()> {
        self.keep_text(&serde_json::to_string(line)?)
    }

    fn keep_text(&self, text: &str) -> anyhow::Result<()> {
        if let Some(mut file) = self.file.as_ref() {
            writeln!(file, "{text}")?;
        }
        Ok(())
    }
}
