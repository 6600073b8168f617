//! Parses arguments; a mistake is reported in one line.

use std::any::TypeId;
use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Command, Parser};
use ocelli::source::Position;

use crate::config::{is_named, with_config};
use crate::help::short;
use crate::output::diagnostic;

/// Parses the arguments of this process. A mistake is reported in one line on stderr and ends the process with status 2;
/// `--help` and `--version` are printed and end it with status 0.
pub fn parse<P: Parser>() -> P {
    let arguments = with_config(&P::command(), crate::given::arguments())
        .unwrap_or_else(|mistake| end(&format!("error: {mistake}")));
    if let Some(mistake) = as_assignment(&P::command(), &arguments) {
        end(&format!("error: {mistake}; --help lists the arguments"));
    }
    let full_help =
        arguments.iter().any(|one| one == "--help") || arguments.get(1).is_some_and(|one| one == "help");
    let command = if full_help { P::command() } else { short(P::command()) };
    let parsed = matches_of(command, arguments)
        .and_then(|matches| P::from_arg_matches(&matches).map_err(|e| e.format(&mut P::command())));
    match parsed {
        Ok(arguments) => arguments,
        Err(e) => match e.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => e.exit(),
            _ => {
                let text = with_documented_name(&e.to_string(), &P::command());
                end(&summary(&with_advice(text, &e, crate::flags::running(&P::command()))))
            }
        },
    }
}

/// Reports a mistake, and ends the process.
fn end(mistake: &str) -> ! {
    diagnostic(mistake);
    std::process::exit(2)
}

/// Parses the arguments of a program, its name first.
pub(crate) fn matches_of(program: Command, arguments: Vec<OsString>) -> Result<ArgMatches, clap::Error> {
    with_negative_numbers(program).try_get_matches_from(with_lists_apart(arguments.into_iter()))
}

/// The program, whose options of numbers take negative ones as well: the checks of their values say what is expected.
fn with_negative_numbers(program: Command) -> Command {
    let numbers = [
        TypeId::of::<f32>(),
        TypeId::of::<f64>(),
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
        TypeId::of::<Position>(),
    ];
    let program = program.mut_args(|argument| {
        let kind = argument.get_value_parser().type_id();
        argument.allow_negative_numbers(numbers.iter().any(|number| kind == *number))
    });
    program.mut_subcommands(with_negative_numbers)
}

/// A mistake in arguments as one line, without `error:`.
pub(crate) fn line(mistake: &clap::Error) -> String {
    let text = mistake.to_string();
    summary(text.strip_prefix("error: ").unwrap_or(&text))
}

/// Puts a space before lists that start with a negative number, such as the box `-1,-1,20,20`, which clap would take for
/// flags. Arguments after `--` are left alone.
fn with_lists_apart(arguments: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let is_list = |text: &str| {
        let rest = text.strip_prefix('-').unwrap_or_default();
        rest.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.') && rest.contains(',')
    };
    let mut after_flags = false;
    arguments.map(move |argument| {
        after_flags |= argument == "--";
        match argument.to_str() {
            Some(text) if !after_flags && is_list(text) => format!(" {text}").into(),
            _ => argument,
        }
    })
}

/// The text with the documented name where clap suggests a hidden alias.
fn with_documented_name(text: &str, program: &Command) -> String {
    let Some((before, rest)) = text.split_once("exists: '--") else { return text.to_owned() };
    let Some((suggested, after)) = rest.split_once('\'') else { return text.to_owned() };
    let running = crate::flags::running(program);
    let is_alias =
        |argument: &&clap::Arg| argument.get_all_aliases().unwrap_or_default().contains(&suggested);
    let documented = running.get_arguments().find(is_alias).and_then(clap::Arg::get_long);
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

/// clap's paragraph as one line: the mistake, what was expected, and where the arguments are listed.
fn summary(text: &str) -> String {
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    let mut line = String::new();
    for part in lines {
        let separator = match part {
            _ if line.is_empty() => "",
            // A list of missing arguments or possible values.
            _ if line.ends_with(':') || part.starts_with('[') => " ",
            _ if part.starts_with("tip:") => "; ",
            _ => ", ",
        };
        line.push_str(separator);
        line.push_str(part.strip_prefix("tip: ").unwrap_or(part));
    }
    line + "; --help lists the arguments"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Parser, Debug)]
    struct Arguments {
        #[arg(long, num_args = 1.., required = true)]
        classes: Vec<String>,
        #[arg(long, required = true, value_parser = ["official", "text"])]
        prompt: String,
        #[arg(long, allow_negative_numbers = true)]
        confidence: Option<f32>,
    }

    #[test]
    fn lists_that_start_with_a_negative_number_are_values() {
        let arguments = ["-1,2,3,4", "-.5,1", "-1", "-x,y", "-", "1,-2", "--", "-1,2"];
        let found: Vec<OsString> = with_lists_apart(arguments.into_iter().map(OsString::from)).collect();
        assert_eq!(found, [" -1,2,3,4", " -.5,1", "-1", "-x,y", "-", "1,-2", "--", "-1,2"]);
    }

    #[test]
    fn mistakes_are_one_line() {
        for (arguments, expected) in [
            (
                &["--class", "dog"][..],
                "error: unexpected argument '--class' found; a similar argument exists: '--classes'; --help lists the \
                 arguments",
            ),
            (
                &[],
                "error: the following required arguments were not provided: --classes <CLASSES>..., --prompt <PROMPT>; \
                 --help lists the arguments",
            ),
            (
                &["--classes", "a", "--prompt", "x"],
                "error: invalid value 'x' for '--prompt <PROMPT>' [possible values: official, text]; --help lists the \
                 arguments",
            ),
            (
                &["--classes", "a", "--prompt", "text", "--confidence", "x"],
                "error: invalid value 'x' for '--confidence <CONFIDENCE>': invalid float literal; --help lists the \
                 arguments",
            ),
        ] {
            let found = Arguments::try_parse_from(std::iter::once(&"program").chain(arguments));
            let found = found.map(|_| String::new()).unwrap_or_else(|e| summary(&e.to_string()));
            assert_eq!(found, expected, "{arguments:?}");
        }
    }
}
