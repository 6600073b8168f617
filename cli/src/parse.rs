//! Parses arguments; a mistake is reported in one line.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Parser};

use crate::config::{is_named, with_config};
use crate::flags::running;
use crate::given;
use crate::help::short;
use crate::matches::{matches_of, summary};
use crate::output::diagnostic;

/// Parses the arguments of this process. A mistake is reported in one line on stderr and ends the process with status 2;
/// `--help` and `--version` are printed and end it with status 0.
pub fn parse<P: Parser>() -> P {
    let program = P::command();
    let arguments =
        with_config(&program, given::arguments()).unwrap_or_else(|mistake| end(&format!("error: {mistake}")));
    if let Some(mistake) = as_assignment(&program, &arguments) {
        end(&format!("error: {mistake}; --help lists the arguments"));
    }
    let full_help =
        arguments.iter().any(|one| one == "--help") || arguments.get(1).is_some_and(|one| one == "help");
    let command = if full_help { program.clone() } else { short(program.clone()) };
    let parsed = matches_of(command, arguments).and_then(|matches| {
        let parsed = P::from_arg_matches(&matches).map_err(|e| e.format(&mut P::command()))?;
        given::set_parsed(program.clone(), matches);
        Ok(parsed)
    });
    match parsed {
        Ok(arguments) => arguments,
        Err(e) => match e.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => e.exit(),
            _ => {
                let text = with_documented_name(&e.to_string(), running(&program));
                end(&summary(&with_advice(text, &e, running(&program))))
            }
        },
    }
}

/// Reports a mistake, and ends the process.
fn end(mistake: &str) -> ! {
    diagnostic(mistake);
    std::process::exit(2)
}

/// The text with the documented name where clap suggests a hidden alias.
fn with_documented_name(text: &str, command: &Command) -> String {
    let Some((before, rest)) = text.split_once("exists: '--") else { return text.to_owned() };
    let Some((suggested, after)) = rest.split_once('\'') else { return text.to_owned() };
    let is_alias =
        |argument: &&clap::Arg| argument.get_all_aliases().unwrap_or_default().contains(&suggested);
    let documented = command.get_arguments().find(is_alias).and_then(clap::Arg::get_long);
    format!("{before}exists: '--{}'{after}", documented.unwrap_or(suggested))
}

/// Flags that users of other programs write, and how they are written here.
const ELSEWHERE: [(&str, &str); 4] = [
    ("--benchmark", "it is an option of `ocelli video`, which times each engine on a video or images"),
    ("--show", "--display shows the video while it runs"),
    ("--save", "-o names the file or folder to write"),
    ("--tracker", "--track follows objects with ByteTrack, whose settings are options of their own"),
];
/// The option for what users write without one, by command.
const INPUTS: [(&str, &str); 8] = [
    ("build-engine", "--model"),
    ("embed", "--classes"),
    ("export", "--checkpoint"),
    ("label", "--images"),
    ("prune", "--model"),
    ("serve", "--model"),
    ("track", "--detections"),
    ("verify", "--model"),
];

/// clap's text with advice in place of its own about an argument that a command does not have.
fn with_advice(text: String, mistake: &clap::Error, command: &Command) -> String {
    let given = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand].map(|kind| mistake.get(kind));
    let Some(ContextValue::String(given)) = given.into_iter().flatten().next() else { return text };
    let name = given.split('=').next().unwrap_or(given);
    let has = |advice: &str| {
        let flag = advice.split(' ').next().and_then(|word| word.strip_prefix("--"));
        flag.is_none_or(|flag| command.get_arguments().any(|one| one.get_long() == Some(flag)))
    };
    let advice = match ELSEWHERE.iter().find(|(other, advice)| *other == name && has(advice)) {
        Some((_, advice)) => (*advice).to_owned(),
        None if name.starts_with('-') => return text,
        None => match INPUTS.iter().find(|(of, _)| *of == command.get_name()) {
            Some((_, flag)) => format!("write {flag} {given}"),
            None => return text,
        },
    };
    let first = text.lines().next().unwrap_or_default();
    format!("{first}\ntip: {advice}")
}

/// The mistake in arguments such as `source=street.jpg`, as other programs have them.
fn as_assignment(program: &Command, arguments: &[OsString]) -> Option<String> {
    let command = arguments.get(1).and_then(|name| program.find_subcommand(name));
    let first = arguments.get(1 + usize::from(command.is_some())..)?.iter();
    let mut first = first.map_while(|one| one.to_str().filter(|text| !text.starts_with('-')));
    first.find_map(|text| {
        let (key, value) = text.split_once('=').filter(|_| !Path::new(text).exists())?;
        let mut options = command.unwrap_or(program).get_arguments();
        let option = options.find(|option| is_named(option, key))?.get_long()?;
        Some(format!("{text}: options start with two hyphens: --{option} {value}"))
    })
}
