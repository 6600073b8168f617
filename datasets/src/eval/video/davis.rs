//! J and F of DAVIS, of folders with a PNG for each frame whose pixels are the numbers of objects.
//!
//! Perazzi et al., CVPR 2016, and Caelles et al., "The 2019 DAVIS Challenge on VOS", 2019; computed as by DAVIS' toolkit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use ocelli::{Error, Mask, Result, mask::read_mask_png};

use super::boundary::Boundary;
use super::{VideoReport, assign, entries, invalid, mismatch, missing};

/// The number of pixels whose object is unknown.
const VOID: u16 = 255;
/// DAVIS refuses more objects in predictions without the ids of the ground truth.
const MOST_PROPOSALS: usize = 20;

/// J and F, 0 to 1, each the mean over all objects of all sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct JAndFFigures {
    /// The mean of `j_mean` and `f_mean`.
    pub j_and_f: f64,
    /// Mean IoU over the frames.
    pub j_mean: f64,
    /// The share of frames with an IoU above 0.5.
    pub j_recall: f64,
    /// Mean IoU in the first quarter of the frames minus that in the last.
    pub j_decay: f64,
    /// Mean F of boundaries over the frames.
    pub f_mean: f64,
    /// The share of frames with an F above 0.5.
    pub f_recall: f64,
    /// Mean F in the first quarter of the frames minus that in the last.
    pub f_decay: f64,
}

/// J and F of one object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectJAndF {
    /// The name of its sequence.
    pub sequence: String,
    /// Its number in the ground truth.
    pub object: u16,
    /// The figures.
    #[serde(flatten)]
    pub figures: JAndFFigures,
}

/// J and F of one of DAVIS' tasks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JAndF {
    /// Means over all objects.
    #[serde(flatten)]
    pub figures: JAndFFigures,
    /// Each object.
    pub objects: Vec<ObjectJAndF>,
}

/// The PNGs of a frame: of the ground truth, and of the predictions.
type Frame = (PathBuf, PathBuf);

/// `true` if a folder has PNGs, or folders with PNGs.
pub(super) fn is_layout(folder: &Path) -> Result<bool> {
    Ok(!sequences(folder, folder)?.is_empty())
}

/// The frames of each sequence of the ground truth, with the file of the same name among the predictions.
fn sequences(truth: &Path, predictions: &Path) -> Result<Vec<(String, Vec<Frame>)>> {
    let is_png =
        |path: &PathBuf| path.is_file() && path.extension().is_some_and(|e| e.eq_ignore_ascii_case("png"));
    let pngs =
        |folder: &Path| -> Result<Vec<PathBuf>> { Ok(entries(folder)?.into_iter().filter(is_png).collect()) };
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut folders = vec![(name(truth), truth.to_owned(), predictions.to_owned())];
    if pngs(truth)?.is_empty() {
        let inside = entries(truth)?.into_iter().filter(|path| path.is_dir());
        folders = inside.map(|path| (name(&path), path.clone(), predictions.join(name(&path)))).collect();
    }
    let mut sequences = Vec::new();
    for (name, truth, predictions) in folders {
        let truths = pngs(&truth)?;
        if truths.is_empty() {
            continue;
        }
        if !predictions.is_dir() {
            return Err(missing(format_args!("predictions of sequence {name}"), &predictions));
        }
        let pair = |path: PathBuf| {
            let file = predictions.join(path.file_name().unwrap_or_default());
            (path, file)
        };
        sequences.push((name, truths.into_iter().map(pair).collect()));
    }
    Ok(sequences)
}

/// J and F of a pair for each frame.
#[derive(Clone, Default)]
struct Values {
    j: Vec<f64>,
    f: Vec<f64>,
}

impl Values {
    fn push(&mut self, found: &Shape, object: &Shape) {
        self.j.push(found.iou(object));
        self.f.push(found.boundary.f_measure(&object.boundary));
    }
}

/// The masks of one frame, ready to be compared.
struct Shape {
    bitmap: Vec<u8>,
    area: usize,
    boundary: Boundary,
}

impl Shape {
    fn new(bitmap: Vec<u8>, width: usize, height: usize) -> Self {
        let area = bitmap.iter().filter(|&&pixel| pixel != 0).count();
        let boundary = Boundary::new(&bitmap, width, height);
        Self { bitmap, area, boundary }
    }

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
        Shape::new(bitmap, self.size.0 as usize, self.size.1 as usize)
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
    for (name, frames) in sequences(truth, predictions)? {
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
        figures.map(JAndF::of).map_err(|why| notes.push(format!("no {task} figures: {why}"))).ok()
    });
    if semi_supervised.is_none() && unsupervised.is_none() {
        return Err(Error::mismatch(notes.join("; ")));
    }
    Ok(VideoReport { semi_supervised, unsupervised, notes, ..VideoReport::default() })
}

/// One sequence: its files, and the numbers in them.
struct Sequence {
    name: String,
    frames: Vec<Frame>,
    /// Objects are numbered from 1 to this.
    objects: u16,
    /// The highest number of the predictions, and without the first and the last frame.
    found: u16,
    found_inside: u16,
    /// `true` if the first and the last frame have predictions.
    is_whole: bool,
}

impl Sequence {
    fn read(name: String, frames: Vec<Frame>) -> Result<Self> {
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
                values.push(&found.shape(number, None), &truth.shape(number, None));
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
                values.iter_mut().zip(&shapes).for_each(|(values, object)| values.push(&shape, object));
            }
        }
        let scores: Vec<f64> =
            values.iter().map(|values| (mean(&values.j) + mean(&values.f)) / 2.0).collect();
        let mut of_object = vec![Values::default(); objects];
        for (proposal, object) in assign(&scores, proposals, objects) {
            of_object[object] = values[proposal * objects + object].clone();
        }
        Ok(Ok(self.figures(&of_object)))
    }

    fn figures(&self, values: &[Values]) -> Vec<ObjectJAndF> {
        let of = |(object, values)| {
            let (sequence, figures) = (self.name.clone(), JAndFFigures::of(values));
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

impl JAndFFigures {
    fn of(values: &Values) -> Self {
        let ([j_mean, j_recall, j_decay], [f_mean, f_recall, f_decay]) =
            (statistics(&values.j), statistics(&values.f));
        Self::new([(j_mean + f_mean) / 2.0, j_mean, j_recall, j_decay, f_mean, f_recall, f_decay])
    }

    fn new([j_and_f, j_mean, j_recall, j_decay, f_mean, f_recall, f_decay]: [f64; 7]) -> Self {
        Self { j_and_f, j_mean, j_recall, j_decay, f_mean, f_recall, f_decay }
    }

    /// The figures in their order.
    pub(super) fn row(&self) -> [f64; 7] {
        let Self { j_and_f, j_mean, j_recall, j_decay, f_mean, f_recall, f_decay } = *self;
        [j_and_f, j_mean, j_recall, j_decay, f_mean, f_recall, f_decay]
    }
}

impl JAndF {
    fn of(objects: Vec<ObjectJAndF>) -> Self {
        let mean = |at: usize| mean(&objects.iter().map(|one| one.figures.row()[at]).collect::<Vec<_>>());
        Self { figures: JAndFFigures::new(std::array::from_fn(mean)), objects }
    }
}
