//! False detections start objects, too: a session knows every object that it ever had, and removes those that are false.

use crate::masklets::association::Association;
use crate::masklets::{MaskletOptions, ObjectId};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// The score of a removed object.
const REMOVED_SCORE: f32 = -1e4;

/// A session's knowledge of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Identity {
    /// The frame of its birth, or of its first click; frames that were not searched are left out of all
    /// counts.
    pub first_frame: Option<usize>,
    /// Number of frames on which no detection matched it.
    pub unmatched: usize,
    /// Number of frames in a row, this one the last, on which a detection matched it.
    pub matched_in_a_row: usize,
    /// `true` if it is shown: it was matched often enough in a row once, or clicked.
    pub is_confirmed: bool,
    /// The keep-alive counter; an object that was only ever clicked has none.
    pub keep_alive: Option<i32>,
    /// The score of the detection that started it; -10000 if it was removed as false.
    pub score: Option<f32>,
}

/// Every object that a session ever had. Ids are not reused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identities {
    pub(crate) known: BTreeMap<ObjectId, Identity>,
    /// Number of detections that the younger object shared with the elder: `(elder, younger)`. In SAM 3.1, two objects of which
    /// the first has the lower id.
    pub(crate) shared: BTreeMap<(ObjectId, ObjectId), usize>,
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

    /// The objects that are not confirmed yet.
    pub(crate) fn unconfirmed(&self) -> BTreeSet<ObjectId> {
        let unconfirmed = self.known.iter().filter(|(_, identity)| !identity.is_confirmed);
        unconfirmed.map(|(&id, _)| id).filter(|id| !self.removed.contains(id)).collect()
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

    /// Counts matches, and decides which objects are removed or hidden. `frame` counts those that were searched.
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
        self.count_shared(found, is_reverse, is_multiplex);
        for (&(elder, younger), &count) in &self.shared {
            let is_duplicate = count >= options.hotstart_duplicates
                && (!is_multiplex || self.by_age(elder, younger, is_reverse).is_lt());
            if is_duplicate && is_young(self.first_frame(younger)) && !self.removed.contains(&younger) {
                verdict.removed.insert(younger);
            }
        }
        self.removed.extend(&verdict.removed);
        let is_gone = |id: &ObjectId| is_multiplex && verdict.removed.contains(id);
        self.shared.retain(|(a, b), _| !is_gone(a) && !is_gone(b));
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

    /// Compares objects by their births: the elder one first.
    fn by_age(&self, a: ObjectId, b: ObjectId, is_reverse: bool) -> Ordering {
        let order = self.first_frame(a).cmp(&self.first_frame(b));
        if is_reverse { order.reverse() } else { order }
    }

    fn count_matches(&mut self, found: &Association, options: &MaskletOptions) {
        for id in found.matched() {
            let identity = self.known.entry(id).or_default();
            identity.matched_in_a_row += 1;
            identity.is_confirmed |= identity.matched_in_a_row >= options.confirmation_frames;
            let keep_alive = identity.keep_alive.get_or_insert(0);
            *keep_alive = (*keep_alive + 1).min(options.max_keep_alive);
        }
        for &id in &found.unmatched {
            self.known.entry(id).or_default().unmatched += 1;
        }
        for &id in &found.missed {
            let identity = self.known.entry(id).or_default();
            identity.matched_in_a_row = 0;
            let keep_alive = identity.keep_alive.get_or_insert(0);
            *keep_alive = (*keep_alive - 1).max(options.min_keep_alive);
        }
    }

    /// Counts the detections that objects share with the eldest of them; in SAM 3.1, that any two of them
    /// share.
    fn count_shared(&mut self, found: &Association, is_reverse: bool, is_multiplex: bool) {
        for (_, ids) in &found.matches {
            let mut ids = ids.clone();
            let mut elders = ids.len();
            if !is_multiplex {
                ids.sort_by(|&a, &b| self.by_age(a, b, is_reverse));
                elders = 1;
            }
            for (index, &elder) in ids.iter().enumerate().take(elders) {
                for &younger in &ids[index + 1..] {
                    *self.shared.entry((elder, younger)).or_default() += 1;
                }
            }
        }
    }
}
