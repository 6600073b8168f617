//! `ocelli embed`.

use std::path::PathBuf;

use clap::Args;
use ocelli::cli::{DetectorArgs, LogArgs, print, say};
use ocelli::{Prompts, TextCacheFile};

/// Arguments of `ocelli embed`.
#[derive(Args, Debug)]
pub struct EmbedArgs {
    /// Phrases to embed
    #[arg(long, required = true, num_args = 1.., value_name = "PHRASE")]
    classes: Vec<String>,
    /// The text cache to write, or to add to
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    detector: DetectorArgs,
}

/// Embeds phrases into a text cache.
pub fn run(args: &EmbedArgs, log: &LogArgs) -> anyhow::Result<()> {
    let prompts = Prompts::new(args.classes.iter().cloned())?;
    let builder = args.detector.detector()?.with_text_cache(TextCacheFile::File(args.output.clone()));
    let detector = builder.build_reporting(&|line| say(log, line))?;
    let (mut text, _, _) = detector.into_stages();
    text.embed(&prompts)?;
    print(|out| {
        let phrases = if prompts.len() == 1 { "1 phrase".into() } else { format!("{} phrases", prompts.len()) };
        writeln!(out, "{}: {phrases}", args.output.display())
    })
}
