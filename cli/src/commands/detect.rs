//! `ocelli detect`: finds what is named in images.

mod outputs;
mod semantic;
mod sheet;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use ocelli::atomic_file::write_atomically;
use ocelli::draw::Annotator;
use ocelli::image::has_image_extension;
use ocelli::report::DetectionRecord;
use ocelli::{Detection, Detections, Detector, EmbeddedPrompts, Error, Image, Prompts};

use self::outputs::{Outputs, check_picture_file};
use self::semantic::SemanticFolder;
use self::sheet::ContactSheet;
use crate::exemplar::{ExemplarArg, examples_in, prompts};
use crate::report::{ImageReport, Report, TableOptions, timings, write_table};
use crate::{self as cli, DetectorArgs, LogArgs, Progress, interrupted, print, say, usage};

/// What `ocelli detect --help` says after the arguments.
pub const AFTER_HELP: &str = "\
Without --model it uses the small built-in model, which knows eighty drawn pictograms and no photographs. For those \
name the folder of the facebook/sam3 checkpoint: --model sam3/

Examples:
  ocelli detect --image street.jpg --classes person \"red car\" -o found.png
  ocelli detect --image holiday/ --classes dog,cat -o found/ --json found.json
  ocelli detect --image shelf.jpg --exemplar 40,60,120,210 -o found.png";

/// Arguments of `ocelli detect` and `demo-image`.
#[derive(Args, Debug)]
pub struct DetectArgs {
    /// Pictures: files, folders, patterns; --image may be left out in front of the first
    #[arg(value_name = "FILE|DIR|GLOB", hide = true)]
    pictures: Vec<PathBuf>,
    /// Pictures: files, folders, patterns such as 'holiday/**/*.jpg'
    #[arg(long, aliases = ["images", "source"], num_args = 1.., value_name = "FILE|DIR|GLOB")]
    image: Vec<PathBuf>,
    /// What to look for: words or short phrases; commas separate them as well
    #[arg(long, alias = "class", num_args = 1.., value_name = "PHRASE")]
    classes: Vec<String>,
    /// An example of what to look for, a box in pixels of the picture: x1,y1,x2,y2, then :no for an example of what is
    /// not wanted, then @class where there are several
    #[arg(long, num_args = 1.., value_name = "BOX")]
    exemplar: Vec<ExemplarArg>,
    /// The picture that the examples are boxes in, where it is none of those to search; the model was not trained for
    /// that, so name the class as well
    #[arg(long, value_name = "FILE", requires = "exemplar")]
    exemplar_image: Option<PathBuf>,
    /// Where annotated pictures go: a file for one picture, a folder for several
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
    /// One picture with all annotated pictures side by side
    #[arg(long, value_name = "FILE")]
    sheet: Option<PathBuf>,
    /// Write all detections as JSON; - is stdout, in place of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Find the pixels of each thing as well
    #[arg(long)]
    masks: bool,
    /// How --json writes masks
    #[arg(long, value_enum, default_value = "rle", value_name = "FORMAT", requires = "masks")]
    mask_format: MaskFormat,
    /// Write where each class is, pixel by pixel, as one black and white PNG for each picture and class
    #[arg(long, value_name = "DIR")]
    semantic: Option<PathBuf>,
    #[command(flatten)]
    detector: DetectorArgs,
}

/// `--mask-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MaskFormat {
    /// COCO's compressed run lengths, exact
    Rle,
    /// Polygons of whole pixels, within one pixel of the mask
    Polygon,
}

/// How far a polygon may be from the mask's border, in pixels: slanted borders lose their steps.
const POLYGON_TOLERANCE: f32 = 1.0;

/// Runs the program.
///
/// # Errors
/// What made it fail, for a person.
pub fn run(args: &DetectArgs, log: &LogArgs) -> anyhow::Result<()> {
    let prompts = what_to_look_for(args, log)?;
    let files = pictures(args)?;
    let outputs = args.output.as_deref().map(|target| Outputs::plan(target, &files)).transpose()?;
    if let Some(path) = &args.sheet {
        check_picture_file("--sheet", path)?;
    }
    if let Some(path) = args.json.as_deref().filter(|path| *path != Path::new("-")) {
        cli::check_output_file("--json", path)?;
    }
    let semantic = args.semantic.as_deref().map(|folder| SemanticFolder::plan(folder, &files)).transpose()?;
    let builder =
        args.detector.detector()?.with_masks(args.masks).with_semantic_maps(args.semantic.is_some());
    let loading = Progress::waiting(log);
    let mut detector = builder.build_reporting(&|line| loading.announce(line))?;
    detector.prepare(&prompts)?;
    let embedded = match &args.exemplar_image {
        Some(path) => Some(examples_in(path, &mut detector, &prompts)?),
        None => None,
    };
    drop(loading);
    say(log, &format!("engine: {}", detector.engine()));
    if let Some(outputs) = &outputs {
        outputs.create_folder()?;
    }
    if let Some(semantic) = &semantic {
        semantic.create()?;
    }

    let report = Report { images: Vec::new() };
    let sheet = ContactSheet::default();
    let mut job = Job { args, log, prompts, embedded, outputs, semantic, sheet, report, hinted: false };
    let end = job.every_picture(&mut detector, &files);
    // After Ctrl-C, or where some pictures could not be read, what was finished is kept.
    if end.is_ok() || !job.report.images.is_empty() {
        job.write_summaries()?;
    }
    end
}

fn what_to_look_for(args: &DetectArgs, log: &LogArgs) -> anyhow::Result<Prompts> {
    if args.classes.is_empty() && args.exemplar.is_empty() {
        return Err(usage("nothing to look for: name it with --classes, or box an example with --exemplar"));
    }
    let classes = cli::class_names(&args.classes, log)?;
    if let Some(name) =
        classes.iter().find(|name| has_image_extension(Path::new(name)) && Path::new(name).is_file())
    {
        return Err(usage(format!(
            "--classes, {name}: this is a picture; name it with --image, or before --classes"
        )));
    }
    Ok(prompts(&classes, &args.exemplar)?)
}

fn pictures(args: &DetectArgs) -> anyhow::Result<Vec<PathBuf>> {
    let named = [args.pictures.as_slice(), &args.image].concat();
    if named.is_empty() {
        return Err(usage("no picture: name files, folders or patterns with --image"));
    }
    Ok(cli::expand_images(&named)?)
}

/// What is under way.
struct Job<'a> {
    args: &'a DetectArgs,
    log: &'a LogArgs,
    prompts: Prompts,
    /// With examples in another picture.
    embedded: Option<EmbeddedPrompts>,
    outputs: Option<Outputs>,
    semantic: Option<SemanticFolder>,
    sheet: ContactSheet,
    report: Report,
    hinted: bool,
}

impl Job<'_> {
    /// Of several pictures, one that cannot be read is reported and the others go on.
    fn every_picture(&mut self, detector: &mut Detector, files: &[PathBuf]) -> anyhow::Result<()> {
        let progress = Progress::new(self.log, files.len() as u64);
        let annotator = Annotator::new();
        let mut failed = 0;
        for (number, file) in files.iter().enumerate() {
            if let Err(e) = interrupted() {
                progress.say(&format!("interrupted: {number} of {} pictures are done", files.len()));
                return Err(e.into());
            }
            progress.message(&file.to_string_lossy());
            let found = Image::open(file).and_then(|image| {
                let found = match &self.embedded {
                    Some(embedded) => detector.detect_embedded(&image, embedded),
                    None => detector.detect(&image, &self.prompts),
                };
                found
                    .map(|found| (image, found))
                    .map_err(|e| Error::new(e.kind(), format!("{}: {e}", file.display())))
            });
            match found {
                Ok((image, found)) => self.present(&annotator, number, file, image, &found, &progress)?,
                Err(e) if files.len() > 1 => {
                    failed += 1;
                    progress.error(&e);
                }
                Err(e) => return Err(e.into()),
            }
            progress.step();
        }
        match failed {
            0 => Ok(()),
            _ => anyhow::bail!("{failed} of {} pictures failed: see above", files.len()),
        }
    }

    /// Table, annotated picture, entry of the report.
    fn present(
        &mut self,
        annotator: &Annotator,
        number: usize,
        file: &Path,
        image: Image,
        found: &Detections,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        let report = ImageReport {
            file: file.to_string_lossy().into_owned(),
            width: image.width(),
            height: image.height(),
            detections: found.items.iter().map(|one| self.record(one)).collect(),
            timing_ms: timings(&found.times),
        };
        if self.args.json.as_deref() != Some(Path::new("-")) {
            progress.suspend(|| print(|out| write_table(out, &report, TableOptions::default())))?;
        }
        if let Some(semantic) = &self.semantic {
            for path in semantic.write(number, &found.semantic)? {
                progress.say(&format!("→ {}", path.display()));
            }
        }
        if self.outputs.is_some() || self.args.sheet.is_some() {
            let mut picture = image.into_rgb_image();
            annotator.annotate(&mut picture, &found.items)?;
            if let Some(outputs) = &self.outputs {
                let path = outputs.write(number, &picture)?;
                progress.say(&format!("→ {}", path.display()));
            }
            if self.args.sheet.is_some() {
                self.sheet.add(&picture);
            }
        }
        if found.items.is_empty() && self.args.detector.model.model.is_none() && !self.hinted {
            self.hinted = true;
            progress.say(
                "hint: the built-in model knows eighty drawn pictograms; for photographs name the folder of the \
                 facebook/sam3 checkpoint with --model",
            );
        }
        self.report.images.push(report);
        Ok(())
    }

    fn record(&self, detection: &Detection) -> DetectionRecord {
        let mut record = DetectionRecord::from(detection);
        match self.args.mask_format {
            MaskFormat::Rle => {}
            MaskFormat::Polygon => {
                record.polygons = record.mask.take().map(|mask| mask.polygons(POLYGON_TOLERANCE));
            }
        }
        record
    }

    /// What is about all pictures.
    fn write_summaries(&self) -> anyhow::Result<()> {
        if let Some(path) = &self.args.sheet {
            self.sheet.write(path)?;
            say(self.log, &format!("→ {}", path.display()));
        }
        match self.args.json.as_deref() {
            None => Ok(()),
            Some(path) if path == Path::new("-") => print(|out| self.report.write_json(out)),
            Some(path) => {
                write_atomically(path, |file| self.report.write_json(file))?;
                say(self.log, &format!("→ {}", path.display()));
                Ok(())
            }
        }
    }
}
