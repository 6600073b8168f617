//! Annotated frames in a window.

use super::{Images, Sink};
use crate::cancellation::Cancellation;
use crate::frame_view::swap_red_and_blue;
use crate::outcome::FrameOutcome;
use ocelli_error::{Error, Result};

/// The largest window in pixels; larger frames are scaled down.
const LARGEST: (u32, u32) = (1600, 900);
const ESCAPE: i32 = 27;

/// Opens a window that shows annotated frames. Pressing q or Esc, or closing the window, cancels `cancellation`.
///
/// # Errors
/// [`Unavailable`](ocelli_error::ErrorKind::Unavailable) if there is no display.
pub fn open_window(title: &str, cancellation: Cancellation) -> Result<Box<dyn Sink>> {
    if let Some(why) = display_is_missing() {
        return Err(Error::unavailable(format!("cannot open a window: {why}")));
    }
    let opencv = ocelli_opencv::OpenCv::load()
        .map_err(|e| Error::new(e.kind(), format!("cannot open a window: {e}")))?;
    Ok(Box::new(Window { opencv, title: title.to_owned(), cancellation, shown: Vec::new(), open: None }))
}

/// The version of what shows windows.
///
/// # Errors
/// [`Unavailable`](crate::ErrorKind::Unavailable) if the library of windows is not installed or cannot be loaded.
pub fn window_library() -> Result<String> {
    ocelli_opencv::OpenCv::load().map(ocelli_opencv::OpenCv::version)
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
    opencv: ocelli_opencv::OpenCv,
    title: String,
    cancellation: Cancellation,
    /// The frame in BGR.
    shown: Vec<u8>,
    open: Option<ocelli_opencv::Window>,
}

impl Window {
    fn show(&mut self, outcome: &FrameOutcome) -> ocelli_opencv::Result<()> {
        let Some(image) = &outcome.annotated else { return Ok(()) };
        let (width, height) = (image.width(), image.height());
        self.shown.resize(image.as_rgb8().len(), 0);
        swap_red_and_blue(image.as_rgb8(), &mut self.shown);
        let window = match &mut self.open {
            Some(window) => window,
            None => {
                let scale = (f64::from(LARGEST.0) / f64::from(width))
                    .min(f64::from(LARGEST.1) / f64::from(height))
                    .min(1.0);
                let side = |side: u32| ((f64::from(side) * scale) as u32).max(1);
                self.open.insert(ocelli_opencv::Window::open(
                    self.opencv,
                    &self.title,
                    side(width),
                    side(height),
                )?)
            }
        };
        window.show(&self.shown, width, height)?;
        let key = window.key()?;
        if !window.is_visible()? || key == Some(ESCAPE) || key == Some(i32::from(b'q')) {
            self.cancellation.cancel();
        }
        Ok(())
    }
}

impl Sink for Window {
    fn images(&self) -> Images {
        Images::ANNOTATED
    }

    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        self.show(outcome).map_err(|e| {
            Error::unavailable(format!("cannot show frame {}, window {}: {e}", outcome.index, self.title))
        })
    }

    fn finish(&mut self) -> Result<()> {
        self.open = None;
        Ok(())
    }
}
