//! `ocelli reference`: every command, option, variable and file as Markdown, `docs/reference.md`.

use std::fmt::Write;

use clap::{Arg, Command};

use crate::print;

/// Variables that the programs read.
const VARIABLES: [(&str, &str); 13] = [
    ("OCELLI_CACHE", "the [cache folder](checkpoints.md#caches)"),
    ("OCELLI_HOME", "the folder of `make setup` [default: `~/.local/share/ocelli`]"),
    ("OCELLI_LOG", "a filter of log messages, e.g. `ocelli=debug`"),
    ("OCELLI_MQTT_PASSWORD", "the password of the [MQTT broker](video.md#counting)"),
    ("OCELLI_NVRTC", "NVIDIA's run-time compiler, a file or its folder"),
    (
        "OCELLI_ONNXRUNTIME",
        "the library of [ONNX Runtime](engines.md#onnx-runtime), a file or its folder; then `ORT_DYLIB_PATH`",
    ),
    ("OCELLI_OPENVINO", "the library of [OpenVINO](engines.md#openvino), a file or its folder"),
    ("OCELLI_SHARDS", "the number of [shards](cluster.md#job-arrays) of `--shard auto`"),
    ("OCELLI_TENSORRT", "the library of [TensorRT](engines.md#tensorrt-engines), a file or its folder"),
    (
        "OCELLI_TENSORRT_PART",
        "Ocelli's parts for TensorRT, `libocelli_tensorrt` and `libocelli_tensorrt_rtx`, a file or their folder",
    ),
    ("OCELLI_TOKEN", "the token of [`ocelli serve`](serve.md#other-machines)"),
    ("OCELLI_VIDEO", "the video library `libocelli_video`, a file or its folder"),
    ("OCELLI_WEBGPU", "the library of [WebGPU](engines.md#webgpu), a file or its folder"),
];

/// Files that the programs write, and the page that describes them.
const FILES: [(&str, &str); 16] = [
    (
        "`model.json`, `*.onnx`, `tokenizer.json`",
        "an exported model: [Export to a folder](checkpoints.md#export-to-a-folder)",
    ),
    ("`tracker/*.onnx`", "[the memory tracker](checkpoints.md#the-memory-tracker) of an exported model"),
    (
        "`*.engine`, `*.engine.json`",
        "[TensorRT engines](engines.md#engine-files) and their [sidecars](engines.md#sidecars)",
    ),
    ("`*.safetensors` of `ocelli embed`", "[embedded text prompts](images.md#text-prompts)"),
    ("`--output` of `prune`, `*.measurements.jsonl`", "[what to prune](checkpoints.md#find-what-to-prune)"),
    ("`--json` of `detect`", "[detections of images](images.md#json)"),
    ("`--jsonl` of `video`", "[detections and tracks of frames](video.md#json-lines)"),
    ("`--mot`, `--output` of `track`", "[tracks of MOTChallenge](video.md#motchallenge-text)"),
    ("`--mcap` of `video`", "[detections as messages of ROS 2](robots.md#recordings)"),
    (
        "`--stats`, `--events` of `video`",
        "[results of a video](video.md#results), [events](video.md#counting)",
    ),
    ("`labels/*.txt`, `classes.txt`, `data.yaml`", "[YOLO and YOLO-seg](labelling.md#formats)"),
    ("`annotations.json`", "[COCO](labelling.md#formats)"),
    ("`Annotations/*.xml`", "[Pascal VOC](labelling.md#formats)"),
    ("`.ocelli-label`", "[the record of a data set](labelling.md#stop-and-resume)"),
    ("class maps", "[names and the phrases that find them](labelling.md#class-maps)"),
    ("`/openapi.json`", "the [REST interface](serve.md#rest) of `ocelli serve`"),
];

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
    write_table(
        &mut text,
        "Variables",
        ["variable", "is"],
        VARIABLES.map(|(name, is)| (format!("`{name}`"), is.to_owned())),
    );
    write_table(&mut text, "Files", ["file", "is"], FILES.map(|(name, is)| (name.to_owned(), is.to_owned())));
    text
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
    [names.join(", "), values.join(" ")]
        .iter()
        .filter(|part| !part.is_empty())
        .cloned()
        .collect::<Vec<_>>()
        .join(" ")
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

fn write_table(
    text: &mut String,
    title: &str,
    head: [&str; 2],
    rows: impl IntoIterator<Item = (String, String)>,
) {
    let _ = writeln!(text, "\n## {title}\n\n| {} | {} |\n|---|---|", head[0], head[1]);
    for (name, is) in rows {
        let _ = writeln!(text, "| {name} | {is} |");
    }
}
