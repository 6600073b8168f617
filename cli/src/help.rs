//! The short help, `-h`: what most people need of a command, on one screen. `--help` has all options.

use clap::Command;

/// The options in the short help of commands that have many.
const FIRST: [(&str, &str); 12] = [
    ("detect", "image output json crops classes exemplar masks confidence model engine precision imgsz"),
    ("video", "video memory output jsonl mot display zones classes masks confidence model engine track"),
    ("serve", "listen token host gallery label-studio confidence model engine imgsz"),
    ("label", "images classes map output format review restart model engine"),
    (
        "eval",
        "coco images annotations configs scenes predictions compare protocol classes masks json model engine",
    ),
    ("coco", "coco video protocol masks output json jsonl model engine"),
    ("track", "detections gaps output track-thresh match-thresh min-hits max-time-lost"),
    ("export", "checkpoint base imgsz target detection-only inspect output force precision calibrate"),
    ("build-engine", "model verify imgsz precision masks output force graphs max-classes max-exemplars"),
    ("embed", "classes coco output model engine"),
    ("prune", "model images classes num-prune output export engine"),
    ("verify", "model candidate graphs engine scenes min-iou json"),
];
/// The most lines of examples.
const EXAMPLES: usize = 3;
/// Longer help is shortened at its first colon.
const LONG: usize = 90;

/// The program with short help: of commands that have many options the first ones, each with the first sentence of its help.
pub(crate) fn short(program: Command) -> Command {
    let key = match program.get_name() {
        "demo-image" => "detect",
        "demo-video" => "video",
        name => name,
    };
    let program = match FIRST.iter().find(|(name, _)| *name == key) {
        Some((_, first)) => shortened(program, &first.split(' ').collect::<Vec<_>>()),
        None => program,
    };
    // Global options are those of messages.
    let program = program.mut_args(|argument| {
        let hidden = argument.is_global_set() || argument.is_hide_short_help_set();
        argument.hide_short_help(hidden)
    });
    program.mut_subcommands(short)
}

fn shortened(command: Command, first: &[&str]) -> Command {
    let after = command.get_after_help().map(|text| examples(&text.to_string()));
    let command = command.after_help(after.unwrap_or_default());
    command.mut_args(|argument| {
        if !argument.get_long().is_some_and(|long| first.contains(&long)) {
            return argument.hide_short_help(true);
        }
        let help = argument.get_help().map(|help| first_sentence(&help.to_string()));
        argument.help(help.unwrap_or_default())
    })
}

/// The first examples of the text after the options.
fn examples(text: &str) -> String {
    let last = text.rsplit("\n\n").next().unwrap_or(text);
    let mut lines: Vec<&str> = last.lines().collect();
    if lines.len() > EXAMPLES + 1 {
        // A command that goes on in the next line is left out as a whole.
        let end = (1..=EXAMPLES).rfind(|&end| !lines[end].ends_with(['\\', '|'])).unwrap_or(EXAMPLES);
        lines.truncate(end + 1);
    }
    lines.join("\n")
}

/// The help up to the end of its first sentence or clause, and the default.
fn first_sentence(help: &str) -> String {
    let (text, default) = match help.find(" [default") {
        Some(at) => help.split_at(at),
        None => (help, ""),
    };
    let ends = text.match_indices([';', '.']).map(|(at, _)| at);
    let mut ends = ends.filter(|&at| text[at + 1..].starts_with(' ') && !text[..at].ends_with("e.g"));
    let text = &text[..ends.next().unwrap_or(text.len())];
    let colon = text.find(": ").filter(|_| text.len() > LONG);
    format!("{}{default}", &text[..colon.unwrap_or(text.len())])
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::program::{DemoImage, DemoVideo, Ocelli};

    const LINES: usize = 40;

    fn all(command: Command, name: &str) -> Vec<(String, Command)> {
        let nested: Vec<Command> = command.get_subcommands().cloned().collect();
        let nested = nested.into_iter().flat_map(|one| {
            let name = format!("{name} {}", one.get_name());
            all(one, &name)
        });
        let nested: Vec<_> = nested.collect();
        [(name.to_owned(), command)].into_iter().chain(nested).collect()
    }

    #[test]
    fn the_short_help_of_every_command_fits_a_screen() {
        let mut wrong = Vec::new();
        for program in [Ocelli::command(), DemoImage::command(), DemoVideo::command()] {
            let mut program = short(program).term_width(100);
            program.build();
            let name = program.get_name().to_owned();
            for (name, mut command) in all(program, &name) {
                let text = command.render_help().to_string();
                let lines = text.lines().count();
                if lines > LINES || text.lines().any(|line| line.chars().count() > 100) {
                    wrong.push(format!("{name}: {lines} lines\n{text}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn the_first_options_exist_and_examples_follow_them() {
        let mut wrong = Vec::new();
        let program = Ocelli::command();
        let shortened = short(program.clone());
        for (name, first) in FIRST {
            let first: Vec<&str> = first.split(' ').collect();
            let Some(command) = program.find_subcommand(name) else {
                // `serve` is not in every build.
                wrong.extend((name != "serve").then(|| format!("no command {name}")));
                continue;
            };
            let has = |long: &str| command.get_arguments().any(|argument| argument.get_long() == Some(long));
            wrong.extend(first.iter().filter(|long| !has(long)).map(|long| format!("{name}: no --{long}")));
            let mut short = shortened.find_subcommand(name).expect("it has the same commands").clone();
            let text = short.render_help().to_string();
            let count = text.lines().filter(|line| line.starts_with("  ocelli ")).count();
            wrong.extend((count == 0).then(|| format!("{name}: no example:\n{text}")));
            let listed = |long: &&&str| text.contains(&format!("--{long}"));
            wrong.extend(
                first.iter().filter(|long| !listed(long)).map(|long| format!("{name}: --{long} is hidden")),
            );
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn sentences_and_examples_are_shortened() {
        let long = format!("One: {} [default: 3]", "two ".repeat(30));
        for (help, expected) in [
            ("One. Two [default: 3; 4]", "One [default: 3; 4]"),
            ("One, e.g. two; three", "One, e.g. two"),
            ("sam3.pt, or a folder", "sam3.pt, or a folder"),
            ("One", "One"),
            ("One: two", "One: two"),
            (long.as_str(), "One [default: 3]"),
        ] {
            assert_eq!(first_sentence(help), expected, "{help}");
        }
        let text = "Note\n\nExamples:\n  a\n  b\n  c \\\n    d\n  e\n  f";
        assert_eq!(examples(text), "Examples:\n  a\n  b");
        assert_eq!(examples("Examples:\n  a\n  b\n  c\n  d \\\n    e"), "Examples:\n  a\n  b\n  c");
    }
}
