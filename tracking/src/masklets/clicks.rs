//! Clicked objects, and runs that track them alone.

use crate::masklets::bank::Course;
use crate::masklets::group::Group;
use crate::masklets::network::{EncodeBatch, EncodeObject, MaskNetwork, MemoryKind};
use crate::masklets::output::Masks;
use crate::masklets::track::track_groups;
use crate::masklets::tracks::Tracks;
use crate::masklets::{BankReport, Click, LogitMask, ObjectId, prompts};
use ocelli_error::Result;
use std::collections::{BTreeMap, BTreeSet};

impl Tracks {
    /// Gives clicks to an object, which joins a group of its own if it is not tracked. Returns its mask.
    pub(crate) fn click(
        &mut self,
        frame: usize,
        id: ObjectId,
        clicks: &[Click],
        network: &mut impl MaskNetwork,
    ) -> Result<LogitMask> {
        let Self { options, groups, slots, .. } = self;
        if !groups.iter().any(|group| group.position(id).is_some()) {
            groups.push(Group { objects: vec![id], ..Group::default() });
        }
        self.identities.click(id, frame);
        let group = groups.iter_mut().rfind(|group| group.position(id).is_some());
        let group = group.expect("the object is in a group, which was added above if there was none");
        prompts::click(group, frame, id, clicks, options, slots, network)
    }

    /// Tracks the groups that hold any of `ids`, and remembers what it finds. Returns the masks of `ids` at the size of the
    /// video, and their object scores.
    pub(crate) fn track_only(
        &mut self,
        frame: usize,
        course: Course,
        ids: &BTreeSet<ObjectId>,
        network: &mut impl MaskNetwork,
    ) -> Result<(Vec<BankReport>, Masks, BTreeMap<ObjectId, f32>)> {
        let options = self.options;
        let chosen = prompts::groups_of(&self.groups, ids);
        let fresh: Vec<usize> =
            chosen.iter().copied().filter(|&index| !self.groups[index].is_conditioned_on(frame)).collect();
        let banks =
            track_groups(&mut self.groups, &chosen, frame, course, &options, &mut self.slots, network)?;
        self.remember_alone(frame, &fresh, network)?;
        let tracked = self.tracked(frame, ids);
        let [width, height] = self.video;
        let masks =
            tracked.iter().map(|object| (object.id, object.mask.resized_positive(width, height).runs()));
        let scores = tracked.iter().map(|object| (object.id, object.object_score));
        Ok((banks, masks.collect(), scores.collect()))
    }

    /// Encodes the masks of groups as they are, without the other objects.
    fn remember_alone(
        &mut self,
        frame: usize,
        fresh: &[usize],
        network: &mut impl MaskNetwork,
    ) -> Result<()> {
        let Self { groups, slots, .. } = self;
        let mut objects = Vec::new();
        for (_, group) in groups.iter_mut().enumerate().filter(|(index, _)| fresh.contains(index)) {
            let Some(entry) = group.frames.get_mut(&frame) else { continue };
            for (&id, object) in group.objects.iter().zip(&mut entry.objects) {
                let slot = *object.memory.get_or_insert_with(|| slots.memory());
                object.is_present = object.object_score > 0.0;
                let is_present = object.is_present;
                let mask = object.mask.as_ref();
                objects.extend(mask.map(|mask| EncodeObject {
                    id,
                    mask,
                    keeps_mask: true,
                    is_present,
                    slot,
                }));
            }
        }
        if objects.is_empty() {
            return Ok(());
        }
        network.encode(&EncodeBatch { frame, kind: MemoryKind::Tracked, objects })
    }
}
