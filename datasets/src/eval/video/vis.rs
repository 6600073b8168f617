//! YouTube-VIS: ground truth, and tracks as a results list or as a data set.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use hotcoco::types::{Annotation, Dataset, Extra, Segmentation};
use serde::Deserialize;
use serde_json::Value;

use ocelli::{Error, ErrorKind, Mask, Result};

use super::layout::{invalid, json, mismatch, missing, wrong_entry};
use crate::eval::accuracy::mean;
use crate::eval::annotations::{TRACK, run_lengths};
use crate::eval::labelled::{category, image};

/// Tracks of all videos.
#[derive(Default)]
pub(super) struct Vis {
    pub(super) videos: Vec<Video>,
    pub(super) categories: Vec<Category>,
    pub(super) tracks: Vec<MaskTrack>,
    /// The text prompts of each video, if it is a data set of SA-Co.
    pub(super) prompts: Option<Vec<Prompt>>,
}

#[derive(Clone, Deserialize)]
pub(super) struct Video {
    pub(super) id: u64,
    width: u32,
    height: u32,
    length: Option<usize>,
    #[serde(default)]
    file_names: Vec<String>,
}

#[derive(Clone, Deserialize)]
pub(super) struct Category {
    pub(super) id: u64,
    pub(super) name: String,
}

pub(super) struct MaskTrack {
    pub(super) video: u64,
    pub(super) category: u64,
    /// The `track_id`.
    number: Option<u64>,
    /// 1 in ground truth.
    pub(super) score: f64,
    pub(super) is_crowd: bool,
    /// One for each frame.
    pub(super) masks: Vec<Option<Mask>>,
    /// Pixels of each frame.
    pub(super) areas: Vec<u64>,
    /// Mean over the frames in which it is seen, in pixels.
    pub(super) area: f64,
}

#[derive(Deserialize)]
struct File {
    videos: Vec<Video>,
    #[serde(default)]
    categories: Vec<Category>,
    annotations: Option<Vec<Record>>,
    video_np_pairs: Option<Vec<Prompt>>,
}

#[derive(Deserialize)]
pub(super) struct Prompt {
    pub(super) video_id: u64,
    pub(super) category_id: u64,
}

#[derive(Deserialize)]
struct Record {
    video_id: u64,
    category_id: u64,
    track_id: Option<u64>,
    score: Option<f64>,
    #[serde(default)]
    iscrowd: Value,
    segmentations: Option<Vec<Option<Segmentation>>>,
    areas: Option<Vec<Option<f64>>>,
}

impl Video {
    pub(super) fn frames(&self) -> usize {
        self.length.unwrap_or(self.file_names.len())
    }

    /// The folder of its frames.
    fn name(&self) -> Option<&str> {
        self.file_names.first()?.split_once('/').map(|(folder, _)| folder)
    }
}

/// `true` if a JSON value stands for yes: `true`, or a number that is not 0.
pub(super) fn is_true(value: &Value) -> bool {
    value.as_bool().unwrap_or_else(|| value.as_f64().is_some_and(|number| number != 0.0))
}

impl Vis {
    /// Ground truth.
    pub(super) fn truth(path: &Path) -> Result<Self> {
        let vis = Self::of(path, json(path)?)?;
        if vis.tracks.is_empty() && vis.prompts.is_none() {
            return Err(invalid(path, "it has no annotation: there is nothing to compare with"));
        }
        Ok(vis)
    }

    fn of(path: &Path, file: File) -> Result<Self> {
        let why = "it has no \"annotations\": it is a list of videos without ground truth";
        let records = file.annotations.ok_or_else(|| invalid(path, why))?;
        if file.videos.is_empty() || file.categories.is_empty() {
            return Err(invalid(path, "it has no \"videos\" or no \"categories\""));
        }
        let File { mut videos, mut categories, video_np_pairs: prompts, .. } = file;
        videos.sort_by_key(|video| video.id);
        categories.sort_by_key(|category| category.id);
        let mut vis = Self { videos, categories, prompts, ..Self::default() };
        vis.add(path, records, false)?;
        Ok(vis)
    }

    /// Tracks: a results list, a data set as `ocelli video` writes it, or a folder with such a data set for each video.
    pub(super) fn predictions(path: &Path, truth: &Self) -> Result<Self> {
        let (videos, categories) = (truth.videos.clone(), truth.categories.clone());
        let mut vis = Self { videos, categories, ..Self::default() };
        if !path.is_dir() {
            vis.add_file(path, None)?;
            return Ok(vis);
        }
        for video in &truth.videos {
            let name = video.name().map_or_else(|| video.id.to_string(), str::to_owned);
            let file = path.join(format!("{name}.json"));
            if !file.is_file() {
                return Err(missing(format_args!("predictions of video {name}"), &file));
            }
            vis.add_file(&file, Some(video.id))?;
        }
        Ok(vis)
    }

    fn add_file(&mut self, path: &Path, video: Option<u64>) -> Result<()> {
        let bytes = std::fs::read(path).map_err(|e| Error::io("cannot read the predictions", path, e))?;
        if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
            let records: Vec<Record> = serde_json::from_slice(&bytes).map_err(|e| invalid(path, e))?;
            return self.add(path, records, true);
        }
        let file: File = serde_json::from_slice(&bytes).map_err(|e| invalid(path, e))?;
        // Ids are the file's own: names decide.
        let only = self.videos.first().filter(|_| self.videos.len() == 1).map(|only| only.id);
        let (Some(video), [_]) = (video.or(only), &file.videos[..]) else {
            let (there, here) = (file.videos.len(), self.videos.len());
            let why = format!(
                "a data set of {there} videos, the ground truth has {here}; expected a list of results with video_id, or a \
                 folder with NAME.json for each video"
            );
            return Err(mismatch(path, why));
        };
        let mut ids = HashMap::new();
        for category in &file.categories {
            let Some(known) = self.categories.iter().find(|known| known.name == category.name) else {
                return Err(mismatch(path, format!("the ground truth has no category {:?}", category.name)));
            };
            ids.insert(category.id, known.id);
        }
        let mut records = file.annotations.unwrap_or_default();
        for (place, record) in records.iter_mut().enumerate() {
            record.video_id = video;
            let id = ids.get(&record.category_id);
            record.category_id = *id.ok_or_else(|| {
                invalid(path, format!("annotation {}: its category has no name", place + 1))
            })?;
        }
        self.add(path, records, true)
    }

    fn add(&mut self, path: &Path, records: Vec<Record>, has_score: bool) -> Result<()> {
        let videos: BTreeMap<u64, &Video> = self.videos.iter().map(|video| (video.id, video)).collect();
        if videos.len() != self.videos.len() {
            return Err(invalid(path, "two videos have one id"));
        }
        for (place, record) in records.into_iter().enumerate() {
            let invalid = |why: &str| wrong_entry(ErrorKind::InvalidData, path, place, why);
            let mismatch = |why: String| wrong_entry(ErrorKind::Mismatch, path, place, &why);
            let unknown = |what: &str, id| mismatch(format!("the ground truth has no {what} {id}"));
            let video = videos.get(&record.video_id).ok_or_else(|| unknown("video", record.video_id))?;
            if !self.categories.iter().any(|category| category.id == record.category_id) {
                return Err(unknown("category", record.category_id));
            }
            let score = match record.score.filter(|score| score.is_finite()) {
                // 0 and -0 are equal.
                Some(score) if has_score => score + 0.0,
                None if has_score => return Err(invalid("it has no score")),
                _ => 1.0,
            };
            let segmentations = record.segmentations.ok_or_else(|| invalid("it has no \"segmentations\""))?;
            if segmentations.len() != video.frames() {
                let (found, frames) = (segmentations.len(), video.frames());
                return Err(mismatch(format!("{found} masks, but video {} has {frames} frames", video.id)));
            }
            let mask_of = |(frame, segmentation): (usize, &Option<Segmentation>)| {
                mask(segmentation.as_ref(), video.width, video.height)
                    .map_err(|why| invalid(&format!("frame {}: {why}", frame + 1)))
            };
            let masks = segmentations.iter().enumerate().map(mask_of).collect::<Result<Vec<_>>>()?;
            let areas = masks.iter().map(|mask| mask.as_ref().map_or(0, Mask::area)).collect::<Vec<_>>();
            let seen: Vec<f64> = match record.areas.filter(|_| !has_score) {
                Some(areas) => areas.into_iter().flatten().collect(),
                None => areas.iter().map(|area| *area as f64).collect(),
            };
            let area = mean(seen.into_iter().filter(|area| *area != 0.0)).unwrap_or(0.0);
            self.tracks.push(MaskTrack {
                video: record.video_id,
                category: record.category_id,
                number: record.track_id,
                score,
                is_crowd: is_true(&record.iscrowd),
                masks,
                areas,
                area,
            });
        }
        Ok(())
    }

    /// Gives objects without a number, which programs leave out, that of the object of their video that had one of their masks.
    fn number_as(&mut self, former: &Self, path: &Path) -> Result<()> {
        let own = |track: &MaskTrack| Some((track.video, track.number?));
        let mut taken: HashSet<(u64, u64)> = self.tracks.iter().filter_map(own).collect();
        for (place, track) in self.tracks.iter_mut().enumerate().filter(|(_, track)| track.number.is_none()) {
            let has_mask = |other: &&MaskTrack| {
                let masks = track.masks.iter().zip(&other.masks);
                other.video == track.video
                    && masks
                        .into_iter()
                        .any(|(a, b)| a == b && a.as_ref().is_some_and(|mask| mask.area() > 0))
            };
            let known = || former.tracks.iter().filter(has_mask).filter_map(own);
            let number = known().find(|number| !taken.contains(number));
            if number.is_none() && (known().next().is_some() || track.masks.iter().flatten().count() > 1) {
                let why = "expected a track_id; give a new object a number that no other one has";
                return Err(wrong_entry(ErrorKind::InvalidData, path, place, why));
            }
            taken.extend(number);
            track.number = number.map(|(_, number)| number);
        }
        Ok(())
    }
}

/// The images of the videos in a file, with the masks of the objects in each of them, as a data set of COCO's. Objects
/// without a number are those that they were in a former file.
///
/// # Errors
/// [`ErrorKind::InvalidData`] and [`ErrorKind::Mismatch`] if it cannot be read.
pub(crate) fn in_images(bytes: &[u8], former: Option<&[u8]>, path: &Path) -> Result<Dataset> {
    let open = |bytes: &[u8]| Vis::of(path, serde_json::from_slice(bytes).map_err(|e| invalid(path, e))?);
    let mut vis = open(bytes)?;
    if let Some(former) = former {
        vis.number_as(&open(former)?, path)?;
    }
    let (mut images, mut annotations, mut first) = (Vec::new(), Vec::new(), HashMap::new());
    for video in &vis.videos {
        if video.file_names.len() != video.frames() {
            let why = format!("video {}: expected a name for each of {} frames", video.id, video.frames());
            return Err(invalid(path, why));
        }
        let start = images.len() as u64;
        first.insert(video.id, start);
        images.extend((start..).zip(&video.file_names).map(|(id, name)| image(id, name.clone(), (0, 0))));
    }
    let mut numbers = HashSet::new();
    for (place, track) in vis.tracks.iter().enumerate() {
        let masks = (first[&track.video]..).zip(&track.masks);
        let masks = masks.filter_map(|(image, mask)| Some((image, mask.as_ref()?)));
        if track.number.is_some_and(|number| !numbers.insert((track.video, number))) {
            return Err(wrong_entry(ErrorKind::InvalidData, path, place, "another object has its track_id"));
        }
        annotations.extend(masks.filter(|(_, mask)| mask.area() > 0).map(|(image_id, mask)| Annotation {
            image_id,
            category_id: track.category,
            iscrowd: track.is_crowd,
            segmentation: Some(run_lengths(mask)),
            extra: Extra::from_iter(track.number.map(|number| (TRACK.to_owned(), number.into()))),
            ..Annotation::default()
        }));
    }
    let categories = vis.categories.into_iter().map(|one| category(one.id, one.name)).collect();
    Ok(Dataset { images, annotations, categories, ..Dataset::default() })
}

/// A mask of the video's size; an empty list is none.
pub(super) fn mask(
    segmentation: Option<&Segmentation>,
    width: u32,
    height: u32,
) -> Result<Option<Mask>, String> {
    let Some(segmentation) = segmentation else { return Ok(None) };
    if segmentation.polygons().is_some_and(|polygons| polygons.is_empty()) {
        return Ok(None);
    }
    let rle = segmentation.to_rle(height, width).map_err(|e| e.to_string())?;
    if (rle.w, rle.h) != (width, height) {
        return Err(format!("a mask of {}×{}; expected {width}×{height}", rle.w, rle.h));
    }
    Mask::from_run_lengths(&rle.counts, width, height).map(Some).map_err(|e| e.to_string())
}
