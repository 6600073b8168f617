//! `ocelli coco`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, FromArgMatches};
use ocelli_datasets::eval::Protocol;

use super::{eval, video};
use crate::args::{DETECTION, INPUT, MODEL, OUTPUT, PERFORMANCE, ScreenArgs};
use crate::given::{first_given, given_arguments};
use crate::matches::{line, matches_of};
use crate::{LogArgs, ModelArgs, usage};

/// Arguments of `ocelli coco`. Each is an option of `ocelli eval` or `ocelli video`, under the same name.
#[derive(Args, Debug)]
#[command(override_usage = "\
ocelli coco --coco <DIR> [OPTIONS]
       ocelli coco --images <DIR> --annotations <FILE> [OPTIONS]
       ocelli coco --video <SOURCE> [OPTIONS]")]
#[command(after_help = include_str!("../help/coco.txt"))]
pub struct CocoArgs {
    /// COCO's folder as it unpacks: evaluate val2017
    #[arg(long, value_name = "DIR", conflicts_with_all = ["images", "annotations", "video"], help_heading = INPUT)]
    coco: Option<PathBuf>,
    /// Folder of the annotated images
    #[arg(long, value_name = "DIR", requires = "annotations", conflicts_with = "video", help_heading = INPUT)]
    images: Option<PathBuf>,
    /// Ground truth: COCO annotations
    #[arg(long, value_name = "FILE", requires = "images", help_heading = INPUT)]
    annotations: Option<PathBuf>,
    /// Detect in videos, cameras or streams, as `ocelli video` takes them
    #[arg(long, aliases = ["source", "input"], num_args = 1.., value_name = "SOURCE", help_heading = INPUT)]
    video: Vec<String>,
    /// Read at most N images or frames
    #[arg(long, alias = "max-images", value_name = "N", help_heading = INPUT)]
    max_frames: Option<u64>,
    /// Which detections count in an evaluation: practical or dart
    #[arg(long, value_name = "NAME", conflicts_with = "video", help_heading = DETECTION)]
    protocol: Option<Protocol>,
    /// Score threshold, 0 to 1: of detections in videos, of precision and recall in an evaluation [default: 0.3]
    #[arg(long, alias = "conf", value_name = "SCORE", help_heading = DETECTION)]
    confidence: Option<f32>,
    /// Masks as well
    #[arg(long, help_heading = DETECTION)]
    masks: bool,
    /// Track instances from frame to frame
    #[arg(long, requires = "video", help_heading = DETECTION)]
    track: bool,
    #[command(flatten)]
    screen: ScreenArgs,
    /// Video or images to write
    #[arg(long, short, value_name = "PATH", requires = "video", help_heading = OUTPUT)]
    output: Option<PathBuf>,
    /// Detections and tracks of the video as JSON lines; - is stdout
    #[arg(long, value_name = "FILE", requires = "video", help_heading = OUTPUT)]
    jsonl: Option<PathBuf>,
    /// All figures of the evaluation as JSON; - is stdout and replaces the table
    #[arg(long, value_name = "FILE", conflicts_with = "video", help_heading = OUTPUT)]
    json: Option<PathBuf>,
    /// Print a row per class as well
    #[arg(long, conflicts_with = "video", help_heading = OUTPUT)]
    per_class: bool,
    #[command(flatten)]
    model: ModelArgs,
    /// Side of the model's square input in pixels [default: the model's]
    #[arg(long, alias = "img-size", value_name = "PIXELS", help_heading = MODEL)]
    imgsz: Option<usize>,
    /// Classes decoded at once: more is faster and takes more memory [default: 4]
    #[arg(long, value_name = "N", help_heading = MODEL)]
    class_chunk: Option<usize>,
    /// Detect at most K classes per frame of a video: visible classes in every frame, the others in turn [default: all]
    #[arg(long, value_name = "K", requires = "video", help_heading = PERFORMANCE)]
    class_budget: Option<usize>,
}

/// Evaluates COCO's classes, or detects them in a video.
pub fn run(args: &CocoArgs) -> anyhow::Result<()> {
    let given = given_arguments(&[]);
    if !args.video.is_empty() {
        let of_coco = std::iter::once(OsString::from("--coco"));
        return video::run(&parsed("video", of_coco.chain(given))?);
    }
    if args.coco.is_none() && args.annotations.is_none() {
        refuse!("nothing to do: name COCO's folder with --coco, --images and --annotations, or --video");
    }
    // clap does not ask for --video where --coco, which excludes it, is given.
    if let Some(flag) = first_given(["track", "output", "jsonl", "class_budget"]) {
        refuse!("{flag} is an option of --video: leave it out, or name a video");
    }
    eval::run(&parsed("eval", given.into_iter())?)
}

/// The arguments of another command.
fn parsed<A: Args + FromArgMatches>(
    name: &'static str,
    arguments: impl Iterator<Item = OsString>,
) -> anyhow::Result<A> {
    let command = LogArgs::augment_args(A::augment_args(clap::Command::new(name)));
    let all = std::iter::once(name.into()).chain(arguments).collect();
    let matches = matches_of(command, all).map_err(|mistake| usage(line(&mistake)))?;
    Ok(A::from_arg_matches(&matches)?)
}
