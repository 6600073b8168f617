//! The guides in `docs/`, run as a reader would run them.
//!
//! Blocks fenced as `sh` are run in order, in one folder for each page, and every file that a command writes must exist
//! afterwards. Blocks fenced as `sh no-run` need a GPU, a camera or another program; their commands and flags, and the
//! flags in the text, must exist.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::run::{Place, outcome};

const OCELLI: &str = env!("CARGO_BIN_EXE_ocelli");
const PAGES: [&str; 26] = [
    "accuracy",
    "architecture",
    "browser",
    "c",
    "checkpoints",
    "cluster",
    "comparison",
    "cpu-not-gpu",
    "dart",
    "distillation",
    "embedding",
    "engines",
    "faults",
    "gpus",
    "images",
    "labelling",
    "memory",
    "no-access",
    "out-of-memory",
    "performance",
    "python",
    "reference",
    "robots",
    "serve",
    "testing",
    "video",
];
/// Flags for output files and folders.
const OUTPUTS: [&str; 15] = [
    "-o",
    "--output",
    "--json",
    "--jsonl",
    "--mot",
    "--mots",
    "--youtube-vis",
    "--davis",
    "--mcap",
    "--crops",
    "--save-txt",
    "--stats",
    "--sheet",
    "--semantic",
    "--save-predictions",
];

#[test]
fn commands_about_accuracy() {
    run_page("accuracy");
}

#[test]
fn commands_about_checkpoints() {
    run_page("checkpoints");
}

#[test]
fn commands_for_users_of_dart() {
    run_page("dart");
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn commands_about_engines() {
    run_page("engines");
}

#[test]
fn commands_about_gpus() {
    run_page("gpus");
}

#[test]
fn commands_about_images() {
    run_page("images");
}

#[test]
fn commands_about_labelling() {
    run_page("labelling");
}

#[test]
fn commands_about_memory() {
    run_page("memory");
}

#[test]
fn commands_about_running_out_of_memory() {
    run_page("out-of-memory");
}

#[test]
fn commands_about_a_cpu_in_place_of_a_gpu() {
    run_page("cpu-not-gpu");
}

#[test]
fn commands_about_performance() {
    run_page("performance");
}

#[test]
fn commands_about_serve() {
    run_page("serve");
}

#[test]
fn commands_about_robots() {
    run_page("robots");
}

#[test]
#[cfg_attr(without_video, ignore = "needs the video library")]
fn commands_about_video() {
    run_page("video");
}

#[test]
fn commands_and_flags_exist() {
    let mut unknown = Vec::new();
    for page in PAGES {
        let text = read_page(page);
        let blocks = blocks(&text);
        let commands = blocks.iter().filter(|block| block.language == "sh").flat_map(|block| {
            commands(&block.text).into_iter().map(|command| (block.line, command)).collect::<Vec<_>>()
        });
        for (line, command) in commands {
            unknown
                .extend(unknown_flags(&command).into_iter().map(|flag| format!("{page}.md:{line}: {flag}")));
        }
        for span in inline_code(&text) {
            let words: Vec<String> = span.split_whitespace().map(String::from).collect();
            let wrong = match words.first().map(String::as_str) {
                Some("ocelli") => unknown_flags(&words),
                Some(word) if word.starts_with("--") => {
                    let flags = words.iter().filter(|word| word.starts_with("--"));
                    flags.filter(|flag| !is_flag_somewhere(flag)).cloned().collect()
                }
                _ => Vec::new(),
            };
            unknown.extend(wrong.into_iter().map(|flag| format!("{page}.md, `{span}`: {flag}")));
        }
    }
    assert!(unknown.is_empty(), "not in any help:\n{}", unknown.join("\n"));
}

#[test]
fn links_have_targets() {
    let mut broken = Vec::new();
    for page in PAGES {
        let text = read_page(page);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = folder().join(if file.is_empty() { format!("{page}.md") } else { file.to_owned() });
            let has_heading = || std::fs::read_to_string(&path).is_ok_and(|text| has_heading(&text, heading));
            if !path.exists() || !heading.is_empty() && !has_heading() {
                broken.push(format!("{page}.md: {target}"));
            }
        }
    }
    assert!(broken.is_empty(), "no such file or heading:\n{}", broken.join("\n"));
}

/// A command over two lines: a shell joins them where the backslash is the last of its line alone.
#[test]
fn commands_in_the_help_can_be_pasted() {
    let folder = project().join("cli/src/help");
    let files = folder.read_dir().expect("the help is there").flatten().map(|entry| entry.path());
    let texts = files.map(|path| (std::fs::read_to_string(&path).expect("it is text"), path));
    let wrong: Vec<String> = texts
        .flat_map(|(text, path)| {
            let inside = |line: &&str| line.trim_end_matches('\\').contains('\\');
            let lines: Vec<_> = text.lines().filter(inside).map(str::to_owned).collect();
            lines.into_iter().map(move |line| format!("{}: {line}", path.display()))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_reference_is_what_the_program_writes() {
    let written = Place::new().succeed(OCELLI, &["reference"]);
    let page = read_page("reference");
    let differs = written.lines().zip(page.lines()).find(|(new, old)| new != old);
    assert_eq!(differs, None, "ocelli reference > docs/reference.md");
    assert_eq!(written.len(), page.len(), "ocelli reference > docs/reference.md");
}

/// Every variable in the sources of the programs is in the reference.
#[test]
fn the_reference_has_every_variable() {
    let reference = read_page("reference");
    let mut missing = std::collections::BTreeSet::new();
    for folder in ["src", "cli", "engines/src", "datasets/src", "export/src", "tracking/src"] {
        for path in sources(&project().join(folder)) {
            let text = std::fs::read_to_string(&path).expect("sources are text");
            // Strings alone: the enumerations of the C library have the same prefix.
            for rest in text.split("\"OCELLI_").skip(1) {
                let name = rest.split('"').next().unwrap_or_default();
                let is_name = name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
                if is_name && !reference.contains(&format!("`OCELLI_{name}`")) {
                    missing.insert(format!("OCELLI_{name} of {}", path.display()));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Rust files that are not tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(folder).expect("the sources are there").flatten().map(|entry| entry.path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let mut found: Vec<PathBuf> = files
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .filter(|path| !path.ends_with("tests.rs") && !path.ends_with("sequences.rs"))
        .collect();
    found.extend(folders.iter().filter(|path| !path.ends_with("tests")).flat_map(|path| sources(path)));
    found
}

/// The numbers in the text of a section, without links and headings' words.
fn figures(text: &str) -> Vec<String> {
    let words = text.split("](").enumerate().map(|(index, part)| match index {
        0 => part,
        _ => part.split_once(')').map_or("", |(_, rest)| rest),
    });
    let words: String = words.collect();
    let numbers =
        words.split(|c: char| !c.is_ascii_digit() && c != '.').map(|number| number.trim_matches('.'));
    numbers.filter(|number| number.len() > 1).map(String::from).collect()
}

#[test]
fn figures_of_the_readme_are_those_of_the_runs_and_of_the_guide() {
    let readme = std::fs::read_to_string(project().join("README.md")).expect("it is there");
    let section = |name: &str| {
        let rest = readme.split(&format!("## {name}\n")).nth(1).expect("the README has it");
        rest.split("\n## ").next().unwrap_or_default().to_owned()
    };
    let performance = section("Performance");
    let linked = performance.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let read = |path: &str| std::fs::read_to_string(project().join(path)).expect("the link has a target");
    let runs: String = linked.map(read).collect();
    let mut missing: Vec<_> =
        figures(&performance).into_iter().filter(|figure| !runs.contains(figure)).collect();
    let guide = read_page("accuracy");
    missing.extend(figures(&section("Accuracy")).into_iter().filter(|figure| !guide.contains(figure)));
    assert!(missing.is_empty(), "in no run that the README links to, and not in the guide: {missing:?}");
}

/// Files of the project and targets of `make` that a page names.
#[test]
fn paths_and_targets_exist() {
    let makefile = std::fs::read_to_string(project().join("Makefile")).expect("it is there");
    let mut missing = Vec::new();
    // Paths in the comparison are those of other projects.
    for page in PAGES.into_iter().filter(|page| *page != "comparison").chain(["../README", "../CONTRIBUTING"])
    {
        for span in inline_code(&read_page(page)) {
            let words: Vec<&str> = span.split_whitespace().collect();
            let is_missing = match words.as_slice() {
                ["make", target, ..] => !makefile.contains(&format!("\n{target}:")),
                [path, ..] => path.split_once('/').is_some_and(|(top, _)| {
                    let is_ours =
                        ["benchmarks", "bindings", "cli", "datasets", "tests", "training"].contains(&top);
                    is_ours && !path.contains(['*', '{', '…', '<']) && !project().join(path).exists()
                }),
                [] => false,
            };
            missing.extend(is_missing.then(|| format!("{page}.md: `{span}`")));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn every_page_is_checked() {
    let mut pages: Vec<String> = std::fs::read_dir(folder())
        .expect("the guides exist")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".md").map(String::from))
        .collect();
    pages.sort();
    assert_eq!(pages, PAGES);
    let tests = include_str!("docs.rs");
    let not_run: Vec<_> = pages
        .iter()
        .filter(|page| is_run(page) && !tests.contains(&format!("run_page(\"{page}\")")))
        .collect();
    assert!(not_run.is_empty(), "their commands are run by no test: {not_run:?}");
}

/// `true` if a page has commands that tests run.
fn is_run(page: &str) -> bool {
    blocks(&read_page(page)).iter().any(|block| block.language == "sh" && block.argument.is_empty())
}

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn folder() -> PathBuf {
    project().join("docs")
}

fn read_page(name: &str) -> String {
    let path = folder().join(format!("{name}.md"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every page as it is written.
#[test]
#[ignore = "needs minutes; `make check-all`"]
fn long_commands_as_written() {
    PAGES.iter().filter(|page| is_run(page)).for_each(|page| run_page_of(page, u32::MAX));
}

/// Runs the commands of a page with few scenes and frames.
fn run_page(name: &str) {
    run_page_of(name, 1);
}

/// A script with at most so many scenes, and ten times as many frames.
fn shortened(script: &str, most: u32) -> String {
    let mut text = script.to_owned();
    for (flag, most) in [("--scenes ", most), ("--max-frames ", most.saturating_mul(10))] {
        let parts: Vec<String> = text.split(flag).map(str::to_owned).collect();
        let shorter = parts.iter().skip(1).map(|part| {
            let end = part.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(part.len());
            let number: u32 = part[..end].parse().expect("a number");
            format!("{flag}{}{}", number.min(most), &part[end..])
        });
        text = std::iter::once(parts[0].clone()).chain(shorter).collect();
    }
    text
}

/// Runs the commands of a page in a folder with the files that all pages use. At most so many scenes are drawn; if that is few,
/// the model in a folder looks at images of half the size, too.
fn run_page_of(name: &str, most: u32) {
    let place = Place::with_libraries();
    prepare(&place);
    if most < u32::MAX {
        let config = String::from_utf8(place.read("sam3/config.json")).expect("it is text");
        let smaller = config.replacen("\"image_size\": 224", "\"image_size\": 112", 1);
        assert_ne!(smaller, config, "the built-in model has another size");
        place.write("sam3/config.json", smaller);
    }
    if name == "video" {
        let drawn = "ocelli video --classes person car --scene-size 480x360 --max-frames 20 --detect-every 1000 --confidence 1 -o street.mp4";
        let ended = outcome(&mut shell(&place, drawn));
        assert_eq!(ended.status, Some(0), "{ended:?}");
    }
    if ["memory", "out-of-memory"].contains(&name) {
        // A small random model with a tracker.
        crate::checkpoints::copy(&place, "tracker", "sam3");
        let drawn = "ocelli video --classes person car --scene-size 96x72 --max-frames 4 --detect-every 1000 --confidence 1 -o frames/%06d.png";
        let ended = outcome(&mut shell(&place, drawn));
        assert_eq!(ended.status, Some(0), "{ended:?}");
    }
    if name == "labelling" {
        let drawn = "ocelli video --classes person car --scene-size 320x240 --max-frames 6 --detect-every 1000 --confidence 1 -o frames/%06d.png";
        let ended = outcome(&mut shell(&place, drawn));
        assert_eq!(ended.status, Some(0), "{ended:?}");
    }
    let text = read_page(name);
    let mut failures = String::new();
    for block in blocks(&text) {
        match (block.language.as_str(), block.argument.as_str()) {
            ("sh", "") => {}
            ("sh", "no-run") => continue,
            ("sh", other) => panic!("{name}.md:{}: {other}: expected no-run or nothing", block.line),
            // A block such as `yaml classes.yaml` is the content of this file.
            ("yaml", file) if !file.is_empty() => {
                place.write(file, &block.text);
                continue;
            }
            _ => continue,
        }
        let ended = outcome(&mut shell(&place, &shortened(&block.text, most)));
        if ended.status != Some(0) {
            writeln!(failures, "{name}.md:{}: {ended:?}", block.line)
                .expect("writing to a string does not fail");
            continue;
        }
        for file in commands(&block.text).iter().flat_map(|command| written(command)) {
            if !place.path(&file).exists() {
                writeln!(failures, "{name}.md:{}: {file} was not written", block.line)
                    .expect("writing to a string does not fail");
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// Creates the files that the pages use: photographs and a checkpoint. Drawn scenes stand in for photographs, the
/// built-in model for the released one.
fn prepare(place: &Place) {
    place.folder("bin");
    place.folder("photos");
    symlink(OCELLI, place.path("bin/ocelli")).expect("links can be made");
    place.folder("sam3");
    ocelli::builtin::write_checkpoint(&place.path("sam3")).expect("the folder can be written to");
    // Files in Meta's names: small random models.
    let goldens = project().join("tests/golden/checkpoints/sam3");
    for (golden, name) in
        [("sam3.pt", "sam3.pt"), ("pruned.pt", "pruned_final.pt"), ("tokenizer.json", "tokenizer.json")]
    {
        std::fs::copy(goldens.join(golden), place.path(name)).expect("the golden is in the repository");
    }
    for (golden, name) in [
        ("students/rep_vit.pt", "repvit_m2_3_distilled.pt"),
        ("efficient_tiny_vit/efficient_tiny_vit.pt", "efficient_sam3_tinyvit_m.pt"),
    ] {
        let golden = project().join("tests/golden/checkpoints").join(golden);
        std::fs::copy(golden, place.path(name)).expect("the golden is in the repository");
    }
    let scenes = project().join("demos/scenes");
    for scene in ["street", "kitchen", "park"] {
        let photo = image::open(scenes.join(format!("{scene}.png"))).expect("the scene exists").to_rgb8();
        photo.save(place.path(&format!("photos/{scene}.jpg"))).expect("images can be written");
    }
    for (photo, name) in [("street", "street.jpg"), ("kitchen", "shelf.jpg"), ("street", "logo.jpg")] {
        std::fs::copy(place.path(&format!("photos/{photo}.jpg")), place.path(name)).expect("it was written");
    }
}

/// A shell whose PATH has the `ocelli` of this build, but no other program of it.
fn shell(place: &Place, script: &str) -> std::process::Command {
    let mut command = place.command("bash", &["-euo", "pipefail", "-c", script]);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", place.path("bin").display()));
    command
}

/// A fenced block: `language argument` after the fence.
struct Block {
    line: usize,
    language: String,
    argument: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in page.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(info)) => {
                let (language, argument) = info.split_once(' ').unwrap_or((info, ""));
                let (language, argument) = (language.to_owned(), argument.trim().to_owned());
                open = Some(Block { line: number + 1, language, argument, text: String::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

/// `true` if a page has a heading with this anchor, by GitHub's rules.
fn has_heading(page: &str, anchor: &str) -> bool {
    let headings =
        page.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let letters = |heading: &str| heading.to_lowercase().replace(' ', "-");
    let anchors = headings.map(|heading| {
        letters(heading).replace(|letter: char| !letter.is_alphanumeric() && letter != '-', "")
    });
    anchors.into_iter().any(|known| known == anchor)
}

/// Inline code, outside of blocks.
fn inline_code(page: &str) -> Vec<String> {
    let mut is_block = false;
    let prose: Vec<&str> = page
        .lines()
        .filter(|line| {
            let fence = line.starts_with("```");
            is_block ^= fence;
            !fence && !is_block
        })
        .collect();
    prose.join("\n").split('`').skip(1).step_by(2).map(|span| span.replace('\n', " ")).collect()
}

/// The arguments of every `ocelli` command in a script.
fn commands(script: &str) -> Vec<Vec<String>> {
    let script = script.replace("\\\n", " ");
    let lines = script.lines().map(|line| line.split(" #").next().unwrap_or_default().trim());
    let parts = lines.filter(|line| !line.starts_with('#')).flat_map(|line| line.split(['|', ';', '&']));
    parts
        .map(|part| part.split_whitespace().map(String::from).collect::<Vec<_>>())
        .map(|words| words.into_iter().skip_while(|word| word.contains('=') || word == "do").collect())
        .filter(|words: &Vec<String>| words.first().is_some_and(|word| word == "ocelli"))
        .collect()
}

/// The files and folders that a command writes, except names with variables.
fn written(command: &[String]) -> Vec<String> {
    let pairs = command.windows(2).filter(|pair| OUTPUTS.contains(&pair[0].as_str()));
    let files = pairs.map(|pair| pair[1].clone());
    files.filter(|file| file != "-" && !file.contains(['%', '$'])).collect()
}

/// Flags that the help of the command does not list.
fn unknown_flags(command: &[String]) -> Vec<String> {
    let named: Vec<&str> =
        command[1..].iter().map(String::as_str).take_while(|word| !word.starts_with('-')).collect();
    let subcommand = match named.as_slice() {
        ["label", "merge", ..] => "label merge",
        [one, ..] => one,
        [] => "",
    };
    let flags = command.iter().filter(|word| word.starts_with("--"));
    let flags = flags.filter(|flag| !help_lists(subcommand, flag)).map(|flag| format!("{subcommand} {flag}"));
    flags.collect()
}

/// A flag of `python -m ocelli_training distill`.
fn is_flag_of_training(flag: &str) -> bool {
    let options = project().join("training/ocelli_training/distill/arguments.py");
    let text = std::fs::read_to_string(options).expect("the package is in the repository");
    text.contains(&format!("\"{}\"", flag.trim_end_matches(['.', ','])))
}

fn is_flag_somewhere(flag: &str) -> bool {
    let of_ocelli = [
        "detect",
        "video",
        "label",
        "eval",
        "export",
        "build-engine",
        "verify",
        "prune",
        "embed",
        "track",
        "doctor",
        "cache",
        "serve",
        "completions",
    ];
    of_ocelli.iter().any(|subcommand| help_lists(subcommand, flag)) || is_flag_of_training(flag)
}

fn help_lists(subcommand: &str, flag: &str) -> bool {
    static HELP: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let mut known = HELP.lock().unwrap_or_else(PoisonError::into_inner);
    let help = known.entry(subcommand.to_owned()).or_insert_with(|| {
        let arguments: Vec<&str> = subcommand.split_whitespace().chain(["--help"]).collect();
        Place::with_libraries().succeed(OCELLI, &arguments)
    });
    let flag = flag.split('=').next().unwrap_or(flag).trim_end_matches([',', '.']);
    help.split_whitespace()
        .any(|word| word.split('[').next().unwrap_or(word).trim_end_matches([',', ';', '.']) == flag)
}
