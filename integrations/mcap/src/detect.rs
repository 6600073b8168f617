//! Detects in the images of a recording.

use std::collections::BTreeSet;
use std::io::{Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use ocelli::atomic_file::write_atomically;
use ocelli::{FrameView, ModelSource, pipeline::FrameOutcome};
use ocelli_robot::messages::{CompressedImage, Detection2DArray, Header, Image, RosMessage};
use ocelli_robot::{LiveDetector, Settings, camera, cdr, detection_array, instance_image};

use crate::DetectArgs;
use crate::recording::{self, Recording};

/// # Errors
/// For a recording that cannot be read or written, a topic that is not one of images, and what a detector returns.
pub fn run(arguments: &DetectArgs) -> anyhow::Result<()> {
    if same_file(&arguments.file, &arguments.output) {
        bail!("{} is the recording itself: expected another file to write", arguments.output.display());
    }
    let topic = match &arguments.topic {
        Some(topic) => topic.clone(),
        None => only_topic(&arguments.file)?,
    };
    let mut detector = LiveDetector::new(Settings {
        classes: arguments.classes.clone(),
        confidence: arguments.confidence,
        engine: arguments.engine,
        model: ModelSource::named(&arguments.model),
        threads: arguments.threads,
        masks: arguments.masks.is_some(),
        track: !arguments.no_track,
        frame_rate: arguments.frame_rate,
    })?;
    tracing::info!("engine: {}", detector.engine());
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed)).context("cannot handle signals")?;

    let mut failure = None;
    let written = write_atomically(&arguments.output, |file| {
        convert(arguments, &topic, &mut detector, &stop, file).map_err(|error| {
            failure = Some(error);
            std::io::Error::other("not completed")
        })
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    let (frames, found) = written?;
    tracing::info!("{frames} images, {found} detections: {}", arguments.output.display());
    Ok(())
}

/// Writes the recording; returns the number of images and that of detections.
fn convert(
    arguments: &DetectArgs,
    topic: &str,
    detector: &mut LiveDetector,
    stop: &AtomicBool,
    file: impl Write + Seek,
) -> anyhow::Result<(u64, usize)> {
    let mut output = Recording::new(file)?;
    let detections = output.topic::<Detection2DArray>(&arguments.detections)?;
    let masks = arguments.masks.as_deref().map(|topic| output.topic::<Image>(topic)).transpose()?;
    let (mut frames, mut found, mut converted) = (0, 0, Vec::new());
    for message in recording::open(&arguments.file)? {
        let message = message
            .with_context(|| format!("cannot read {} after {frames} images", arguments.file.display()))?;
        if stop.load(Ordering::Relaxed) {
            bail!("interrupted after {frames} images; {} was not written", arguments.output.display());
        }
        if arguments.copy {
            output.copy(&message)?;
        }
        if message.channel.topic != topic {
            continue;
        }
        let (header, outcome) = detect(detector, &message, &mut converted)
            .with_context(|| format!("{}, message {frames} of {topic}", arguments.file.display()))?;
        output.write(detections, &message, &detection_array(&outcome, &header))?;
        if let Some(masks) = masks {
            output.write(masks, &message, &instance_image(&outcome, &header))?;
        }
        frames += 1;
        found += outcome.detections.len();
    }
    if frames == 0 {
        bail!("{} has no message on {topic}: see ocelli-mcap topics", arguments.file.display());
    }
    output.finish()?;
    Ok((frames, found))
}

fn detect(
    detector: &mut LiveDetector,
    message: &mcap::Message<'_>,
    converted: &mut Vec<u8>,
) -> anyhow::Result<(Header, FrameOutcome)> {
    let kind = message.channel.schema.as_ref().map_or("", |schema| &schema.name);
    if message.channel.message_encoding != "cdr" {
        bail!("messages in {:?}: expected cdr, as ROS 2 writes them", message.channel.message_encoding);
    }
    if kind == Image::full_name() {
        let image: Image = cdr::from_bytes(&message.data)?;
        let pixels = camera::Pixels {
            encoding: &image.encoding,
            width: image.width,
            height: image.height,
            step: image.step as usize,
            data: &image.data,
            timestamp: image.header.stamp.since_start(),
        };
        let outcome = detector.detect(camera::view(pixels, converted)?)?;
        Ok((image.header, outcome))
    } else if kind == CompressedImage::full_name() {
        let file: CompressedImage = cdr::from_bytes(&message.data)?;
        let image = ocelli::Image::decode(&file.data, "the image")?;
        let timestamp = file.header.stamp.since_start();
        let outcome = detector.detect(FrameView { timestamp, ..(&image).into() })?;
        Ok((file.header, outcome))
    } else {
        bail!(
            "messages of the type {kind:?}: expected {} or {}",
            Image::full_name(),
            CompressedImage::full_name()
        )
    }
}

/// The topic of images of a recording, if there is one only.
fn only_topic(file: &Path) -> anyhow::Result<String> {
    let kinds = [Image::full_name(), CompressedImage::full_name()];
    let mut topics = BTreeSet::new();
    for message in recording::open(file)? {
        let channel = message.with_context(|| format!("cannot read {}", file.display()))?.channel;
        if channel.schema.as_ref().is_some_and(|schema| kinds.contains(&schema.name)) {
            topics.insert(channel.topic.clone());
        }
    }
    let found = topics.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    match topics.pop_first() {
        Some(topic) if topics.is_empty() => Ok(topic),
        Some(_) => bail!("{} has several topics of images, {found}: name one with --topic", file.display()),
        None => bail!("{} has no topic of images: see ocelli-mcap topics", file.display()),
    }
}

fn same_file(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}
