//! `--configs`: an evaluation of each configuration of a file, in a process of its own.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context;
use ocelli::atomic_file::write_atomically;
use ocelli_datasets::eval::{ConfigurationReport, ConfigurationsReport};
use ocelli_export::read_text;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::EvalArgs;
use crate::config::{check_value, from_yaml, option};
use crate::given::{self, executable, given_arguments};
use crate::interrupt::on_thread;
use crate::matches::{line, matches_of};
use crate::output::{check_outputs, diagnostic, is_stdout, one_line, present, write_json};
use crate::{interrupted, status, usage};

/// Options of the whole run, which a configuration cannot have.
const OF_THE_RUN: [&str; 12] = [
    "configs",
    "json",
    "save-predictions",
    "config",
    "per-class",
    "compare",
    "calibrate-screen",
    "screen-keep",
    "video",
    "truth",
    "quiet",
    "verbose",
];
/// Options that change no figure.
const OF_MESSAGES: [&str; 2] = ["--quiet", "--verbose"];
/// Time that a process has to end after Ctrl-C, which a terminal sends to it as well.
const GRACE: Duration = Duration::from_secs(2);

/// A configuration and its process.
struct Configuration {
    name: String,
    key: String,
    arguments: Vec<OsString>,
}

/// Evaluates every configuration of the file and prints a table. Those that the report of `--json` has are not evaluated again.
pub fn run(args: &EvalArgs, path: &Path) -> anyhow::Result<()> {
    let file = args.json.as_deref().filter(|path| !is_stdout(path));
    check_outputs([("--json", file)])?;
    let all = read(path)?;
    let known = match file {
        Some(file) if file.exists() => ConfigurationsReport::open(file)?,
        _ => ConfigurationsReport::default(),
    };
    let folder = tempfile::tempdir()?;
    let mut report = ConfigurationsReport::default();
    for (number, configuration) in all.iter().enumerate() {
        interrupted()?;
        let place = format!("configuration {} of {}: {}", number + 1, all.len(), configuration.name);
        if let Some(kept) = known.finished(&configuration.key) {
            status(format!("{place}, evaluated before"));
            let (name, kept) = (configuration.name.clone(), kept.clone());
            report.configurations.push(ConfigurationReport { name, ..kept });
            continue;
        }
        status(&place);
        // Beside the report, so that a stop within a configuration is continued as well.
        let json = match file {
            Some(file) => file.with_extension(format!("{}.json", &configuration.key[..8])),
            None => folder.path().join("report.json"),
        };
        report.configurations.push(evaluate(configuration, &json)?);
        if let Some(file) = file {
            // What the last run evaluated and this one has not reached stays.
            let mut so_far = report.clone();
            let reached = &all[..=number];
            let others = known.configurations.iter().filter(|one| reached.iter().all(|it| it.key != one.key));
            so_far.configurations.extend(others.cloned());
            write_atomically(file, |out| write_json(out, &so_far))?;
        }
    }
    present(args.json.as_deref(), &report, |out| report.write_table(out))?;
    match report.configurations.iter().filter(|one| one.error.is_some()).count() {
        0 => Ok(()),
        failed => anyhow::bail!("{failed} of {} configurations failed: see above", all.len()),
    }
}

/// The configurations of a file: YAML, or JSON, with the options of each below its name. The command line takes precedence.
fn read(path: &Path) -> anyhow::Result<Vec<Configuration>> {
    let refuse = |why: String| usage(format!("--configs, {}: {why}", path.display()));
    let text = read_text(path, "the configurations")?;
    let expected = "expected YAML with the options of eval below each name, such as `whole: {model: sam3/}`";
    let listed: Map<String, Value> = from_yaml(&text, expected).map_err(refuse)?;
    if listed.is_empty() {
        return Err(refuse(
            "no configuration; expected a name with options of eval, such as `whole: {model: sam3/}`".into(),
        ));
    }
    let (command, _) = given::command();
    let given = given_arguments(&["configs", "json"]);
    let mut all = Vec::with_capacity(listed.len());
    for (name, options) in &listed {
        let refuse = |why: String| refuse(format!("{name}: {why}"));
        let Some(options) = options.as_object() else {
            return Err(refuse("expected options of eval, such as `model: sam3/`".into()));
        };
        let mut groups = vec![given.clone()];
        for (key, value) in options {
            if OF_THE_RUN.contains(&&*key.replace('_', "-")) {
                return Err(refuse(format!("{key} is an option of the whole run: leave it out")));
            }
            let arguments = option(&command, key, value, &given).map_err(refuse)?;
            check_value(&command, &arguments).map_err(|why| refuse(format!("{key}: {why}")))?;
            groups.push(arguments);
        }
        let own = std::iter::once(OsString::from("eval")).chain(groups.iter().flatten().cloned());
        let parsed = matches_of(command.clone(), own.collect());
        parsed.map_err(|mistake| refuse(line(&mistake)))?;
        // The same options in another order are the same configuration.
        let mut sorted = groups.clone();
        sorted.sort();
        all.push(Configuration { name: name.clone(), key: key(&sorted), arguments: groups.concat() });
    }
    Ok(all)
}

/// A hash of the options, the files that they name, and the version of the program.
fn key(options: &[Vec<OsString>]) -> String {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    add(env!("CARGO_PKG_VERSION"));
    for argument in options.iter().flatten().filter(|one| OF_MESSAGES.iter().all(|flag| *one != flag)) {
        let text = argument.to_string_lossy();
        add(&text);
        let value =
            text.split_once('=').filter(|_| text.starts_with("--")).map_or(&*text, |(_, value)| value);
        for line in stamps(Path::new(value)) {
            add(&line);
        }
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sizes and times of a file, or of what is in a folder, down to the folders in it; none for what is neither.
fn stamps(path: &Path) -> Vec<String> {
    let of = |path: &Path| {
        let data = path.metadata().ok()?;
        let changed = data.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_nanos();
        Some(format!("{} {} {changed}", path.display(), if data.is_dir() { 0 } else { data.len() }))
    };
    let inside = |folder: &PathBuf| -> Vec<PathBuf> {
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    };
    let own = inside(&path.to_owned());
    let below: Vec<PathBuf> = own.iter().filter(|path| path.is_dir()).flat_map(inside).collect();
    let mut all: Vec<String> = own.iter().chain(&below).filter_map(|path| of(path)).collect();
    all.extend(of(path).filter(|_| !path.is_dir()));
    all.sort();
    all
}

/// Evaluates a configuration in its process. What it reports as errors appears with its name; the last one is the reason.
fn evaluate(configuration: &Configuration, json: &Path) -> anyhow::Result<ConfigurationReport> {
    if json.exists() {
        std::fs::remove_file(json)?;
    }
    let written = format!("→ {}", json.display());
    let program = executable().context("cannot find this program")?;
    let mut command = Command::new(&program);
    command.arg("eval").args(&configuration.arguments).arg("--json").arg(json);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = child.with_context(|| format!("cannot start a process, {}", program.display()))?;
    let name = configuration.name.clone();
    let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
    let report_lines = move || {
        let mut reason = None;
        for line in stderr.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            match line.trim_end().strip_prefix("error: ") {
                Some(error) => {
                    diagnostic(&format!("error: {name}: {error}"));
                    reason = Some(error.to_owned());
                }
                // The report has what is in this file.
                None if line.trim_end() == written => {}
                None => diagnostic(line.trim_end()),
            }
        }
        reason
    };
    let reason = match on_thread(report_lines, GRACE) {
        Ok(reason) => reason,
        Err(stop) => {
            child.kill()?;
            child.wait()?;
            return Err(stop.into());
        }
    };
    let status = child.wait()?;
    interrupted()?;
    let error = (!status.success()).then(|| {
        reason.unwrap_or_else(|| {
            one_line(&format!("its process ended, {status}; for lack of memory the system ends one"))
        })
    });
    let report = std::fs::read(json).ok().map(|text| serde_json::from_slice(&text)).transpose()?;
    if report.is_some() {
        std::fs::remove_file(json)?;
    }
    let Configuration { name, key, .. } = configuration;
    Ok(ConfigurationReport { name: name.clone(), key: key.clone(), report, error })
}
