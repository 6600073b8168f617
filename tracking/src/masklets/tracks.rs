//! One frame after the other: the objects of a session.

use crate::masklets::association::{Association, associate, candidates, sort_by_score};
use crate::masklets::bank::{Course, needed_after};
use crate::masklets::current::Current;
use crate::masklets::group::{ABSENT, Group, Slots, sigmoid};
use crate::masklets::identities::Identities;
use crate::masklets::network::{DetectedMask, EncodeBatch, MemoryKind};
use crate::masklets::occlusion::Occlusions;
use crate::masklets::output::{FrameOutput, Masks};
use crate::masklets::track::{check_side, track_groups};
use crate::masklets::{
    BitMask, FrameReport, LogitMask, MaskletOptions, ObjectId, exclusive_areas, fill_holes, prompts,
};
use ocelli_error::Result;
use std::collections::{BTreeMap, BTreeSet};

/// The logit of a mask that another object covers.
const SUPPRESSED: f32 = -10.0;

/// The objects of a session, and what is remembered of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tracks {
    pub(crate) options: MaskletOptions,
    /// Width and height of the video.
    pub(crate) video: [usize; 2],
    pub(crate) groups: Vec<Group>,
    pub(crate) slots: Slots,
    pub(crate) identities: Identities,
    occlusions: Occlusions,
    /// Frames that were not searched.
    unsearched: usize,
}

/// An object on the current frame.
pub(crate) struct Tracked {
    pub(crate) id: ObjectId,
    pub(crate) mask: LogitMask,
    pub(crate) object_score: f32,
}

/// `true` if the centre of a mask's bounds is within this share of the border.
fn is_at_border(mask: &BitMask, border: f32) -> bool {
    let Some([left, top, right, bottom]) = mask.bounds() else { return false };
    let is_inside = |first: usize, last: usize, side: usize| {
        let centre = (first + last + 1) as f32 / (2 * side) as f32;
        centre > border && centre < 1.0 - border
    };
    !is_inside(left, right, mask.width()) || !is_inside(top, bottom, mask.height())
}

/// An object that starts on the current frame.
struct Born {
    id: ObjectId,
    detection: usize,
}

impl Tracks {
    pub(crate) fn new(options: MaskletOptions, video: [usize; 2]) -> Self {
        Self { options, video, ..Self::default() }
    }

    pub(crate) fn ids(&self) -> Vec<ObjectId> {
        self.groups.iter().flat_map(|group| &group.objects).copied().collect()
    }

    /// Tracks the objects on a frame, and starts, reconditions and removes objects if the frame was searched.
    pub(crate) fn process(
        &mut self,
        now: &mut Current<'_>,
        searched: Option<&[DetectedMask]>,
        is_prompted: bool,
    ) -> Result<(FrameReport, FrameOutput)> {
        let Current { frame, course, options, .. } = *now;
        let detections = searched.unwrap_or_default();
        let mut report = FrameReport { frame, is_reverse: course.is_reverse, ..FrameReport::default() };
        detections.iter().try_for_each(|detection| check_side(&detection.mask, &options))?;
        let kept = candidates(detections, &options, is_prompted).into_iter();
        let (at_border, mut kept): (Vec<_>, Vec<_>) =
            kept.partition(|candidate| is_at_border(&candidate.mask, options.border));
        report.detections = kept.iter().map(|candidate| candidate.index).collect();

        let all: Vec<usize> = (0..self.groups.len()).collect();
        report.banks = track_groups(now, &mut self.groups, &all, &mut self.slots)?;
        let mut tracked = self.tracked(frame, &self.ids().into_iter().collect());
        let mut masks: Vec<_> = tracked.iter().map(|object| (object.id, object.mask.positive())).collect();
        report.tracked = masks.iter().map(|&(id, _)| id).collect();
        report.areas = masks.iter().map(|(_, mask)| mask.area()).collect();

        if masks.is_empty() {
            kept.extend(at_border);
        }
        self.unsearched += usize::from(searched.is_none());
        let look = frame.saturating_sub(self.unsearched);
        let mut found = searched.map(|_| associate(&kept, &masks, &options)).unwrap_or_default();
        report.dropped = self.limit(&mut found, detections);
        let born = self.start(look, &found, detections);
        let verdict = self.identities.judge(look, course.is_reverse, &found, &options);
        report.reconditioned = self.recondition(now, look, &found, &tracked, detections)?;
        if options.life_cycle.is_multiplex() {
            for (object, (id, mask)) in tracked.iter_mut().zip(&mut masks) {
                if report.reconditioned.contains(id) {
                    object.mask.correct(&detections[found.recondition[id]].mask);
                    *mask = object.mask.positive();
                }
            }
        }

        let occluded = self.occlusions.update(frame, course.is_reverse, &masks, &verdict.removed, &options);
        for (object, (id, mask)) in
            tracked.iter_mut().zip(&mut masks).filter(|(object, _)| occluded.contains(&object.id))
        {
            debug_assert_eq!(object.id, *id, "masks and objects have one order");
            object.mask = LogitMask::filled(options.mask_side(), SUPPRESSED);
            *mask = BitMask::empty(mask.width(), mask.height());
        }
        report.occluded = report.tracked.iter().copied().filter(|id| occluded.contains(id)).collect();
        self.remember(now, &tracked, &mut report)?;
        let is_each = options.chooses_for_each && !options.life_cycle.is_multiplex();
        let together = if is_each { 1 } else { born.len().max(1) };
        born.chunks(together).try_for_each(|born| self.add_objects(now, born, detections))?;
        self.remove(&verdict.removed);

        let output = self.output(frame, &tracked, &born, detections, verdict.hidden.clone());
        report.born = born.iter().map(|born| (born.id, born.detection)).collect();
        self.describe(&mut report, found, verdict.removed, &output);
        Ok((report, output))
    }

    /// The objects of the groups on a frame, in the order of the groups, in SAM 3.1 of their ids, with holes
    /// filled.
    pub(crate) fn tracked(&self, frame: usize, ids: &BTreeSet<ObjectId>) -> Vec<Tracked> {
        let mut tracked = Vec::new();
        for group in &self.groups {
            let Some(entry) = group.frames.get(&frame) else { continue };
            for (&id, object) in group.objects.iter().zip(&entry.objects).filter(|(id, _)| ids.contains(id)) {
                let absent = || LogitMask::filled(self.options.mask_side(), ABSENT);
                let mut mask = object.mask.clone().unwrap_or_else(absent);
                fill_holes(&mut mask, self.options.fill_hole_area);
                tracked.push(Tracked { id, mask, object_score: object.object_score });
            }
        }
        if self.options.life_cycle.is_multiplex() {
            tracked.sort_by_key(|object| object.id);
        }
        tracked
    }

    /// Drops the new detections with the lowest scores if there would be too many objects; returns how many.
    fn limit(&self, found: &mut Association, detections: &[DetectedMask]) -> usize {
        let room = self.options.max_objects.saturating_sub(self.ids().len());
        if found.new.len() <= room {
            return 0;
        }
        let dropped = found.new.len() - room;
        sort_by_score(&mut found.new, &self.options, |&index| detections[index].score);
        found.new.truncate(room);
        dropped
    }

    fn start(&mut self, look: usize, found: &Association, detections: &[DetectedMask]) -> Vec<Born> {
        let born = |&detection: &usize| {
            let id = self.identities.add(look, detections[detection].score, &self.options);
            Born { id, detection }
        };
        found.new.iter().map(born).collect()
    }

    /// Gives sure detections as masks to their objects. Returns the objects of all groups concerned;
    /// in SAM 3.1 these objects.
    fn recondition(
        &mut self,
        now: &mut Current<'_>,
        look: usize,
        found: &Association,
        tracked: &[Tracked],
        detections: &[DetectedMask],
    ) -> Result<Vec<ObjectId>> {
        let options = now.options;
        if options.recondition_frames == 0 || !look.is_multiple_of(options.recondition_frames) {
            return Ok(Vec::new());
        }
        let is_sure = |object: &&Tracked| object.object_score > options.recondition_object_score;
        let given = |object: &Tracked| Some((object.id, *found.recondition.get(&object.id)?));
        let given: BTreeMap<ObjectId, usize> = tracked.iter().filter(is_sure).filter_map(given).collect();
        let side = options.memory_side();
        let mask = |index: usize| detections[index].mask.resized_positive(side, side);
        let mut reconditioned = BTreeSet::new();
        for group in &mut self.groups {
            let own = |id: &ObjectId| Some((*id, mask(*given.get(id)?)));
            let masks: Vec<_> = group.objects.iter().filter_map(own).collect();
            if !masks.is_empty() {
                prompts::recondition(now, group, masks)?;
                let is_concerned =
                    |id: &&ObjectId| !options.life_cycle.is_multiplex() || given.contains_key(id);
                reconditioned.extend(group.objects.iter().filter(is_concerned));
            }
        }
        Ok(reconditioned.into_iter().collect())
    }

    /// Encodes the masks of all objects into memory.
    fn remember(
        &mut self,
        now: &mut Current<'_>,
        tracked: &[Tracked],
        report: &mut FrameReport,
    ) -> Result<()> {
        let frame = now.frame;
        if tracked.is_empty() {
            return Ok(());
        }
        let masks: Vec<&LogitMask> = tracked.iter().map(|object| &object.mask).collect();
        let areas = exclusive_areas(&masks, self.options.memory_side());
        let mut objects = Vec::with_capacity(tracked.len());
        for (object, area) in tracked.iter().zip(areas) {
            let ratio = area.exclusive as f32 / area.area.max(1) as f32;
            let keeps_mask = tracked.len() == 1 || ratio >= self.options.shrink_ratio;
            let is_present = keeps_mask && area.area > 0;
            if !keeps_mask && area.area > 0 {
                report.shrunk.push(object.id);
            }
            report.present.extend(is_present.then_some(object.id));
            report.memory_areas.push(if keeps_mask { area.area } else { 0 });
            let group = self.groups.iter_mut().find_map(|group| Some((group.position(object.id)?, group)));
            let Some((position, group)) = group else { continue };
            let known = group.frames.get_mut(&frame).and_then(|entry| entry.objects.get_mut(position));
            let Some(known) = known else { continue };
            (known.is_prompted_memory, known.is_present) = (false, is_present);
            objects.extend(group.to_encode(frame, object.id, &object.mask, keeps_mask));
        }
        now.network.encode(&EncodeBatch { frame, kind: MemoryKind::Tracked, objects })
    }

    /// Starts objects together: in the group with the fewest free places that has enough of them, or else in
    /// a new one.
    fn add_objects(
        &mut self,
        now: &mut Current<'_>,
        born: &[Born],
        detections: &[DetectedMask],
    ) -> Result<()> {
        let side = now.options.memory_side();
        let mask = |born: &Born| (born.id, detections[born.detection].mask.resized_positive(side, side));
        let masks = born.iter().map(mask).collect();
        let Self { groups, slots, .. } = self;
        let with_room = groups.iter_mut().filter(|group| group.free.len() >= born.len());
        if let Some(group) = with_room.min_by_key(|group| group.free.len()) {
            return prompts::start(now, group, slots, masks);
        }
        let mut group = Group::new(born.len(), now.options.life_cycle);
        prompts::start(now, &mut group, slots, masks)?;
        groups.push(group);
        Ok(())
    }

    /// Removes objects from their groups.
    pub(crate) fn remove(&mut self, ids: &BTreeSet<ObjectId>) {
        for &id in ids {
            self.groups.iter_mut().for_each(|group| group.remove(id, &mut self.slots));
        }
        self.groups.retain(|group| !group.objects.is_empty());
    }

    fn output(
        &self,
        frame: usize,
        tracked: &[Tracked],
        born: &[Born],
        detections: &[DetectedMask],
        hidden: BTreeSet<ObjectId>,
    ) -> FrameOutput {
        let [width, height] = self.video;
        let runs = |mask: &LogitMask| mask.resized_positive(width, height).runs();
        let mut masks: Masks = tracked.iter().map(|object| (object.id, runs(&object.mask))).collect();
        let mut tracker_scores: BTreeMap<ObjectId, f32> =
            tracked.iter().map(|object| (object.id, sigmoid(object.object_score))).collect();
        for born in born {
            let detection = &detections[born.detection];
            let mut mask = detection.mask.clone();
            fill_holes(&mut mask, self.options.fill_hole_area);
            masks.insert(born.id, runs(&mask));
            tracker_scores.insert(born.id, detection.score);
        }
        let (scores, unconfirmed) = (self.identities.scores(), self.identities.unconfirmed());
        FrameOutput { frame, masks, scores, tracker_scores, hidden, unconfirmed }
    }

    fn describe(
        &self,
        report: &mut FrameReport,
        found: Association,
        removed: BTreeSet<ObjectId>,
        output: &FrameOutput,
    ) {
        report.unmatched = found.unmatched;
        report.empty = found.empty;
        report.matches = found.matches;
        report.recondition = found.recondition;
        report.removed = removed.into_iter().collect();
        report.objects = self.ids();
        report.groups = self.groups.iter().map(|group| group.objects.clone()).collect();
        report.conditioning_frames = self.groups.iter().map(Group::conditioning_frames).collect();
        report.frames = self.groups.iter().map(|group| group.frames.keys().copied().collect()).collect();
        report.places = self.groups.iter().map(|group| group.places.clone()).collect();
        report.free_places = self.groups.iter().map(|group| group.free.len()).collect();
        report.identities = self.identities.known.clone();
        report.shared = self.identities.shared.clone();
        report.last_occluded = self.occlusions.frames();
        report.hidden = output.hidden.iter().copied().collect();
        report.scores = output.scores.clone();
        report.tracker_scores = output.tracker_scores.clone();
    }

    /// Drops what runs over `frame` and later frames do not read.
    pub(crate) fn forget_before(&mut self, frame: usize, course: Course) {
        for group in &mut self.groups {
            let needed = needed_after(group, frame.saturating_sub(1), course, &self.options);
            let mut kept: Vec<usize> = group.frames.range(frame..).map(|(&at, _)| at).collect();
            // A click may make the conditioning frames near it ordinary ones; earlier ones are read in their place.
            let near = frame.saturating_sub(self.options.click_window);
            let conditioning = group.conditioning_frames();
            let far =
                conditioning.iter().rev().filter(|at| **at < near).take(self.options.conditioning_frames);
            kept.extend(far.chain(conditioning.iter().filter(|at| (near..frame).contains(*at))));
            let needed = needed.map(|needed| [needed, kept.clone()].concat());
            group.keep_only(&needed, frame, &mut self.slots);
        }
    }

    /// Drops what a run that goes on after `frame` does not read.
    pub(crate) fn forget_unneeded(&mut self, frame: usize, course: Course) {
        for group in &mut self.groups {
            let needed = needed_after(group, frame, course, &self.options);
            group.keep_only(&needed, usize::MAX, &mut self.slots);
        }
    }
}
