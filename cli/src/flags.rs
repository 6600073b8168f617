//! The flag behind an error: a library names its parameter, and the program says how its users spell it. The id of an option
//! is the name of the parameter that it sets.

use std::ffi::OsString;

use clap::{Arg, Command};

/// Commands that make what others run: an error may recommend their options.
const MAKERS: [&str; 2] = ["export", "build-engine"];

/// The command that this process runs: the subcommand that its arguments name, if any.
pub(crate) fn running(program: &Command) -> &Command {
    let arguments = crate::given::arguments().into_iter().skip(1);
    arguments
        .fold(program, |command, argument: OsString| command.find_subcommand(&argument).unwrap_or(command))
}

/// The message, with the flag of its parameter: in place of the name where the message has it, else at the end. A name that is
/// an English word as well is the parameter's at the start of a message and after `set`.
pub(crate) fn with_flag(
    message: &str,
    parameter: Option<&str>,
    program: &Command,
    running: &Command,
) -> String {
    let Some(parameter) = parameter else { return message.to_owned() };
    if let Some(flag) = flag(parameter, running) {
        let message = &with_other(message, running);
        let spelled = in_place(message, parameter, &flag);
        return spelled.unwrap_or_else(|| format!("{message} ({flag})"));
    }
    let maker = MAKERS.iter().find_map(|name| Some((name, flag(parameter, program.find_subcommand(name)?)?)));
    match maker {
        Some((name, flag)) => format!("{message} ({} {name} {flag})", program.get_name()),
        None => message.to_owned(),
    }
}

/// The message with the flag in place of the parameter's name, if it has the name.
fn in_place(message: &str, parameter: &str, flag: &str) -> Option<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let (at, _) = message.match_indices(parameter).find(|(at, _)| {
        let (before, after) = (&message[..*at], &message[at + parameter.len()..]);
        let is_word = !before.ends_with(is_part) && !after.starts_with(is_part);
        let is_name = parameter.contains('_') || before.ends_with("set ");
        is_word && (is_name || (before.is_empty() && after.starts_with([' ', ',', ':'])))
    })?;
    let (before, after) = (&message[..at], &message[at + parameter.len()..]);
    let before = before.strip_suffix("set ").map_or(before.to_owned(), |before| format!("{before}use "));
    Some(format!("{before}{flag}{after}"))
}

/// The message with the flag of the other option, which it names as in `tracker beside memory: …` and `…: set tracker`.
fn with_other(message: &str, running: &Command) -> String {
    let spelled = [" beside ", ": set "].iter().find_map(|link| {
        let (before, rest) = message.split_once(link)?;
        let other = rest.split([':', ' ']).next()?;
        Some(format!("{before}{link}{}{}", flag(other, running)?, &rest[other.len()..]))
    });
    spelled.unwrap_or_else(|| message.to_owned())
}

fn flag(parameter: &str, command: &Command) -> Option<String> {
    let option = command.get_arguments().find(|option| option.get_id() == parameter);
    option.and_then(Arg::get_long).map(|long| format!("--{long}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::program::Ocelli;

    #[test]
    fn parameters_are_spelled_as_their_flags() {
        let program = Ocelli::command();
        let cases = [
            (
                "detect",
                "class_chunk",
                "class_chunk is 0: expected at least 1",
                "--class-chunk is 0: expected at least 1",
            ),
            ("detect", "threads", "threads is 0", "--threads is 0"),
            (
                "detect",
                "confidence",
                "confidence is 7: expected 0 to 1",
                "--confidence is 7: expected 0 to 1",
            ),
            ("detect", "nms", "nms is 2", "--nms is 2"),
            ("detect", "class_agnostic_nms", "class_agnostic_nms is 2", "--class-agnostic-nms is 2"),
            ("detect", "max_detections", "max_detections is 0", "--max-det is 0"),
            ("detect", "engine", "engine gpt: no such engine", "--engine gpt: no such engine"),
            (
                "detect",
                "precision",
                "precision int8, sam3/: exported in fp32",
                "--precision int8, sam3/: exported in fp32",
            ),
            ("video", "stride", "stride is 0: expected 1", "--vid-stride is 0: expected 1"),
            ("video", "detect_every", "detect_every is 0", "--detect-every is 0"),
            ("video", "frame_rate", "photos: frame_rate is 0", "photos: --fps is 0"),
            (
                "export",
                "force",
                "it is there; set force to replace it",
                "it is there; use --force to replace it",
            ),
            (
                "label",
                "discard_corrections",
                "choose another folder, or discard_corrections to overwrite them",
                "choose another folder, or --discard-corrections to overwrite them",
            ),
            ("video", "appearance", "appearance x: set tracker", "--appearance x: set --track"),
            ("video", "tracker", "tracker beside memory: why", "--track beside --memory: why"),
            (
                "video",
                "latency",
                "latency low beside several devices: why",
                "--latency low beside several devices: why",
            ),
            ("video", "end", "end is not after start", "--end is not after start"),
            ("track", "match_iou", "match_iou is 2: expected 0 to 1", "--match-thresh is 2: expected 0 to 1"),
            ("export", "mask_blocks", "mask_blocks has 1:mlp", "--mask-blocks has 1:mlp"),
            (
                "label",
                "restart",
                "use the same settings, or restart",
                "use the same settings, or restart (--restart)",
            ),
            ("label", "discard_corrections", "cannot write", "cannot write (--discard-corrections)"),
            ("label", "spill_bytes", "cannot store features", "cannot store features (--spill)"),
            // A longer name that starts with the parameter's.
            ("detect", "masks", "masks_x is 2", "masks_x is 2 (--masks)"),
            // A parameter that another command has.
            (
                "detect",
                "cpu_fallback",
                "3 of 4 would run on the CPU",
                "3 of 4 would run on the CPU (--allow-partial)",
            ),
            (
                "detect",
                "version_compatible",
                "built for 8.9",
                "built for 8.9 (ocelli build-engine --version-compatible)",
            ),
            ("video", "mixed_precision", "not finite", "not finite (ocelli export --mixed-precision)"),
            // A parameter that no command has.
            ("track", "class_chunk", "class_chunk is 0", "class_chunk is 0"),
        ];
        let mut wrong = Vec::new();
        for (command, parameter, message, expected) in cases {
            let running = program.find_subcommand(command).expect("the program has the command");
            let found = with_flag(message, Some(parameter), &program, running);
            if found != expected {
                wrong.push(format!("{command}, {parameter}: {found:?}, expected {expected:?}"));
            }
        }
        // What an error only mentions is not searched for flags.
        let mentioned = "class map, pets.yaml: the keys are phrase, exemplars, min_area";
        let label = program.find_subcommand("label").expect("the program has the command");
        if with_flag(mentioned, None, &program, label) != mentioned {
            wrong.push("a flag was added without a parameter".to_owned());
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
