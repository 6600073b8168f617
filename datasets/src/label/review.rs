//! Review pages: the images with the lowest scores, and a random sample.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use image::imageops::{self, FilterType};
use image::{Rgb, RgbImage};
use ocelli_tracking::BoundingBox;

use super::class_map::ClassMap;
use super::images::hash_of;
use super::journal::Journal;
use super::record::Record;
use super::write::write_csv;
use ocelli::Detection;
use ocelli::atomic_file::write_atomically;
use ocelli::draw::Annotator;
use ocelli::image::Image;
use ocelli::{Error, Result};

/// The size of an image on a page, and the gap between images, in pixels.
const CELL: (u32, u32) = (400, 300);
const GAP: u32 = 8;
/// The grid of a page.
const COLUMNS: u32 = 5;
const ROWS: u32 = 5;
const BACKGROUND: Rgb<u8> = Rgb([245, 245, 245]);

/// An image with a low score.
#[derive(Clone, Debug)]
struct Candidate {
    name: String,
    source: String,
    least_score: f32,
    instances: usize,
}

/// Selects the images to review.
#[derive(Debug)]
pub(super) struct Review {
    images: usize,
    below: f32,
    low_scores: Vec<Candidate>,
    /// The images with the lowest hashes of their names.
    sample: Vec<(u64, String)>,
}

impl Review {
    pub fn new(images: usize, below: f32) -> Self {
        Self { images, below, low_scores: Vec::new(), sample: Vec::new() }
    }

    pub fn consider(&mut self, record: &Record) {
        let least = record.instances.iter().map(|instance| instance.score).min_by(f32::total_cmp);
        if let Some(least_score) = least.filter(|score| *score < self.below) {
            self.low_scores.push(Candidate {
                name: record.name.clone(),
                source: record.source.to_string_lossy().into_owned(),
                least_score,
                instances: record.instances.len(),
            });
        }
        let chosen = (hash_of(&record.name, 16), record.name.clone());
        let index = self.sample.partition_point(|other| *other < chosen);
        if index < self.images {
            self.sample.insert(index, chosen);
            self.sample.truncate(self.images);
        }
    }

    /// Writes `review/`: the list of all images with a low score, and the pages.
    pub fn write(
        mut self,
        root: &Path,
        journal: &mut Journal,
        classes: &ClassMap,
        check_cancelled: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<PathBuf>> {
        let folder = root.join("review");
        std::fs::create_dir_all(&folder).map_err(|e| Error::io("cannot create the folder", &folder, e))?;
        self.low_scores
            .sort_by(|a, b| a.least_score.total_cmp(&b.least_score).then_with(|| a.name.cmp(&b.name)));
        let mut names: Vec<String> = self.sample.into_iter().map(|(_, name)| name).collect();
        names.sort();
        let low_scores: Vec<String> =
            self.low_scores.iter().take(self.images).map(|c| c.name.clone()).collect();
        let mut files = vec![folder.join("low_confidence.csv")];
        write_csv(
            &files[0],
            "picture,file,least_score,things,page,row,column",
            self.low_scores.iter().enumerate().map(|(i, candidate)| {
                let (page, cell) = (i / (COLUMNS * ROWS) as usize, i as u32 % (COLUMNS * ROWS));
                let mut row = vec![
                    candidate.name.clone(),
                    candidate.source.clone(),
                    format!("{:.5}", candidate.least_score),
                    candidate.instances.to_string(),
                ];
                row.extend(match i < self.images {
                    true => [
                        page_name("unsure", page),
                        (cell / COLUMNS + 1).to_string(),
                        (cell % COLUMNS + 1).to_string(),
                    ],
                    false => Default::default(),
                });
                row
            }),
        )?;
        let mut pages = Vec::new();
        let annotator = Annotator::new();
        for (kind, names) in [("unsure", &low_scores), ("sample", &names)] {
            for (number, names) in names.chunks((COLUMNS * ROWS) as usize).enumerate() {
                let path = folder.join(page_name(kind, number));
                let page = draw_page(names, journal, classes, &annotator, check_cancelled)?;
                write_atomically(&path, |file| {
                    let encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(file, 88);
                    page.write_with_encoder(encoder).map_err(std::io::Error::other)
                })?;
                pages.push(path);
            }
        }
        remove_others(&folder, &pages)?;
        files.extend(pages);
        Ok(files)
    }
}

fn page_name(kind: &str, number: usize) -> String {
    format!("{kind}-{:03}.jpg", number + 1)
}

/// Removes the pages of an earlier run that had more.
fn remove_others(folder: &Path, pages: &[PathBuf]) -> Result<()> {
    let entries = std::fs::read_dir(folder).map_err(|e| Error::io("cannot read the folder", folder, e))?;
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| !pages.contains(path)) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if (name.starts_with("unsure-") || name.starts_with("sample-")) && name.ends_with(".jpg") {
            std::fs::remove_file(&path).map_err(|e| Error::io("cannot remove", &path, e))?;
        }
    }
    Ok(())
}

fn draw_page(
    names: &[String],
    journal: &mut Journal,
    classes: &ClassMap,
    annotator: &Annotator,
    check_cancelled: &mut dyn FnMut() -> Result<()>,
) -> Result<RgbImage> {
    let labels: Vec<Arc<str>> = classes.names().map(Arc::from).collect();
    let rows = (names.len() as u32).div_ceil(COLUMNS);
    let columns = COLUMNS.min(names.len() as u32);
    let side = |count: u32, cell: u32| count * (cell + GAP) + GAP;
    let mut page = RgbImage::from_pixel(side(columns, CELL.0), side(rows, CELL.1), BACKGROUND);
    for (index, name) in names.iter().enumerate() {
        check_cancelled()?;
        let Some(entry) = journal.entry(name).cloned() else { continue };
        let record = journal.read(&entry)?;
        // If the file was removed since it was labelled, its cell stays empty.
        let Ok(image) = Image::open(&record.source) else { continue };
        let mut image = image.into_rgb_image();
        let detections: Vec<Detection> = record
            .instances
            .iter()
            .map(|instance| {
                let [x1, y1, x2, y2] = instance.bbox;
                Detection {
                    class_id: instance.class,
                    label: labels[instance.class].clone(),
                    score: instance.score,
                    bbox: BoundingBox::new(x1, y1, x2, y2),
                    mask: record.mask(instance),
                }
            })
            .collect();
        annotator.annotate(&mut image, &detections)?;
        let cell = fitted(&image);
        let (column, row) = (index as u32 % COLUMNS, index as u32 / COLUMNS);
        let at =
            |index: u32, full: u32, used: u32| i64::from(side(index, full) + (full - used.min(full)) / 2);
        imageops::replace(&mut page, &cell, at(column, CELL.0, cell.width()), at(row, CELL.1, cell.height()));
    }
    Ok(page)
}

fn fitted(image: &RgbImage) -> RgbImage {
    let (width, height) = (f64::from(image.width()), f64::from(image.height()));
    let scale = (f64::from(CELL.0) / width).min(f64::from(CELL.1) / height);
    let side = |pixels: f64| ((pixels * scale).round() as u32).max(1);
    imageops::resize(image, side(width), side(height), FilterType::CatmullRom)
}
