//! MOTA and its counts: Bernardin & Stiefelhagen, "Evaluating Multiple Object Tracking Performance: The CLEAR MOT
//! Metrics", 2008. IDF1: Ristani et al., "Performance Measures and a Data Set for Multi-Target, Multi-Camera Tracking", 2016.

use std::collections::{BTreeMap, BTreeSet};

use super::{TrackFigures, TrackFrame, TrackSequence, assign, tracks::matches};

/// The least overlap of a match.
const LEAST: f64 = 0.5;

/// Counts of CLEAR MOT; those of sequences and classes add up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ClearCounts {
    /// The counts; the shares, and the sums of counts, are 0.
    counts: TrackFigures,
    overlap: f64,
}

/// An object's frames, and those where it was found.
#[derive(Clone, Copy, Default)]
struct Followed {
    frames: u64,
    found: u64,
    /// The track of its last match, and the number of frames with objects and tracks up to then.
    last: Option<u64>,
    matched: u64,
    begun: u64,
}

impl ClearCounts {
    pub(super) fn of(sequence: &TrackSequence) -> Self {
        let (mut counts, mut overlap, mut frames) = (TrackFigures::default(), 0.0, 0);
        let mut followed: BTreeMap<u64, Followed> = BTreeMap::new();
        for TrackFrame { objects: rows, tracks: columns, overlaps } in &sequence.frames {
            rows.iter().for_each(|row| followed.entry(*row).or_default().frames += 1);
            let width = columns.len();
            // A match of the previous frame is kept before all others.
            let score = |(place, &overlap): (usize, &f64)| {
                if overlap < LEAST - f64::EPSILON {
                    return 0.0;
                }
                let object = &followed[&rows[place / width]];
                let is_kept = object.last == Some(columns[place % width]) && object.matched == frames;
                if is_kept { 1000.0 + overlap } else { overlap }
            };
            let scores: Vec<f64> = overlaps.iter().enumerate().map(score).collect();
            let pairs = matches(&scores, rows.len(), width);
            counts.true_positives += pairs.len() as u64;
            counts.false_negatives += (rows.len() - pairs.len()) as u64;
            counts.false_positives += (width - pairs.len()) as u64;
            if rows.is_empty() || columns.is_empty() {
                continue;
            }
            for (row, column) in pairs {
                overlap += overlaps[row * width + column];
                let (object, track) = (followed.entry(rows[row]).or_default(), columns[column]);
                counts.id_switches += u64::from(object.last.is_some_and(|last| last != track));
                object.begun += u64::from(object.last.is_none() || object.matched != frames);
                (object.last, object.matched) = (Some(track), frames + 1);
                object.found += 1;
            }
            frames += 1;
        }
        for object in followed.values() {
            match object.found as f64 / object.frames as f64 {
                share if share > 0.8 => counts.mostly_tracked += 1,
                share if share >= 0.2 => counts.partly_tracked += 1,
                _ => counts.mostly_lost += 1,
            }
            counts.fragmentations += object.begun.saturating_sub(1);
        }
        Self { counts, overlap }
    }

    pub(super) fn add(&mut self, other: &Self) {
        let (counts, others) = (&mut self.counts, &other.counts);
        counts.true_positives += others.true_positives;
        counts.false_positives += others.false_positives;
        counts.false_negatives += others.false_negatives;
        counts.id_switches += others.id_switches;
        counts.mostly_tracked += others.mostly_tracked;
        counts.partly_tracked += others.partly_tracked;
        counts.mostly_lost += others.mostly_lost;
        counts.fragmentations += others.fragmentations;
        self.overlap += other.overlap;
    }

    /// MOTA and the counts, without the other figures.
    pub(super) fn figures(&self) -> TrackFigures {
        let TrackFigures { true_positives, false_positives, false_negatives, id_switches, .. } = self.counts;
        let objects = true_positives + false_negatives;
        let right = true_positives as f64 - false_positives as f64 - id_switches as f64;
        TrackFigures {
            // 0 without objects, as TrackEval has it for one sequence.
            mota: if objects == 0 { 0.0 } else { right / objects as f64 },
            motp: self.overlap / (true_positives as f64).max(1.0),
            objects,
            tracked: true_positives + false_positives,
            ..self.counts
        }
    }
}

/// Frames that objects and tracks have in common, of the best assignment: those of sequences and classes add up.
pub(super) fn identity_hits(sequence: &TrackSequence) -> u64 {
    let mut together: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for TrackFrame { objects: rows, tracks: columns, overlaps } in &sequence.frames {
        let width = columns.len();
        for (place, _) in overlaps.iter().enumerate().filter(|(_, overlap)| **overlap >= LEAST) {
            *together.entry((rows[place / width], columns[place % width])).or_default() += 1;
        }
    }
    let rows: BTreeSet<u64> = together.keys().map(|pair| pair.0).collect();
    let columns: BTreeSet<u64> = together.keys().map(|pair| pair.1).collect();
    let pairs = rows.iter().flat_map(|row| columns.iter().map(move |column| (*row, *column)));
    let frames = pairs.map(|pair| together.get(&pair).map_or(0.0, |count| *count as f64));
    let frames: Vec<f64> = frames.collect();
    // More pairs are never worse, so that the sum of an assignment without costs is that of TrackEval's with them.
    let pairs = assign(&frames, rows.len(), columns.len()).into_iter();
    pairs.map(|(row, column)| frames[row * columns.len() + column] as u64).sum()
}
