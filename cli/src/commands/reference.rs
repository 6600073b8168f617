//! `ocelli reference`: every command, option, variable and file as Markdown, `docs/reference.md`.

use std::fmt::Write;

use clap::{Arg, Command};

use crate::print;

/// The text after the commands: the variables that the programs read, and the files that they write.
const TABLES: &str = include_str!("reference.md");

/// Prints the page of `program`.
pub fn run(program: Command) -> anyhow::Result<()> {
    let text = page(program);
    print(|out| out.write_all(text.as_bytes()))
}

fn page(mut program: Command) -> String {
    let mut text = String::from(
        "# Reference\n\nEvery command, option, variable and file. `ocelli reference` writes this page; the guides explain.\n\n## Commands\n",
    );
    program.build();
    for command in shown(&program) {
        write_command(&mut text, command, "ocelli");
        for nested in shown(command) {
            write_command(&mut text, nested, &format!("ocelli {}", command.get_name()));
        }
    }
    text + "\n" + TABLES
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
}

fn write_command(text: &mut String, command: &Command, parent: &str) {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    // Writing to a string does not fail.
    let _ = writeln!(text, "\n### `{parent} {}`\n\n{about}.\n", command.get_name());
    let mut heading = None;
    let mut arguments: Vec<&Arg> = command.get_arguments().filter(|one| !one.is_hide_set()).collect();
    arguments.retain(|one| !["help", "version"].contains(&one.get_id().as_str()));
    // As the help shows them: those without a heading first, then heading by heading.
    let mut headings: Vec<_> = arguments.iter().map(|one| one.get_help_heading()).collect();
    headings.sort_by_key(Option::is_some);
    headings.dedup();
    arguments.sort_by_key(|one| headings.iter().position(|heading| *heading == one.get_help_heading()));
    for argument in arguments {
        if heading != Some(argument.get_help_heading()) {
            let name = argument.get_help_heading().unwrap_or("option");
            let _ = writeln!(text, "{}| {name} | |\n|---|---|", if heading.is_some() { "\n" } else { "" });
            heading = Some(argument.get_help_heading());
        }
        let _ = writeln!(text, "| `{}` | {} |", cell(&spelling(argument)), cell(&described(argument)));
    }
}

/// Flags and value: `-o, --output <DIR>`.
fn spelling(argument: &Arg) -> String {
    let mut names: Vec<String> = argument.get_short().map(|short| format!("-{short}")).into_iter().collect();
    names.extend(argument.get_long().map(|long| format!("--{long}")));
    let values = argument.get_value_names().filter(|_| argument.get_action().takes_values());
    let values: Vec<String> = values.unwrap_or_default().iter().map(|name| format!("<{name}>")).collect();
    format!("{} {}", names.join(", "), values.join(" ")).trim().to_owned()
}

/// The help, the values that are possible and the default.
fn described(argument: &Arg) -> String {
    let mut text = argument.get_help().map(ToString::to_string).unwrap_or_default();
    if argument.get_action().takes_values() {
        let possible = argument.get_possible_values();
        let names: Vec<String> = possible
            .iter()
            .filter(|one| !one.is_hide_set())
            .map(|one| format!("`{}`", one.get_name()))
            .collect();
        if !names.is_empty() {
            let _ = write!(text, ": {}", names.join(", "));
        }
        let defaults: Vec<_> =
            argument.get_default_values().iter().map(|one| one.to_string_lossy()).collect();
        if !defaults.is_empty() {
            let _ = write!(text, " [default: {}]", defaults.join(" "));
        }
    }
    text
}

/// Text of a cell: a bar ends it, and a line break the table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
