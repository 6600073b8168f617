//! Objects that the user clicks or gives as masks.

use crate::masklets::current::Current;
use crate::masklets::network::{Click, MaskNetwork};
use crate::masklets::output::ShownFrame;
use crate::masklets::requests::{Retention, StreamObject};
use crate::masklets::session::{Action, GIVEN_SCORE, MaskletSession};
use crate::masklets::{BitMask, ObjectId};
use ocelli_error::{Result, refuse};
use std::collections::BTreeSet;

impl MaskletSession {
    /// Clicks on an object of a frame: one that is tracked is refined, another one is added under this id. The next run then
    /// tracks only objects that were clicked or given.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if there are no clicks, no such frame, or too
    /// many objects, or if the session has a prompt and no results of that frame; errors of the network.
    pub fn click(
        &mut self,
        frame: usize,
        id: ObjectId,
        clicks: &[Click],
        network: &mut impl MaskNetwork,
    ) -> Result<ShownFrame> {
        check_clicks(clicks)?;
        self.check_shown(frame)?;
        network.load(frame)?;
        self.give_clicks(&mut self.current(frame, false, network), id, clicks)?;
        self.show_cached(frame)
    }

    /// Adds an object by its mask on a frame, of the size of the video. The next run then tracks only objects that were
    /// clicked or given, and shows this mask on this frame.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the object is tracked already, the mask has
    /// another size or too few pixels, and as [`click`](Self::click).
    pub fn add_mask(
        &mut self,
        frame: usize,
        id: ObjectId,
        mask: &BitMask,
        network: &mut impl MaskNetwork,
    ) -> Result<ShownFrame> {
        self.check_shown(frame)?;
        network.load(frame)?;
        self.give_mask(&mut self.current(frame, false, network), id, mask)?;
        self.show_cached(frame)
    }

    /// Adds or refines an object on the loaded frame.
    pub(super) fn give(&mut self, now: &mut Current<'_>, prompt: &StreamObject) -> Result<()> {
        match prompt {
            StreamObject::Clicks { id, clicks } => {
                check_clicks(clicks)?;
                self.give_clicks(now, *id, clicks)
            }
            StreamObject::Mask { id, mask } => self.give_mask(now, *id, mask),
        }
    }

    fn give_clicks(&mut self, now: &mut Current<'_>, id: ObjectId, clicks: &[Click]) -> Result<()> {
        let frame = now.frame;
        let is_tracked = self.check_room(id)?;
        self.tracks.click(now, id, clicks)?;
        self.history.push(if is_tracked { Action::Refine { frame, id } } else { Action::Add { frame, id } });
        self.given.remove(&(frame, id));
        let (masks, scores) = self.tracks.clicked(frame, &BTreeSet::from([id]));
        self.unhide(id);
        let output = self.results(frame)?;
        output.masks.extend(masks);
        output.tracker_scores.extend(scores);
        Ok(())
    }

    fn give_mask(&mut self, now: &mut Current<'_>, id: ObjectId, mask: &BitMask) -> Result<()> {
        let frame = now.frame;
        let (width, height) = (self.video.width, self.video.height);
        let (own_width, own_height) = (mask.width(), mask.height());
        if (own_width, own_height) != (width, height) {
            refuse!(
                "the mask of object {id} has {own_width} × {own_height} pixels: expected {width} × {height}, as the video"
            );
        }
        if self.check_room(id)? {
            refuse!(
                "object {id} is tracked already: expected a mask of a new object; clicks refine this one"
            );
        }
        if !self.tracks.add_mask(now, id, mask)? {
            refuse!("the mask of object {id} on frame {frame} has too few pixels to be followed");
        }
        self.history.push(Action::Add { frame, id });
        self.given.insert((frame, id), mask.runs());
        self.unhide(id);
        let output = self.results(frame)?;
        output.masks.insert(id, mask.runs());
        output.tracker_scores.insert(id, GIVEN_SCORE);
        Ok(())
    }

    /// Shows an object on all frames from now on.
    fn unhide(&mut self, id: ObjectId) {
        for output in self.cache.values_mut() {
            output.hidden.remove(&id);
        }
    }

    /// `true` if the object is tracked; if not, checks that it can be added.
    fn check_room(&self, id: ObjectId) -> Result<bool> {
        let ids = self.tracks.ids();
        let is_tracked = ids.contains(&id);
        if !is_tracked && ids.len() >= self.tracks.options.max_objects {
            refuse!("max_objects is {}: no object can be added", self.tracks.options.max_objects);
        }
        Ok(is_tracked)
    }

    fn check_shown(&self, frame: usize) -> Result<()> {
        self.check_frame(frame)?;
        if self.retention == Retention::Window {
            refuse!("shown frames were not kept: expected clicks in a session with Retention::Video");
        }
        if self.prompt.is_some() && !self.cache.contains_key(&frame) {
            refuse!("frame {frame} has no results: expected a click on a frame that was shown");
        }
        Ok(())
    }
}

fn check_clicks(clicks: &[Click]) -> Result<()> {
    let is_inside = |click: &Click| (0.0..=1.0).contains(&click.x) && (0.0..=1.0).contains(&click.y);
    if clicks.is_empty() || !clicks.iter().all(is_inside) {
        refuse!("expected at least one click with coordinates of 0 to 1");
    }
    Ok(())
}
