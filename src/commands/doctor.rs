//! `ocelli doctor`.

use std::path::PathBuf;

use clap::Args;
use ocelli::cli::print;
use ocelli::engines::onnxruntime::{Finding, LibrarySearch, default_threads};
use ocelli::{Detector, Image, Prompts, TextCacheFile, cache_folder};

/// Arguments of `ocelli doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// ONNX Runtime's library [default: searched for]
    #[arg(long, value_name = "FILE")]
    onnxruntime: Option<PathBuf>,
}

/// Prints what works here. Fails where no engine does.
pub fn run(args: &DoctorArgs) -> anyhow::Result<()> {
    let mut search = LibrarySearch::new();
    if let Some(path) = &args.onnxruntime {
        search = search.with_path(path);
    }
    let engine = try_engine(args);
    print(|out| {
        writeln!(out, "ocelli {} on {} {}", env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH)?;
        writeln!(out, "\nengines")?;
        match &engine {
            Ok((name, ms)) => writeln!(out, "  cpu          works: {name}; the built-in model takes {ms:.0} ms an image")?,
            Err(e) => writeln!(out, "  cpu          does not work: {e}")?,
        }
        for name in ["cuda", "tensorrt", "coreml", "cuda-native"] {
            writeln!(out, "  {name:<12} not in this build")?;
        }
        writeln!(out, "\nONNX Runtime was looked for, in this order")?;
        for candidate in search.candidates() {
            let finding = match &candidate.finding {
                Finding::Missing => "not there".to_owned(),
                Finding::Usable { version } => format!("version {version}"),
                Finding::Unusable { reason } => reason.clone(),
                other => format!("{other:?}"),
            };
            writeln!(out, "  {}: {}: {finding}", candidate.place, candidate.path.display())?;
        }
        writeln!(out, "\nthreads        {} by default", default_threads())?;
        match cache_folder() {
            Ok(folder) => writeln!(out, "cache          {}", folder.display()),
            Err(e) => writeln!(out, "cache          {e}"),
        }
    })?;
    engine.map(|_| ()).map_err(|_| anyhow::anyhow!("no engine works here: see the list above for what to install"))
}

/// Detects in a grey picture with the built-in model: its engine, and how many milliseconds the second image takes.
fn try_engine(args: &DoctorArgs) -> ocelli::Result<(String, f64)> {
    let mut builder = Detector::builder().with_text_cache(TextCacheFile::None);
    if let Some(path) = &args.onnxruntime {
        builder = builder.with_onnxruntime(path);
    }
    let mut detector = builder.build()?;
    let image = Image::from_rgb8(64, 64, vec![128; 64 * 64 * 3])?;
    let prompts = Prompts::new(["dog"])?;
    detector.detect(&image, &prompts)?;
    let times = detector.detect(&image, &prompts)?.times;
    Ok((detector.engine().to_owned(), times.total))
}
