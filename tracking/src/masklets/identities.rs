//! What a session knows of every object that it ever had, and which objects it removes as false.

use crate::masklets::association::Association;
use crate::masklets::{MaskletOptions, ObjectId};
use std::collections::{BTreeMap, BTreeSet};

/// The score of a removed object.
const REMOVED_SCORE: f32 = -1e4;

/// The record of an object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    /// The frame of its birth; frames that were not searched are left out of all counts.
    pub(crate) first_frame: Option<usize>,
    /// On how many frames no detection matched it.
    unmatched: usize,
    /// The keep-alive counter; an object that was only ever clicked has none.
    pub(crate) keep_alive: Option<i32>,
    /// The score of the detection that started it.
    pub(crate) score: Option<f32>,
}

/// Every object that a session ever had. Ids are not reused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identities {
    known: BTreeMap<ObjectId, Identity>,
    /// How many detections the younger object shared with the elder: `(elder, younger)`.
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

    /// A new object that a detection started.
    pub(crate) fn add(&mut self, frame: usize, score: f32, options: &MaskletOptions) -> ObjectId {
        let id = self.next;
        self.next += 1;
        let keep_alive = Some(options.initial_keep_alive);
        let identity = Identity { first_frame: Some(frame), unmatched: 0, keep_alive, score: Some(score) };
        self.known.insert(id, identity);
        id
    }

    /// An object that the user clicked: new, known or removed.
    pub(crate) fn click(&mut self, id: ObjectId, frame: usize) {
        let identity = self.known.entry(id).or_default();
        identity.first_frame.get_or_insert(frame);
        identity.score = Some(1.0);
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
        self.count_keep_alive(found, options);
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
        self.count_shared(found, is_reverse);
        for (&(_, younger), &count) in &self.shared {
            let first = self.known.get(&younger).and_then(|identity| identity.first_frame);
            if count >= options.hotstart_duplicates && is_young(first) && !self.removed.contains(&younger) {
                verdict.removed.insert(younger);
            }
        }
        self.removed.extend(&verdict.removed);
        for id in &verdict.removed {
            if let Some(identity) = self.known.get_mut(id) {
                identity.score = Some(REMOVED_SCORE);
            }
        }
        verdict
    }

    fn count_keep_alive(&mut self, found: &Association, options: &MaskletOptions) {
        let matched: BTreeSet<ObjectId> = found.matches.iter().flat_map(|(_, ids)| ids).copied().collect();
        for id in matched {
            let keep_alive = self.known.entry(id).or_default().keep_alive.get_or_insert(0);
            *keep_alive = (*keep_alive + 1).min(options.max_keep_alive);
        }
        let is_counted = |empty: bool| !empty || options.empty_decreases_keep_alive;
        let missed =
            found.unmatched.iter().map(|&id| (id, false)).chain(found.empty.iter().map(|&id| (id, true)));
        for (id, is_empty) in missed.filter(|&(_, is_empty)| is_counted(is_empty)) {
            let identity = self.known.entry(id).or_default();
            identity.unmatched += usize::from(!is_empty);
            let keep_alive = identity.keep_alive.get_or_insert(0);
            *keep_alive = (*keep_alive - 1).max(options.min_keep_alive);
        }
    }

    /// Counts the detections that objects share, one for each detection and pair.
    fn count_shared(&mut self, found: &Association, is_reverse: bool) {
        for (_, ids) in found.matches.iter().filter(|(_, ids)| ids.len() > 1) {
            let first = |id: ObjectId| self.known.get(&id).and_then(|identity| identity.first_frame);
            let is_elder =
                |a: ObjectId, b: ObjectId| if is_reverse { first(a) > first(b) } else { first(a) < first(b) };
            let elder = ids.iter().copied().reduce(|elder, id| if is_elder(id, elder) { id } else { elder });
            let Some(elder) = elder else { continue };
            for &id in ids.iter().filter(|&&id| id != elder) {
                *self.shared.entry((elder, id)).or_default() += 1;
            }
        }
    }
}
