//! The flags behind an error: a library names its parameter, `class_chunk is 0`, and the program adds `(--class-chunk)`.

use std::ffi::OsString;

use clap::{Command, CommandFactory};

use crate::exit::Cause;
use crate::program::Ocelli;

/// Parameters and environment variables whose flag has another name.
const OTHER_NAMES: [(&str, &str); 21] = [
    ("class_agnostic_nms_iou", "class-agnostic-nms"),
    ("coast_frames", "coast"),
    ("cpu_fallback", "allow-partial"),
    ("frame_rate", "fps"),
    ("give_up_after", "reconnect"),
    ("lost_match_iou", "lost-match-thresh"),
    ("low_match_iou", "low-match-thresh"),
    ("low_threshold", "low-thresh"),
    ("match_iou", "match-thresh"),
    ("new_track_threshold", "new-track-thresh"),
    ("nms_iou", "nms"),
    ("OCELLI_ONNXRUNTIME", "onnxruntime"),
    ("OCELLI_OPENVINO", "openvino"),
    ("OCELLI_TENSORRT", "tensorrt"),
    ("OCELLI_WEBGPU", "webgpu"),
    ("score_threshold", "confidence"),
    ("spill_bytes", "spill"),
    ("stride", "vid-stride"),
    ("sure_threshold", "sure-thresh"),
    ("track_threshold", "track-thresh"),
    ("validation_share", "val-share"),
];

/// Commands that make what others run: an error may recommend their options.
const MAKERS: [&str; 2] = ["export", "build-engine"];

/// The command that this process runs: the subcommand that its arguments name, if any.
pub(crate) fn running(program: Command) -> Command {
    let arguments = crate::host::arguments().into_iter().skip(1);
    arguments.fold(program, |command, argument: OsString| {
        command.find_subcommand(&argument).cloned().unwrap_or(command)
    })
}

/// The message, with the flags of the parameters that it names.
///
/// A parameter is a snake_case name with an underscore anywhere in the message, or, if the error is about an argument,
/// the name that the message starts with: `threads is 0`, `precision int8, target tensorrt: …`. Other names without an
/// underscore are not changed, because they may be names of tensors.
pub(crate) fn with_flags(message: &str, cause: Cause, command: &Command) -> String {
    let (subject, _) = message.split_once(": ").unwrap_or((message, ""));
    let first_words = subject.split(", ").map(|part| part.split_whitespace().next().unwrap_or_default());
    let subjects = first_words.map_while(|word| flag(bare(word), command)).filter(|_| cause != Cause::Other);
    // The keys of a file are no parameters.
    let (without_keys, _) = message.split_once("the keys are ").unwrap_or((message, ""));
    let names = without_keys.split_whitespace().map(bare).filter(|name| name.contains('_'));
    let mut flags: Vec<String> = Vec::new();
    for flag in subjects.chain(names.filter_map(|name| flag(name, command))) {
        let long = flag.rsplit(' ').next().unwrap_or(&flag);
        if !flags.contains(&flag) && !mentions(message, long) {
            flags.push(flag);
        }
    }
    if flags.is_empty() { message.to_owned() } else { format!("{message} ({})", flags.join(", ")) }
}

/// A word without quotes, brackets and the punctuation of a sentence. A path keeps its slash, so it is not a name.
fn bare(word: &str) -> &str {
    word.trim_matches(['`', '"', '\'', '(', ')', ',', ';', ':', '.'])
}

fn mentions(message: &str, flag: &str) -> bool {
    message.split_whitespace().any(|word| bare(word) == flag)
}

/// The flag of a parameter: one of the running command, else one of a command that makes models or engines.
fn flag(parameter: &str, running: &Command) -> Option<String> {
    let other = OTHER_NAMES.iter().find(|(name, _)| *name == parameter);
    let long = other.map_or_else(|| parameter.replace('_', "-"), |(_, long)| (*long).to_owned());
    let has = |command: &Command| command.get_arguments().any(|argument| argument.get_long() == Some(&*long));
    if has(running) {
        return Some(format!("--{long}"));
    }
    // A bare word such as `prompt` may mean anything.
    let program = Ocelli::command();
    let mut makers = MAKERS.iter().filter(|_| parameter.contains('_'));
    let maker = makers.find(|name| program.find_subcommand(name).is_some_and(has))?;
    Some(format!("ocelli {maker} --{long}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_get_the_spelling_of_their_flag() {
        let program = Ocelli::command();
        let cases = [
            // An argument that is invalid.
            ("detect", Cause::Usage, "class_chunk is 0: expected at least 1", " (--class-chunk)"),
            ("detect", Cause::Usage, "threads is 0: expected 1 to 256", " (--threads)"),
            ("detect", Cause::Usage, "`threads` is 0", " (--threads)"),
            ("detect", Cause::Usage, "score_threshold is 7: expected 0 to 1", " (--confidence)"),
            ("video", Cause::Usage, "stride is 0: expected at least 1", " (--vid-stride)"),
            ("video", Cause::Usage, "end, start: no frame is between", " (--end, --start)"),
            ("track", Cause::Usage, "match_iou is 2: expected 0 to 1", " (--match-thresh)"),
            ("label", Cause::Usage, "validation_share is 1: expected below 1", " (--val-share)"),
            (
                "export",
                Cause::Usage,
                "precision int8, target tensorrt: unsupported",
                " (--precision, --target)",
            ),
            (
                "export",
                Cause::Usage,
                "mask_blocks names 1:mlp, but `skip_blocks` drops block 1",
                " (--mask-blocks, --skip-blocks)",
            ),
            // An argument that does not fit.
            ("detect", Cause::Fit, "precision int8, sam3/: this model has fp32", " (--precision)"),
            (
                "detect",
                Cause::Fit,
                "3 of 4 nodes would run on the CPU; allow it with `cpu_fallback`",
                " (--allow-partial)",
            ),
            (
                "detect",
                Cause::Fit,
                "ONNX Runtime not found: set OCELLI_ONNXRUNTIME to the library",
                " (--onnxruntime)",
            ),
            // A remedy that another command has.
            (
                "detect",
                Cause::Fit,
                "built for 8.9 (version_compatible engines run later)",
                " (ocelli build-engine --version-compatible)",
            ),
            (
                "video",
                Cause::Fit,
                "classes is 9, the engine takes 8: build it with max_classes 9",
                " (--classes, ocelli build-engine --max-classes)",
            ),
            (
                "verify",
                Cause::Other,
                "not finite: export with mixed_precision",
                " (ocelli export --mixed-precision)",
            ),
            // A flag that is spelled out already, or is no flag of any command.
            ("detect", Cause::Usage, "--class-chunk is 0: expected at least 1", ""),
            ("detect", Cause::Usage, "nms_iou is 2; leave --nms out", ""),
            ("label", Cause::Fit, "or discard_corrections to overwrite them (--discard-corrections)", ""),
            ("label", Cause::Usage, "class map, x: no such key; the keys are name, min_area, exemplars", ""),
            ("track", Cause::Usage, "class_chunk is 0: expected at least 1", ""),
            ("detect", Cause::Other, "masks, model/: corrupt file encoder_decoder.onnx", ""),
            ("detect", Cause::Usage, "no image, masks: no such file", ""),
            ("detect", Cause::Usage, "masks/: no image", ""),
            ("detect", Cause::Fit, "text cache, words: of another model; `masks` differs", ""),
        ];
        let mut wrong = Vec::new();
        for (command, cause, message, expected) in cases {
            let command = program.find_subcommand(command).expect("the program has the command");
            let found = with_flags(message, cause, command);
            if found != format!("{message}{expected}") {
                wrong.push(format!("expected {expected:?}: {found}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_flag_of_the_table_exists() {
        let program = Ocelli::command();
        let exists = |long: &str| {
            let mut arguments = program.get_subcommands().flat_map(Command::get_arguments);
            arguments.any(|argument| argument.get_long() == Some(long))
        };
        let missing: Vec<_> = OTHER_NAMES.iter().filter(|(_, long)| !exists(long)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
