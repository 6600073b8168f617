//! `demo-image`: finds what you name in pictures.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use ocelli::atomic_file::write_atomically;
use ocelli::cli::{self, DetectorArgs, LogArgs, Progress, expand_images, interrupted, print, say};
use ocelli::draw::Annotator;
use ocelli::report::{ImageReport, Report, TableOptions, Timings, write_table};
use ocelli::{Detector, Image, Prompts, StageTimes};
use ocelli_demos::exemplar::{ExemplarArg, prompts};
use ocelli_demos::outputs::Outputs;

/// Finds what you name in pictures, and draws a box around each.
///
/// Without --model it uses the small built-in model, which knows eighty drawn pictograms. For photographs give it the
/// facebook/sam3 checkpoint: --model PATH.
#[derive(Parser)]
#[command(name = "demo-image", version, arg_required_else_help = true)]
#[command(after_help = "Examples:\n  demo-image --image street.jpg --classes person car \"traffic light\" -o found.png\n  \
                        demo-image --image holiday/ --classes dog --json found.json\n  \
                        demo-image --image shelf.jpg --exemplar 40,60,120,210 -o found.png")]
struct Arguments {
    /// Pictures: files, folders, patterns
    #[arg(long, alias = "source", required = true, num_args = 1.., value_name = "FILE|DIR|GLOB")]
    image: Vec<PathBuf>,
    /// What to look for: words or short phrases
    #[arg(long, num_args = 1.., value_name = "PHRASE", required_unless_present = "exemplar")]
    classes: Vec<String>,
    /// An example box in pixels: x1,y1,x2,y2, with :no for one that is not wanted, and @class where there are several
    #[arg(long, num_args = 1.., value_name = "BOX", allow_hyphen_values = true)]
    exemplar: Vec<ExemplarArg>,
    /// Where annotated pictures go: a file for one picture, a folder for several
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Write all detections as JSON; - is stdout, in place of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Find the pixels of each thing as well
    #[arg(long)]
    masks: bool,
    #[command(flatten)]
    detector: DetectorArgs,
    #[command(flatten)]
    log: LogArgs,
}

fn main() -> ExitCode {
    let args = Arguments::parse();
    cli::run(&args.log, || run(&args))
}

fn run(args: &Arguments) -> anyhow::Result<()> {
    let prompts = prompts(&args.classes, &args.exemplar)?;
    let files = expand_images(&args.image)?;
    let outputs = args.output.as_deref().map(|target| Outputs::new(target, files.len())).transpose()?;
    let builder = args.detector.detector()?.with_masks(args.masks);
    let mut detector = builder.build_reporting(&|line| say(&args.log, line))?;
    detector.prepare(&prompts)?;
    say(&args.log, &format!("engine: {}", detector.engine()));

    let mut job = Job { args, prompts, outputs, report: Report { images: Vec::new() } };
    let end = job.every_picture(&mut detector, &files);
    if let Some(path) = args.json.as_deref() {
        job.write_json(path)?;
    }
    end
}

fn timings(times: &StageTimes) -> Timings {
    let mut timings = Timings::default();
    for (stage, ms) in [
        ("text", times.text),
        ("preprocess", times.preprocess),
        ("backbone", times.backbone),
        ("decode", times.decode),
        ("masks", times.masks),
        ("total", times.total),
    ] {
        timings.add(stage, ms);
    }
    timings
}

/// What is under way.
struct Job<'a> {
    args: &'a Arguments,
    prompts: Prompts,
    outputs: Option<Outputs>,
    report: Report,
}

impl Job<'_> {
    /// A picture that cannot be read is reported and the others go on.
    fn every_picture(&mut self, detector: &mut Detector, files: &[PathBuf]) -> anyhow::Result<()> {
        let progress = Progress::new(&self.args.log, files.len() as u64);
        let annotator = Annotator::new();
        let mut failed = 0;
        for file in files {
            interrupted()?;
            progress.message(&file.to_string_lossy());
            match self.picture(detector, &annotator, file, &progress) {
                Ok(()) => {}
                Err(e) if files.len() > 1 && e.is::<ocelli::Error>() => {
                    failed += 1;
                    progress.line(&format!("error: {e}"));
                }
                Err(e) => return Err(e),
            }
            progress.step();
        }
        match failed {
            0 => Ok(()),
            _ => anyhow::bail!("{failed} of {} pictures failed, see above", files.len()),
        }
    }

    fn picture(
        &mut self,
        detector: &mut Detector,
        annotator: &Annotator,
        file: &Path,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        let image = Image::open(file)?;
        let found = detector.detect(&image, &self.prompts)?;
        let report = ImageReport {
            file: file.to_string_lossy().into_owned(),
            width: image.width(),
            height: image.height(),
            detections: found.items.iter().map(Into::into).collect(),
            timing_ms: timings(&found.times),
        };
        let drawn = match &mut self.outputs {
            Some(outputs) => {
                let mut picture = image.into_rgb_image();
                annotator.annotate(&mut picture, &found.items)?;
                Some(outputs.write(file, &picture)?)
            }
            None => None,
        };
        if self.args.json.as_deref() != Some(Path::new("-")) {
            progress.suspend(|| print(|out| write_table(out, &report, TableOptions::default())))?;
        }
        if let Some(path) = drawn {
            progress.suspend(|| say(&self.args.log, &format!("→ {}", path.display())));
        }
        self.report.images.push(report);
        Ok(())
    }

    fn write_json(&self, path: &Path) -> anyhow::Result<()> {
        if path == Path::new("-") {
            return print(|out| self.report.write_json(out));
        }
        write_atomically(path, |file| self.report.write_json(file))?;
        say(&self.args.log, &format!("→ {}", path.display()));
        Ok(())
    }
}
