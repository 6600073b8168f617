//! The node that sends frames.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Args;
use dora_node_api::arrow_v59::array::{ArrayRef, LargeBinaryArray, StringArray, StructArray, UInt32Array};
use dora_node_api::{DoraArray, Event, EventStream, MetadataParameters, Parameter};
use ocelli::image::has_image_extension;
use ocelli::source::{
    ImageFiles, InputOptions, StreamTimeouts, natural_order, open_camera, open_stream, open_video,
};
use ocelli::{Cancellation, Frame, Source};

/// The metadata of a frame: its index, its time since the start of the source, the time at which a live one was taken, both in
/// nanoseconds, and its file.
pub const FRAME: &str = "frame";
/// See [`FRAME`].
pub const TIME: &str = "time_ns";
/// See [`FRAME`].
pub const WALL_TIME: &str = "wall_time_ns";
/// See [`FRAME`].
pub const FILE: &str = "file";

/// Interval in which a source that waits looks for the end of the dataflow.
const TURN: Duration = Duration::from_millis(50);

/// Which frames to send.
#[derive(Args)]
pub struct SourceArgs {
    /// A video, a URL, the number of a camera, an image, or a folder of images
    source: String,
    /// Images per second
    #[arg(long, value_name = "HZ", default_value_t = 30.0)]
    frame_rate: f64,
    /// Start over at the end
    #[arg(long)]
    repeat: bool,
}

/// Sends the frames of a source, recorded ones at their pace, until they or the dataflow end.
///
/// # Errors
/// If the source cannot be opened or read.
pub fn run(arguments: &SourceArgs) -> anyhow::Result<()> {
    // Before it joins: a source that is not there is known at once.
    let mut source = open(arguments)?;
    let (mut node, mut events) = crate::join()?;
    let (mut frame, mut sent) = (Frame::default(), 0);
    let mut started = Instant::now();
    loop {
        if !source.read_into(&mut frame)? {
            if !arguments.repeat || sent == 0 {
                break;
            }
            source = open(arguments)?;
            started = Instant::now();
            continue;
        }
        let due = if source.info().live { Duration::ZERO } else { frame.time };
        if ends_before(&mut events, started + due) {
            break;
        }
        let metadata = metadata(&frame, sent, source.info().live);
        node.send_output("image".into(), metadata, image(&frame)?).context("cannot send an image")?;
        sent += 1;
    }
    crate::leave(node);
    tracing::info!("{sent} frames: {}", source.info().name);
    Ok(())
}

fn open(arguments: &SourceArgs) -> anyhow::Result<Box<dyn Source>> {
    let (name, path) = (&arguments.source, Path::new(&arguments.source));
    if let Ok(camera) = name.parse() {
        return Ok(open_camera(camera, &InputOptions::default())?);
    }
    if name.contains("://") {
        let (timeouts, options) = (StreamTimeouts::default(), InputOptions::default());
        return Ok(open_stream(name, None, timeouts, &options, Cancellation::new())?);
    }
    let files = if path.is_dir() {
        let entries = std::fs::read_dir(path).with_context(|| format!("cannot read {name}"))?;
        let files: std::io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
        let mut files = files.with_context(|| format!("cannot read {name}"))?;
        files.retain(|file| has_image_extension(file));
        natural_order(&mut files);
        files
    } else if has_image_extension(path) {
        vec![path.to_owned()]
    } else {
        return Ok(open_video(path)?);
    };
    Ok(Box::new(ImageFiles::new(name, files, arguments.frame_rate)?))
}

/// Waits for the time; returns whether the dataflow ends before.
fn ends_before(events: &mut EventStream, due: Instant) -> bool {
    loop {
        match events.try_recv() {
            Ok(Event::Stop(_)) => return true,
            Ok(Event::Error(error)) => tracing::warn!("{error}"),
            _ => {}
        }
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        std::thread::sleep(left.min(TURN));
    }
}

/// The frame as `std/media/v1/Image`.
fn image(frame: &Frame) -> anyhow::Result<DoraArray> {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("width", Arc::new(UInt32Array::from(vec![frame.image.width()]))),
        ("height", Arc::new(UInt32Array::from(vec![frame.image.height()]))),
        ("encoding", Arc::new(StringArray::from(vec!["rgb8"]))),
        ("data", Arc::new(LargeBinaryArray::from_vec(vec![frame.image.as_rgb8()]))),
    ];
    Ok(DoraArray::from_array(StructArray::try_from(columns)?))
}

fn metadata(frame: &Frame, sent: i64, live: bool) -> MetadataParameters {
    let nanoseconds = |time: Duration| Parameter::Integer(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX));
    let mut metadata = MetadataParameters::from([
        (FRAME.to_owned(), Parameter::Integer(sent)),
        (TIME.to_owned(), nanoseconds(frame.time)),
    ]);
    if live {
        let taken = frame.captured.unwrap_or_else(SystemTime::now);
        let taken = taken.duration_since(UNIX_EPOCH).unwrap_or_default();
        metadata.insert(WALL_TIME.to_owned(), nanoseconds(taken));
    }
    if let Some(file) = &frame.file {
        metadata.insert(FILE.to_owned(), Parameter::String(file.display().to_string()));
    }
    metadata
}
