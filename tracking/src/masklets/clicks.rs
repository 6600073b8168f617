//! Clicked objects, and runs that track them alone.

use crate::masklets::current::Current;
use crate::masklets::group::Group;
use crate::masklets::network::{EncodeBatch, MemoryKind};
use crate::masklets::output::Masks;
use crate::masklets::track::track_groups;
use crate::masklets::tracks::Tracks;
use crate::masklets::{BankReport, BitMask, Click, ObjectId, fill_holes, prompts};
use ocelli_error::Result;
use std::collections::{BTreeMap, BTreeSet};

/// The score of an object on the frame on which it is clicked.
const CLICKED_SCORE: f32 = 1.0;

impl Tracks {
    /// Gives clicks to an object, which joins a group of its own if it is not tracked. In SAM 3.1 it leaves the buckets that it
    /// shares: what it was before does not count for it any more, but for its mask on this frame.
    pub(crate) fn click(&mut self, now: &mut Current<'_>, id: ObjectId, clicks: &[Click]) -> Result<()> {
        let Self { groups, slots, .. } = self;
        let mut previous = None;
        let shares = |group: &&mut Group| group.position(id).is_some() && group.objects.len() > 1;
        if now.options.life_cycle.is_multiplex()
            && let Some(group) = groups.iter_mut().find(shares)
        {
            previous = group.mask(now.frame, id).cloned();
            group.remove(id, slots);
        }
        if !groups.iter().any(|group| group.position(id).is_some()) {
            let mut group = Group::new(1, now.options.life_cycle);
            group.add(&[id]);
            groups.push(group);
        }
        self.identities.click(id, now.frame);
        let group = groups.iter_mut().rfind(|group| group.position(id).is_some());
        let group = group.expect("the object is in a group, which was added above if there was none");
        prompts::click(now, group, slots, id, clicks, previous.as_ref())
    }

    /// Adds an object by a mask of the size of the video, in a group of its own; false if the network would see no pixel of it.
    pub(crate) fn add_mask(&mut self, now: &mut Current<'_>, id: ObjectId, mask: &BitMask) -> Result<bool> {
        let side = now.options.memory_side();
        let small = prompts::resized(mask, [side, side]);
        if small.is_empty() {
            return Ok(false);
        }
        let mut group = Group::new(1, now.options.life_cycle);
        prompts::start(now, &mut group, &mut self.slots, vec![(id, small)])?;
        self.groups.push(group);
        self.identities.click(id, now.frame);
        Ok(true)
    }

    /// The objects among `ids` that are clicked on a frame, as shown: masks at the size of the video, and scores. Holes are
    /// filled at that size.
    pub(crate) fn clicked(&self, frame: usize, ids: &BTreeSet<ObjectId>) -> (Masks, BTreeMap<ObjectId, f32>) {
        let [width, height] = self.video;
        let mut masks = Masks::new();
        for group in &self.groups {
            let Some(entry) = group.frames.get(&frame) else { continue };
            for (id, object) in group.objects.iter().zip(&entry.objects) {
                let is_clicked = ids.contains(id) && entry.point_prompts.contains(id);
                let Some(mask) = object.mask.as_ref().filter(|_| is_clicked) else { continue };
                let mut mask = mask.resized(width, height);
                fill_holes(&mut mask, self.options.fill_hole_area);
                masks.insert(*id, mask.positive().runs());
            }
        }
        let scores = masks.keys().map(|&id| (id, CLICKED_SCORE)).collect();
        (masks, scores)
    }

    /// Tracks the groups that hold any of `ids`, and remembers what it finds. Returns the masks of `ids` at the size of the
    /// video, and their object scores. Objects that are clicked on the frame are as the click showed them.
    pub(crate) fn track_only(
        &mut self,
        now: &mut Current<'_>,
        ids: &BTreeSet<ObjectId>,
    ) -> Result<(Vec<BankReport>, Masks, BTreeMap<ObjectId, f32>)> {
        let frame = now.frame;
        let chosen = prompts::groups_of(&self.groups, ids);
        let fresh: Vec<usize> =
            chosen.iter().copied().filter(|&index| !self.groups[index].is_given_on(frame)).collect();
        let banks = track_groups(now, &mut self.groups, &chosen, &mut self.slots)?;
        self.remember_alone(now, &fresh)?;
        let tracked = self.tracked(frame, ids);
        let [width, height] = self.video;
        let masks =
            tracked.iter().map(|object| (object.id, object.mask.resized_positive(width, height).runs()));
        let scores = tracked.iter().map(|object| (object.id, object.object_score));
        let (mut masks, mut scores): (Masks, BTreeMap<_, _>) = (masks.collect(), scores.collect());
        let (clicked, clicked_scores) = self.clicked(frame, ids);
        masks.extend(clicked);
        scores.extend(clicked_scores);
        Ok((banks, masks, scores))
    }

    /// Encodes the masks of groups as they are, without the other objects.
    fn remember_alone(&mut self, now: &mut Current<'_>, fresh: &[usize]) -> Result<()> {
        let frame = now.frame;
        let kind = MemoryKind::Tracked;
        let fresh = self.groups.iter_mut().enumerate().filter(|(index, _)| fresh.contains(index));
        let objects: Vec<_> = fresh.flat_map(|(_, group)| prompts::to_encode(group, frame, kind)).collect();
        if objects.is_empty() {
            return Ok(());
        }
        now.network.encode(&EncodeBatch { frame, kind, objects })
    }
}
