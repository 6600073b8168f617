//! The videos of a data set, and the numbers of their objects.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::path::Path;

use ocelli::Result;

use crate::label::Record;
use crate::label::images::video_name;

/// The videos whose frames are images of a data set, by id, from 1.
#[derive(Default)]
pub(crate) struct Videos {
    videos: Vec<Video>,
    /// By the name of the image: the place of its video, and the index of the frame.
    frames: HashMap<String, (usize, u64)>,
}

/// A video of a data set.
pub(crate) struct Video {
    /// From 1.
    pub id: u64,
    /// The name of its file without extension, or of its folder. Names differ.
    pub name: String,
    /// Width and height of its first image.
    pub size: (u32, u32),
    /// The names of its images, by the index of the frame.
    pub images: Vec<(u64, String)>,
}

/// The place of an image in its video, as CocoVID has it.
pub(crate) struct Place {
    /// The id of the video.
    pub video_id: u64,
    /// The number of images of the video before it: the place, as CocoVID's loaders count, from 0.
    pub frame_id: usize,
    /// The index of the frame in the video, from 0.
    pub frame_index: u64,
}

impl Videos {
    /// Those of the frames in these records.
    pub fn of(records: impl Iterator<Item = Result<Record>>) -> Result<Self> {
        // A video that is opened in another way, such as another stream of a file, has other images, in another folder.
        let mut by_path: BTreeMap<_, BTreeMap<(u64, String), (u32, u32)>> = BTreeMap::new();
        for record in records {
            let record = record?;
            let Some(frame) = record.frame else { continue };
            let folder = record.source.parent().and_then(Path::file_name).map(OsString::from);
            let images = by_path.entry((frame.video, folder)).or_default();
            images.insert((frame.index, record.name), (record.width, record.height));
        }
        let mut new = Self::default();
        let mut taken = HashSet::new();
        for ((path, _), images) in by_path {
            let (_, name) = video_name(Path::new(&path), &mut taken);
            let at = new.videos.len();
            new.frames.extend(images.keys().map(|(index, image)| (image.clone(), (at, *index))));
            let size = images.values().next().copied().unwrap_or_default();
            new.videos.push(Video { id: at as u64 + 1, name, size, images: images.into_keys().collect() });
        }
        Ok(new)
    }

    /// The same videos with some of their images.
    pub fn only(&self, is_wanted: impl Fn(&str) -> bool) -> Self {
        let mut new = Self { videos: Vec::new(), frames: self.frames.clone() };
        for video in &self.videos {
            let images = video.images.iter().filter(|(_, name)| is_wanted(name)).cloned().collect();
            new.videos.push(Video { name: video.name.clone(), images, ..*video });
        }
        new
    }

    /// Those that have images.
    pub fn iter(&self) -> impl Iterator<Item = &Video> {
        self.videos.iter().filter(|video| !video.images.is_empty())
    }

    /// The place of an image, if it is a frame of a video.
    pub fn place(&self, name: &str) -> Option<Place> {
        let &(at, index) = self.frames.get(name)?;
        let video = &self.videos[at];
        let frame_id = video.images.partition_point(|image| (image.0, &*image.1) < (index, name));
        Some(Place { video_id: video.id, frame_id, frame_index: index })
    }
}

/// Numbers the objects of all videos, from 1.
#[derive(Default)]
pub(crate) struct Objects {
    /// By video and track.
    known: HashMap<(u64, u64), u64>,
    last: u64,
}

impl Objects {
    /// The number of an object. Without a track it is in no other image.
    pub fn number(&mut self, video: u64, track: Option<u64>) -> u64 {
        let mut next = || {
            self.last += 1;
            self.last
        };
        match track {
            Some(track) => *self.known.entry((video, track)).or_insert_with(next),
            None => next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::images::VideoFrame;

    /// Also in a data set that was moved, where earlier images have their former paths.
    #[test]
    fn streams_of_one_file_are_videos_of_their_own() {
        let record = |folder: &str, index| {
            let frame = Some(VideoFrame { video: "drive.mkv".into(), index });
            let source = Path::new(folder).join(format!("{index}.png"));
            Record {
                name: format!("{}-{index}", &folder[folder.len() - 1..]),
                source,
                frame,
                ..Record::default()
            }
        };
        let frames = [("/set/frames/1", 0), ("/moved/frames/1", 5), ("/set/frames/2", 0)];
        let videos = Videos::of(frames.into_iter().map(|(folder, index)| Ok(record(folder, index))));
        let videos = videos.expect("the records can be read");
        let images: Vec<_> = videos.iter().map(|video| video.images.clone()).collect();
        let image = |index, name: &str| (index, name.to_owned());
        assert_eq!(images, [vec![image(0, "1-0"), image(5, "1-5")], vec![image(0, "2-0")]]);
        let names: HashSet<_> = videos.iter().map(|video| &video.name).collect();
        assert_eq!(names.len(), 2, "{names:?}");
    }
}
