//! Reading and drawing images.

use std::path::PathBuf;

use numpy::{IntoPyArray, PyArray3, PyArrayMethods};
use ocelli::draw::{AnnotationStyle, Annotator, Overlay, OverlayOptions};
use ocelli::{Error, Image, PixelFormat, pipeline::FrameOutcome};
use pyo3::prelude::*;

use crate::error::OrRaise;
use crate::options::form;
use crate::pixels::Pixels;

/// Reads an image file as the programs do: [height, width, rgb].
#[pyfunction]
pub(crate) fn read_image(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyArray3<u8>>> {
    let image = py.detach(|| Image::open(&path)).or_raise(py)?;
    let sides = [image.height() as usize, image.width() as usize, 3];
    image.into_rgb8().into_pyarray(py).reshape(sides)
}

/// A copy of an image, in its own channel order, with detections drawn in; with `tracks`, those instead. `style`: whether
/// labels have scores, the opacity of masks, the width of lines, the font size.
#[pyfunction]
pub(crate) fn plot<'py>(
    py: Python<'py>,
    image: &Bound<'py, PyAny>,
    channel_order: &str,
    detections: &str,
    tracks: Option<&str>,
    labels: Vec<String>,
    style: (bool, f32, Option<f32>, Option<f32>),
) -> PyResult<Bound<'py, PyArray3<u8>>> {
    let pixels = Pixels::new(image, channel_order)?;
    let mut outcome = FrameOutcome::default();
    outcome.detections = form(py, detections)?;
    outcome.labels = labels.into_iter().map(Into::into).collect();
    let tracked = tracks.is_some();
    outcome.tracks = tracks.map_or(Ok(Vec::new()), |tracks| form(py, tracks))?;
    let (show_scores, mask_opacity, line_width, font_size) = style;
    let mut style = AnnotationStyle::default();
    (style.show_scores, style.mask_opacity) = (show_scores, mask_opacity);
    (style.line_width, style.font_size) = (line_width, font_size);
    let drawn = py.detach(|| {
        let view = pixels.view();
        let mut rgb = view.to_image()?.into_rgb_image();
        let options = OverlayOptions { tracks: tracked, trail_frames: 0 };
        Overlay::new(Annotator::new().with_style(style), options).draw(&mut rgb, &outcome)?;
        let (width, height) = rgb.dimensions();
        let mut bytes = rgb.into_raw();
        if view.format == PixelFormat::Bgr8 {
            bytes.chunks_exact_mut(3).for_each(|pixel| pixel.swap(0, 2));
        }
        Ok::<_, Error>((bytes, [height as usize, width as usize, 3]))
    });
    let (bytes, sides) = drawn.or_raise(py)?;
    bytes.into_pyarray(py).reshape(sides)
}

/// The names that the built-in model knows.
#[pyfunction]
pub(crate) fn vocabulary() -> Vec<&'static str> {
    ocelli::builtin::vocabulary().to_vec()
}
