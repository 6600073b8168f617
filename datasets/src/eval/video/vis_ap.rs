//! Average precision of YouTube-VIS: COCO's, with tracks in place of detections, videos in place of images, and the IoU of all
//! frames of a track together. Yang, Fan & Xu, "Video Instance Segmentation", ICCV 2019.

use crate::eval::{Accuracy, ClassAccuracy};

/// The least IoUs: 0.50, 0.55 … 0.95.
pub(super) const LEVELS: usize = 10;
const RECALLS: usize = 101;
/// Tracks of a class in a video, at most.
const MOST: [usize; 3] = [1, 10, 100];
/// Mean areas in pixels: all, small, medium and large.
const AREAS: [[f64; 2]; 4] = [[0.0, 1e10], [0.0, 16384.0], [16384.0, 65536.0], [65536.0, 1e10]];

/// An IoU threshold, as NumPy's `linspace` computes it.
pub(super) fn level(index: usize) -> f64 {
    if index == LEVELS - 1 { 0.95 } else { index as f64 * ((0.95 - 0.5) / 9.0) + 0.5 }
}

/// The tracks of one class in one video.
pub(super) struct ClassInVideo {
    pub(super) objects: Vec<Object>,
    pub(super) tracks: Vec<Track>,
    /// IoU over all frames. // [track, object]
    pub(super) overlaps: Vec<f64>,
}

#[derive(Clone, Copy)]
pub(super) struct Object {
    pub(super) is_crowd: bool,
    pub(super) area: f64,
}

#[derive(Clone, Copy)]
pub(super) struct Track {
    pub(super) score: f64,
    pub(super) area: f64,
}

/// A class and its tracks in each video.
pub(super) struct Class {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) videos: Vec<ClassInVideo>,
}

/// What became of a track at each level.
struct Fate {
    score: f64,
    /// Its place among the tracks of the video.
    rank: usize,
    is_hit: [bool; LEVELS],
    is_ignored: [bool; LEVELS],
}

/// Precision at each recall, and the greatest recall, for each level. // [level][recall], [level]
struct Curve {
    precision: Vec<[f64; RECALLS]>,
    recall: Vec<f64>,
}

/// The figures of all classes.
pub(super) fn accuracy(classes: &[Class]) -> Accuracy {
    // [class][area] and [class][most], `None` without objects
    let curves: Vec<[[Option<Curve>; 3]; 4]> = classes.iter().map(curves).collect();
    let curve = |class: usize, area: usize, most: usize| curves[class][area][most].as_ref();
    let all = 0..classes.len();
    let ap = |classes: std::ops::Range<usize>, levels: std::ops::Range<usize>, area: usize| {
        let known = classes.filter_map(|class| curve(class, area, 2));
        mean(known.flat_map(|curve| curve.precision[levels.clone()].iter().flatten().copied()))
    };
    let ar = |classes: std::ops::Range<usize>, area: usize, most: usize| {
        mean(
            classes
                .filter_map(|class| curve(class, area, most))
                .flat_map(|curve| curve.recall.iter().copied()),
        )
    };
    let per_class = classes.iter().enumerate().filter_map(|(place, class)| {
        let instances: usize =
            class.videos.iter().map(|video| video.objects.iter().filter(|one| !one.is_crowd).count()).sum();
        let one = place..place + 1;
        (instances > 0).then(|| ClassAccuracy {
            category_id: class.id,
            name: class.name.clone(),
            instances,
            ap: ap(one.clone(), 0..LEVELS, 0),
            ap50: ap(one.clone(), 0..1, 0),
            ap75: ap(one.clone(), 5..6, 0),
            ap_small: ap(one.clone(), 0..LEVELS, 1),
            ap_medium: ap(one.clone(), 0..LEVELS, 2),
            ap_large: ap(one.clone(), 0..LEVELS, 3),
            ar100: ar(one, 0, 2),
        })
    });
    Accuracy {
        ap: ap(all.clone(), 0..LEVELS, 0),
        ap50: ap(all.clone(), 0..1, 0),
        ap75: ap(all.clone(), 5..6, 0),
        ap_small: ap(all.clone(), 0..LEVELS, 1),
        ap_medium: ap(all.clone(), 0..LEVELS, 2),
        ap_large: ap(all.clone(), 0..LEVELS, 3),
        ar1: ar(all.clone(), 0, 0),
        ar10: ar(all.clone(), 0, 1),
        ar100: ar(all.clone(), 0, 2),
        ar_small: ar(all.clone(), 1, 2),
        ar_medium: ar(all.clone(), 2, 2),
        ar_large: ar(all, 3, 2),
        per_class: per_class.collect(),
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0u64), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / count as f64)
}

fn curves(class: &Class) -> [[Option<Curve>; 3]; 4] {
    AREAS.map(|area| {
        let (mut fates, mut objects) = (Vec::new(), 0);
        for video in &class.videos {
            objects += video.objects.iter().filter(|one| !is_ignored(one, area)).count();
            fates.extend(matches(video, area));
        }
        fates.sort_by(|a: &Fate, b: &Fate| b.score.total_cmp(&a.score));
        MOST.map(|most| (objects > 0).then(|| curve(fates.iter().filter(|fate| fate.rank < most), objects)))
    })
}

fn is_outside(area: f64, [low, high]: [f64; 2]) -> bool {
    area < low || area > high
}

fn is_ignored(object: &Object, range: [f64; 2]) -> bool {
    object.is_crowd || is_outside(object.area, range)
}

/// Matches the tracks of a video, the highest score first, with the objects that they overlap most.
fn matches(video: &ClassInVideo, range: [f64; 2]) -> Vec<Fate> {
    let mut order: Vec<usize> = (0..video.tracks.len()).collect();
    order.sort_by(|&a, &b| video.tracks[b].score.total_cmp(&video.tracks[a].score));
    order.truncate(MOST[2]);
    // Those that are ignored last.
    let mut objects: Vec<usize> = (0..video.objects.len()).collect();
    objects.sort_by_key(|&object| is_ignored(&video.objects[object], range));
    let mut is_taken = vec![[false; LEVELS]; video.objects.len()];
    let fates = order.into_iter().enumerate().map(|(rank, track)| {
        let Track { score, area } = video.tracks[track];
        let mut fate =
            Fate { score, rank, is_hit: [false; LEVELS], is_ignored: [is_outside(area, range); LEVELS] };
        for (at, least) in (0..LEVELS).map(level).enumerate() {
            let (mut best, mut found) = (least.min(1.0 - 1e-10), None);
            for &object in &objects {
                let one = &video.objects[object];
                if is_taken[object][at] && !one.is_crowd {
                    continue;
                }
                let has_counting =
                    found.is_some_and(|found: usize| !is_ignored(&video.objects[found], range));
                if has_counting && is_ignored(one, range) {
                    break;
                }
                let overlap = video.overlaps[track * video.objects.len() + object];
                if overlap >= best {
                    (best, found) = (overlap, Some(object));
                }
            }
            if let Some(object) = found {
                is_taken[object][at] = true;
                fate.is_hit[at] = true;
                fate.is_ignored[at] = is_ignored(&video.objects[object], range);
            }
        }
        fate
    });
    fates.collect()
}

/// The curve of tracks in the order of their scores.
fn curve<'f>(fates: impl Iterator<Item = &'f Fate> + Clone, objects: usize) -> Curve {
    let mut result = Curve { precision: Vec::with_capacity(LEVELS), recall: Vec::with_capacity(LEVELS) };
    for at in 0..LEVELS {
        let (mut hits, mut alarms) = (0.0, 0.0);
        let (mut recall, mut precision) = (Vec::new(), Vec::new());
        for fate in fates.clone() {
            if !fate.is_ignored[at] {
                if fate.is_hit[at] { hits += 1.0 } else { alarms += 1.0 }
            }
            recall.push(hits / objects as f64);
            precision.push(hits / (alarms + hits + f64::EPSILON));
        }
        for place in (1..precision.len()).rev() {
            precision[place - 1] = f64::max(precision[place - 1], precision[place]);
        }
        result.recall.push(recall.last().copied().unwrap_or(0.0));
        result.precision.push(std::array::from_fn(|step| {
            let wanted = if step == RECALLS - 1 { 1.0 } else { step as f64 * 0.01 };
            let place = recall.partition_point(|recall| *recall < wanted);
            precision.get(place).copied().unwrap_or(0.0)
        }));
    }
    result
}
