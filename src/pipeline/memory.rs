//! Tracking by the model's memory of the objects, in place of boxes.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use ocelli_tracking::masklets::{MaskletOptions, VideoShape};

use super::job::Job;
use super::stage_loop::StageLoop;
use crate::masklets::{GivenObject, MaskletNetwork, Sessions, TrackedFrame};
use crate::threads::Stage;
use ocelli_error::{Error, Result, refuse};

/// The network and the options for objects that are followed by memory.
pub(super) struct Memory {
    pub(super) network: MaskletNetwork,
    pub(super) options: MaskletOptions,
    /// Objects in place of detections.
    pub(super) given: Option<Vec<GivenObject>>,
}

/// Follows the objects of each source with sessions of its own. Frames come in order, and leave in order, some of them later.
pub(super) struct MemoryStage {
    network: MaskletNetwork,
    options: MaskletOptions,
    labels: Arc<[Arc<str>]>,
    /// Objects that are given, by frame; those of frames that have come are taken out.
    given: Option<BTreeMap<u64, Vec<GivenObject>>>,
    /// The labels of objects that are given.
    classes: BTreeMap<u64, usize>,
    streams: BTreeMap<usize, Stream>,
    shared: Arc<StageLoop>,
}

/// A source.
struct Stream {
    sessions: Sessions,
    /// Width and height of the frames.
    size: (u32, u32),
    /// The frames that are held back.
    held: VecDeque<Job>,
    /// Number of frames that have left.
    count: usize,
    /// The first frame of each object, and how many it was in.
    seen: BTreeMap<u64, (usize, u32)>,
}

impl MemoryStage {
    pub(super) fn new(memory: Memory, labels: Arc<[Arc<str>]>, shared: Arc<StageLoop>) -> Self {
        let Memory { network, options, given } = memory;
        let mut classes = BTreeMap::new();
        let given = given.map(|objects| {
            let mut frames = BTreeMap::<u64, Vec<GivenObject>>::new();
            for object in objects {
                classes.entry(u64::from(object.id)).or_insert(object.class_id);
                frames.entry(object.frame).or_default().push(object);
            }
            frames
        });
        Self { network, options, labels, given, classes, streams: BTreeMap::new(), shared }
    }

    /// Tracks a frame, or ends all streams. Frames that leave are added to `done`; after an error these are all that were
    /// tracked before.
    pub(super) fn run(&mut self, job: Option<Job>, done: &mut Vec<Job>) -> Result<()> {
        let is_end = job.is_none();
        let tracked = job.map_or(Ok(()), |job| self.track(job, done));
        if is_end || tracked.is_err() {
            for stream in self.streams.values_mut() {
                let shown = stream.sessions.finish()?;
                stream.leave(shown, &self.classes, done)?;
            }
        }
        tracked?;
        if is_end { self.check_given() } else { Ok(()) }
    }

    fn track(&mut self, mut job: Job, done: &mut Vec<Job>) -> Result<()> {
        let start = Instant::now();
        let Self { network, options, labels, given, classes, streams, shared } = self;
        let Job { outcome, masks, .. } = &mut job;
        let (index, size) = (outcome.index, outcome.size);
        if given.is_some() && outcome.origin.is_some() {
            refuse!("objects are given on frames of one source: expected one source");
        }
        let stream = match streams.entry(outcome.source_number()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let video = VideoShape { frames: None, width: size.0 as usize, height: size.1 as usize };
                let classes = given.is_none().then_some(labels.len());
                new.insert(Stream {
                    sessions: Sessions::new(network, classes, video, *options)?,
                    size,
                    held: VecDeque::new(),
                    count: 0,
                    seen: BTreeMap::new(),
                })
            }
        };
        if stream.size != size {
            let ((old_width, old_height), (width, height)) = (stream.size, size);
            refuse!(
                "frame {index}: it has {width}×{height} pixels, the frames before {old_width}×{old_height}; a tracker needs \
                 frames of one size"
            );
        }
        let objects = given.as_mut().and_then(|given| given.remove(&index));
        let objects: Vec<_> = objects.iter().flatten().map(GivenObject::prompt).collect();
        let pushed = match masks {
            Some(frame) => stream.sessions.push(network, frame, &objects),
            // Nothing moves.
            None => stream.sessions.repeat(),
        };
        let of_frame = |error: Error| Error::new(error.kind(), format!("frame {index}: {error}"));
        let shown = if objects.is_empty() { pushed? } else { pushed.map_err(of_frame)? };
        outcome.labels = labels.clone();
        masks.take().into_iter().for_each(|frame| shared.buffers.masks[job.device].give(frame));
        // What is held back does not hold up other frames.
        job.ticket = None;
        stream.held.push_back(job);
        stream.leave(shown, classes, done)?;
        shared.stats.stage(Stage::Track, start.elapsed());
        Ok(())
    }

    /// Checks that each object was given on a frame that came.
    fn check_given(&self) -> Result<()> {
        let late = self.given.as_ref().and_then(|given| given.first_key_value());
        let Some((frame, objects)) = late.filter(|_| !self.shared.is_stopping()) else { return Ok(()) };
        let id = objects.first().map_or(0, |object| u64::from(object.id) + 1);
        refuse!("frame {frame}, where object {id} is given, is not among the frames that were read")
    }
}

impl Stream {
    /// Adds to the frames that leave what is shown of them.
    fn leave(
        &mut self,
        shown: Vec<TrackedFrame>,
        classes: &BTreeMap<u64, usize>,
        done: &mut Vec<Job>,
    ) -> Result<()> {
        for mut shown in shown {
            let Some(mut job) = self.held.pop_front() else { break };
            for object in &mut shown.objects {
                object.class_id = classes.get(&object.id).copied().unwrap_or(object.class_id);
            }
            let (frame, seen) = (self.count, &mut self.seen);
            self.count += 1;
            shown.retracted.retain(|id| seen.contains_key(id));
            shown.add_to(&mut job.outcome, |id| {
                let (first, hits) = seen.entry(id).or_insert((frame, 0));
                *hits += 1;
                (frame - *first, *hits)
            })?;
            done.push(job);
        }
        Ok(())
    }
}
