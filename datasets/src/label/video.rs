//! Videos in place of images: every Nth frame is an image of the data set.
//!
//! The frames of a video file are written below the folder of the data set's state, as images with the time of the video,
//! by which they are known to be up to date. From then on they are images as others are: what a person makes of one stays.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use ocelli::{Error, ErrorKind, Frame, Result, Source, sink::write_image, source::InputOptions};
use serde_json::json;

use crate::label::images::{hash_of, video_name};
use crate::label::store::{STATE_FOLDER, is_time_of};
use crate::label::{CheckCancelled, FoundImage, VideoFrame, disk, identity};

type Open = Box<dyn Fn() -> Result<Box<dyn Source>> + Send + Sync>;

/// A video whose frames become images of a data set.
pub struct LabelVideo {
    path: PathBuf,
    /// The path of the video, as frames name it.
    pub(super) name: String,
    frames: u64,
    images: Vec<FoundImage>,
    damage: Option<Error>,
    /// Opens it from its start.
    pub(super) open: Open,
    /// Size and time of the file before it was read; of the images, where it is a folder of these, by their paths.
    identities: HashMap<PathBuf, (u64, u64)>,
}

impl LabelVideo {
    /// Reads videos, each of them once: counts their frames, and writes every `every`th frame as an image below the folder of
    /// the data set, unless it is there. A frame is named after its video and its index: `street_000120.jpg`. With a folder
    /// of files as a video, the images are these files.
    ///
    /// `open` opens a video from its start by `input`, and is called again to follow its objects. What was written of a video
    /// that was opened otherwise stays, and is not used. A video that is named twice counts
    /// once. A video that cannot be opened, or has no frames, is [damaged](Self::damage) and leaves the others alone. An error
    /// of `check_cancelled`, which is called for each frame, ends it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if `every` is 0; the reason of the first video if none has a frame; [`ErrorKind::Io`] if a
    /// frame cannot be written; the error of `check_cancelled`.
    pub fn read_all(
        output: &Path,
        videos: impl IntoIterator<Item = (PathBuf, Open)>,
        input: &InputOptions,
        every: u64,
        check_cancelled: &mut CheckCancelled<'_>,
    ) -> Result<Vec<Self>> {
        if every == 0 {
            return Err(Error::argument("every", 0, "1 for every frame, 10 for every tenth frame"));
        }
        let (mut seen, mut taken) = (HashSet::new(), HashSet::new());
        let mut read: Vec<Self> = Vec::new();
        for (path, open) in videos {
            let path = std::path::absolute(&path).unwrap_or(path);
            if !seen.insert(path.clone()) {
                continue;
            }
            let names = video_name(&path, &mut taken);
            let frames = |video: &str| frames_folder(output, video, input);
            read.push(Self::read(frames, path, names, every, open, check_cancelled)?);
        }
        let is_empty = read.iter().all(|video| video.frames == 0);
        match read.first_mut().filter(|_| is_empty).and_then(|first| first.damage.take()) {
            Some(error) => Err(error),
            None => Ok(read),
        }
    }

    fn read(
        frames_folder: impl Fn(&str) -> PathBuf,
        path: PathBuf,
        (own, stem): (String, String),
        every: u64,
        open: Open,
        check_cancelled: &mut CheckCancelled<'_>,
    ) -> Result<Self> {
        let refusal = |kind: ErrorKind, why: &str| {
            Error::new(kind, format!("cannot label the video, {}: {why}", path.display()))
        };
        let Some(name) = path.to_str().map(str::to_owned) else {
            let why = "its path is not UTF-8; rename the file or its folder";
            return Err(refusal(ErrorKind::InvalidArgument, why));
        };
        let has_images = path.is_dir();
        let folder = frames_folder(&name);
        let before = identity(&path);
        let (changed, of_video) = (before.1, folder.join("video.json"));
        // Its time is that of the frames; its size is noted beside them.
        let is_other = !has_images
            && std::fs::read(&of_video)
                .is_ok_and(|bytes| serde_json::from_slice(&bytes).ok() != Some(before));
        let mut identities = HashMap::from_iter((!has_images).then(|| (path.clone(), before)));
        let (mut frame, mut frames, mut images, mut damage) = (Frame::default(), 0, Vec::new(), None);
        let mut opened = open().map_err(|error| damage = Some(error)).ok();
        while let Some(source) = &mut opened {
            check_cancelled()?;
            let is_image = u64::is_multiple_of(frames, every);
            let image = folder.join(format!("{own}_{frames:06}.jpg"));
            let is_missing = is_image && !has_images && (is_other || !is_time_of(identity(&image), changed));
            let found = if is_missing { source.read_into(&mut frame) } else { source.skip(&mut frame) };
            if !found.map_err(|error| damage = Some(error)).unwrap_or_default() {
                break;
            }
            if is_missing {
                write_frame(&image, &frame, changed)?;
            }
            if is_image {
                let path = frame.file.as_deref().filter(|_| has_images).map_or(image, Path::to_owned);
                if has_images {
                    identities.insert(path.clone(), identity(&path));
                }
                let extension =
                    path.extension().map_or("jpg".into(), |extension| extension.to_string_lossy());
                images.push(FoundImage {
                    relative: format!("{stem}_{frames:06}.{extension}").into(),
                    frame: Some(VideoFrame { video: name.clone(), index: frames }),
                    path,
                });
            }
            frames += 1;
        }
        if !has_images && (is_other || !of_video.is_file()) && folder.is_dir() {
            disk::replace(&of_video, |file| Ok(serde_json::to_writer(file, &before)?))?;
        }
        if frames == 0 {
            damage.get_or_insert_with(|| refusal(ErrorKind::InvalidData, "it has no frames"));
        }
        Ok(Self { path, name, frames, images, damage, open, identities })
    }

    /// The path of the video.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number of frames that can be read.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// The frames that are images, for [`ImageSet::new`](super::ImageSet::new).
    pub fn images(&self) -> &[FoundImage] {
        &self.images
    }

    /// Why the video cannot be read to its end.
    pub fn damage(&self) -> Option<&Error> {
        self.damage.as_ref()
    }

    /// Checks that the video is the one whose frames are images, before what was found in a frame is recorded.
    pub(super) fn check_unchanged(&self, frame: &Path) -> Result<()> {
        let mut paths = [frame, &self.path].into_iter();
        match paths.find(|path| self.identities.get(*path).is_some_and(|before| *before != identity(path))) {
            None => Ok(()),
            Some(path) => Err(Error::invalid_data("it was changed meanwhile: run this again").at(path)),
        }
    }

    pub(super) fn ends_early(&self, frame: u64) -> Error {
        Error::invalid_data(format!(
            "frame {frame}, {}: the video ends before it, and had {} frames; it was changed meanwhile: run this again",
            self.name, self.frames
        ))
    }
}

/// The folder of the images of a video. Videos of one name in different folders have different ones, and so has a video that
/// is opened in different ways.
fn frames_folder(output: &Path, video: &str, input: &InputOptions) -> PathBuf {
    let output = std::path::absolute(output).unwrap_or_else(|_| output.to_owned());
    let hash = match input {
        InputOptions { stream: None, ffmpeg, .. } if ffmpeg.is_empty() => hash_of(video, 0),
        InputOptions { stream, ffmpeg, .. } => {
            let ffmpeg: BTreeMap<_, _> = ffmpeg.iter().cloned().collect();
            hash_of(&json!([video, stream, ffmpeg]).to_string(), 0)
        }
    };
    output.join(STATE_FOLDER).join("frames").join(format!("{hash:016x}"))
}

/// Writes a frame as a new file: the one that it replaces may be linked into the data set, where a person edited it.
fn write_frame(image: &Path, frame: &Frame, changed: u64) -> Result<()> {
    let cannot = |e| Error::io("cannot write the frame", image, e);
    if let Some(folder) = image.parent() {
        disk::create_folders(folder)?;
    }
    write_image(image, &frame.image)?;
    let file = File::options().write(true).open(image).map_err(cannot)?;
    file.set_modified(UNIX_EPOCH + Duration::from_nanos(changed)).map_err(cannot)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ocelli::Image;
    use ocelli::source::SourceInfo;

    use super::*;

    /// A video of grey frames, which counts those that are decoded.
    struct Grey {
        info: SourceInfo,
        next: u64,
        /// The number of frames, and whether it is damaged after them.
        frames: (u64, bool),
        decoded: Arc<AtomicUsize>,
    }

    impl Source for Grey {
        fn info(&self) -> &SourceInfo {
            &self.info
        }

        fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
            self.decoded.fetch_add(1, Ordering::SeqCst);
            frame.image = Image::from_rgb8(8, 8, vec![self.next as u8 * 20; 192])?;
            self.skip(frame)
        }

        fn skip(&mut self, _: &mut Frame) -> Result<bool> {
            self.next += 1;
            match self.frames {
                (frames, true) if self.next > frames => Err(Error::invalid_data("it is damaged")),
                (frames, _) => Ok(self.next <= frames),
            }
        }
    }

    struct Place {
        folder: tempfile::TempDir,
        decoded: Arc<AtomicUsize>,
    }

    impl Place {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().expect("a temporary folder"), decoded: Arc::default() }
        }

        fn read(&self, videos: &[&str], frames: (u64, bool), every: u64) -> Result<Vec<LabelVideo>> {
            self.read_with(&InputOptions::default(), videos, frames, every)
        }

        fn read_with(
            &self,
            input: &InputOptions,
            videos: &[&str],
            frames: (u64, bool),
            every: u64,
        ) -> Result<Vec<LabelVideo>> {
            let videos = videos.iter().map(|name| {
                let decoded = Arc::clone(&self.decoded);
                let open = move || -> Result<Box<dyn Source>> {
                    let (info, decoded) = (SourceInfo::default(), Arc::clone(&decoded));
                    Ok(Box::new(Grey { info, next: 0, frames, decoded }))
                };
                let path = self.folder.path().join(name);
                std::fs::create_dir_all(path.parent().expect("it has one")).expect("a temporary folder");
                if !path.exists() {
                    std::fs::write(&path, name).expect("a temporary folder");
                }
                (path, Box::new(open) as Open)
            });
            LabelVideo::read_all(&self.folder.path().join("set"), videos, input, every, &mut || Ok(()))
        }
    }

    fn names(video: &LabelVideo) -> Vec<String> {
        video.images().iter().map(|image| image.relative.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn every_nth_frame_is_written_once() {
        let place = Place::new();
        let read = || place.read(&["a.mp4"], (7, false), 3).expect("it can be read").remove(0);
        let video = read();
        assert_eq!(names(&video), ["a_000000.jpg", "a_000003.jpg", "a_000006.jpg"]);
        assert_eq!((video.frames(), place.decoded.load(Ordering::SeqCst)), (7, 3));
        let frames: Vec<_> = video.images().iter().filter_map(|image| image.frame.as_ref()).collect();
        assert!(frames.iter().map(|frame| frame.index).eq([0, 3, 6]));
        let written = &video.images()[1].path;
        let grey = |path: &Path| Image::open(path).expect("it was written").as_rgb8()[0];
        assert!(grey(written).abs_diff(60) < 3, "frame 3");
        assert_eq!(identity(written).1, identity(video.path()).1, "it has the time of the video");
        // What is linked into the data set and edited there is not written to.
        let linked = place.folder.path().join("linked.jpg");
        std::fs::hard_link(written, &linked).expect("a temporary folder");
        read();
        assert_eq!(place.decoded.load(Ordering::SeqCst), 3, "they are there");
        std::fs::write(&linked, "mine").expect("a temporary folder");
        read();
        assert_eq!(place.decoded.load(Ordering::SeqCst), 4, "one is not that of the video any more");
        assert_eq!(std::fs::read(&linked).ok().as_deref(), Some(&b"mine"[..]));
        assert!(grey(written).abs_diff(60) < 3, "it was written again");
        let file = File::options().write(true).open(video.path()).expect("it is there");
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000)).expect("its time can be set");
        read();
        assert_eq!(place.decoded.load(Ordering::SeqCst), 7, "the video is another one");
    }

    #[test]
    fn a_video_that_was_replaced_is_another_one_also_at_the_same_time() {
        let place = Place::new();
        let read = || place.read(&["a.mp4"], (7, false), 3).expect("it can be read").remove(0);
        let video = read();
        let frame = &video.images()[1].path;
        assert!(video.check_unchanged(frame).is_ok());
        let time = video.path().metadata().and_then(|meta| meta.modified()).expect("it has one");
        std::fs::write(video.path(), "another video").expect("a temporary folder");
        let file = File::options().write(true).open(video.path()).expect("it is there");
        file.set_modified(time).expect("its time can be set");
        let changed = video.check_unchanged(frame).expect_err("it is another one").to_string();
        assert!(changed.contains("a.mp4") && changed.contains("run this again"), "{changed}");
        for _ in 0..2 {
            read();
            assert_eq!(place.decoded.load(Ordering::SeqCst), 6, "its frames are written again, once");
        }
    }

    #[test]
    fn videos_of_one_name_have_images_of_their_own() {
        let place = Place::new();
        let videos = ["x/a.mp4", "y/A.avi", "x/a.mp4", "b.mp4"];
        let read = place.read(&videos, (2, false), 5).expect("they can be read");
        let found: Vec<Vec<String>> = read.iter().map(names).collect();
        assert_eq!(found, [["a_000000.jpg"], ["A-2_000000.jpg"], ["b_000000.jpg"]]);
        let paths: HashSet<&Path> = read.iter().map(|video| &*video.images()[0].path).collect();
        assert_eq!(paths.len(), 3);
    }

    #[test]
    fn a_video_that_is_opened_in_another_way_has_other_images() {
        let place = Place::new();
        let option = |text| InputOptions::parse_ffmpeg(text).expect("it is one");
        let inputs = [(None, vec![]), (Some(0), vec![]), (Some(1), vec![]), (None, vec![option("lowres=1")])];
        let read = |(stream, ffmpeg)| {
            let read =
                place.read_with(&InputOptions { stream, ffmpeg, hwaccel: None }, &["a.mp4"], (2, false), 5);
            read.expect("it can be read")[0].images()[0].path.clone()
        };
        let mut paths = HashSet::new();
        for (count, input) in inputs.into_iter().enumerate() {
            assert_eq!(read(input.clone()), read(input.clone()), "{input:?}");
            assert!(paths.insert(read(input.clone())), "{input:?}");
            assert_eq!(place.decoded.load(Ordering::SeqCst), count + 1, "{input:?}: they are written once");
        }
    }

    #[test]
    fn a_video_that_cannot_be_opened_leaves_the_others_alone() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let read = |names: &[&str]| {
            let videos = names.iter().map(|name| {
                let is_cut = name.starts_with("cut");
                let open = move || -> Result<Box<dyn Source>> {
                    if is_cut {
                        return Err(Error::invalid_data("it has no index"));
                    }
                    let (info, decoded) = (SourceInfo::default(), Arc::default());
                    Ok(Box::new(Grey { info, next: 0, frames: (3, false), decoded }))
                };
                (folder.path().join(name), Box::new(open) as Open)
            });
            let input = InputOptions::default();
            LabelVideo::read_all(&folder.path().join("set"), videos, &input, 1, &mut || Ok(()))
        };
        let both = read(&["cut.mp4", "a.mp4"]).expect("one can be read");
        let found: Vec<_> = both.iter().map(|video| (video.frames(), video.damage().is_some())).collect();
        assert_eq!(found, [(0, true), (3, false)]);
        let error = read(&["cut.mp4", "cut-2.mp4"]).err().expect("none can be read");
        assert!(error.to_string().contains("no index"), "{error}");
    }

    #[test]
    fn what_can_be_read_of_a_video_counts() {
        let place = Place::new();
        let cases: [((u64, bool), u64, Result<(u64, bool), &str>); 6] = [
            ((4, false), 2, Ok((4, false))),
            ((4, true), 2, Ok((4, true))),
            ((1, true), 1, Ok((1, true))),
            ((0, true), 1, Err("it is damaged")),
            ((0, false), 1, Err("it has no frames")),
            ((4, false), 0, Err("every is 0")),
        ];
        let mut failures = Vec::new();
        for (frames, every, expected) in cases {
            let read = place.read(&["a.mp4"], frames, every);
            let found = read.map(|read| (read[0].frames(), read[0].damage().is_some()));
            let fits = match (&found, expected) {
                (Ok(found), Ok(expected)) => *found == expected,
                (Err(error), Err(part)) => error.to_string().contains(part),
                _ => false,
            };
            if !fits {
                failures.push(format!("{frames:?}, every {every}: {found:?}, expected {expected:?}"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
