//! A session: prompts, runs through the video, and what they show.

mod objects;

use crate::masklets::bank::Course;
use crate::masklets::current::Current;
use crate::masklets::history::{Action, Propagation, next_propagation};
use crate::masklets::network::MaskNetwork;
use crate::masklets::output::{FrameOutput, ShownFrame};
use crate::masklets::requests::{DetectorPrompt, Retention, RunDirection, StreamObject, VideoShape};
use crate::masklets::run::{Order, Run, Step};
use crate::masklets::tracks::Tracks;
use crate::masklets::{FrameReport, LifeCycle, MaskletOptions, ObjectId};
use ocelli_error::{Result, refuse};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The score of an object on a frame on which it is given as a mask.
const GIVEN_SCORE: f32 = 1.0;

/// A video in which objects are found and followed.
///
/// [`prompt`](Self::prompt) starts it over. [`propagate`](Self::propagate) plans a run, and each [`advance`](Self::advance)
/// processes one frame of it and returns the frames that leave the hotstart buffer. Clicks and removals come between runs, or
/// between the frames of one. A session without a prompt follows the objects that are clicked or given as masks: nothing is
/// detected, held back or removed as false. After an error of the network the session has to be prompted again.
#[derive(Clone, Debug)]
pub struct MaskletSession {
    video: VideoShape,
    retention: Retention,
    pub(super) tracks: Tracks,
    prompt: Option<(DetectorPrompt, usize)>,
    history: Vec<Action>,
    first_output: Option<usize>,
    cache: BTreeMap<usize, FrameOutput>,
    /// Masks that the user gave, as run lengths at the size of the video, by frame and object.
    given: BTreeMap<(usize, ObjectId), Vec<u32>>,
    planned: VecDeque<Planned>,
    run: Option<Run>,
    /// The first frame that was not forgotten.
    first_kept: usize,
    /// The first frame that the video had not when it was prompted.
    first_appended: Option<usize>,
}

/// A run that has not begun.
#[derive(Clone, Copy, Debug)]
struct Planned {
    is_reverse: bool,
    start: Option<usize>,
    max_frames: Option<usize>,
}

impl MaskletSession {
    /// A session without a prompt.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if an option is out of range, or the video
    /// has no pixels or no frames.
    pub fn new(video: VideoShape, retention: Retention, options: MaskletOptions) -> Result<Self> {
        options.validate()?;
        let VideoShape { width, height, frames } = video;
        if width == 0 || height == 0 || frames == Some(0) {
            refuse!("a video of {width} × {height} pixels with {frames:?} frames: expected some");
        }
        Ok(Self::without_objects(video, retention, options))
    }

    fn without_objects(video: VideoShape, retention: Retention, options: MaskletOptions) -> Self {
        Self {
            video,
            retention,
            tracks: Tracks::new(options, [video.width, video.height]),
            prompt: None,
            history: Vec::new(),
            first_output: None,
            cache: BTreeMap::new(),
            given: BTreeMap::new(),
            planned: VecDeque::new(),
            run: None,
            first_kept: 0,
            first_appended: None,
        }
    }

    /// Forgets the prompt, all objects and all results.
    pub fn reset(&mut self) {
        let empty = Self::without_objects(self.video, self.retention, self.tracks.options);
        *self = Self { first_kept: self.first_kept, ..empty };
    }

    /// Changes the number of frames of a video that grows. A run that was planned before ends where it would have ended. The
    /// first run over a frame that was appended detects on it, whatever the run does on others.
    pub fn set_frame_count(&mut self, frames: usize) {
        let appended = self.video.frames.filter(|before| *before < frames);
        self.first_appended = self.first_appended.or(appended);
        self.video.frames = Some(frames);
    }

    /// Forgets the frames before this one, but what runs over the others may read of them: at most
    /// [`conditioning_frames`](MaskletOptions::conditioning_frames) + [`memory_frames`](MaskletOptions::memory_frames) +
    /// [`click_window`](MaskletOptions::click_window) memories of each object (26). They cannot be clicked, shown or passed again.
    pub fn forget_before(&mut self, frame: usize) {
        if frame <= self.first_kept {
            return;
        }
        self.first_kept = frame;
        self.cache = self.cache.split_off(&frame);
        self.given = self.given.split_off(&(frame, 0));
        self.first_output = self.first_output.map(|first| first.max(frame));
        self.tracks.forget_before(frame, self.course(false));
        // What the next run does follows from the last two runs and what came after them.
        let is_run = |action: &Action| matches!(action, Action::Propagate { .. });
        let runs = self.history.iter().enumerate().rev().filter(|(_, action)| is_run(action));
        let first = runs.map(|(index, _)| index).nth(1);
        self.history.drain(..first.unwrap_or(0));
    }

    /// The ids of the objects that are tracked.
    pub fn objects(&self) -> Vec<ObjectId> {
        self.tracks.ids()
    }

    /// The objects that were removed as false.
    pub fn removed(&self) -> &BTreeSet<ObjectId> {
        &self.tracks.identities.removed
    }

    /// An id that no object ever had.
    pub fn next_object(&self) -> ObjectId {
        self.tracks.identities.next
    }

    /// The actions of the session since its prompt.
    pub fn history(&self) -> &[Action] {
        &self.history
    }

    /// The options.
    pub fn options(&self) -> &MaskletOptions {
        &self.tracks.options
    }

    /// Starts over with a prompt, and detects on one frame. A run passes that frame again.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the video has no such frame; errors of the
    /// network.
    pub fn prompt(
        &mut self,
        prompt: DetectorPrompt,
        frame: usize,
        network: &mut impl MaskNetwork,
    ) -> Result<Step> {
        self.check_frame(frame)?;
        self.reset();
        self.prompt = Some((prompt, frame));
        let (report, output) = self.process(&mut self.current(frame, false, network))?;
        let shown = self.show(&output)?;
        Ok(Step { frame, report: Some(report), banks: Vec::new(), shown: vec![shown] })
    }

    /// Plans a run, in place of a run that has not ended: from `start`, by default the first frame with results, over
    /// `max_frames` more frames, by default to the end of the video.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if there is no prompt or no such frame, or a
    /// live source should run backward.
    pub fn propagate(
        &mut self,
        direction: RunDirection,
        start: Option<usize>,
        max_frames: Option<usize>,
    ) -> Result<()> {
        let is_stream = self.retention == Retention::Window && self.prompt.is_none();
        if self.first_output.is_none() && !is_stream {
            refuse!("the session has no prompt: expected a prompt before a run");
        }
        start.map_or(Ok(()), |start| self.check_frame(start))?;
        let is_forward = direction == RunDirection::Forward;
        if self.video.frames.is_none() && !is_forward {
            refuse!("the video is a live source: expected a forward run");
        }
        let has_run = self.history.iter().any(|action| matches!(action, Action::Propagate { .. }));
        if self.retention == Retention::Window && (has_run || direction == RunDirection::Both) {
            refuse!("earlier frames were not kept: expected one run, or a session with Retention::Video");
        }
        self.run = None;
        let plan = |is_reverse| Planned { is_reverse, start, max_frames };
        self.planned = match direction {
            RunDirection::Forward => VecDeque::from([plan(false)]),
            RunDirection::Backward => VecDeque::from([plan(true)]),
            RunDirection::Both => VecDeque::from([plan(false), plan(true)]),
        };
        Ok(())
    }

    /// Processes the next frame of the run; `None` at its end.
    ///
    /// # Errors
    /// Errors of the network; [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if a partial run meets
    /// a frame without earlier results.
    pub fn advance(&mut self, network: &mut impl MaskNetwork) -> Result<Option<Step>> {
        self.advance_with(&[], network)
    }

    /// As [`advance`](Self::advance) in a session without a prompt, with objects that are clicked or given as masks on this
    /// frame, after the others were tracked: what a stream needs, whose frames are not passed again.
    ///
    /// # Errors
    /// As [`advance`](Self::advance), [`click`](Self::click) and [`add_mask`](Self::add_mask);
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the session has a prompt.
    pub fn advance_with(
        &mut self,
        prompts: &[StreamObject],
        network: &mut impl MaskNetwork,
    ) -> Result<Option<Step>> {
        if !prompts.is_empty() && self.prompt.is_some() {
            refuse!("the session has a prompt: expected clicks and masks on frames that were shown");
        }
        loop {
            if self.run.is_none() && !self.begin_planned() {
                return Ok(None);
            }
            let next = self
                .run
                .as_mut()
                .and_then(|run| Some((run.order.next()?, run.order.is_reverse(), run.kind.clone())));
            let Some((frame, is_reverse, kind)) = next else {
                self.run = None;
                continue;
            };
            self.check_frame(frame)?;
            let is_new = self.first_appended.is_some_and(|first| frame >= first)
                && self.prompt.is_some()
                && !self.cache.contains_key(&frame);
            let now = &mut self.current(frame, is_reverse, network);
            return match kind {
                _ if is_new => self.advance_full(now),
                Propagation::Full => self.advance_full(now),
                Propagation::Partial(ids) => self.advance_partial(now, ids, prompts),
                Propagation::Fetch => self.fetch(frame),
            }
            .map(Some);
        }
    }

    /// Ends the run: the frames that its hotstart buffer still holds. A live source ends with this.
    ///
    /// # Errors
    /// None are expected; a mask that is not of the size of the video would be one.
    pub fn finish(&mut self) -> Result<Vec<ShownFrame>> {
        self.planned.clear();
        let Some(mut run) = self.run.take() else { return Ok(Vec::new()) };
        let leaving = run.leave(run.buffer.len());
        self.release(leaving)
    }

    /// Removes an object, also from frames that are held back or were shown. Returns whether there was one.
    pub fn remove_object(&mut self, id: ObjectId) -> bool {
        if !self.tracks.ids().contains(&id) {
            return false;
        }
        self.tracks.remove(&BTreeSet::from([id]));
        self.history.push(Action::Remove { id });
        self.tracks.identities.forget_score(id);
        self.given.retain(|(_, given), _| *given != id);
        let held_back = self.run.iter_mut().flat_map(|run| &mut run.buffer);
        self.cache.values_mut().chain(held_back).for_each(|output| {
            output.masks.remove(&id);
        });
        true
    }

    fn begin_planned(&mut self) -> bool {
        let Some(planned) = self.planned.pop_front() else { return false };
        let kind = match self.retention {
            _ if self.prompt.is_none() => Propagation::Partial(self.tracks.ids().into_iter().collect()),
            Retention::Video => next_propagation(&self.history, self.video.frames),
            Retention::Window => Propagation::Full,
        };
        self.history.push(Action::Propagate { kind: kind.clone(), start: planned.start });
        let start = planned.start.or(self.first_output).unwrap_or(0);
        let order =
            Order::new(planned.is_reverse, start, planned.max_frames, (self.first_kept, self.video.frames));
        self.run = Some(Run { kind, order, buffer: VecDeque::new(), last: None });
        true
    }

    fn course(&self, is_reverse: bool) -> Course {
        Course { frame_count: self.video.frames, is_reverse }
    }

    pub(super) fn current<'n>(
        &self,
        frame: usize,
        is_reverse: bool,
        network: &'n mut dyn MaskNetwork,
    ) -> Current<'n> {
        let Tracks { options, video, .. } = self.tracks;
        Current { frame, course: self.course(is_reverse), options, video, network }
    }

    /// Processes one frame of a full run.
    fn process(&mut self, now: &mut Current<'_>) -> Result<(FrameReport, FrameOutput)> {
        let frame = now.frame;
        now.network.load(frame)?;
        let is_detecting = match self.prompt {
            Some((DetectorPrompt::Text, _)) => true,
            Some((DetectorPrompt::Box, prompted)) => prompted == frame,
            None => false,
        };
        let is_prompted = self.first_output.is_none();
        let detections = if is_detecting { now.network.detect(frame)? } else { Some(Vec::new()) };
        let (mut report, mut output) = self.tracks.process(now, detections.as_deref(), is_prompted)?;
        if let Some(earlier) = self.cache.get(&frame) {
            output.hidden.extend(&earlier.hidden);
            for (id, score) in &earlier.tracker_scores {
                output.tracker_scores.entry(*id).or_insert(*score);
            }
            report.hidden = output.hidden.iter().copied().collect();
            report.tracker_scores = output.tracker_scores.clone();
        }
        self.first_output = Some(self.first_output.map_or(frame, |first| first.min(frame)));
        match self.retention {
            Retention::Video => _ = self.cache.insert(frame, output.clone()),
            Retention::Window => self.tracks.forget_unneeded(frame, now.course),
        }
        Ok((report, output))
    }

    fn advance_full(&mut self, now: &mut Current<'_>) -> Result<Step> {
        let (report, output) = self.process(now)?;
        let shown = self.hold(output)?;
        Ok(Step { frame: now.frame, report: Some(report), banks: Vec::new(), shown })
    }

    /// A further frame on which nothing has moved: it shows the objects of the frame that was processed last, whose number it has.
    /// Nothing is computed or counted. Returns the frames that leave now.
    ///
    /// # Errors
    /// None are expected; a mask that is not of the size of the video would be one.
    pub fn repeat(&mut self) -> Result<Vec<ShownFrame>> {
        let last = self.run.as_ref().and_then(|run| run.buffer.back().or(run.last.as_ref()).cloned());
        self.hold(last.unwrap_or_default())
    }

    /// Holds a frame back; returns those that leave.
    fn hold(&mut self, output: FrameOutput) -> Result<Vec<ShownFrame>> {
        let options = &self.tracks.options;
        let (delay, together) =
            if options.holds_back { (options.hotstart_frames, options.release_frames) } else { (0, 1) };
        let mut leaving = Vec::new();
        if let Some(run) = &mut self.run {
            run.buffer.push_back(output);
            let held = run.buffer.len();
            let due = if held + 1 >= delay.max(1) + together { together } else { 0 };
            leaving = run.leave(if run.order.is_done() { held } else { due });
            run.last = run.buffer.is_empty().then(|| leaving.last().cloned()).flatten();
        }
        self.release(leaving)
    }

    /// Shows frames that leave the buffer, without the objects that were removed since.
    fn release(&mut self, leaving: Vec<FrameOutput>) -> Result<Vec<ShownFrame>> {
        let mut shown = Vec::with_capacity(leaving.len());
        for output in leaving {
            let shows_removed = self.tracks.options.life_cycle == LifeCycle::MultiplexAsReleased;
            let output = if shows_removed { output } else { output.without(&self.tracks.identities.removed) };
            shown.push(self.show(&output)?);
            if self.retention == Retention::Video {
                self.cache.insert(output.frame, output);
            }
        }
        Ok(shown)
    }

    fn advance_partial(
        &mut self,
        now: &mut Current<'_>,
        ids: BTreeSet<ObjectId>,
        prompts: &[StreamObject],
    ) -> Result<Step> {
        let frame = now.frame;
        now.network.load(frame)?;
        // Objects of a stream may have come since the run began.
        let ids = if self.prompt.is_none() { self.tracks.ids().into_iter().collect() } else { ids };
        let (banks, masks, mut scores) = self.tracks.track_only(now, &ids)?;
        if self.prompt.is_none() {
            // Below the score of what is clicked or given on the frame, in the same order.
            let (_, clicked) = self.tracks.clicked(frame, &ids);
            let tracked = scores.iter_mut().filter(|(id, _)| !clicked.contains_key(id));
            tracked.for_each(|(_, score)| *score /= 1.0 + score.abs());
        }
        let given = self.given.range((frame, 0)..=(frame, ObjectId::MAX));
        let given: Vec<_> = given.map(|((_, id), mask)| (*id, mask.clone())).collect();
        let output = self.results(frame)?;
        output.masks.extend(masks);
        // The reference compares these logits with the probabilities of the other objects. On a clicked frame it does that in
        // place of the score of the click, and fills holes at another size: the mask would not be the one of the click.
        output.tracker_scores.extend(scores);
        for (id, mask) in given.into_iter().filter(|(id, _)| ids.contains(id)) {
            output.masks.insert(id, mask);
            output.tracker_scores.insert(id, GIVEN_SCORE);
        }
        output.masks.retain(|id, _| !output.hidden.contains(id));
        prompts.iter().try_for_each(|prompt| self.give(now, prompt))?;
        let shown = vec![self.show_cached(frame)?];
        if self.retention == Retention::Window {
            self.cache.clear();
            self.given.clear();
            self.tracks.forget_unneeded(frame, now.course);
        }
        Ok(Step { frame, report: None, banks, shown })
    }

    fn fetch(&mut self, frame: usize) -> Result<Step> {
        let shown = if self.cache.contains_key(&frame) {
            self.show_cached(frame)?
        } else {
            ShownFrame { frame, objects: Vec::new() }
        };
        Ok(Step { frame, report: None, banks: Vec::new(), shown: vec![shown] })
    }

    /// The results of a frame; without a prompt a frame that was not shown has none yet.
    fn results(&mut self, frame: usize) -> Result<&mut FrameOutput> {
        if self.prompt.is_some() {
            return self.cached(frame);
        }
        self.first_output = Some(self.first_output.map_or(frame, |first| first.min(frame)));
        let empty = || FrameOutput { frame, ..FrameOutput::default() };
        Ok(self.cache.entry(frame).or_insert_with(empty))
    }

    fn cached(&mut self, frame: usize) -> Result<&mut FrameOutput> {
        let Some(output) = self.cache.get_mut(&frame) else {
            refuse!("frame {frame} has no results: expected a full run over it first");
        };
        Ok(output)
    }

    /// A cached frame with today's scores.
    fn show_cached(&mut self, frame: usize) -> Result<ShownFrame> {
        let scores = self.tracks.identities.scores();
        let output = self.cached(frame)?;
        output.scores = scores;
        let output = output.clone();
        self.show(&output)
    }

    fn show(&self, output: &FrameOutput) -> Result<ShownFrame> {
        output.show(self.video.width, self.video.height)
    }

    fn check_frame(&self, frame: usize) -> Result<()> {
        match self.video.frames {
            _ if frame < self.first_kept => {
                refuse!("frame {frame} was forgotten: expected {} or a later one", self.first_kept)
            }
            Some(count) if frame >= count => {
                refuse!("frame {frame} is not in the video: expected 0 to {}", count - 1)
            }
            _ => Ok(()),
        }
    }
}
