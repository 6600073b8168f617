//! Accuracy of tracks: MOTA and IDF1, by the definitions of Bernardin & Stiefelhagen 2008 and Ristani 2016.
//!
//! Matches are greedy by overlap and the id assignment is greedy by length, which can only make the numbers worse.

use std::collections::HashMap;

use ocelli::report::FrameReport;
use ocelli_datasets::scenes::MovingScene;

/// Minimum IoU of a track and the object it matches.
const LEAST_IOU: f32 = 0.5;
/// Objects that are hidden more than this are ignored.
const LEAST_VISIBLE: f32 = 0.5;

#[derive(Debug)]
pub struct Score {
    pub mota: f64,
    pub idf1: f64,
}

pub fn score(scene: &MovingScene, lines: &[FrameReport]) -> Score {
    let (mut truths, mut found, mut misses, mut false_alarms, mut switches) = (0u64, 0u64, 0u64, 0u64, 0u64);
    let mut last: HashMap<u64, u64> = HashMap::new();
    let mut together: HashMap<(u64, u64), u64> = HashMap::new();
    for line in lines {
        let truth = scene.truth(line.frame);
        let mut pairs: Vec<(f32, usize, usize)> = Vec::new();
        for (t, truth) in truth.iter().enumerate() {
            for (o, track) in line.tracks.iter().enumerate() {
                let iou = truth.bbox.iou(&track.bbox);
                if iou >= LEAST_IOU && truth.class_id == track.class_id {
                    pairs.push((iou, t, o));
                }
            }
        }
        pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (mut taken_truth, mut taken) = (vec![false; truth.len()], vec![false; line.tracks.len()]);
        for (_, t, o) in pairs {
            if taken_truth[t] || taken[o] {
                continue;
            }
            (taken_truth[t], taken[o]) = (true, true);
            let (id, track) = (truth[t].id, line.tracks[o].id);
            switches += u64::from(last.insert(id, track).is_some_and(|before| before != track));
            if truth[t].visible >= LEAST_VISIBLE {
                *together.entry((id, track)).or_default() += 1;
                found += 1;
            }
        }
        let wanted = truth.iter().zip(&taken_truth).filter(|(truth, _)| truth.visible >= LEAST_VISIBLE);
        truths += wanted.clone().count() as u64;
        misses += wanted.filter(|(_, taken)| !**taken).count() as u64;
        let alarms = taken.iter().filter(|taken| !**taken).count() as u64;
        false_alarms += alarms;
        found += alarms;
    }
    let mut pairs: Vec<_> = together.into_iter().collect();
    pairs.sort_by_key(|&(pair, frames)| (std::cmp::Reverse(frames), pair));
    let (mut ids, mut tracks, mut right) = (Vec::new(), Vec::new(), 0);
    for ((id, track), frames) in pairs {
        if !ids.contains(&id) && !tracks.contains(&track) {
            ids.push(id);
            tracks.push(track);
            right += frames;
        }
    }
    Score {
        mota: 1.0 - (misses + false_alarms + switches) as f64 / truths as f64,
        idf1: 2.0 * right as f64 / (truths + found) as f64,
    }
}
