//! Parses arguments of commands; a mistake is one line.

use std::ffi::OsString;

use clap::{ArgMatches, Command};

/// Parses the arguments of a program, its name first.
pub(crate) fn matches_of(program: Command, arguments: Vec<OsString>) -> Result<ArgMatches, clap::Error> {
    with_negative_numbers(program).try_get_matches_from(with_lists_apart(arguments.into_iter()))
}

/// The program, whose options take negative numbers as well: the checks of their values say what is expected.
fn with_negative_numbers(program: Command) -> Command {
    let program = program.mut_args(|argument| {
        let takes_values = argument.get_action().takes_values();
        argument.allow_negative_numbers(takes_values)
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

/// clap's paragraph as one line: the mistake, what was expected, and where the arguments are listed.
pub(crate) fn summary(text: &str) -> String {
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
    use clap::Parser;

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
