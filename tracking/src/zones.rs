//! Counting: tracks that cross lines and stay in zones.

mod geometry;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{BoundingBox, Track, TrackState};
pub use geometry::is_inside;
use geometry::{distance_to_edges, side_of, where_on_line};
use ocelli_error::{Result, refuse};

/// A line between two points; tracks that cross it are counted in each direction.
#[derive(Clone, Debug, PartialEq)]
pub struct CountingLine {
    /// Its name in events.
    pub name: String,
    /// Its beginning, `[x, y]`.
    pub from: [f32; 2],
    /// Its end.
    pub to: [f32; 2],
}

/// A polygon; tracks inside are counted and timed.
#[derive(Clone, Debug, PartialEq)]
pub struct Zone {
    /// Its name in events.
    pub name: String,
    /// Its corners, at least three; the last is connected with the first.
    pub points: Vec<[f32; 2]>,
}

/// The point of a box that crosses lines and is inside or outside of a zone.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Anchor {
    /// The middle of the lower edge: where a person stands.
    #[default]
    Bottom,
    /// The centre of the box.
    Centre,
}

impl Anchor {
    fn of(self, bbox: &BoundingBox) -> [f32; 2] {
        let [x1, y1, x2, y2] = bbox.to_xyxy();
        [0.5 * (x1 + x2), if self == Self::Bottom { y2 } else { 0.5 * (y1 + y2) }]
    }
}

/// Options of a [`ZoneCounter`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZoneOptions {
    /// The point of a box that counts.
    pub anchor: Anchor,
    /// The distance beyond a line or an edge at which the anchor has changed sides, in the unit of the boxes. An anchor that
    /// wavers by less counts once.
    pub margin: f32,
    /// The time that a track may be missing before it has left all zones.
    pub patience: Duration,
}

impl Default for ZoneOptions {
    /// The bottom of the box, 5 pixels, 2 seconds.
    fn default() -> Self {
        Self { anchor: Anchor::default(), margin: 5.0, patience: Duration::from_secs(2) }
    }
}

/// A direction across a line, seen from its beginning, with y downwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Direction {
    /// From the left of the line to its right.
    In,
    /// From the right of the line to its left.
    Out,
}

/// An event of a track.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ZoneEventKind {
    /// It has crossed the line of this index.
    Crossed(usize, Direction),
    /// It has entered the zone of this index, or appeared in it.
    Entered(usize),
    /// It has left the zone of this index, or vanished in it, after this time inside.
    Left(usize, Duration),
}

/// An event of a [`ZoneCounter`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZoneEvent {
    /// The event.
    pub kind: ZoneEventKind,
    /// The time of the frame in which it was seen; for a track that vanished, of the last one with it.
    pub time: Duration,
    /// The id of the track.
    pub track: u64,
    /// The class of the track.
    pub class_id: usize,
}

/// The counts of a line for a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// From left to right.
    pub entered: u64,
    /// From right to left.
    pub left: u64,
}

/// The counts of a zone for a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneCounts {
    /// Tracks inside now.
    pub inside: u64,
    /// The number of times that a track has entered.
    pub entered: u64,
    /// The time inside of all visits that have ended.
    pub dwell: Duration,
    /// The longest of them.
    pub longest: Duration,
    /// The time when a track was first inside.
    pub first: Duration,
    /// The time when a track was last inside.
    pub last: Duration,
}

/// Counts tracks that cross lines and stay in zones, by class.
///
/// A track is where its [anchor](Anchor) is. It has crossed a line when the anchor was clearly on one side and then is on
/// the other, farther from it than the [margin](ZoneOptions::margin), and went through the line between its two ends; to
/// touch the line is not to cross it. The same margin applies to the edges of a zone, but no more than half its area divided
/// by its perimeter, which is a quarter of the width of a long strip. Predicted places are ignored: those of lost tracks, and
/// those of frames in which the detector did not look for the track.
#[derive(Clone, Debug)]
pub struct ZoneCounter {
    lines: Vec<CountingLine>,
    zones: Vec<Zone>,
    options: ZoneOptions,
    tracks: BTreeMap<u64, CountedTrack>,
    line_counts: Vec<BTreeMap<usize, LineCounts>>,
    zone_counts: Vec<BTreeMap<usize, ZoneCounts>>,
    events: Vec<ZoneEvent>,
}

/// The state of a track.
#[derive(Clone, Debug)]
struct CountedTrack {
    class_id: usize,
    last: Duration,
    /// The time when it was last reported and not lost, seen or predicted.
    kept: Duration,
    lines: Vec<LineState>,
    /// Since when it is inside of each zone.
    zones: Vec<Option<Duration>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct LineState {
    /// The last signed distance that was not zero, and its anchor.
    last: Option<(f32, [f32; 2])>,
    /// The side that it was clearly on: the sign of the distance.
    confirmed: Option<bool>,
    /// Set if it last changed the sign between the ends of the line.
    between_ends: bool,
}

impl ZoneCounter {
    /// A counter of these lines and zones.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) for a line without length, a zone with fewer
    /// than three corners or without area, a coordinate that is not finite, or a negative margin.
    pub fn new(lines: Vec<CountingLine>, zones: Vec<Zone>, options: ZoneOptions) -> Result<Self> {
        let is_finite = |points: &[[f32; 2]]| points.as_flattened().iter().all(|value| value.is_finite());
        for CountingLine { name, from, to } in &lines {
            if from == to || !is_finite(&[*from, *to]) {
                refuse!("line {name}: expected two different points, got {from:?} and {to:?}");
            }
        }
        for Zone { name, points } in &zones {
            if points.len() < 3 || !is_finite(points) || geometry::area(points) == 0.0 {
                refuse!("zone {name}: expected three or more corners around an area, got {points:?}");
            }
        }
        if !(options.margin.is_finite() && options.margin >= 0.0) {
            refuse!("the margin is {}: expected 0 or more", options.margin);
        }
        Ok(Self {
            line_counts: vec![BTreeMap::new(); lines.len()],
            zone_counts: vec![BTreeMap::new(); zones.len()],
            lines,
            zones,
            options,
            tracks: BTreeMap::new(),
            events: Vec::new(),
        })
    }

    /// The lines.
    pub fn lines(&self) -> &[CountingLine] {
        &self.lines
    }

    /// The zones.
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// The counts of each line by class.
    pub fn line_counts(&self) -> &[BTreeMap<usize, LineCounts>] {
        &self.line_counts
    }

    /// The counts of each zone by class.
    pub fn zone_counts(&self) -> &[BTreeMap<usize, ZoneCounts>] {
        &self.zone_counts
    }

    /// Takes the tracks of the next frame; returns what has happened in it.
    pub fn update(&mut self, tracks: &[Track], time: Duration) -> &[ZoneEvent] {
        self.events.clear();
        for track in tracks.iter().filter(|track| track.state == TrackState::Tracked) {
            if track.frames_since_seen == 0.0 {
                self.see(track, time);
            } else if let Some(seen) = self.tracks.get_mut(&track.id) {
                seen.kept = time;
            }
        }
        let patience = self.options.patience;
        self.forget(|seen| time.saturating_sub(seen.kept) > patience);
        &self.events
    }

    /// Ends the visits of all tracks, at the end of the stream.
    pub fn finish(&mut self) -> &[ZoneEvent] {
        self.events.clear();
        self.forget(|_| true);
        &self.events
    }

    fn see(&mut self, track: &Track, time: Duration) {
        let Self { lines, zones, options, tracks, line_counts, zone_counts, events } = self;
        let anchor = options.anchor.of(&track.bbox);
        let class_id = track.class_id;
        let seen = tracks.entry(track.id).or_insert_with(|| CountedTrack {
            class_id,
            last: time,
            kept: time,
            lines: vec![LineState::default(); lines.len()],
            zones: vec![None; zones.len()],
        });
        if seen.class_id != class_id {
            // The track has changed its mind; its visits go on under the new class.
            for (counts, since) in zone_counts.iter_mut().zip(&seen.zones) {
                if since.is_some() {
                    counts.entry(seen.class_id).or_default().inside -= 1;
                    let new =
                        counts.entry(class_id).or_insert(ZoneCounts { first: time, ..ZoneCounts::default() });
                    (new.inside, new.last) = (new.inside + 1, time);
                }
            }
            seen.class_id = class_id;
        }
        (seen.last, seen.kept) = (time, time);
        let mut report = |kind| events.push(ZoneEvent { kind, time, track: track.id, class_id });
        for (number, (line, state)) in lines.iter().zip(&mut seen.lines).enumerate() {
            if let Some(direction) = state.moved(line, anchor, options.margin) {
                let counts = line_counts[number].entry(class_id).or_default();
                match direction {
                    Direction::In => counts.entered += 1,
                    Direction::Out => counts.left += 1,
                }
                report(ZoneEventKind::Crossed(number, direction));
            }
        }
        for (number, (zone, since)) in zones.iter().zip(&mut seen.zones).enumerate() {
            let margin =
                options.margin.min(0.5 * geometry::area(&zone.points) / geometry::perimeter(&zone.points));
            let inside = is_inside(&zone.points, anchor);
            let is_clear = distance_to_edges(&zone.points, anchor) >= margin;
            let counts = &mut zone_counts[number];
            match *since {
                None if inside && is_clear => {
                    *since = Some(time);
                    let counts =
                        counts.entry(class_id).or_insert(ZoneCounts { first: time, ..ZoneCounts::default() });
                    counts.inside += 1;
                    counts.entered += 1;
                    report(ZoneEventKind::Entered(number));
                }
                Some(entered) if !inside && is_clear => {
                    *since = None;
                    let dwell = time.saturating_sub(entered);
                    counts.entry(class_id).or_default().leave(dwell);
                    report(ZoneEventKind::Left(number, dwell));
                }
                _ => {}
            }
            if since.is_some() {
                counts.entry(class_id).or_default().last = time;
            }
        }
    }

    /// Ends the visits of the tracks that are not seen any more.
    fn forget(&mut self, is_gone: impl Fn(&CountedTrack) -> bool) {
        for (track, seen) in self.tracks.extract_if(.., |_, seen| is_gone(seen)) {
            let CountedTrack { class_id, last, zones, .. } = seen;
            for (number, entered) in zones.into_iter().enumerate() {
                let Some(entered) = entered else { continue };
                let dwell = last.saturating_sub(entered);
                self.zone_counts[number].entry(class_id).or_default().leave(dwell);
                let kind = ZoneEventKind::Left(number, dwell);
                self.events.push(ZoneEvent { kind, time: last, track, class_id });
            }
        }
    }
}

impl ZoneCounts {
    fn leave(&mut self, dwell: Duration) {
        self.inside = self.inside.saturating_sub(1);
        self.dwell += dwell;
        self.longest = self.longest.max(dwell);
    }
}

impl LineState {
    /// The anchor has moved; the direction if it has now crossed the line.
    fn moved(&mut self, line: &CountingLine, anchor: [f32; 2], margin: f32) -> Option<Direction> {
        let distance = side_of(line.from, line.to, anchor);
        if distance == 0.0 {
            // On the line is on neither side.
            return None;
        }
        if let Some((before, from)) = self.last
            && (before > 0.0) != (distance > 0.0)
        {
            let share = before / (before - distance);
            let crossing = [0, 1].map(|axis| from[axis] + share * (anchor[axis] - from[axis]));
            self.between_ends = (0.0..=1.0).contains(&where_on_line(line.from, line.to, crossing));
        }
        self.last = Some((distance, anchor));
        if distance.abs() < margin {
            return None;
        }
        let right = distance > 0.0;
        let before = self.confirmed.replace(right)?;
        let crossed = before != right && self.between_ends;
        crossed.then_some(if right { Direction::In } else { Direction::Out })
    }
}

#[cfg(test)]
mod tests;
