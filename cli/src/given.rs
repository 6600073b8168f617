//! The arguments of this program, also where another one runs it in its own process, as Python's console scripts do; and those of
//! its command, to run another command with them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args, Command};

static ARGUMENTS: OnceLock<Vec<OsString>> = OnceLock::new();
static PARSED: OnceLock<(Command, ArgMatches)> = OnceLock::new();

/// Sets the arguments, the program's name first, for the rest of the process; the first ones stay.
pub(crate) fn set(arguments: Vec<OsString>) {
    drop(ARGUMENTS.set(arguments));
}

/// The arguments of the program, its name first.
pub(crate) fn arguments() -> Vec<OsString> {
    ARGUMENTS.get().map_or_else(|| std::env::args_os().collect(), Clone::clone)
}

/// The program to start for another process of this one.
///
/// # Errors
/// If the system does not know where it is.
pub(crate) fn executable() -> std::io::Result<PathBuf> {
    match ARGUMENTS.get().and_then(|arguments| arguments.first()) {
        Some(script) => Ok(script.into()),
        None => std::env::current_exe(),
    }
}

/// Keeps a program and the arguments that it was given, for the rest of the process.
pub(crate) fn set_parsed(program: Command, matches: ArgMatches) {
    drop(PARSED.set((program, matches)));
}

fn parsed() -> &'static (Command, ArgMatches) {
    PARSED.get().expect("a program parses its arguments first")
}

/// The program that runs, if it was parsed here.
pub(crate) fn program() -> Option<&'static Command> {
    PARSED.get().map(|(program, _)| program)
}

/// The command of the program that runs, with its global options, and what it was given.
pub(crate) fn command() -> (Command, &'static ArgMatches) {
    let (program, matches) = parsed();
    let mut program = program.clone();
    program.build();
    let (name, matches) = matches.subcommand().expect("a command runs");
    (program.find_subcommand(name).expect("clap found it").clone(), matches)
}

/// The arguments of the command that runs, those of the file of `--config` included, without the options `except`, by their
/// documented names.
pub(crate) fn given_arguments(except: &[&str]) -> Vec<OsString> {
    let (command, matches) = command();
    spelled(&command, matches, except)
}

/// The flag of the first of these options that the running command was given, by their ids.
pub(crate) fn first_given<'i>(ids: impl IntoIterator<Item = &'i str>) -> Option<String> {
    let (program, matches) = parsed();
    let (mut command, mut matches) = (program, matches);
    while let Some((name, inner)) = matches.subcommand() {
        (command, matches) = (command.find_subcommand(name)?, inner);
    }
    let id = ids.into_iter().find(|id| is_given(matches, id))?;
    let long = command.get_arguments().find(|option| option.get_id() == id)?.get_long()?;
    Some(format!("--{long}"))
}

/// As [`first_given`], for all of these arguments.
pub(crate) fn first_given_of<A: Args>() -> Option<String> {
    let options = A::augment_args(Command::new(""));
    first_given(options.get_arguments().map(|option| option.get_id().as_str()))
}

/// `true` if an option was given; one that the command does not have was not.
fn is_given(matches: &ArgMatches, id: &str) -> bool {
    matches!(matches.try_contains_id(id), Ok(true))
        && matches.value_source(id) == Some(ValueSource::CommandLine)
}

fn spelled(command: &Command, matches: &ArgMatches, except: &[&str]) -> Vec<OsString> {
    let mut all = Vec::new();
    for argument in command.get_arguments() {
        let (id, long) = (argument.get_id().as_str(), argument.get_long().unwrap_or_default());
        // The arguments of a list have been named before; `--help` and `--version` have no values.
        if !is_given(matches, id) || long.is_empty() || except.contains(&long) {
            continue;
        }
        let flag = OsString::from(format!("--{long}"));
        match argument.get_action() {
            ArgAction::SetTrue => all.push(flag),
            ArgAction::Count => all.extend((0..matches.get_count(id)).map(|_| flag.clone())),
            action => {
                let values: Vec<_> = matches.get_raw(id).unwrap_or_default().collect();
                if matches!(action, ArgAction::Append) || values.len() != 1 {
                    all.push(flag);
                    all.extend(values.into_iter().map(OsString::from));
                } else {
                    // A value may start with a hyphen.
                    let mut both = flag;
                    both.push("=");
                    both.push(values[0]);
                    all.push(both);
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::program::Ocelli;

    #[test]
    fn arguments_are_given_again() {
        let mut program = Ocelli::command();
        program.build();
        let cases: [(&[&str], &[&str]); 4] = [
            (&["eval", "--scenes", "3"], &["--scenes=3"]),
            (
                &[
                    "eval",
                    "-q",
                    "--conf=0.2",
                    "--class",
                    "dog",
                    "--class",
                    "red apple",
                    "--masks",
                    "--scenes",
                    "2",
                ],
                &["--scenes=2", "--classes", "dog", "red apple", "--masks", "--confidence=0.2", "--quiet"],
            ),
            (
                &["eval", "--screen", "--scenes", "2", "--weights=-m"],
                &["--scenes=2", "--screen=calibrated", "--model=-m"],
            ),
            (
                &["eval", "--json", "-", "-vv", "--scenes", "1", "--threads", "2"],
                &["--scenes=1", "--threads=2", "--verbose", "--verbose"],
            ),
        ];
        let mut wrong = Vec::new();
        for (arguments, expected) in cases {
            let all = std::iter::once("ocelli").chain(arguments.iter().copied()).map(OsString::from);
            let matches = program.clone().try_get_matches_from(all).expect("they are valid");
            let (name, matches) = matches.subcommand().expect("eval");
            let command = program.find_subcommand(name).expect("eval");
            let found = spelled(command, matches, &["json"]);
            if found != expected {
                wrong.push(format!("{arguments:?}: {found:?}, expected {expected:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
