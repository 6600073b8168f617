//! `--memory`: objects with masks that keep their identity.

use ocelli::draw::Redaction;
use ocelli::masklets::{MaskStream, MaskTracker};
use ocelli::tracking::ByteTracker;
use ocelli::{Cancellation, Detector, Sink, Source, pipeline::RunSummary};

use super::{Job, Wanted};

/// Follows the objects of a source.
pub fn run(
    job: &Job<'_>,
    (detector, more): (Detector, Vec<Detector>),
    wanted: Wanted,
    redaction: Option<Redaction>,
    source: impl Source,
    sinks: &mut [Box<dyn Sink + '_>],
    cancellation: &Cancellation,
) -> anyhow::Result<RunSummary> {
    let mut options = MaskTracker::options(detector.model());
    if let Some(score) = job.args.detector.confidence {
        options.detection_threshold = score;
        options.new_object_threshold = score;
    }
    options.holds_back = !job.args.no_hotstart;
    if let Some(objects) = job.args.max_objects {
        options.max_objects = objects.get();
    }
    let stream = match wanted {
        Wanted::Prompts(prompts) => MaskStream::new(detector, prompts, options)?,
        Wanted::Objects(labels, objects) => MaskStream::of_objects(detector, labels, objects, options)?,
    };
    let mut stream = stream
        .with_more_devices(more)?
        .with_sequential(job.args.sequential)
        .with_cancellation(cancellation.clone())
        .with_stats(job.stats.clone())
        .with_drawing(job.drawing())
        .with_observer(job.observer());
    if job.args.track {
        stream = stream.with_comparison(ByteTracker::builder().options(job.args.tracker.options()?).build()?);
    }
    if let Some(redaction) = redaction {
        stream = stream.with_redaction(redaction);
    }
    Ok(stream.run(source, sinks)?)
}
