//! `ocelli embed`.

use std::path::PathBuf;

use clap::Args;
use ocelli::{Prompts, options::DetectorOptions, stages::TextCacheFile};

use crate::args::{DETECTION, OUTPUT, coco_classes};
use crate::output::count;
use crate::{ModelArgs, check_output_file, class_names, detector, load, print};

/// Arguments of `ocelli embed`.
#[derive(Args, Debug)]
#[command(after_help = include_str!("../help/embed.txt"))]
pub struct EmbedArgs {
    /// Text prompts: words or short phrases, separated by spaces or commas, or a file such as classes.txt
    #[arg(
        long,
        alias = "class",
        required_unless_present = "coco",
        num_args = 1..,
        value_name = "PHRASE",
        help_heading = DETECTION
    )]
    classes: Vec<String>,
    /// COCO's eighty classes, in COCO's order
    #[arg(long, conflicts_with = "classes", help_heading = DETECTION)]
    coco: bool,
    /// Text cache to write or extend
    #[arg(long, short, alias = "text-cache", value_name = "FILE", help_heading = OUTPUT)]
    output: PathBuf,
    #[command(flatten)]
    model: ModelArgs,
}

/// Encodes text prompts into a text cache.
pub fn run(args: &EmbedArgs) -> anyhow::Result<()> {
    let prompts = if args.coco {
        Prompts::new(coco_classes().names())?
    } else {
        Prompts::new(class_names(&args.classes)?)?
    };
    check_output_file("--output", &args.output)?;
    let text_cache = TextCacheFile::File(args.output.clone());
    let options = DetectorOptions { text_cache, ..args.model.options()? };
    let (detector, loading) = load(detector(options)?)?;
    detector.into_stages().text.embed(&prompts)?;
    drop(loading);
    print(|out| writeln!(out, "{}: {}", args.output.display(), count(prompts.len(), "phrase")))
}
