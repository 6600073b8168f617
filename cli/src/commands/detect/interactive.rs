//! `--interactive`: one image, and phrases from a prompt line.

use std::io::IsTerminal;
use std::path::PathBuf;

use ocelli::draw::Annotator;
use ocelli::{Detections, Image, Prompts, options::DetectorOptions};
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Config, Editor};

use super::outputs::Outputs;
use super::{DetectArgs, options};
use crate::output::{diagnostic, one_line};
use crate::report::{ImageReport, MOST_ROWS, write_table};
use crate::{LogArgs, detector, load, print, status};

const WHAT_TO_TYPE: &str =
    "type what to find, several separated by commas; an empty line, exit or Ctrl-D ends it";

/// Detects what is typed, until the end of the input. The features of the image are computed once.
pub fn run(args: &DetectArgs, files: &[PathBuf], log: &LogArgs) -> anyhow::Result<()> {
    let [file] = files else {
        refuse!("--interactive searches one image: name one with --image");
    };
    let image = Image::open(file)?;
    let outputs = args.output.as_deref().map(|target| Outputs::plan(target, files)).transpose()?;
    let builder = detector(DetectorOptions { masks: args.masks, ..options(args)? })?;
    args.dart.announce(false, log);
    args.detector.model.announce_built_in(&Prompts::default(), log);
    let (mut detector, loading) = load(builder, log)?;
    let features = detector.encode(&image)?;
    drop(loading);
    status(log, &format!("engine: {}", detector.engine()));
    if let Some(outputs) = &outputs {
        outputs.create_folder()?;
    }
    // Lines of a pipe are read as they are.
    let config = Config::builder().auto_add_history(true).build();
    let mut editor = Editor::<(), MemHistory>::with_history(config, MemHistory::new())?;
    let is_typed = std::io::stdin().is_terminal();
    if is_typed {
        status(log, WHAT_TO_TYPE);
    }
    loop {
        let line = match editor.readline(if is_typed { "find> " } else { "" }) {
            Ok(line) => line,
            Err(ReadlineError::Eof | ReadlineError::Interrupted) => break,
            Err(ReadlineError::Io(error)) => return Err(error.into()),
            Err(error) => return Err(error.into()),
        };
        let phrases: Vec<&str> = line.split(',').map(str::trim).filter(|phrase| !phrase.is_empty()).collect();
        if phrases.is_empty() || matches!(phrases[..], ["exit" | "quit"]) {
            break;
        }
        let found = Prompts::new(phrases.iter().copied()).and_then(|prompts| {
            args.detector.model.announce_unknown(phrases.iter().copied(), log);
            detector.detect_features(&features, &prompts)
        });
        match found {
            Ok(found) => {
                let report = ImageReport::new(file, (image.width(), image.height()), &found);
                print(|out| write_table(out, &report, MOST_ROWS))?;
                if let Some(outputs) = &outputs {
                    status(log, &format!("→ {}", draw(outputs, &image, &found)?.display()));
                }
            }
            // The next line may do better.
            Err(error) => diagnostic(&format!("error: {}", one_line(&error.to_string()))),
        }
    }
    Ok(())
}

fn draw(outputs: &Outputs, image: &Image, found: &Detections) -> anyhow::Result<PathBuf> {
    let mut annotated = image.clone().into_rgb_image();
    Annotator::new().annotate(&mut annotated, &found.items)?;
    Ok(outputs.write(0, &annotated.into())?.to_owned())
}
