//! Annotated frames in a window.

use opencv::core::{CV_8UC3, Mat, MatTraitConst, MatTraitManual, Scalar};
use opencv::highgui;

use super::{Pictures, Sink};
use crate::cancellation::Cancellation;
use crate::frame_view::swap_red_and_blue;
use crate::outcome::FrameOutcome;
use ocelli_error::{Error, ErrorKind, Result};

/// The largest window in pixels; larger frames are scaled down.
const LARGEST: (i32, i32) = (1600, 900);
const ESCAPE: i32 = 27;

/// Opens a window that shows annotated frames. Pressing q or Esc, or closing the window, cancels `cancellation`.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if there is no display.
pub fn open_window(title: &str, cancellation: Cancellation) -> Result<Box<dyn Sink>> {
    if let Some(why) = display_is_missing() {
        return Err(Error::new(ErrorKind::Unavailable, format!("cannot open a window: {why}")));
    }
    Ok(Box::new(Window { title: title.to_owned(), cancellation, shown: Mat::default(), open: false }))
}

/// Why no window can be opened. This is checked beforehand because OpenCV's GUI toolkit aborts the program if there is no
/// display.
fn display_is_missing() -> Option<String> {
    if cfg!(not(all(unix, not(target_os = "macos")))) || std::env::var_os("QT_QPA_PLATFORM").is_some() {
        return None;
    }
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let Some(display) = set("DISPLAY") else {
        let why = "there is no display (neither DISPLAY nor WAYLAND_DISPLAY is set)";
        return set("WAYLAND_DISPLAY").is_none().then(|| why.into());
    };
    let (host, number) = display.rsplit_once(':')?;
    let number: u16 = number.split('.').next()?.parse().ok()?;
    let reached = if host.is_empty() || host == "unix" {
        #[cfg(unix)]
        {
            std::os::unix::net::UnixStream::connect(format!("/tmp/.X11-unix/X{number}")).map(drop)
        }
        #[cfg(not(unix))]
        Ok(())
    } else {
        std::net::TcpStream::connect((host, 6000u16.saturating_add(number))).map(drop)
    };
    reached.err().map(|e| format!("the display {display} does not answer ({e})"))
}

struct Window {
    title: String,
    cancellation: Cancellation,
    /// The frame in BGR.
    shown: Mat,
    open: bool,
}

impl Window {
    fn show(&mut self, outcome: &FrameOutcome) -> opencv::Result<()> {
        let Some(picture) = &outcome.annotated else { return Ok(()) };
        let (width, height) = (picture.width() as i32, picture.height() as i32);
        if (self.shown.cols(), self.shown.rows()) != (width, height) {
            self.shown = Mat::new_rows_cols_with_default(height, width, CV_8UC3, Scalar::default())?;
        }
        swap_red_and_blue(picture.as_rgb8(), self.shown.data_bytes_mut()?);
        if !self.open {
            highgui::named_window(&self.title, highgui::WINDOW_NORMAL | highgui::WINDOW_KEEPRATIO)?;
            let scale = (f64::from(LARGEST.0) / f64::from(width))
                .min(f64::from(LARGEST.1) / f64::from(height))
                .min(1.0);
            let side = |side: i32| ((f64::from(side) * scale) as i32).max(1);
            highgui::resize_window(&self.title, side(width), side(height))?;
            self.open = true;
        }
        highgui::imshow(&self.title, &self.shown)?;
        let key = highgui::wait_key(1)?;
        let closed = highgui::get_window_property(&self.title, highgui::WND_PROP_VISIBLE)? < 1.0;
        if closed || key == ESCAPE || key == i32::from(b'q') {
            self.cancellation.cancel();
        }
        Ok(())
    }
}

impl Sink for Window {
    fn pictures(&self) -> Pictures {
        Pictures::ANNOTATED
    }

    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        self.show(outcome).map_err(|e| {
            let message =
                format!("cannot show frame {}, window {}: {}", outcome.index, self.title, e.message);
            Error::new(ErrorKind::Unavailable, message)
        })
    }

    fn finish(&mut self) -> Result<()> {
        if std::mem::take(&mut self.open) {
            // The user may have closed it already.
            drop(highgui::destroy_window(&self.title));
        }
        Ok(())
    }
}
