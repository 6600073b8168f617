//! The images of a session.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use ocelli_tracking::masklets::VideoShape;

use crate::frame::Frame;
use crate::image::{Image, is_image_file};
use crate::masklets::detect::MaskFrame;
use crate::source::{InputOptions, Source, natural_order, open_video_with};
use ocelli_error::{Error, ErrorKind, Result, refuse};

/// Images that are kept when a run goes back in a video that is read from its start.
const KEPT_IMAGES: usize = 16;

/// Fills a frame by its number.
type FeatureSource = Box<dyn FnMut(usize, &mut MaskFrame) -> Result<()> + Send>;

/// The frames of a [`VideoSession`](super::VideoSession).
pub struct SessionSource {
    pub(super) name: String,
    pub(super) shape: VideoShape,
    pub(super) images: Images,
}

pub(super) enum Images {
    /// Image files.
    Files(Vec<PathBuf>),
    /// A source that is opened again to go back.
    Reopened(Reopened),
    /// Frames in memory, the first of them with its number.
    Pushed(usize, VecDeque<Image>),
    /// Features from elsewhere.
    Features(FeatureSource),
}

impl SessionSource {
    /// A video file, or a folder of images in natural order.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a folder without images, and as [`open_video`](crate::source::open_video).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, InputOptions::default())
    }

    /// [`open`](Self::open) of one of several video streams, or with options of FFmpeg.
    ///
    /// # Errors
    /// Those of [`open`](Self::open) and [`open_video_with`]; [`ErrorKind::InvalidArgument`] for options of a folder.
    pub fn open_with(path: impl AsRef<Path>, options: InputOptions) -> Result<Self> {
        let path = path.as_ref();
        if !path.is_dir() {
            let path = path.to_owned();
            return Self::reopened(move || open_video_with(&path, &options));
        }
        if options != InputOptions::default() {
            let why = "the number of a stream and FFmpeg's options are for video files";
            refuse!("{}: {why}", path.display());
        }
        let entries = path.read_dir().map_err(|error| Error::io("cannot read the folder", path, error))?;
        let is_image = |path: &PathBuf| path.is_file() && is_image_file(path);
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_image).collect();
        natural_order(&mut files);
        if files.is_empty() {
            refuse!("{}: the folder has no images", path.display());
        }
        Self::images(path.display().to_string(), files)
    }

    /// Image files in this order; `name` stands for the video in messages.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there are none; what [`Image::open`] returns for the first one.
    pub fn images(name: impl Into<String>, files: Vec<PathBuf>) -> Result<Self> {
        let name = name.into();
        let Some(first) = files.first() else {
            refuse!("{name}: expected at least one image");
        };
        let first = Image::open(first)?;
        let shape = shape(files.len(), first.width(), first.height());
        Ok(Self { name, shape, images: Images::Files(files) })
    }

    /// A source that `open` opens from its start, again each time when a run goes back.
    ///
    /// # Errors
    /// Those of `open` and of the source; [`ErrorKind::InvalidData`] if it has no frames.
    pub fn reopened(mut open: impl FnMut() -> Result<Box<dyn Source>> + Send + 'static) -> Result<Self> {
        let mut source = open()?;
        let info = source.info();
        let (name, count) = (info.name.clone(), info.frame_count.filter(|_| !info.estimates_frames));
        let mut frame = Frame::default();
        if !source.read_into(&mut frame)? {
            return Err(Error::invalid_data(format!("{name}: the video has no frames")));
        }
        let (width, height) = (frame.image.width(), frame.image.height());
        let count = match count {
            Some(count) => usize::try_from(count).unwrap_or(usize::MAX).max(1),
            None => {
                let mut count = 1;
                while source.skip(&mut frame)? {
                    count += 1;
                }
                source = open()?;
                if !source.read_into(&mut frame)? {
                    count = 1;
                }
                count
            }
        };
        let recent = VecDeque::from([(0, std::mem::take(&mut frame).image)]);
        let reopened = Reopened { open: Box::new(open), source, next: 1, recent };
        let shape = shape(count, width, height);
        Ok(Self { name, shape, images: Images::Reopened(reopened) })
    }

    /// A video that begins with this frame; [`VideoSession::push`](super::VideoSession::push) appends the others.
    pub fn pushed(first: Image) -> Self {
        let shape = shape(1, first.width(), first.height());
        Self { name: "pushed frames".into(), shape, images: Images::Pushed(0, VecDeque::from([first])) }
    }

    /// Frames whose features and detections come from elsewhere.
    #[doc(hidden)]
    pub fn features(
        shape: VideoShape,
        source: impl FnMut(usize, &mut MaskFrame) -> Result<()> + Send + 'static,
    ) -> Self {
        Self { name: "features".into(), shape, images: Images::Features(Box::new(source)) }
    }

    /// Size and number of the frames.
    pub fn shape(&self) -> VideoShape {
        self.shape
    }

    /// The image of a frame. Of a video file the frames from the one that was read last are at hand; going back more than a few
    /// frames reads it from its start.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] if the video ends before it; errors of reading the frame, and if its size is not that of the first.
    pub fn image(&mut self, frame: usize) -> Result<Image> {
        self.read(frame).map(Cow::into_owned)
    }

    /// The image of a frame, of the size of the first one.
    pub(super) fn read(&mut self, number: usize) -> Result<Cow<'_, Image>> {
        let count = self.shape.frames.unwrap_or(0);
        let (name, image) = match &mut self.images {
            Images::Files(files) => {
                let file =
                    files.get(number).ok_or_else(|| missing(&self.name, number, files.len(), count))?;
                (file.display().to_string(), Cow::Owned(Image::open(file)?))
            }
            Images::Reopened(video) => {
                (self.name.clone(), Cow::Borrowed(video.read(&self.name, number, count)?))
            }
            Images::Pushed(first, frames) => {
                let frame = number.checked_sub(*first).and_then(|index| frames.get(index));
                let frame = frame.ok_or_else(|| missing(&self.name, number, count, count))?;
                (self.name.clone(), Cow::Borrowed(frame))
            }
            Images::Features(_) => {
                return Err(Error::new(ErrorKind::Internal, "features have no images"));
            }
        };
        check_size(&name, number, &image, self.shape)?;
        Ok(image)
    }

    /// Appends a frame to a [pushed](Self::pushed) video, and returns its number.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the frame has another size, or the video is not pushed.
    pub fn push(&mut self, image: Image) -> Result<usize> {
        let Images::Pushed(first, frames) = &mut self.images else {
            refuse!("{}: frames can be pushed to a session that began with one", self.name);
        };
        let number = *first + frames.len();
        check_size(&self.name, number, &image, self.shape)?;
        frames.push_back(image);
        self.shape.frames = Some(number + 1);
        Ok(number)
    }

    /// Drops the pushed images before this frame.
    pub(super) fn forget_before(&mut self, frame: usize) {
        if let Images::Pushed(first, frames) = &mut self.images {
            frames.drain(..frame.saturating_sub(*first).min(frames.len()));
            *first = frame.max(*first);
        }
    }

    /// The first frame that was not dropped.
    pub(super) fn first(&self) -> usize {
        if let Images::Pushed(first, _) = self.images { first } else { 0 }
    }
}

/// A source that is read forward, and opened again to go back.
pub(super) struct Reopened {
    open: Box<dyn FnMut() -> Result<Box<dyn Source>> + Send>,
    source: Box<dyn Source>,
    /// The frame that the source provides next.
    next: usize,
    /// Frames that were read, by number.
    recent: VecDeque<(usize, Image)>,
}

impl Reopened {
    fn read(&mut self, name: &str, number: usize, count: usize) -> Result<&Image> {
        let mut first = number;
        if !self.recent.iter().any(|(at, _)| *at == number) {
            if number < self.next {
                self.source = (self.open)()?;
                self.next = 0;
                // The next frame is probably the one before.
                first = (number + 1).saturating_sub(KEPT_IMAGES);
            }
            self.recent.clear();
            while self.next <= number {
                let mut frame = Frame::default();
                let is_wanted = self.next >= first;
                let found =
                    if is_wanted { self.source.read_into(&mut frame) } else { self.source.skip(&mut frame) };
                if !found? {
                    return Err(missing(name, number, self.next, count));
                }
                if is_wanted {
                    self.recent.push_back((self.next, frame.image));
                }
                self.next += 1;
            }
        }
        let found = self.recent.iter().find(|(at, _)| *at == number);
        found.map(|(_, image)| image).ok_or_else(|| missing(name, number, self.next, count))
    }
}

fn shape(frames: usize, width: u32, height: u32) -> VideoShape {
    VideoShape { frames: Some(frames), width: width as usize, height: height as usize }
}

fn missing(name: &str, number: usize, found: usize, announced: usize) -> Error {
    let message = format!(
        "frame {number}, {name}: the video ends after {found} of the {announced} frames that it announces; limit the run \
         with max_frames, or repair the file"
    );
    Error::invalid_data(message)
}

fn check_size(name: &str, number: usize, image: &Image, shape: VideoShape) -> Result<()> {
    let (width, height) = (image.width() as usize, image.height() as usize);
    let VideoShape { width: first_width, height: first_height, .. } = shape;
    if (width, height) != (first_width, first_height) {
        refuse!(
            "frame {number}, {name}: it has {width}×{height} pixels, the first frame {first_width}×{first_height}; a session \
             needs frames of one size"
        );
    }
    Ok(())
}
