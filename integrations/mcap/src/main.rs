//! `ocelli-mcap`: open-vocabulary detection in recordings of ROS 2 topics.

mod detect;
mod recording;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use ocelli::EngineKind;
use tracing_subscriber::EnvFilter;

/// Open-vocabulary detection in recordings of ROS 2 topics (MCAP)
#[derive(Parser)]
#[command(version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Detect in the images of a topic, and write the detections as a topic, too
    Detect(Box<DetectArgs>),
    /// List the topics of a recording
    Topics {
        /// The recording
        file: PathBuf,
    },
}

/// What to detect, in which recording.
#[derive(Args)]
pub struct DetectArgs {
    /// The recording
    pub file: PathBuf,
    /// The topic of the images, sensor_msgs/Image or CompressedImage [default: the only one of the recording]
    #[arg(long, value_name = "TOPIC")]
    pub topic: Option<String>,
    /// Words or phrases to search for
    #[arg(long, num_args = 1.., required = true, value_name = "CLASS")]
    pub classes: Vec<String>,
    /// The recording to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// The topic of the detections, vision_msgs/Detection2DArray
    #[arg(long, value_name = "TOPIC", default_value = "/detections")]
    pub detections: String,
    /// Write everything else of the recording, too
    #[arg(long)]
    pub copy: bool,
    /// Least score, 0 to 1 [default: the model's]
    #[arg(long, value_name = "SCORE")]
    pub confidence: Option<f32>,
    /// Folder of the model
    #[arg(long, value_name = "FOLDER", default_value = "built-in")]
    pub model: PathBuf,
    /// The engine
    #[arg(long, default_value = "auto")]
    pub engine: EngineKind,
    /// Threads of engines on the CPU [default: one for each core]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Do not track objects from image to image
    #[arg(long)]
    pub no_track: bool,
    /// The camera's images per second, for the tracker [default: each image is one frame]
    #[arg(long, value_name = "HZ")]
    pub frame_rate: Option<f64>,
    /// Write masks as a topic, too: sensor_msgs/Image
    #[arg(long, value_name = "TOPIC")]
    pub masks: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("ocelli=info,ocelli_mcap=info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let result = match arguments.command {
        Command::Detect(arguments) => detect::run(&arguments),
        Command::Topics { file } => recording::list(&file, &mut std::io::stdout()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
