//! `ocelli embed`.

use std::path::PathBuf;

use crate::{LogArgs, ModelArgs, Progress, check_output_file, class_names, print};
use clap::Args;
use ocelli::{Prompts, TextCacheFile};

/// Arguments of `ocelli embed`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  ocelli embed --classes person \"red apple\" -o words.safetensors\n  \
                        demo-image --image street.jpg --classes person --text-cache words.safetensors")]
pub struct EmbedArgs {
    /// Words or short phrases; commas separate them as well
    #[arg(long, alias = "class", required = true, num_args = 1.., value_name = "PHRASE")]
    classes: Vec<String>,
    /// The text cache to write, or to add to
    #[arg(long, short, alias = "text-cache", value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    model: ModelArgs,
}

/// Embeds phrases into a text cache.
pub fn run(args: &EmbedArgs, log: &LogArgs) -> anyhow::Result<()> {
    let prompts = Prompts::new(class_names(&args.classes, log)?)?;
    check_output_file("--output", &args.output)?;
    let builder = args.model.detector()?.with_text_cache(TextCacheFile::File(args.output.clone()));
    let progress = Progress::waiting(log);
    let detector = builder.build_reporting(&|line| progress.announce(line))?;
    let (mut text, _, _) = detector.into_stages();
    text.embed(&prompts)?;
    drop(progress);
    print(|out| {
        let phrases =
            if prompts.len() == 1 { "1 phrase".into() } else { format!("{} phrases", prompts.len()) };
        writeln!(out, "{}: {phrases}", args.output.display())
    })
}
