//! `ocelli detect`.

mod clicks;
mod outputs;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::Args;
use ocelli::atomic_file::create_folder;
use ocelli::draw::{Annotator, Redaction};
use ocelli::sink::{Crops, YoloLabels, write_image};
use ocelli::tiles::{Regions, TiledImage};
use ocelli::{
    Detections, Detector, ErrorKind, Image, ObjectPrompt, Prompts, options::DetectorOptions,
    stages::EmbeddedPrompts,
};

use self::outputs::{
    ContactSheet, annotated_files, check_image_file, check_semantic_folder, renamed, stems, write_maps,
};
use crate::args::{
    DETECTION, DartArgs, ExemplarArg, INPUT, OUTPUT, ObjectArgs, PERFORMANCE, PrivacyArgs, ScreenArgs,
    TileArgs, class_map_beside, coco_classes, folder_of, images_beside, label_files, prepared, prompts,
    thresholds,
};
use crate::interrupt::until_interrupted;
use crate::output::{check_outputs, is_stdout, save_json, with_flag};
use crate::report::{ImageReport, MOST_ROWS, Report, write_table};
use crate::{DetectorArgs, Progress, detector, interrupted, load, print, status};

/// The text that `ocelli detect --help` prints after the options.
pub const AFTER_HELP: &str =
    concat!(include_str!("../help/built_in_model.txt"), include_str!("../help/detect.txt"));

/// Arguments of `ocelli detect` and `demo-image`.
#[derive(Args, Debug)]
pub struct DetectArgs {
    /// Images, as with --image.
    #[arg(value_name = "PATH", hide = true)]
    images: Vec<PathBuf>,
    /// Images: files, folders with their subfolders, or patterns such as 'holiday/*.jpg'
    #[arg(long, aliases = ["images", "source"], num_args = 1.., value_name = "PATH", help_heading = INPUT)]
    image: Vec<PathBuf>,
    /// Annotated images: a file for one image, else a folder
    #[arg(long, short, value_name = "PATH", help_heading = OUTPUT)]
    output: Option<PathBuf>,
    /// One image with all annotated images side by side
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    sheet: Option<PathBuf>,
    /// All detections as JSON; - is stdout and replaces the table
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    json: Option<PathBuf>,
    /// A crop of each instance, in folders by class
    #[arg(long, value_name = "DIR", help_heading = OUTPUT)]
    crops: Option<PathBuf>,
    /// A YOLO label file per image: class, centre and size of each box
    #[arg(long, value_name = "DIR", help_heading = OUTPUT)]
    save_txt: Option<PathBuf>,
    /// Semantic maps: a black and white PNG per image and class
    #[arg(long, value_name = "DIR", help_heading = OUTPUT)]
    semantic: Option<PathBuf>,
    #[command(flatten)]
    privacy: PrivacyArgs,
    /// Text prompts: words or short phrases, separated by spaces or commas, or a file: classes.txt, or YAML with thresholds
    #[arg(long, alias = "class", num_args = 1.., value_name = "PHRASE", help_heading = DETECTION)]
    classes: Vec<String>,
    /// Detect COCO's eighty classes
    #[arg(long, conflicts_with = "classes", help_heading = DETECTION)]
    coco: bool,
    /// Box around an example, in pixels: x1,y1,x2,y2. Append :no for a counterexample, and @class with several classes
    #[arg(long, num_args = 1.., value_name = "BOX", help_heading = DETECTION)]
    exemplar: Vec<ExemplarArg>,
    /// Another image that contains the exemplars; less reliable, so name the class as well
    #[arg(long, value_name = "FILE", requires = "exemplar", help_heading = DETECTION)]
    exemplar_image: Option<PathBuf>,
    /// Predict a mask for each detection
    #[arg(long, help_heading = DETECTION)]
    masks: bool,
    #[command(flatten)]
    objects: ObjectArgs,
    #[command(flatten)]
    detector: DetectorArgs,
    #[command(flatten)]
    screen: ScreenArgs,
    #[command(flatten)]
    tiles: TileArgs,
    /// Keep one half of the model in memory at a time: groups of images pass the backbone, then the decoder
    #[arg(long, conflicts_with = "tile", help_heading = PERFORMANCE)]
    low_memory: bool,
    #[command(flatten)]
    dart: DartArgs,
}

/// Detects in all images.
pub fn run(args: &DetectArgs) -> anyhow::Result<()> {
    let objects = args.objects.objects()?;
    let (prompts, thresholds) =
        if objects.is_empty() { requested_prompts(args)? } else { (Prompts::default(), BTreeMap::new()) };
    let classes = prompts.iter().map(|prompt| &**prompt.label());
    let labels: Vec<&str> = classes.chain(objects.iter().map(|object| &**object.label())).collect();
    let redaction = args.privacy.redaction(&labels)?;
    let files = image_files(args)?;
    if files.len() > 1 && !args.exemplar.is_empty() && args.exemplar_image.is_none() {
        refuse!(
            "--exemplar is a box in pixels of one image: name that image with --exemplar-image to find more in several"
        );
    }
    if !objects.is_empty() {
        clicks::check(args, &objects, &files)?;
    }
    let outputs = args.output.as_deref().map(|target| annotated_files(target, &files)).transpose()?;
    if let Some(path) = &args.sheet {
        check_image_file("--sheet", path)?;
    }
    check_outputs([("--json", args.json.as_deref())])?;
    let crops = args.crops.as_deref().map(|folder| Crops::create(folder, false)).transpose();
    let crops = crops.map_err(with_flag("--crops"))?;
    let labels = args.save_txt.as_deref().map(label_files).transpose()?;
    args.semantic.as_deref().map_or(Ok(()), check_semantic_folder)?;
    let builder = detector(DetectorOptions {
        masks: args.masks || !objects.is_empty(),
        semantic_maps: args.semantic.is_some(),
        class_confidence: thresholds,
        tiling: args.tiles.tiling(),
        low_memory: args.low_memory,
        screening: args.screen.screen,
        pruning: args.dart.pruning(&args.detector.model)?,
        ..args.detector.options()?
    })?;
    args.dart.announce(false);
    args.detector.model.announce_built_in(&prompts);
    let (mut detector, loading) = load(builder)?;
    let embedded = if objects.is_empty() {
        // A search in tiles and one of a group take prompts that are encoded.
        let is_used = detector.tiling().is_some() || args.low_memory || args.exemplar_image.is_some();
        Some(prepared(&mut detector, &prompts, args.exemplar_image.as_deref())?).filter(|_| is_used)
    } else {
        detector.prepare_segment()?;
        None
    };
    drop(loading);
    status(format!("engine: {}", detector.engine()));
    let annotated = outputs.iter().flatten().take(1).map(|path| folder_of(path));
    annotated.chain(args.semantic.as_deref()).try_for_each(create_folder)?;

    let stems = stems(&files);
    let has_names = outputs.is_some() || crops.is_some() || labels.is_some() || args.semantic.is_some();
    if let Some(line) = renamed(&files, &stems).filter(|_| has_names) {
        status(&line);
    }
    let mut job = ImageRun {
        args,
        prompts,
        objects,
        redaction,
        embedded,
        outputs,
        crops,
        labels,
        stems,
        sheet: ContactSheet::default(),
        report: Report::default(),
        annotator: Annotator::new(),
        progress: Rc::new(Progress::new(files.len() as u64)),
    };
    let end = job.detect_all(&mut detector, &files);
    job.progress.clear();
    // Finished images are kept after Ctrl-C and if others could not be read.
    if end.is_ok() || !job.report.images.is_empty() {
        job.write_summaries()?;
    }
    end
}

/// The prompts, and the thresholds of classes that have their own.
fn requested_prompts(args: &DetectArgs) -> anyhow::Result<(Prompts, BTreeMap<usize, f32>)> {
    if args.classes.is_empty() && args.exemplar.is_empty() && !args.coco {
        refuse!(
            "nothing to detect: name classes with --classes, use those of COCO with --coco, box an example with --exemplar, or \
             click on an object with --point"
        );
    }
    let classes = if args.coco {
        coco_classes()
    } else {
        class_map_beside(&args.classes, "with --image, or before --classes")?
    };
    Ok((prompts(&classes, &args.exemplar)?, thresholds(&classes)))
}

fn image_files(args: &DetectArgs) -> anyhow::Result<Vec<PathBuf>> {
    let paths = [args.images.as_slice(), &args.image].concat();
    if paths.is_empty() {
        refuse!("no image: name files, folders or patterns with --image");
    }
    let outputs = [&args.output, &args.crops, &args.semantic].into_iter().flatten().cloned().collect();
    Ok(images_beside(&paths, outputs)?)
}

/// Opens an image. One that comes through a pipe may be waited for until Ctrl-C is pressed.
fn opened<T: Send + 'static>(file: &Path, open: fn(PathBuf) -> ocelli::Result<T>) -> ocelli::Result<T> {
    let path = file.to_owned();
    if file.is_file() { open(path) } else { until_interrupted(move || open(path)) }
}

/// The error with the file in front; one of reading the file in parts names it already.
fn named(error: ocelli::Error, file: &Path) -> ocelli::Error {
    if error.to_string().contains(&format!(", {}: ", file.display())) { error } else { error.at(file) }
}

/// An image that was searched.
struct SearchedImage {
    /// Width and height.
    size: (u32, u32),
    /// The pixels, if they are needed further.
    image: Option<Image>,
}

impl From<Image> for SearchedImage {
    fn from(image: Image) -> Self {
        Self { size: (image.width(), image.height()), image: Some(image) }
    }
}

/// A run over all images.
struct ImageRun<'a> {
    args: &'a DetectArgs,
    prompts: Prompts,
    /// Objects to search for in place of the prompts, if there are any.
    objects: Vec<ObjectPrompt>,
    /// The classes to blur or to black out.
    redaction: Option<Redaction>,
    /// The encoded prompts, if the exemplars are in another image, or images are searched in tiles or in groups.
    embedded: Option<EmbeddedPrompts>,
    /// The files of the annotated images.
    outputs: Option<Vec<PathBuf>>,
    crops: Option<Crops>,
    labels: Option<YoloLabels>,
    /// A unique name for each image.
    stems: Vec<String>,
    sheet: ContactSheet,
    report: Report,
    annotator: Annotator,
    progress: Rc<Progress>,
}

impl ImageRun<'_> {
    /// Of several images, one that cannot be read is reported and the others are processed.
    fn detect_all(&mut self, detector: &mut Detector, files: &[PathBuf]) -> anyhow::Result<()> {
        let progress = Rc::clone(&self.progress);
        let (mut failed, mut first) = (0, Some(progress.first_image()));
        let stop_if_interrupted = |number: usize| {
            interrupted().inspect_err(|_| {
                progress.status(&format!("interrupted: {number} of {} images are done", files.len()));
            })
        };
        let mut finish =
            |job: &mut Self, number: usize, outcome: ocelli::Result<(SearchedImage, Detections)>| {
                first = None;
                match outcome {
                    Ok((searched, found)) => {
                        job.present(number, &files[number], searched, &found)?;
                    }
                    Err(e) if files.len() > 1 && e.kind() != ErrorKind::Cancelled => {
                        failed += 1;
                        progress.error(&e);
                    }
                    Err(e) => return Err(anyhow::Error::from(e)),
                }
                progress.step();
                Ok(())
            };
        match self.embedded.clone().filter(|_| self.args.low_memory) {
            Some(embedded) => {
                let mut number = 0;
                while number < files.len() {
                    let mut images = files[number..].iter().map_while(|file| {
                        progress.message(&file.to_string_lossy());
                        interrupted().ok().map(|()| opened(file, Image::open))
                    });
                    for found in detector.detect_group(&mut images, &embedded) {
                        stop_if_interrupted(number)?;
                        let file = &files[number];
                        // Read again, as the images of a group would take more memory than their features.
                        let outcome = opened(file, Image::open)
                            .and_then(|image| Ok((image.into(), found.map_err(|e| e.at(file))?)));
                        finish(self, number, outcome)?;
                        number += 1;
                    }
                    stop_if_interrupted(number)?;
                }
            }
            None => {
                for (number, file) in files.iter().enumerate() {
                    stop_if_interrupted(number)?;
                    progress.message(&file.to_string_lossy());
                    let outcome = self.detect(detector, file);
                    finish(self, number, outcome)?;
                }
            }
        }
        let empty = self.report.images.iter().filter(|image| image.detections.is_empty()).count();
        if self.prints_tables() && files.len() > 1 && empty > 0 {
            progress.status(&format!("nothing found in {empty} of {} images", self.report.images.len()));
        }
        match failed {
            0 => Ok(()),
            _ => anyhow::bail!("{failed} of {} images failed: see above", files.len()),
        }
    }

    /// Detects in one image. One that is searched in tiles stays in the file, unless something is drawn into it or cut out
    /// of it.
    fn detect(&self, detector: &mut Detector, file: &Path) -> ocelli::Result<(SearchedImage, Detections)> {
        if let Some(embedded) = self.embedded.as_ref().filter(|_| self.stays_in_file(detector)) {
            let mut tiled = opened(file, TiledImage::open)?;
            let found = detector.detect_regions(&mut tiled, embedded).map_err(|e| named(e, file))?;
            return Ok((SearchedImage { size: tiled.size(), image: None }, found));
        }
        let image = opened(file, Image::open)?;
        let found = match &self.embedded {
            _ if !self.objects.is_empty() => clicks::segment(detector, &image, &self.objects, self.args),
            Some(embedded) => detector.detect_embedded(&image, embedded),
            None => detector.detect(&image, &self.prompts),
        };
        Ok((image.into(), found.map_err(|e| e.at(file))?))
    }

    /// True if images are searched in tiles, and nothing is drawn into them or cut out of them.
    fn stays_in_file(&self, detector: &Detector) -> bool {
        let needs_pixels = self.outputs.is_some() || self.args.sheet.is_some() || self.crops.is_some();
        detector.tiling().is_some() && !needs_pixels
    }

    /// `true` if stdout has the tables and not the JSON.
    fn prints_tables(&self) -> bool {
        !self.args.json.as_deref().is_some_and(is_stdout)
    }

    /// Prints the table, writes the files of one image and adds it to the report.
    fn present(
        &mut self,
        number: usize,
        file: &Path,
        SearchedImage { size, image }: SearchedImage,
        found: &Detections,
    ) -> anyhow::Result<()> {
        let report = ImageReport::new(file, size, found);
        // Of many images, those without anything are counted at the end.
        if self.prints_tables() && (self.stems.len() == 1 || !report.detections.is_empty()) {
            self.progress.suspend(|| print(|out| write_table(out, &report, MOST_ROWS)))?;
        }
        if let Some(folder) = &self.args.semantic {
            for path in write_maps(folder, &self.stems[number], &found.semantic)? {
                self.progress.status(&format!("→ {}", path.display()));
            }
        }
        if let Some(labels) = &self.labels {
            labels.write_labels(&self.stems[number], size, &found.items)?;
        }
        self.report.images.push(report);
        match image {
            Some(image) => self.draw(number, image, found),
            None => Ok(()),
        }
    }

    /// Writes what has pixels of the image.
    fn draw(&mut self, number: usize, image: Image, found: &Detections) -> anyhow::Result<()> {
        let image = match &self.redaction {
            Some(redaction) => {
                let mut pixels = image.into_rgb_image();
                redaction.apply_to_detections(&mut pixels, &found.items);
                pixels.into()
            }
            None => image,
        };
        if let Some(crops) = &mut self.crops {
            crops.write_detections(&image, &self.stems[number], &found.items)?;
        }
        if self.outputs.is_some() || self.args.sheet.is_some() {
            let mut annotated = image.into_rgb_image();
            self.annotator.annotate(&mut annotated, &found.items)?;
            let annotated = Image::from(annotated);
            if let Some(outputs) = &self.outputs {
                let path = &outputs[number];
                write_image(path, &annotated)?;
                self.progress.status(&format!("→ {}", path.display()));
            }
            if self.args.sheet.is_some() {
                self.sheet.add(&annotated)?;
            }
        }
        Ok(())
    }

    /// Writes the results that cover all images.
    fn write_summaries(&self) -> anyhow::Result<()> {
        if let Some(path) = &self.args.sheet {
            self.sheet.write(path)?;
            status(format!("→ {}", path.display()));
        }
        let json = self.args.json.as_deref();
        json.map_or(Ok(()), |path| save_json(path, &self.report))
    }
}
