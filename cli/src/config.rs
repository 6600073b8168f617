//! `--config FILE`: arguments from a YAML file. Those on the command line take precedence.

use std::ffi::OsString;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{ArgAction, Command};
use ocelli_export::read_text;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::matches::matches_of;

/// The name of the flag.
const FLAG: &str = "config";

/// The arguments of the process, with those of the file that `--config` names added to the command that runs.
///
/// # Errors
/// One line if the file cannot be read or names an unknown option.
pub(crate) fn with_config(program: &Command, arguments: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let Some((path, without)) = taken_out(&arguments)? else { return Ok(arguments) };
    // Adds the options that are global to each command.
    let mut program = program.clone();
    program.build();
    let refuse = |why: String| format!("--{FLAG}, {}: {why}", path.to_string_lossy());
    let text =
        read_text(Path::new(&path), &format!("the file of --{FLAG}")).map_err(|error| error.to_string())?;
    let expected = "expected YAML with an option per key, such as `classes: [person, dog]`";
    let options: Map<String, Value> = from_yaml(&text, expected).map_err(refuse)?;
    // The subcommand comes first, if the program has any.
    let (command, at) = match without.get(1).and_then(|name| program.find_subcommand(name)) {
        Some(command) => (command, 2),
        None => (&program, 1),
    };
    let mut added = Vec::new();
    for (key, value) in &options {
        let arguments = option(command, key, value, &without[at..]).map_err(refuse)?;
        check_value(command, &arguments).map_err(|why| refuse(format!("{key}: {why}")))?;
        added.extend(arguments);
    }
    let mut all = without;
    // A list takes every argument up to the next flag: the options of the file are put before a flag or at the end, so that
    // the last list among them takes nothing else.
    let is_flag = |argument: &OsString| argument.to_string_lossy().starts_with('-');
    let place = all[at..].iter().position(is_flag).map_or(all.len(), |position| at + position);
    all.splice(place..place, added);
    Ok(all)
}

/// Reads YAML; a mistake is what was expected, and where it is.
pub(crate) fn from_yaml<T: DeserializeOwned>(text: &str, expected: &str) -> Result<T, String> {
    serde_saphyr::from_str(text).map_err(|error| {
        let said = error.to_string();
        format!("{expected}: {}", said.lines().next().unwrap_or_default())
    })
}

/// The value of `--config`, and the arguments without it.
fn taken_out(arguments: &[OsString]) -> Result<Option<(OsString, Vec<OsString>)>, String> {
    let flag = format!("--{FLAG}");
    let is_flag = |argument: &OsString| {
        argument.to_str().is_some_and(|text| text == flag || text.starts_with(&format!("{flag}=")))
    };
    let until = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    let Some(at) = arguments[..until].iter().position(is_flag) else { return Ok(None) };
    let mut rest = arguments.to_vec();
    let given = rest.remove(at);
    let path = match given.to_str().and_then(|text| text.split_once('=')) {
        Some((_, path)) => path.into(),
        None if at < rest.len() => rest.remove(at),
        None => return Err(format!("{flag} needs a file")),
    };
    if rest.iter().any(is_flag) {
        return Err(format!("{flag} is given twice: expected one file"));
    }
    Ok(Some((path, rest)))
}

/// Refuses a value that the option does not have, which an error of the whole command line would not trace to the file.
pub(crate) fn check_value(command: &Command, arguments: &[OsString]) -> Result<(), String> {
    let name = std::iter::once(OsString::from(command.get_name()));
    let parsed = matches_of(command.clone(), name.chain(arguments.iter().cloned()).collect());
    match parsed.map_err(|error| (error.kind(), error.to_string())) {
        Err((ErrorKind::InvalidValue | ErrorKind::ValueValidation, said)) => {
            let line = said.lines().next().unwrap_or_default();
            Err(line.strip_prefix("error: ").unwrap_or(line).to_owned())
        }
        // What else is missing may be on the command line.
        _ => Ok(()),
    }
}

/// One option of a file as arguments; none if the command line has it as well, or one that contradicts it.
pub(crate) fn option(
    command: &Command,
    key: &str,
    value: &Value,
    given: &[OsString],
) -> Result<Vec<OsString>, String> {
    let long = key.replace('_', "-");
    let Some(argument) = command.get_arguments().find(|argument| is_named(argument, &long)) else {
        let known: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        let hint = ocelli_datasets::closest(&long, &known)
            .map_or_else(String::new, |close| format!("; did you mean {close}?"));
        return Err(format!("{key}: `{}` has no such option{hint}", command.get_name()));
    };
    let long = argument.get_long().unwrap_or(&long).to_owned();
    let contradicts = |other: &&clap::Arg| {
        let of = |argument| command.get_arg_conflicts_with(argument);
        of(argument).iter().any(|one| one.get_id() == other.get_id())
            || of(other).iter().any(|one| one.get_id() == argument.get_id())
    };
    if command
        .get_arguments()
        .filter(|other| is_given(other, given))
        .any(|other| other.get_id() == argument.get_id() || contradicts(&other))
    {
        return Ok(Vec::new());
    }
    let flag: OsString = format!("--{long}").into();
    if matches!(argument.get_action(), ArgAction::SetTrue | ArgAction::Count) {
        return match value {
            Value::Bool(true) => Ok(vec![flag]),
            Value::Bool(false) | Value::Null => Ok(Vec::new()),
            other => Err(format!("{key}: expected true or false, got {other}")),
        };
    }
    let text = |value: &Value| match value {
        Value::String(text) => Ok(OsString::from(text)),
        Value::Number(number) => Ok(number.to_string().into()),
        other => Err(format!("{key}: expected a string, a number or a list of them, got {other}")),
    };
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(values) if values.is_empty() => Ok(Vec::new()),
        Value::Array(values) => {
            let values: Vec<OsString> = values.iter().map(text).collect::<Result<_, _>>()?;
            Ok(std::iter::once(flag).chain(values).collect())
        }
        // The lines and zones themselves instead of the file that has them.
        Value::Object(_) if long == "zones" => Ok(vec![flag, value.to_string().into()]),
        value if argument.is_require_equals_set() => {
            let mut with_value = flag;
            if *value != Value::Bool(true) {
                with_value.push("=");
                with_value.push(text(value)?);
            }
            Ok(if *value == Value::Bool(false) { Vec::new() } else { vec![with_value] })
        }
        value => Ok(vec![flag, text(value)?]),
    }
}

/// True if this is a name of the option, an alias included.
pub(crate) fn is_named(argument: &clap::Arg, name: &str) -> bool {
    argument.get_long() == Some(name) || argument.get_all_aliases().unwrap_or_default().contains(&name)
}

/// True if the arguments contain a flag, by any of its spellings.
fn is_given(argument: &clap::Arg, given: &[OsString]) -> bool {
    given.iter().filter_map(|argument| argument.to_str()).any(|text| match text.strip_prefix("--") {
        Some(name) => is_named(argument, name.split('=').next().unwrap_or(name)),
        None => argument
            .get_short()
            .is_some_and(|short| text.strip_prefix('-').is_some_and(|letters| letters.starts_with(short))),
    })
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::*;

    fn program() -> Command {
        let list = Arg::new("classes").long("classes").alias("class").num_args(1..);
        let output = Arg::new("output").long("output").short('o');
        let track = Arg::new("track").long("track").action(ArgAction::SetTrue);
        let rate = Arg::new("detect_every").long("detect-every").value_parser(clap::value_parser!(u64));
        let coco = Arg::new("coco").long("coco").action(ArgAction::SetTrue).conflicts_with("classes");
        Command::new("ocelli").subcommand(Command::new("video").args([list, output, track, rate, coco]))
    }

    #[test]
    fn the_command_line_overrides_the_file() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("cameras.yaml");
        let cases = [
            (
                "classes: [person, red apple]\ntrack: true\n",
                "video -o a.mp4",
                Ok("video --classes person red apple --track -o a.mp4"),
            ),
            ("class: dog\ndetect_every: 3\n", "video", Ok("video --classes dog --detect-every 3")),
            ("output: b.mp4\ntrack: false\n", "video -o a.mp4", Ok("video -o a.mp4")),
            ("classes: dog\n", "video --coco", Ok("video --coco")),
            ("coco: true\n", "video --class dog", Ok("video --class dog")),
            ("classes: dog\n", "video a.mp4 -- -b.mp4", Ok("video a.mp4 --classes dog -- -b.mp4")),
            (
                "classes: [dog, cat]\n",
                "video a.mp4 --track b.mp4",
                Ok("video a.mp4 --classes dog cat --track b.mp4"),
            ),
            ("output: b.mp4\n", "video in.mp4", Ok("video in.mp4 --output b.mp4")),
            ("output:\n", "video", Ok("video")),
            ("clases: dog\n", "video", Err("clases: `video` has no such option; did you mean classes?")),
            ("track: 3\n", "video", Err("track: expected true or false, got 3")),
            ("detect_every: often\n", "video", Err("detect_every: invalid value 'often'")),
            ("- a\n", "video", Err("expected YAML with an option per key")),
        ];
        let mut wrong = Vec::new();
        for (text, line, expected) in cases {
            std::fs::write(&path, text)?;
            let mut arguments: Vec<OsString> = vec!["ocelli".into()];
            arguments.extend(line.split(' ').map(OsString::from));
            let end = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
            arguments.splice(end..end, ["--config".into(), path.clone().into_os_string()]);
            let found = with_config(&program(), arguments).map(|all| {
                let texts: Vec<String> =
                    all[1..].iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
                texts.join(" ")
            });
            let fits = match (&found, expected) {
                (Ok(found), Ok(expected)) => found == expected,
                (Err(found), Err(expected)) => found.contains(expected),
                _ => false,
            };
            if !fits {
                wrong.push(format!("{text:?} with {line}: expected {expected:?}, got {found:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    }

    #[test]
    fn a_file_is_named_once() {
        for (line, expected) in
            [("ocelli video --config", "needs a file"), ("ocelli --config a --config b", "twice")]
        {
            let arguments = line.split(' ').map(OsString::from).collect();
            let error = with_config(&program(), arguments).expect_err("not one file");
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
