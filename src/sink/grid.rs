//! The annotated frames of several sources side by side.

use super::image_files::letterboxed;
use super::{Images, Sink};
use crate::image::Image;
use crate::outcome::FrameOutcome;
use ocelli_error::{Result, refuse};
use std::time::Duration;

/// The widest grid in pixels.
const MAX_WIDTH: u32 = 1920;
/// Rates and times are rounded.
const SLACK: Duration = Duration::from_millis(1);

/// Passes on the newest annotated frames of several sources as one image, in columns and rows.
///
/// The grid has as many columns as rows, or one more. All cells are as large as the [first](Grid::with_frame_size) source's
/// frames, or smaller if the grid would be wider than 1920 pixels; a frame is scaled to fit into its cell. The inner sinks get an image for each frame interval,
/// without detections: its time is the latest of all sources.
pub struct Grid<'s> {
    sinks: Vec<Box<dyn Sink + 's>>,
    columns: u32,
    rows: u32,
    interval: Duration,
    cell: Option<(u32, u32)>,
    image: Image,
    time: Duration,
    written: Option<(u64, Duration)>,
    /// Set while the grid shows a frame that was not passed on.
    changed: bool,
}

impl<'s> Grid<'s> {
    /// A grid of `sources` cells for sinks of annotated images, with `frame_rate` images a second.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) without a source, or if the frame rate is not
    /// above 0.
    pub fn new(sources: usize, frame_rate: f64, sinks: Vec<Box<dyn Sink + 's>>) -> Result<Self> {
        let interval = Duration::try_from_secs_f64(1.0 / frame_rate).ok().filter(|one| !one.is_zero());
        let (Some(interval), 1..) = (interval, sources) else {
            refuse!("a grid of {sources} sources at {frame_rate} frames a second: expected at least one");
        };
        let columns = (1..).find(|columns| columns * columns >= sources).unwrap_or(1);
        let (columns, rows) = (columns as u32, sources.div_ceil(columns) as u32);
        Ok(Self {
            sinks,
            columns,
            rows,
            interval,
            cell: None,
            image: Image::default(),
            time: Duration::ZERO,
            written: None,
            changed: false,
        })
    }

    /// Makes the cells as large as frames of this width and height, if neither is 0. By default they are as large as the first
    /// frame that arrives, of whichever source.
    pub fn with_frame_size(mut self, (width, height): (u32, u32)) -> Self {
        if width > 0 && height > 0 {
            self.cell = Some(self.cell_for(width, height));
        }
        self
    }

    /// The width and height of cells for frames of this size; both are even.
    fn cell_for(&self, frame_width: u32, frame_height: u32) -> (u32, u32) {
        let width = frame_width.min(MAX_WIDTH / self.columns).max(2);
        let height = u64::from(frame_height) * u64::from(width) / u64::from(frame_width);
        (width.next_multiple_of(2), (height.max(2) as u32).next_multiple_of(2))
    }

    /// Scales a frame into its cell.
    fn place(&mut self, number: u32, frame: &Image) -> Result<()> {
        let (width, height) = self.cell.unwrap_or_else(|| self.cell_for(frame.width(), frame.height()));
        self.cell = Some((width, height));
        let size = (width * self.columns, height * self.rows);
        if (self.image.width(), self.image.height()) != size {
            self.image = Image::filled(size.0, size.1, [0; 3])?;
        }
        let (left, top) = (number % self.columns * width, number / self.columns * height);
        self.image.place(&letterboxed(frame, (width, height))?, [left, top, width, height]);
        Ok(())
    }

    fn pass_on(&mut self) -> Result<()> {
        if self.image.width() == 0 {
            return Ok(());
        }
        let index = self.written.map_or(0, |(index, _)| index + 1);
        let outcome = FrameOutcome {
            index,
            time: self.time,
            size: (self.image.width(), self.image.height()),
            annotated: Some(self.image.clone()),
            ..FrameOutcome::default()
        };
        self.written = Some((index, self.time));
        self.changed = false;
        self.sinks.iter_mut().try_for_each(|sink| sink.write(&outcome))
    }
}

impl Sink for Grid<'_> {
    fn images(&self) -> Images {
        Images::ANNOTATED
    }

    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        let Some(image) = &outcome.annotated else { return Ok(()) };
        self.time = self.time.max(outcome.time);
        let number = outcome.origin.as_ref().map_or(0, |origin| origin.number);
        if number < (self.columns * self.rows) as usize {
            self.place(number as u32, image)?;
            self.changed = true;
        }
        let interval = self.interval.saturating_sub(SLACK);
        if self.written.is_none_or(|(_, last)| self.time.saturating_sub(last) >= interval) {
            self.pass_on()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let last = if self.changed { self.pass_on() } else { Ok(()) };
        let finished = self.sinks.iter_mut().map(|sink| sink.finish()).fold(Ok(()), Result::and);
        last.and(finished)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::frame::Origin;

    struct Keep(Arc<Mutex<Vec<FrameOutcome>>>);

    impl Sink for Keep {
        fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
            self.0.lock().expect("no test panics while it holds it").push(outcome.clone());
            Ok(())
        }
    }

    #[test]
    fn each_source_has_its_cell_and_the_rate_is_kept() {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let mut grid = Grid::new(3, 10.0, vec![Box::new(Keep(kept.clone()))]).expect("three sources");
        for tick in 0..6u64 {
            for number in 0..3 {
                let level = 50 * (number as u8 + 1);
                let (w, h) = if number == 2 { (20, 40) } else { (40, 20) };
                let pixels = vec![level; 3 * (w * h) as usize];
                grid.write(&FrameOutcome {
                    time: Duration::from_millis(50 * tick),
                    origin: Some(Origin { number, name: "x".into(), frame_rate: None }),
                    annotated: Some(Image::from_rgb8(w, h, pixels).expect("grey pixels")),
                    ..FrameOutcome::default()
                })
                .expect("it is written");
            }
        }
        grid.finish().expect("it is finished");
        let kept = kept.lock().expect("no test panics while it holds it");
        let times: Vec<u128> = kept.iter().map(|outcome| outcome.time.as_millis()).collect();
        assert_eq!(times, [0, 100, 200, 250], "an image each tenth of a second, and the last");
        let last = kept[3].annotated.as_ref().expect("it is an image");
        assert_eq!((last.width(), last.height()), (80, 40));
        let level = |x: usize, y: usize| last.as_rgb8()[3 * (80 * y + x)];
        // The third is upright, and the fourth cell empty.
        let found = [level(20, 10), level(60, 10), level(20, 30), level(2, 30), level(60, 30)];
        assert_eq!(found, [50, 100, 150, 0, 0]);
        let grid = Grid::new(3, 10.0, Vec::new()).expect("three sources").with_frame_size((20, 40));
        assert_eq!(grid.cell, Some((20, 40)), "whichever frame arrives first");
        assert!(Grid::new(0, 10.0, Vec::new()).is_err() && Grid::new(1, 0.0, Vec::new()).is_err());
    }
}
