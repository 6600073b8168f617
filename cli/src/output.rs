//! Results on stdout, diagnostics on stderr.

use std::io::Write;
use std::path::Path;

use ocelli::Error;
use ocelli::atomic_file::write_atomically;
use ocelli::source::without_secrets;
use ocelli_verify::VerificationReport;

use crate::LogArgs;

/// Writes results to stdout.
///
/// # Errors
/// If stdout cannot be written, a closed pipe included.
pub fn print(write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    write(&mut out)
        .and_then(|()| out.flush())
        .map_err(|e| anyhow::Error::new(e).context("cannot write the result, stdout"))
}

/// Writes the report of a comparison as JSON; the file appears whole or not at all.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn write_report(path: &Path, report: &VerificationReport) -> ocelli::Result<()> {
    let mut json = serde_json::to_value(report).expect("a report is plain data");
    json["accepted"] = report.accepted().into();
    write_atomically(path, |writer| {
        serde_json::to_writer_pretty(&mut *writer, &json)?;
        writeln!(writer)
    })
}

/// Writes a line of status to stderr, unless `--quiet`.
pub fn status(log: &LogArgs, line: &str) {
    if !log.quiet {
        diagnostic(line);
    }
}

/// Writes a line to stderr, without the passwords of addresses in it. A closed stderr is ignored: the exit status still reports how the program ended.
pub(crate) fn diagnostic(line: &str) {
    drop(writeln!(std::io::stderr(), "{}", without_secrets(line)));
}

/// The text with line breaks replaced by spaces, so that an error is one line.
pub(crate) fn one_line(text: &str) -> String {
    text.split(['\n', '\r']).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Puts the flag that names a file in front of the error about the file.
pub(crate) fn with_flag(flag: &str) -> impl Fn(Error) -> Error + '_ {
    move |error| Error::new(error.kind(), format!("{flag}, {error}"))
}
