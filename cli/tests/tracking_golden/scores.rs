//! MOTA and IDF1 as `motmetrics` counts them.

use std::collections::{BTreeMap, HashMap};

use ocelli::tracking::MotBox;

/// The minimum IoU of a track and an object.
const LEAST_IOU: f32 = 0.5;
/// A cost above any sum of overlaps.
const FORBIDDEN: f64 = 1e6;

/// The counts behind MOTA and IDF1; they can be summed over sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub objects: u64,
    pub tracked: u64,
    pub misses: u64,
    pub false_alarms: u64,
    pub switches: u64,
    pub identity_hits: u64,
}

impl Counts {
    /// Bernardin & Stiefelhagen, "Evaluating Multiple Object Tracking Performance", 2008.
    pub fn mota(&self) -> f64 {
        1.0 - (self.misses + self.false_alarms + self.switches) as f64 / self.objects as f64
    }

    /// Ristani et al., "Performance Measures and a Data Set for Multi-Target, Multi-Camera Tracking", 2016.
    pub fn idf1(&self) -> f64 {
        2.0 * self.identity_hits as f64 / (self.objects + self.tracked) as f64
    }
}

impl std::iter::Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |a, b| Self {
            objects: a.objects + b.objects,
            tracked: a.tracked + b.tracked,
            misses: a.misses + b.misses,
            false_alarms: a.false_alarms + b.false_alarms,
            switches: a.switches + b.switches,
            identity_hits: a.identity_hits + b.identity_hits,
        })
    }
}

fn by_frame(boxes: &[MotBox]) -> BTreeMap<u32, Vec<&MotBox>> {
    let mut frames: BTreeMap<u32, Vec<&MotBox>> = BTreeMap::new();
    boxes.iter().for_each(|one| frames.entry(one.frame).or_default().push(one));
    frames
}

/// Counts of one sequence.
pub fn score(truth: &[MotBox], tracks: &[MotBox]) -> Counts {
    let (truth, tracks) = (by_frame(truth), by_frame(tracks));
    let id = |one: &MotBox| one.id.expect("truth and tracks have ids");
    let mut counts = Counts::default();
    let mut last: HashMap<u64, u64> = HashMap::new();
    let mut together: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    let frames: std::collections::BTreeSet<u32> = truth.keys().chain(tracks.keys()).copied().collect();
    for frame in frames {
        let objects = truth.get(&frame).map_or(&[][..], Vec::as_slice);
        let found = tracks.get(&frame).map_or(&[][..], Vec::as_slice);
        counts.objects += objects.len() as u64;
        counts.tracked += found.len() as u64;
        let overlap = |row: usize, column: usize| objects[row].bbox.iou(&found[column].bbox);
        let (mut of_row, mut taken) = (vec![None; objects.len()], vec![false; found.len()]);
        for (row, object) in objects.iter().enumerate() {
            for (column, track) in
                found.iter().enumerate().filter(|(column, _)| overlap(row, *column) >= LEAST_IOU)
            {
                *together.entry((id(object), id(track))).or_default() += 1;
                // Matches of the previous frame are kept while they are valid.
                if last.get(&id(object)) == Some(&id(track)) && !taken[column] {
                    (of_row[row], taken[column]) = (Some(column), true);
                }
            }
        }
        let rows: Vec<usize> = (0..objects.len()).filter(|&row| of_row[row].is_none()).collect();
        let columns: Vec<usize> = (0..found.len()).filter(|&column| !taken[column]).collect();
        let cost = |row: usize, column: usize| {
            let iou = overlap(rows[row], columns[column]);
            if iou >= LEAST_IOU { 1.0 - f64::from(iou) } else { FORBIDDEN }
        };
        for (row, column) in assign(rows.len(), columns.len(), &cost) {
            let (row, column) = (rows[row], columns[column]);
            if overlap(row, column) >= LEAST_IOU {
                let before = last.get(&id(objects[row]));
                counts.switches += u64::from(before.is_some_and(|before| *before != id(found[column])));
                of_row[row] = Some(column);
            }
        }
        for (row, column) in of_row.iter().enumerate().filter_map(|(row, column)| Some((row, (*column)?))) {
            last.insert(id(objects[row]), id(found[column]));
        }
        let pairs = of_row.iter().flatten().count();
        counts.misses += (objects.len() - pairs) as u64;
        counts.false_alarms += (found.len() - pairs) as u64;
    }
    let mut names: Vec<u64> = together.keys().map(|pair| pair.0).collect();
    let mut ids: Vec<u64> = together.keys().map(|pair| pair.1).collect();
    [&mut names, &mut ids].into_iter().for_each(|list| {
        list.sort_unstable();
        list.dedup();
    });
    let hits = |row: usize, column: usize| together.get(&(names[row], ids[column])).copied().unwrap_or(0);
    let pairs = assign(names.len(), ids.len(), &|row, column| -(hits(row, column) as f64));
    counts.identity_hits = pairs.into_iter().map(|(row, column)| hits(row, column)).sum();
    counts
}

/// The largest set of pairs with minimal cost: the Hungarian method with potentials, in O(n³).
fn assign(rows: usize, columns: usize, cost: &dyn Fn(usize, usize) -> f64) -> Vec<(usize, usize)> {
    if rows > columns {
        let swapped = assign(columns, rows, &|row, column| cost(column, row));
        return swapped.into_iter().map(|(row, column)| (column, row)).collect();
    }
    // Row and column 0 are sentinels.
    let (mut row_price, mut column_price) = (vec![0.0; rows + 1], vec![0.0; columns + 1]);
    let (mut row_of, mut way) = (vec![0; columns + 1], vec![0; columns + 1]);
    for row in 1..=rows {
        row_of[0] = row;
        let mut column = 0;
        let (mut least, mut used) = (vec![f64::INFINITY; columns + 1], vec![false; columns + 1]);
        while row_of[column] != 0 {
            used[column] = true;
            let (at, mut delta, mut next) = (row_of[column], f64::INFINITY, 0);
            for other in (1..=columns).filter(|&other| !used[other]) {
                let reduced = cost(at - 1, other - 1) - row_price[at] - column_price[other];
                if reduced < least[other] {
                    (least[other], way[other]) = (reduced, column);
                }
                if least[other] < delta {
                    (delta, next) = (least[other], other);
                }
            }
            for other in 0..=columns {
                if used[other] {
                    row_price[row_of[other]] += delta;
                    column_price[other] -= delta;
                } else {
                    least[other] -= delta;
                }
            }
            column = next;
        }
        while column != 0 {
            row_of[column] = row_of[way[column]];
            column = way[column];
        }
    }
    (1..=columns)
        .filter(|&column| row_of[column] != 0)
        .map(|column| (row_of[column] - 1, column - 1))
        .collect()
}
