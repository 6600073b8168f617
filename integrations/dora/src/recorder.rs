//! The node that writes results.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context;
use dora_node_api::{Event, MetadataParameters, get_integer_param, get_string_param};
use ocelli::pipeline::FrameOutcome;
use ocelli::sink::{JsonLines, McapFile, Sink};

use crate::detector::IMAGE_TIME;
use crate::objects;
use crate::source::{FILE, FRAME, TIME, WALL_TIME};

/// Writes the results of the input `objects` until the dataflow ends.
///
/// # Errors
/// If the file cannot be written, and for messages that are not results.
pub fn run(file: &Path) -> anyhow::Result<()> {
    let mut sink: Box<dyn Sink> = match file.extension() {
        Some(extension) if extension == "mcap" => Box::new(McapFile::create(file)?),
        _ => {
            let mut lines = JsonLines::create(file)?;
            lines.begin()?;
            Box::new(lines)
        }
    };
    let (_node, mut events) = crate::join()?;
    let (mut frames, mut start) = (0, None);
    while let Some(event) = events.recv() {
        match event {
            Event::Input { id, metadata, data } if id.as_str() == "objects" => {
                let mut outcome = objects::read(data.as_array())?;
                place(&mut outcome, &metadata.parameters, frames, &mut start);
                sink.write(&outcome)?;
                frames += 1;
            }
            Event::Input { id, .. } => tracing::warn!("no use for the input {id}: expected objects"),
            Event::Error(error) => tracing::warn!("{error}"),
            _ => {}
        }
    }
    sink.finish().with_context(|| format!("cannot complete {}", file.display()))?;
    tracing::info!("{frames} frames: {}", file.display());
    Ok(())
}

/// Sets when and where a frame was taken by its metadata: those of our source, or the time at which any other camera has sent
/// it.
fn place(
    outcome: &mut FrameOutcome,
    metadata: &MetadataParameters,
    frames: u64,
    start: &mut Option<Duration>,
) {
    let time = |name| {
        let nanoseconds = get_integer_param(metadata, name).and_then(|time| u64::try_from(time).ok());
        nanoseconds.map(Duration::from_nanos)
    };
    let index = get_integer_param(metadata, FRAME).and_then(|index| u64::try_from(index).ok());
    outcome.index = index.unwrap_or(frames);
    outcome.file = get_string_param(metadata, FILE).map(|file| Arc::from(Path::new(file)));
    match (time(TIME), time(IMAGE_TIME)) {
        (Some(recorded), _) => {
            outcome.time = recorded;
            outcome.captured = time(WALL_TIME).map(|time| UNIX_EPOCH + time);
        }
        (None, Some(sent)) => {
            outcome.time = sent.saturating_sub(*start.get_or_insert(sent));
            outcome.captured = Some(UNIX_EPOCH + sent);
        }
        (None, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use dora_node_api::Parameter;

    use super::*;

    #[test]
    fn frames_have_the_times_of_their_source_or_of_the_camera() {
        let metadata = |values: &[(&str, i64)]| -> MetadataParameters {
            values.iter().map(|(name, value)| ((*name).to_owned(), Parameter::Integer(*value))).collect()
        };
        let mut start = None;
        let mut placed = |values: &[(&str, i64)]| {
            let mut outcome = FrameOutcome::default();
            place(&mut outcome, &metadata(values), 5, &mut start);
            (outcome.index, outcome.time.as_nanos(), outcome.captured.is_some())
        };
        assert_eq!(placed(&[(FRAME, 9), (TIME, 30), (IMAGE_TIME, 1000)]), (9, 30, false));
        assert_eq!(placed(&[(FRAME, 9), (TIME, 30), (WALL_TIME, 1000)]), (9, 30, true));
        assert_eq!(placed(&[(IMAGE_TIME, 1000)]), (5, 0, true));
        assert_eq!(placed(&[(IMAGE_TIME, 1500)]), (5, 500, true));
        assert_eq!(placed(&[]), (5, 0, false));
    }
}
