//! One detection of each object from those of several tiles.
//!
//! Two detections are compared where both tiles have seen the image. An object inside a tile has a *complete* detection; what
//! reaches the border of its tile is a *part*. Complete detections of one object have much of their area in common, and the
//! better one is kept. Parts that agree in the overlap of their tiles are one object: boxes and masks are joined. Parts of an
//! object that has a complete detection are dropped, unless several are surer of it, in smaller tiles: then the joined box is the
//! more exact one.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use ocelli_tracking::BoundingBox;

use super::Region;
use crate::detection::Detection;
use crate::mask::SemanticMap;
use crate::postprocess::PostProcessOptions;
use ocelli_error::Result;

/// The least intersection of two detections of an object, as a share of the smaller one.
const LEAST_OF_SMALLER: f32 = 0.5;
/// The least IoU of two detections of an object of which both are complete, or both are parts: an object in front of a larger
/// one is inside of it as well.
const LEAST_IOU: f32 = 0.3;
/// The least intersection of the masks, as a share of the smaller one.
const LEAST_OF_SMALLER_MASK: f64 = 0.3;
/// The least score of a part that its object is joined of, as a share of that of the best part.
const LEAST_SCORE_OF_PARTS: f32 = 0.5;
/// From this IoU on, the box of the smaller tile replaces that of the better score: it is the more exact one.
const SAME_BOX_IOU: f32 = 0.5;
/// The distance from the border of a tile at which an object is cut, as a share of the tile's side, and in pixels.
const BORDER_SHARE: f32 = 0.01;
const BORDER_PIXELS: f32 = 1.0;

/// A detection of a tile, in pixels of the image.
#[derive(Clone, Debug)]
pub(crate) struct TileDetection {
    detection: Detection,
    tile: BoundingBox,
    /// Set if it reaches the border of its tile inside the image.
    is_part: bool,
}

impl TileDetection {
    /// A detection in pixels of the tile.
    pub(crate) fn new(detection: Detection, tile: Region, image: (u32, u32)) -> Result<Self> {
        let Detection { bbox, mask, .. } = detection;
        let mask = mask.map(|mask| mask.placed((tile.x, tile.y), image)).transpose()?;
        let bbox = super::moved(bbox, tile.x as f32, tile.y as f32);
        let margin = |side: u32| (side as f32 * BORDER_SHARE).max(BORDER_PIXELS);
        let (x, y, edges) = (margin(tile.width), margin(tile.height), tile.to_box());
        let is_part = (tile.x > 0 && bbox.x1 < edges.x1 + x)
            || (tile.y > 0 && bbox.y1 < edges.y1 + y)
            || (tile.right() < image.0 && bbox.x2 > edges.x2 - x)
            || (tile.bottom() < image.1 && bbox.y2 > edges.y2 - y);
        Ok(Self { detection: Detection { bbox, mask, ..detection }, tile: edges, is_part })
    }

    /// The sizes of objects, for which parts do not count.
    pub(crate) fn complete_size(&self) -> Option<f32> {
        (!self.is_part).then(|| self.detection.bbox.area().sqrt())
    }

    /// True if both are of the same object, of the same class.
    fn is_same(&self, other: &Self) -> Result<bool> {
        let Some(shared) = self.tile.intersection(&other.tile) else { return Ok(false) };
        let visible = [self, other].map(|seen| seen.detection.bbox.intersection(&shared));
        let [Some(own), Some(others)] = visible else { return Ok(false) };
        let Some(common) = own.intersection(&others) else { return Ok(false) };
        if common.area() <= LEAST_OF_SMALLER * own.area().min(others.area()) {
            return Ok(false);
        }
        let is_smaller_part = if own.area() <= others.area() { self.is_part } else { other.is_part };
        let is_part_of = self.is_part != other.is_part && is_smaller_part;
        if !is_part_of && own.iou(&others) < LEAST_IOU {
            return Ok(false);
        }
        match (&self.detection.mask, &other.detection.mask) {
            (Some(own), Some(others)) => {
                let smaller = own.area_in(&shared).min(others.area_in(&shared));
                let common = own.intersection_area(others)? as f64;
                Ok(smaller == 0 || common > LEAST_OF_SMALLER_MASK * smaller as f64)
            }
            _ => Ok(true),
        }
    }
}

/// Collects the detections of all tiles.
#[derive(Default)]
pub(crate) struct Merge {
    by_class: BTreeMap<usize, Vec<TileDetection>>,
    semantic: BTreeMap<usize, SemanticMap>,
}

impl Merge {
    pub(crate) fn add(&mut self, seen: TileDetection) {
        self.by_class.entry(seen.detection.class_id).or_default().push(seen);
    }

    /// Adds the pixels of a class in a tile.
    pub(crate) fn add_semantic(&mut self, map: SemanticMap, tile: Region, image: (u32, u32)) -> Result<()> {
        let mask = map.mask.placed((tile.x, tile.y), image)?;
        let known = self.semantic.remove(&map.class_id);
        let mask = known.map_or(Ok(mask.clone()), |known| known.mask.union(&mask))?;
        self.semantic.insert(map.class_id, SemanticMap { mask, ..map });
        Ok(())
    }

    /// The detections in the order of an image's, and the pixels of each class, by class id.
    pub(crate) fn finish(self, options: &PostProcessOptions) -> Result<(Vec<Detection>, Vec<SemanticMap>)> {
        let mut all = Vec::new();
        for seen in self.by_class.into_values() {
            let mut found = merged(seen)?;
            suppress(&mut found, options.nms);
            all.append(&mut found);
        }
        suppress(&mut all, options.class_agnostic_nms);
        all.truncate(options.max_detections.unwrap_or(usize::MAX));
        Ok((all, self.semantic.into_values().collect()))
    }
}

/// The higher score first. The order does not depend on that of the tiles.
fn order(a: &Detection, b: &Detection) -> Ordering {
    let edges = |one: &Detection| one.bbox.to_xyxy();
    let by_place = || edges(a).partial_cmp(&edges(b)).unwrap_or(Ordering::Equal);
    b.score.total_cmp(&a.score).then(a.class_id.cmp(&b.class_id)).then_with(by_place)
}

/// Puts detections in order and drops those that overlap a better one by more than an IoU.
fn suppress(detections: &mut Vec<Detection>, most: Option<f32>) {
    detections.sort_by(order);
    if let Some(most) = most {
        ocelli_tracking::suppress(detections, most, |detection| detection.bbox);
    }
}

/// The objects of one class.
fn merged(mut seen: Vec<TileDetection>) -> Result<Vec<Detection>> {
    seen.sort_by(|a, b| order(&a.detection, &b.detection));
    let (parts, complete): (Vec<TileDetection>, Vec<TileDetection>) =
        seen.into_iter().partition(|seen| seen.is_part);
    let mut kept: Vec<TileDetection> = Vec::new();
    // Detections with the box of the smallest tile that agrees.
    let mut exact: Vec<TileDetection> = Vec::new();
    'complete: for next in complete {
        for (better, exact) in kept.iter().zip(&mut exact) {
            if next.is_same(better)? {
                let is_finer = next.tile.area() < exact.tile.area();
                if is_finer && next.detection.bbox.iou(&better.detection.bbox) > SAME_BOX_IOU {
                    exact.tile = next.tile;
                    (exact.detection.bbox, exact.detection.mask) = (next.detection.bbox, next.detection.mask);
                }
                continue 'complete;
            }
        }
        exact.push(next.clone());
        kept.push(next);
    }
    let mut found = Vec::new();
    for group in groups(&parts)? {
        let mut known = Vec::new();
        for (index, whole) in kept.iter().enumerate() {
            for &part in &group {
                if part.is_same(whole)? || part.is_same(&exact[index])? {
                    known.push(index);
                    break;
                }
            }
        }
        // Those that are much less sure than the best are of less use.
        let best = group[0];
        let least = LEAST_SCORE_OF_PARTS * best.detection.score;
        let sure: Vec<&TileDetection> =
            group.into_iter().filter(|part| part.detection.score >= least).collect();
        match known[..] {
            [] => found.push(joined(&sure)?),
            // A single part is not the whole object.
            [index] if sure.len() > 1 => {
                let whole = &mut exact[index];
                if best.tile.area() < whole.tile.area() && best.detection.score > whole.detection.score {
                    (whole.detection, whole.tile) = (joined(&sure)?, best.tile);
                }
            }
            _ => {}
        }
    }
    found.extend(exact.into_iter().map(|seen| seen.detection));
    Ok(found)
}

/// The parts of each object, directly or through others in between, the best first.
fn groups(parts: &[TileDetection]) -> Result<Vec<Vec<&TileDetection>>> {
    let mut group: Vec<usize> = (0..parts.len()).collect();
    for next in 1..parts.len() {
        for earlier in 0..next {
            if group[earlier] != group[next] && parts[next].is_same(&parts[earlier])? {
                let (from, to) = (group[next].max(group[earlier]), group[next].min(group[earlier]));
                group.iter_mut().filter(|of| **of == from).for_each(|of| *of = to);
            }
        }
    }
    let mut found: BTreeMap<usize, Vec<&TileDetection>> = BTreeMap::new();
    group.iter().zip(parts).for_each(|(&of, part)| found.entry(of).or_default().push(part));
    Ok(found.into_values().collect())
}

/// One detection of all parts of an object, with the score of the first.
fn joined(parts: &[&TileDetection]) -> Result<Detection> {
    let mut whole = parts[0].detection.clone();
    for TileDetection { detection, .. } in &parts[1..] {
        let (own, other) = (whole.bbox, detection.bbox);
        whole.bbox = BoundingBox::new(
            own.x1.min(other.x1),
            own.y1.min(other.y1),
            own.x2.max(other.x2),
            own.y2.max(other.y2),
        );
        whole.mask = match (&whole.mask, &detection.mask) {
            (Some(own), Some(other)) => Some(own.union(other)?),
            (own, other) => own.clone().or_else(|| other.clone()),
        };
    }
    Ok(whole)
}
