//! Review pages: the images with the lowest scores, and a random sample.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use image::ImageFormat;
use ocelli_tracking::BoundingBox;
use quick_xml::escape::escape;

use crate::label::images::{hash_of, image_id};
use crate::label::{CheckCancelled, Record, disk, open_image};
use ocelli::{Detection, Error, Image, Result, draw::Annotator};

/// The size of an image on a page, the height of its file name below, and the gap between images, in pixels.
const IMAGE: (u32, u32) = (400, 300);
const CAPTION: u32 = 24;
const CELL: (u32, u32) = (IMAGE.0, IMAGE.1 + CAPTION);
const GAP: u32 = 8;
const TEXT: [u8; 3] = [60, 60, 60];
/// The grid of a page, which is narrower than a small screen.
const COLUMNS: u32 = 3;
const ROWS: u32 = 8;
const PER_PAGE: usize = (COLUMNS * ROWS) as usize;
/// The columns of the lists.
const HEADER: &str = "image,file,least_score,instances,page,row,column";
const BACKGROUND: [u8; 3] = [245, 245, 245];

/// An image to review.
#[derive(Clone, Debug)]
struct Candidate {
    name: String,
    source: String,
    /// `None` without instances.
    least_score: Option<f32>,
    instances: usize,
    /// Its path from the review folder.
    link: String,
}

impl Candidate {
    /// Its row in a list: `None` has no page.
    fn row(&self, kind: &str, index: Option<usize>) -> Vec<String> {
        let score = self.least_score.map(|score| format!("{score:.5}")).unwrap_or_default();
        let mut row = vec![self.name.clone(), self.source.clone(), score, self.instances.to_string()];
        row.extend(match index.map(|index| (index / PER_PAGE, (index % PER_PAGE) as u32)) {
            Some((page, cell)) => {
                [page_name(kind, page), (cell / COLUMNS + 1).to_string(), (cell % COLUMNS + 1).to_string()]
            }
            None => Default::default(),
        });
        row
    }
}

/// Selects the images to review.
#[derive(Debug)]
pub(super) struct Review {
    images: usize,
    below: f32,
    low_scores: Vec<Candidate>,
    /// The images with the lowest hashes of their names.
    sample: Vec<(u64, Candidate)>,
}

impl Review {
    pub fn new(images: usize, below: f32) -> Self {
        Self { images, below, low_scores: Vec::new(), sample: Vec::new() }
    }

    /// `link` is where the image is, from the review folder.
    pub fn consider(&mut self, record: &Record, link: impl FnOnce() -> String) {
        let least = record.instances.iter().map(|instance| instance.score).min_by(f32::total_cmp);
        let is_unsure = least.is_some_and(|score| score < self.below);
        let hash = hash_of(&record.name, 16);
        let key = |(hash, other): &(u64, Candidate)| (*hash, other.name.clone());
        let index = self.sample.partition_point(|other| key(other) < (hash, record.name.clone()));
        let is_in_sample = index < self.images;
        if !is_unsure && !is_in_sample {
            return;
        }
        let candidate = Candidate {
            name: record.name.clone(),
            source: record.source.to_string_lossy().into_owned(),
            least_score: least,
            instances: record.instances.len(),
            link: link(),
        };
        if is_in_sample {
            self.sample.insert(index, (hash, candidate.clone()));
            self.sample.truncate(self.images);
        }
        if is_unsure {
            self.low_scores.push(candidate);
        }
    }

    /// Writes `review/`, with records that `read` gives by name: the list of all images with a low score, that of the sample, the pages, and `index.html`.
    pub fn write(
        mut self,
        root: &Path,
        classes: &[Arc<str>],
        read: &dyn Fn(&str) -> Result<Option<Record>>,
        check_cancelled: &mut CheckCancelled<'_>,
    ) -> Result<Vec<PathBuf>> {
        let folder = root.join("review");
        disk::create_folders(&folder)?;
        let least = |candidate: &Candidate| candidate.least_score.unwrap_or(0.0);
        self.low_scores.sort_by(|a, b| least(a).total_cmp(&least(b)).then_with(|| a.name.cmp(&b.name)));
        let mut sample: Vec<Candidate> = self.sample.into_iter().map(|(_, candidate)| candidate).collect();
        sample.sort_by(|a, b| a.name.cmp(&b.name));
        let (mut files, mut pages) = (Vec::new(), Vec::new());
        let mut html = String::from(HTML_START);
        let annotator = Annotator::new();
        for (kind, title, list, images) in [
            ("unsure", "Least certain", "low_confidence.csv", &self.low_scores),
            ("sample", "Random sample", "sample.csv", &sample),
        ] {
            let rows = images.iter().enumerate();
            let rows = rows.map(|(i, image)| image.row(kind, Some(i).filter(|i| *i < self.images)));
            files.push(folder.join(list));
            write_csv(&folder.join(list), HEADER, rows)?;
            html += &format!("<h1>{title}</h1>\n");
            for (number, images) in images[..images.len().min(self.images)].chunks(PER_PAGE).enumerate() {
                let name = page_name(kind, number);
                let path = folder.join(&name);
                let page = draw_page(images, classes, read, &annotator, check_cancelled)?;
                write_html(&mut html, &name, images);
                let page = page.view().encoded(ImageFormat::Jpeg, 88).map_err(|e| e.at(&path))?;
                disk::replace(&path, |file| file.write_all(&page))?;
                pages.push(path);
            }
        }
        remove_others(&folder, &pages)?;
        files.extend(pages);
        files.push(folder.join("index.html"));
        disk::replace(&folder.join("index.html"), |file| file.write_all(html.as_bytes()))?;
        Ok(files)
    }
}

const HTML_START: &str = "<!doctype html>\n<meta charset=\"utf-8\">\n<title>Review</title>\n\
    <style>body{font:14px sans-serif;margin:1em}img{max-width:none}</style>\n\
    <p>Each image links to its file, and <i>correct</i> to the <a href=\"http://127.0.0.1:8080/#gallery\">gallery</a> of \
    <code>ocelli serve --gallery</code> with this data set.</p>\n";

/// Adds a page to `index.html`: every image on it is a link, and so is every line of the list below.
fn write_html(html: &mut String, page: &str, images: &[Candidate]) {
    *html += &format!("<p><img src=\"{page}\" usemap=\"#{page}\" alt=\"\"></p>\n<map name=\"{page}\">\n");
    for (index, image) in images.iter().enumerate() {
        let (x, y) = (at(index as u32 % COLUMNS, CELL.0), at(index as u32 / COLUMNS, CELL.1));
        let (right, bottom, name) = (x + CELL.0, y + CELL.1, escape(&image.name));
        let link = &image.link;
        *html += &format!(
            "<area shape=\"rect\" coords=\"{x},{y},{right},{bottom}\" href=\"{link}\" title=\"{name}\">\n"
        );
    }
    html.push_str("</map>\n<ol>\n");
    for image in images {
        let score = image.least_score.map(|score| format!(", least score {score:.2}")).unwrap_or_default();
        let (link, name, instances) = (&image.link, escape(&image.name), image.instances);
        let (plural, id) = (if instances == 1 { "" } else { "s" }, image_id(&image.name));
        *html += &format!(
            "<li><a href=\"{link}\">{name}</a>: {instances} instance{plural}{score}, \
             <a href=\"http://127.0.0.1:8080/#gallery={id}\">correct</a></li>\n"
        );
    }
    html.push_str("</ol>\n");
}

/// The left or upper edge of a cell on a page.
fn at(index: u32, cell: u32) -> u32 {
    index * (cell + GAP) + GAP
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
            disk::remove(&path)?;
        }
    }
    Ok(())
}

/// Writes a table, with quotes around the cells that need them.
pub(crate) fn write_csv(path: &Path, header: &str, rows: impl Iterator<Item = Vec<String>>) -> Result<()> {
    disk::replace(path, |file| {
        writeln!(file, "{header}")?;
        for row in rows {
            let cells: Vec<String> = row.iter().map(|cell| quoted(cell)).collect();
            writeln!(file, "{}", cells.join(","))?;
        }
        Ok(())
    })
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

fn draw_page(
    images: &[Candidate],
    classes: &[Arc<str>],
    read: &dyn Fn(&str) -> Result<Option<Record>>,
    annotator: &Annotator,
    check_cancelled: &mut CheckCancelled<'_>,
) -> Result<Image> {
    let rows = (images.len() as u32).div_ceil(COLUMNS);
    let columns = COLUMNS.min(images.len() as u32);
    let mut page = Image::filled(at(columns, CELL.0), at(rows, CELL.1), BACKGROUND)?;
    for (index, Candidate { name, .. }) in images.iter().enumerate() {
        check_cancelled()?;
        let (left, top) = (at(index as u32 % COLUMNS, CELL.0), at(index as u32 / COLUMNS, CELL.1));
        let caption = [left, top + IMAGE.1, CELL.0, CAPTION].map(|edge| edge as f32);
        let mut captioned = page.into_rgb_image();
        annotator.draw_caption(&mut captioned, name, caption, TEXT);
        page = captioned.into();
        let Some(record) = read(name)? else { continue };
        // If the file was removed since it was labelled, its cell stays empty.
        let Ok(image) = open_image(&record.source) else { continue };
        let mut image = image.into_rgb_image();
        let detections: Vec<Detection> = record
            .instances
            .iter()
            .map(|instance| Detection {
                class_id: instance.class,
                label: classes[instance.class].clone(),
                score: instance.score,
                bbox: BoundingBox::from(instance.bbox),
                mask: record.mask(instance),
            })
            .collect();
        annotator.annotate(&mut image, &detections)?;
        page.place(&Image::from(image).fitted(IMAGE)?, [left, top, IMAGE.0, IMAGE.1]);
    }
    Ok(page)
}
