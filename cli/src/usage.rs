//! Arguments that make no sense, in one line.

use std::ffi::OsString;

use clap::Parser;
use clap::error::ErrorKind;

use super::tell;

/// The program's arguments. Where they make no sense: one line on stderr, and the process ends with status 2.
/// `--help` and `--version` are printed, and the process ends with status 0.
pub fn parse<P: Parser>() -> P {
    match P::try_parse_from(with_lists_apart(std::env::args_os())) {
        Ok(arguments) => arguments,
        Err(e) => match e.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => e.exit(),
            _ => {
                tell(&summary(&e.to_string()));
                std::process::exit(2)
            }
        },
    }
}

/// Puts a space before lists of numbers that begin with a negative one, as the box `-1,-1,20,20`: clap would take them
/// for flags. What comes after `--` stays as it is.
fn with_lists_apart(arguments: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let is_list = |text: &str| {
        let rest = text.strip_prefix('-').unwrap_or_default();
        rest.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.') && rest.contains(',')
    };
    let mut flags_are_over = false;
    arguments.map(move |argument| {
        flags_are_over |= argument == "--";
        match argument.to_str() {
            Some(text) if !flags_are_over && is_list(text) => format!(" {text}").into(),
            _ => argument,
        }
    })
}

/// What clap says in a paragraph, in one line: what is wrong, what would be right, where to read on.
fn summary(text: &str) -> String {
    let said = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let said = said.filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    let mut line = String::new();
    for part in said {
        let separator = match part {
            _ if line.is_empty() => "",
            // The list of arguments that are missing, of values that are possible.
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
    fn negative_numbers_begin_lists() {
        let arguments = ["-1,2,3,4", "-.5,1", "-1", "-x,y", "-", "1,-2", "--", "-1,2"];
        let found: Vec<OsString> = with_lists_apart(arguments.into_iter().map(OsString::from)).collect();
        assert_eq!(found, [" -1,2,3,4", " -.5,1", "-1", "-x,y", "-", "1,-2", "--", "-1,2"]);
    }

    #[test]
    fn one_line_each() {
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
