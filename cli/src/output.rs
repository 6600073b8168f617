//! Results on stdout, diagnostics on stderr.

use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use ocelli::atomic_file::{folder_of, write_atomically};
use ocelli::source::without_secrets;
use ocelli::{Error, ErrorKind};
use ocelli_verify::VerificationReport;
use serde::Serialize;

/// Set by `--quiet`.
static QUIET: AtomicBool = AtomicBool::new(false);

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

/// `true` if a path stands for stdout.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Checks before the work begins that a result can be written to `path`. `flag` is the argument that names the file.
///
/// # Errors
/// [`ErrorKind::Io`] if `path` is a folder or its folder does not exist.
pub fn check_output_file(flag: &str, path: &Path) -> ocelli::Result<()> {
    let refuse = |why: String| Err(Error::new(ErrorKind::Io, format!("{flag}, {}: {why}", path.display())));
    if path.is_dir() {
        return refuse("it is a folder; name a file".into());
    }
    match folder_of(path) {
        folder if !folder.exists() => {
            refuse(format!("the folder {} does not exist; create it first", folder.display()))
        }
        folder if !folder.is_dir() => refuse(format!("{} is not a folder", folder.display())),
        _ => Ok(()),
    }
}

/// Checks before the work begins that results can be written to the files of these flags, as [`check_output_file`] does.
///
/// # Errors
/// If one of them cannot be written.
pub(crate) fn check_outputs<'p>(
    outputs: impl IntoIterator<Item = (&'static str, Option<&'p Path>)>,
) -> ocelli::Result<()> {
    outputs.into_iter().try_for_each(|(flag, path)| match path {
        Some(path) if !is_stdout(path) => check_output_file(flag, path),
        _ => Ok(()),
    })
}

/// Writes a value as one line of JSON.
///
/// # Errors
/// Errors of `writer`.
pub(crate) fn write_json(mut writer: impl Write, value: &impl Serialize) -> std::io::Result<()> {
    serde_json::to_writer(&mut writer, value)?;
    writer.write_all(b"\n")
}

/// Writes a value as JSON on several lines.
///
/// # Errors
/// Errors of `writer`.
pub(crate) fn write_pretty_json(mut writer: impl Write, value: &impl Serialize) -> std::io::Result<()> {
    serde_json::to_writer_pretty(&mut writer, value)?;
    writer.write_all(b"\n")
}

/// Writes a value as JSON into a file, which appears whole or not at all, or to stdout.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn save_json(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    if is_stdout(path) {
        return print(|out| write_json(out, value));
    }
    write_atomically(path, |file| write_json(file, value))?;
    status(format!("→ {}", path.display()));
    Ok(())
}

/// Prints a report, unless its JSON goes to stdout, and writes the JSON if there is a file for it.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn present(
    json: Option<&Path>,
    report: &impl Serialize,
    text: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> anyhow::Result<()> {
    if !json.is_some_and(is_stdout) {
        print(text)?;
    }
    json.map_or(Ok(()), |path| save_json(path, report))
}

/// Prints the report of a comparison, and writes its JSON if there is a file for it.
///
/// # Errors
/// If it cannot be written; [`Mismatch`](ocelli::ErrorKind::Mismatch) if `what` was compared is refused, with `advice`
/// behind the reason.
pub(crate) fn conclude(
    report: &VerificationReport,
    json: Option<&Path>,
    what: &str,
    advice: &str,
) -> anyhow::Result<()> {
    print(|out| report.write_table(out))?;
    json.map_or(Ok(()), |path| write_report(path, report))?;
    if report.accepted() {
        return Ok(());
    }
    Err(Error::mismatch(format!("{what}: {}{advice}", report.verdict())).into())
}

/// Writes the report of a comparison as JSON; the file appears whole or not at all.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn write_report(path: &Path, report: &VerificationReport) -> ocelli::Result<()> {
    write_atomically(path, |file| write_pretty_json(file, &report.to_json()))
}

/// Sets whether only results and errors are written.
pub(crate) fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// `true` if only results and errors are written.
pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Writes a line of status to stderr, unless `--quiet`.
pub fn status(line: impl AsRef<str>) {
    if !is_quiet() {
        diagnostic(line.as_ref());
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

/// A number of things in words: `1 image`, `2 images`.
pub(crate) fn count(number: impl Display, what: &str) -> String {
    let number = number.to_string();
    let ending = if number == "1" { "" } else { "s" };
    format!("{number} {what}{ending}")
}

/// Puts the flag that names a file in front of the error about the file.
pub(crate) fn with_flag(flag: &str) -> impl Fn(Error) -> Error + '_ {
    move |error| Error::new(error.kind(), format!("{flag}, {error}"))
}
