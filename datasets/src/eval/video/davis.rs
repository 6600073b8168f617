//! J and F of DAVIS, of folders with a PNG for each frame whose pixels are the numbers of objects.
//!
//! Perazzi et al., CVPR 2016, and Caelles et al., "The 2019 DAVIS Challenge on VOS", 2019; computed as by DAVIS' toolkit.

use std::collections::BTreeMap;
use std::path::Path;

use ocelli::{Error, Mask, Result, mask::read_mask_png};

use super::boundary::Boundary;
use super::layout::{PngFrame, invalid, mismatch, missing, png_sequences};
use super::{JAndF, JAndFFigures, ObjectJAndF, VideoReport, assign};

/// The number of pixels whose object is unknown.
const VOID: u16 = 255;
/// DAVIS refuses more objects in predictions without the ids of the ground truth.
const MOST_PROPOSALS: usize = 20;

/// J and F of a pair, each for all frames.
type Values = [Vec<f64>; 2];

fn add([j, f]: &mut Values, found: &Shape, object: &Shape) {
    j.push(found.iou(object));
    f.push(found.boundary.f_measure(&object.boundary));
}

/// The masks of one frame, ready to be compared.
struct Shape {
    bitmap: Vec<u8>,
    area: usize,
    boundary: Boundary,
}

impl Shape {
    fn iou(&self, other: &Self) -> f64 {
        let common = self.bitmap.iter().zip(&other.bitmap).filter(|(a, b)| **a & **b != 0).count();
        let either = self.area + other.area - common;
        if either == 0 { 1.0 } else { common as f64 / either as f64 }
    }
}

/// The masks of a PNG, by number.
struct Numbers {
    masks: BTreeMap<u16, Mask>,
    size: (u32, u32),
}

impl Numbers {
    fn read(path: &Path) -> Result<Self> {
        let masks = read_mask_png(path)?.into_iter().collect();
        let size = image::image_dimensions(path).map_err(|e| invalid(path, e))?;
        Ok(Self { masks, size })
    }

    /// One byte for each pixel, row by row.
    fn bitmap(&self, number: u16) -> Vec<u8> {
        let (width, height) = (self.size.0 as usize, self.size.1 as usize);
        self.masks.get(&number).map_or_else(|| vec![0; width * height], Mask::to_bitmap)
    }

    /// The mask of a number without the pixels of `void`.
    fn shape(&self, number: u16, void: Option<&[u8]>) -> Shape {
        let mut bitmap = self.bitmap(number);
        for (pixel, void) in bitmap.iter_mut().zip(void.into_iter().flatten()) {
            *pixel &= 1 - void;
        }
        let area = bitmap.iter().filter(|&&pixel| pixel != 0).count();
        let boundary = Boundary::new(&bitmap, self.size.0 as usize, self.size.1 as usize);
        Shape { bitmap, area, boundary }
    }
}

/// Evaluates folders of masks. Every object of the first frame of a sequence counts.
///
/// In the semi-supervised task numbers are ids, as the objects of the first frame were given; the first and the last frame do not
/// count. In the unsupervised task the best assignment of numbers to the objects counts, and void pixels are left out.
pub(super) fn evaluate(truth: &Path, predictions: &Path) -> Result<VideoReport> {
    if !predictions.is_dir() {
        return Err(mismatch(predictions, "expected a folder of PNGs, as the ground truth is"));
    }
    let mut tasks = [("semi-supervised", Ok(Vec::new())), ("unsupervised", Ok(Vec::new()))];
    for (name, frames) in png_sequences(truth, predictions)? {
        let sequence = Sequence::read(name, frames)?;
        let figures = [sequence.semi_supervised()?, sequence.unsupervised()?];
        for ((_, all), figures) in tasks.iter_mut().zip(figures) {
            match (&mut *all, figures) {
                (Ok(all), Ok(figures)) => all.extend(figures),
                (Ok(_), Err(why)) => *all = Err(format!("sequence {}: {why}", sequence.name)),
                _ => {}
            }
        }
    }
    let mut notes = Vec::new();
    let [semi_supervised, unsupervised] = tasks.map(|(task, objects)| {
        let figures: Result<Vec<ObjectJAndF>, String> = objects;
        figures.map(of_all).map_err(|why| notes.push(format!("no {task} figures: {why}"))).ok()
    });
    if semi_supervised.is_none() && unsupervised.is_none() {
        return Err(Error::mismatch(notes.join("; ")));
    }
    Ok(VideoReport { semi_supervised, unsupervised, notes, ..VideoReport::default() })
}

/// One sequence: its files, and the numbers in them.
struct Sequence {
    name: String,
    frames: Vec<PngFrame>,
    /// Objects are numbered from 1 to this.
    objects: u16,
    /// The highest number of the predictions, and without the first and the last frame.
    found: u16,
    found_inside: u16,
    /// `true` if the first and the last frame have predictions.
    is_whole: bool,
}

impl Sequence {
    fn read(name: String, frames: Vec<PngFrame>) -> Result<Self> {
        let (mut found, mut found_inside) = (0, 0);
        let last = frames.len() - 1;
        let mut is_whole = true;
        for (place, (truth, predictions)) in frames.iter().enumerate() {
            if !predictions.is_file() {
                if place == 0 || place == last {
                    is_whole = false;
                    continue;
                }
                return Err(missing(format_args!("prediction of {}", truth.display()), predictions));
            }
            let highest = read_mask_png(predictions)?.last().map_or(0, |(number, _)| *number);
            found = found.max(highest);
            if place != 0 && place != last {
                found_inside = found_inside.max(highest);
            }
        }
        let first = &frames[0].0;
        let numbers = Numbers::read(first)?.masks.into_keys();
        let objects = numbers.filter(|&number| number != VOID).max().unwrap_or(0);
        if objects == 0 {
            return Err(invalid(first, "no object in the first frame: there is nothing to compare with"));
        }
        if objects > VOID {
            return Err(invalid(first, format!("object {objects}; numbers of DAVIS are up to {}", VOID - 1)));
        }
        Ok(Self { name, frames, objects, found, found_inside, is_whole })
    }

    fn frame(&self, place: usize) -> Result<(Numbers, Numbers)> {
        let (truth_path, path) = &self.frames[place];
        let (truth, found) = (Numbers::read(truth_path)?, Numbers::read(path)?);
        if truth.size != found.size {
            let ((w, h), (width, height)) = (found.size, truth.size);
            let why = format!("{w}×{h} pixels, {} has {width}×{height}", truth_path.display());
            return Err(mismatch(path, why));
        }
        Ok((truth, found))
    }

    fn semi_supervised(&self) -> Result<Result<Vec<ObjectJAndF>, String>> {
        let frames = self.frames.len();
        if self.found_inside > self.objects {
            let (number, objects) = (self.found_inside, self.objects);
            return Ok(Err(format!(
                "the predictions have object {number}, the ground truth {objects} objects"
            )));
        }
        if frames < 3 {
            return Ok(Err(format!("{frames} frames; the first and the last do not count")));
        }
        let mut values = vec![Values::default(); usize::from(self.objects)];
        for place in 1..frames - 1 {
            let (truth, found) = self.frame(place)?;
            for (values, number) in values.iter_mut().zip(1..=self.objects) {
                add(values, &found.shape(number, None), &truth.shape(number, None));
            }
        }
        Ok(Ok(self.figures(&values)))
    }

    fn unsupervised(&self) -> Result<Result<Vec<ObjectJAndF>, String>> {
        if !self.is_whole {
            return Ok(Err("no prediction of the first or the last frame".into()));
        }
        let most = usize::from(self.found);
        if most > MOST_PROPOSALS {
            return Ok(Err(format!(
                "the predictions have object {most}, DAVIS allows numbers up to {MOST_PROPOSALS}"
            )));
        }
        let objects = usize::from(self.objects);
        // Numbers that are not used stand for empty masks, which are right where an object is hidden.
        let proposals = most.max(objects);
        let mut values = vec![Values::default(); proposals * objects]; // [proposal, object]
        for place in 0..self.frames.len() {
            let (truth, found) = self.frame(place)?;
            let void = truth.bitmap(VOID);
            let shapes: Vec<Shape> =
                (1..=self.objects).map(|number| truth.shape(number, Some(&void))).collect();
            for (number, values) in (1..).zip(values.chunks_mut(objects)) {
                let shape = found.shape(number, Some(&void));
                values.iter_mut().zip(&shapes).for_each(|(values, object)| add(values, &shape, object));
            }
        }
        let scores: Vec<f64> = values.iter().map(|[j, f]| (mean(j) + mean(f)) / 2.0).collect();
        let mut of_object = vec![Values::default(); objects];
        for (proposal, object) in assign(&scores, proposals, objects) {
            of_object[object] = values[proposal * objects + object].clone();
        }
        Ok(Ok(self.figures(&of_object)))
    }

    fn figures(&self, values: &[Values]) -> Vec<ObjectJAndF> {
        let of = |(object, values)| {
            let (sequence, figures) = (self.name.clone(), figures(values));
            ObjectJAndF { sequence, object, figures }
        };
        (1..).zip(values).map(of).collect()
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Mean, share above a half, and the mean of the first quarter minus that of the last.
fn statistics(values: &[f64]) -> [f64; 3] {
    let above = values.iter().filter(|value| **value > 0.5).count() as f64 / values.len() as f64;
    let last = values.len() as f64 - 1.0;
    // The toolkit keeps these places in 8 bits, and its decay is another one above 256 frames.
    let place = |quarter: usize| (1.0 + last * quarter as f64 / 4.0 + 1e-10).round_ties_even() as usize - 1;
    let part = |quarter: usize| mean(&values[place(quarter)..=place(quarter + 1)]);
    [mean(values), above, part(0) - part(3)]
}

fn figures(values: &Values) -> JAndFFigures {
    let [[j_mean, j_recall, j_decay], [f_mean, f_recall, f_decay]] =
        values.each_ref().map(|of| statistics(of));
    [(j_mean + f_mean) / 2.0, j_mean, j_recall, j_decay, f_mean, f_recall, f_decay].into()
}

/// The means over all objects.
fn of_all(objects: Vec<ObjectJAndF>) -> JAndF {
    let mean = |at: usize| mean(&objects.iter().map(|one| one.figures.row()[at]).collect::<Vec<_>>());
    JAndF { figures: std::array::from_fn(mean).into(), objects }
}
