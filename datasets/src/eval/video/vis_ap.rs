//! Average precision of YouTube-VIS: COCO's, with tracks in place of detections, videos in place of images, and the IoU of all
//! frames of a track together. Yang, Fan & Xu, "Video Instance Segmentation", ICCV 2019.

use std::ops::Range;

use hotcoco::metrics::counts::average_precision;
use hotcoco::params::default_rec_thrs;
use hotcoco::primitives::greedy::{GtMasks, coco_match_floor, greedy_match_masked};

use super::tracks::part;
use super::vis::{Category, MaskTrack};
use crate::eval::accuracy::mean;
use crate::eval::{Accuracy, ClassAccuracy};

/// The least IoUs: 0.50, 0.55 … 0.95.
pub(super) const LEVELS: usize = 10;
/// Tracks of a class in a video, at most.
const MOST: [usize; 3] = [1, 10, 100];
/// Mean areas in pixels: all, small, medium and large.
const AREAS: [[f64; 2]; 4] = [[0.0, 1e10], [0.0, 16384.0], [16384.0, 65536.0], [65536.0, 1e10]];

/// An IoU threshold, as NumPy's `linspace` computes it.
pub(super) fn level(index: usize) -> f64 {
    if index == LEVELS - 1 { 0.95 } else { index as f64 * ((0.95 - 0.5) / 9.0) + 0.5 }
}

/// Objects and tracks of one category in one video.
pub(super) struct Cell<'a> {
    pub(super) objects: Vec<&'a MaskTrack>,
    pub(super) tracks: Vec<&'a MaskTrack>,
    /// Pixels that a track and an object have in common. // [track, object, frame]
    pub(super) common: Vec<Vec<u64>>,
    /// Those of all frames, and pixels that either has. // [track, object]
    pub(super) in_all: Vec<(u64, u64)>,
}

impl Cell<'_> {
    /// IoU over all frames; `of_nothing` if neither has a pixel. // [track, object]
    pub(super) fn overlaps(&self, of_nothing: f64) -> Vec<f64> {
        let overlap = |&(both, either): &(u64, u64)| match either {
            0 => of_nothing,
            _ => both as f64 / either as f64,
        };
        self.in_all.iter().map(overlap).collect()
    }
}

/// A class and its tracks in each video.
pub(super) type Class<'a> = (&'a Category, Vec<Cell<'a>>);

/// The fate of a track at each level.
struct Fate {
    score: f64,
    /// Its place among the tracks of the video.
    rank: usize,
    is_hit: [bool; LEVELS],
    is_ignored: [bool; LEVELS],
}

/// Average precision, and the greatest recall, at each level.
type Curve = [(f64, f64); LEVELS];

/// The curves of a class by area and by the most tracks of a video; `None` without objects.
type Curves = [[Option<Curve>; MOST.len()]; AREAS.len()];

/// The figures of all classes.
pub(super) fn accuracy(classes: &[Class<'_>]) -> Accuracy {
    let all: Vec<Curves> = classes.iter().map(curves).collect();
    let precision = |of: &Range<usize>, levels: Range<usize>, area: usize| {
        let known = all[of.clone()].iter().filter_map(|one| one[area][MOST.len() - 1].as_ref());
        mean(known.flat_map(|curve| &curve[levels.clone()]).map(|level| level.0))
    };
    let recall = |of: &Range<usize>, area: usize, most: usize| {
        let known = all[of.clone()].iter().filter_map(|one| one[area][most].as_ref());
        mean(known.flatten().map(|level| level.1))
    };
    let counted = classes.iter().enumerate().filter_map(|(place, (class, videos))| {
        let objects = videos.iter().flat_map(|video| &video.objects);
        let instances = objects.filter(|one| !one.is_crowd).count();
        (instances > 0).then(|| (place, ClassAccuracy::of(class.id, &class.name, instances)))
    });
    Accuracy::new(counted, 0..classes.len(), precision, recall)
}

fn curves((_, videos): &Class<'_>) -> Curves {
    AREAS.map(|area| {
        let (mut fates, mut objects) = (Vec::new(), 0);
        for video in videos {
            objects += video.objects.iter().filter(|one| !is_ignored(one, area)).count();
            fates.extend(matches(video, area));
        }
        fates.sort_by(|a: &Fate, b: &Fate| b.score.total_cmp(&a.score));
        MOST.map(|most| {
            let counted: Vec<&Fate> = fates.iter().filter(|fate| fate.rank < most).collect();
            (objects > 0).then(|| curve(&counted, objects))
        })
    })
}

fn is_outside(area: f64, [low, high]: [f64; 2]) -> bool {
    area < low || area > high
}

fn is_ignored(object: &MaskTrack, range: [f64; 2]) -> bool {
    object.is_crowd || is_outside(object.area, range)
}

/// Matches the tracks of a video, the highest score first, with the objects that they overlap most.
fn matches(video: &Cell<'_>, range: [f64; 2]) -> Vec<Fate> {
    let mut order: Vec<usize> = (0..video.tracks.len()).collect();
    order.sort_by(|&a, &b| video.tracks[b].score.total_cmp(&video.tracks[a].score));
    order.truncate(MOST[2]);
    // Those that are ignored last.
    let mut objects: Vec<usize> = (0..video.objects.len()).collect();
    objects.sort_by_key(|&object| is_ignored(video.objects[object], range));
    let counted = objects.iter().filter(|&&object| !is_ignored(video.objects[object], range)).count();
    let overlaps = part(&video.overlaps(0.0), video.objects.len(), &order, &objects);
    let is_crowd: Vec<bool> = objects.iter().map(|&object| video.objects[object].is_crowd).collect();
    let masks = GtMasks { rematchable: Some(&is_crowd), phase2_eligible: None };
    let floors: [f64; LEVELS] = std::array::from_fn(|at| coco_match_floor(level(at)));
    let matched = greedy_match_masked(&overlaps, order.len(), objects.len(), counted, masks, &floors);
    let fates = order.into_iter().enumerate().map(|(rank, track)| {
        let &MaskTrack { score, area, .. } = video.tracks[track];
        let found: [Option<usize>; LEVELS] = std::array::from_fn(|at| matched.dt_gt.row(at)[rank]);
        let is_hit = found.map(|object| object.is_some());
        let is_ignored =
            found.map(|object| object.map_or(is_outside(area, range), |object| object >= counted));
        Fate { score, rank, is_hit, is_ignored }
    });
    fates.collect()
}

/// The curve of tracks in the order of their scores.
fn curve(fates: &[&Fate], objects: usize) -> Curve {
    let scores: Vec<f64> = fates.iter().map(|fate| fate.score).collect();
    let recalls = default_rec_thrs();
    let at = |level: usize| {
        let (is_hit, is_ignored): (Vec<bool>, Vec<bool>) =
            fates.iter().map(|fate| (fate.is_hit[level], fate.is_ignored[level])).unzip();
        let hits = is_hit.iter().zip(&is_ignored).filter(|(hit, ignored)| **hit && !**ignored).count();
        let precision = average_precision(&scores, &is_hit, Some(&is_ignored), objects, &recalls);
        (precision, hits as f64 / objects as f64)
    };
    std::array::from_fn(at)
}
