//! What a session knows of every object that it ever had, and which objects it removes as false.

use crate::masklets::association::Association;
use crate::masklets::{MaskletOptions, ObjectCounts, ObjectId};
use std::collections::{BTreeMap, BTreeSet};

/// The score of a removed object.
const REMOVED_SCORE: f32 = -1e4;

/// The record of an object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    /// The frame of its birth.
    pub(crate) first_frame: Option<usize>,
    /// On how many frames no detection matched it.
    unmatched: usize,
    /// On how many frames in a row, this one the last, a detection matched it.
    matched_in_a_row: usize,
    /// Whether it is shown: it was matched often enough in a row once.
    is_confirmed: bool,
    /// The keep-alive counter; an object that was only ever clicked has none.
    pub(crate) keep_alive: Option<i32>,
    /// The score of the detection that started it.
    pub(crate) score: Option<f32>,
}

/// Every object that a session ever had. Ids are not reused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identities {
    known: BTreeMap<ObjectId, Identity>,
    /// How many detections the younger object shared with the elder: `(elder, younger)`. In SAM 3.1, two objects of which the
    /// first has the lower id.
    shared: BTreeMap<(ObjectId, ObjectId), usize>,
    pub(crate) removed: BTreeSet<ObjectId>,
    pub(crate) next: ObjectId,
}

/// The fate of the objects on a frame.
#[derive(Default)]
pub(crate) struct Verdict {
    pub(crate) removed: BTreeSet<ObjectId>,
    pub(crate) hidden: BTreeSet<ObjectId>,
}

impl Identities {
    pub(crate) fn scores(&self) -> BTreeMap<ObjectId, f32> {
        self.known.iter().filter_map(|(&id, identity)| Some((id, identity.score?))).collect()
    }

    pub(crate) fn keep_alive(&self) -> BTreeMap<ObjectId, i32> {
        self.known.iter().filter_map(|(&id, identity)| Some((id, identity.keep_alive?))).collect()
    }

    /// The counts of objects.
    pub(crate) fn counts(&self, ids: &[ObjectId]) -> BTreeMap<ObjectId, ObjectCounts> {
        let counts = |identity: &Identity| ObjectCounts {
            first_frame: identity.first_frame,
            unmatched: identity.unmatched,
            matched_in_a_row: identity.matched_in_a_row,
        };
        ids.iter().filter_map(|id| Some((*id, counts(self.known.get(id)?)))).collect()
    }

    /// The pairs of objects that shared detections, and how many.
    pub(crate) fn shared(&self) -> Vec<(ObjectId, ObjectId, usize)> {
        self.shared.iter().map(|(&(elder, younger), &count)| (elder, younger, count)).collect()
    }

    /// The objects that are not confirmed yet.
    pub(crate) fn unconfirmed(&self, ids: &[ObjectId]) -> Vec<ObjectId> {
        let is_confirmed = |id: &ObjectId| self.known.get(id).is_none_or(|identity| identity.is_confirmed);
        ids.iter().copied().filter(|id| !is_confirmed(id)).collect()
    }

    /// A new object that a detection started.
    pub(crate) fn add(&mut self, frame: usize, score: f32, options: &MaskletOptions) -> ObjectId {
        let id = self.next;
        self.next += 1;
        let identity = Identity {
            first_frame: Some(frame),
            unmatched: 0,
            matched_in_a_row: 1,
            is_confirmed: options.confirmation_frames <= 1,
            keep_alive: Some(options.initial_keep_alive),
            score: Some(score),
        };
        self.known.insert(id, identity);
        id
    }

    /// An object that the user clicked: new, known or removed.
    pub(crate) fn click(&mut self, id: ObjectId, frame: usize) {
        let identity = self.known.entry(id).or_default();
        identity.first_frame.get_or_insert(frame);
        identity.score = Some(1.0);
        identity.is_confirmed = true;
        self.removed.remove(&id);
        self.next = self.next.max(id.saturating_add(1));
    }

    /// Forgets the score of an object that the user removed.
    pub(crate) fn forget_score(&mut self, id: ObjectId) {
        if let Some(identity) = self.known.get_mut(&id) {
            identity.score = None;
        }
    }

    /// Counts matches, and decides which objects are removed or hidden.
    pub(crate) fn judge(
        &mut self,
        frame: usize,
        is_reverse: bool,
        found: &Association,
        options: &MaskletOptions,
    ) -> Verdict {
        self.count_matches(found, options);
        let mut verdict = Verdict::default();
        let is_young = |first: Option<usize>| match first {
            Some(first) if is_reverse => first < frame + options.hotstart_frames,
            Some(first) => first + options.hotstart_frames > frame,
            None => false,
        };
        for (&id, identity) in self.known.iter().filter(|(id, _)| !self.removed.contains(id)) {
            if identity.unmatched == 0 {
                continue;
            }
            if identity.unmatched >= options.hotstart_unmatched && is_young(identity.first_frame) {
                verdict.removed.insert(id);
            } else if identity.keep_alive.unwrap_or(0) <= 0 && !options.hide_only_within_hotstart {
                verdict.hidden.insert(id);
            }
        }
        let is_multiplex = options.life_cycle.is_multiplex();
        if is_multiplex {
            self.count_pairs(found);
        } else {
            self.count_shared(found, is_reverse);
        }
        for (&(elder, younger), &count) in &self.shared {
            let is_duplicate = count >= options.hotstart_duplicates
                && (!is_multiplex || self.is_elder(elder, younger, is_reverse));
            if is_duplicate && is_young(self.first_frame(younger)) && !self.removed.contains(&younger) {
                verdict.removed.insert(younger);
            }
        }
        self.removed.extend(&verdict.removed);
        if is_multiplex {
            self.shared.retain(|(a, b), _| !verdict.removed.contains(a) && !verdict.removed.contains(b));
        }
        for id in &verdict.removed {
            if let Some(identity) = self.known.get_mut(id) {
                identity.score = Some(REMOVED_SCORE);
            }
        }
        verdict
    }

    fn first_frame(&self, id: ObjectId) -> Option<usize> {
        self.known.get(&id).and_then(|identity| identity.first_frame)
    }

    /// Whether `a` was born before `b` in the direction of the run.
    fn is_elder(&self, a: ObjectId, b: ObjectId, is_reverse: bool) -> bool {
        let (a, b) = (self.first_frame(a), self.first_frame(b));
        if is_reverse { a > b } else { a < b }
    }

    fn count_matches(&mut self, found: &Association, options: &MaskletOptions) {
        let matched = found.matched();
        for (id, identity) in &mut self.known {
            identity.matched_in_a_row = if matched.contains(id) { identity.matched_in_a_row + 1 } else { 0 };
            identity.is_confirmed |= identity.matched_in_a_row >= options.confirmation_frames;
        }
        for id in matched {
            let keep_alive = self.known.entry(id).or_default().keep_alive.get_or_insert(0);
            *keep_alive = (*keep_alive + 1).min(options.max_keep_alive);
        }
        for &id in &found.unmatched {
            self.known.entry(id).or_default().unmatched += 1;
        }
        for &id in &found.missed {
            let keep_alive = self.known.entry(id).or_default().keep_alive.get_or_insert(0);
            *keep_alive = (*keep_alive - 1).max(options.min_keep_alive);
        }
    }

    /// Counts the detections that objects share, one for each detection and pair.
    fn count_shared(&mut self, found: &Association, is_reverse: bool) {
        for (_, ids) in found.matches.iter().filter(|(_, ids)| ids.len() > 1) {
            let elder = |a: ObjectId, b: ObjectId| if self.is_elder(b, a, is_reverse) { b } else { a };
            let elder = ids.iter().copied().reduce(elder);
            let Some(elder) = elder else { continue };
            for &id in ids.iter().filter(|&&id| id != elder) {
                *self.shared.entry((elder, id)).or_default() += 1;
            }
        }
    }

    /// Counts the detections that any two objects share.
    fn count_pairs(&mut self, found: &Association) {
        for (_, ids) in &found.matches {
            for (index, &first) in ids.iter().enumerate() {
                for &second in &ids[index + 1..] {
                    *self.shared.entry((first, second)).or_default() += 1;
                }
            }
        }
    }
}
