//! Tracks of masks of one category in one video, compared: the figures of YouTube-VIS and of SA-Co's videos.

use std::collections::BTreeSet;
use std::path::Path;

use ocelli::Result;

use super::cgf1::{Case, LEAST_SCORE};
use super::vis::{MaskTrack, Vis};
use super::vis_ap::{Cell, accuracy};
use super::{CgF1, TrackCounts, TrackReport, TrackSequence, VideoReport};

impl<'a> Cell<'a> {
    fn new(truth: &'a Vis, found: &'a Vis, video: u64, category: u64) -> Result<Self> {
        let of = |vis: &'a Vis| -> Vec<&'a MaskTrack> {
            vis.tracks.iter().filter(|track| track.video == video && track.category == category).collect()
        };
        let (objects, tracks) = (of(truth), of(found));
        let (mut common, mut in_all) = (Vec::new(), Vec::new());
        for track in &tracks {
            for object in &objects {
                let frames = object.masks.iter().zip(&track.masks).map(|pair| match pair {
                    (Some(a), Some(b)) => a.intersection_area(b),
                    _ => Ok(0),
                });
                let frames = frames.collect::<Result<Vec<u64>>>()?;
                let both: u64 = frames.iter().sum();
                in_all.push((both, track.areas.iter().chain(&object.areas).sum::<u64>() - both));
                common.push(frames);
            }
        }
        Ok(Self { objects, tracks, common, in_all })
    }

    fn counts(&self, frames: usize) -> Result<TrackCounts> {
        let mut sequence = TrackSequence::default();
        for frame in 0..frames {
            let seen = |tracks: &[&MaskTrack]| -> Vec<usize> {
                (0..tracks.len()).filter(|&place| tracks[place].masks[frame].is_some()).collect()
            };
            let (rows, columns) = (seen(&self.objects), seen(&self.tracks));
            let overlap = |row: usize, column: usize| {
                let common = self.common[column * self.objects.len() + row][frame];
                let either = self.objects[row].areas[frame] + self.tracks[column].areas[frame] - common;
                common as f64 / either.max(1) as f64
            };
            let overlaps = rows.iter().flat_map(|&row| columns.iter().map(move |&column| (row, column)));
            let overlaps = overlaps.map(|(row, column)| overlap(row, column)).collect();
            let ids = |places: Vec<usize>| places.into_iter().map(|place| place as u64).collect();
            sequence.push(ids(rows), ids(columns), overlaps)?;
        }
        Ok(TrackCounts::of(&sequence))
    }

    fn case(&self) -> Case {
        let overlaps = self.overlaps(1.0);
        let width = self.objects.len();
        let rows: Vec<usize> =
            (0..self.tracks.len()).filter(|&row| self.tracks[row].score >= LEAST_SCORE).collect();
        let columns: Vec<usize> = (0..width).filter(|&column| !self.objects[column].is_crowd).collect();
        Case::new(&super::tracks::part(&overlaps, width, &rows, &columns), rows.len(), columns.len())
    }
}

/// Evaluates tracks by the file of the ground truth.
pub(super) fn evaluate(truth_file: &Path, predictions: &Path) -> Result<VideoReport> {
    let truth = &Vis::truth(truth_file)?;
    let found = &Vis::predictions(predictions, truth)?;
    let prompts: Option<BTreeSet<(u64, u64)>> = truth.prompts.as_ref().map(|prompts| {
        let tracks = truth.tracks.iter().chain(&found.tracks).map(|track| (track.video, track.category));
        prompts.iter().map(|prompt| (prompt.video_id, prompt.category_id)).chain(tracks).collect()
    });
    let (mut classes, mut counts, mut cases) = (Vec::new(), Vec::new(), Vec::new());
    for category in &truth.categories {
        let (mut in_videos, mut of_class) = (Vec::new(), Vec::new());
        for video in &truth.videos {
            let mut cell = Cell::new(truth, found, video.id, category.id)?;
            if prompts.as_ref().is_some_and(|prompts| prompts.contains(&(video.id, category.id))) {
                cases.push(cell.case());
            }
            if !cell.objects.is_empty() || !cell.tracks.is_empty() {
                of_class.push(cell.counts(video.frames())?);
            }
            // What single frames have is not needed any more.
            cell.common = Vec::new();
            in_videos.push(cell);
        }
        classes.push((category, in_videos));
        if !of_class.is_empty() {
            counts.push((category.name.clone(), of_class.into_iter().sum()));
        }
    }
    Ok(VideoReport {
        segm: Some(accuracy(&classes)),
        cgf1_segm: prompts.map(|_| CgF1::of(&cases)),
        tracks: Some(TrackReport::new(truth_file, Vec::new(), counts)?),
        ..VideoReport::default()
    })
}
