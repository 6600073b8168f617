//! Preprocessing on the host or on the device that the backbone works on.

use std::sync::Arc;

use ocelli_engines::{Device, DeviceKind, Tensor};

use super::{DevicePreprocessor, PreprocessConfig, Preprocessor};
use crate::error::Result;
use crate::frame_view::FrameView;
use crate::kernels::compiler_for;

/// Turns pictures into `pixel_values` where the backbone reads them.
#[derive(Debug)]
pub(crate) struct PlacedPreprocessor {
    host: Preprocessor,
    /// Where the backbone works on a device that runs kernels.
    device: Option<DevicePreprocessor>,
    /// The device that the place was decided for.
    placed_at: Option<DeviceKind>,
}

impl PlacedPreprocessor {
    /// One on the host.
    pub(crate) fn new(config: PreprocessConfig) -> Result<Self> {
        Ok(Self { host: Preprocessor::new(config)?, device: None, placed_at: None })
    }

    /// Has the pixels lie on the backbone's device from now on; in the host's memory for none.
    ///
    /// Where kernels cannot be compiled for it, pictures are preprocessed on the host, whose result is the same, and the
    /// log says why.
    pub(crate) fn place_at(&mut self, device: Option<&Arc<dyn Device>>) {
        let kind = device.map(|device| device.kind());
        if kind == self.placed_at {
            return;
        }
        self.placed_at = kind;
        let Some(device) = device else {
            self.device = None;
            return;
        };
        let made = compiler_for(device).and_then(|compiler| {
            compiler.map(|compiler| DevicePreprocessor::new(&*compiler, *self.host.config())).transpose()
        });
        self.device = made.unwrap_or_else(|error| {
            tracing::warn!(
                "pictures are preprocessed on the processor and not on {}: {error}",
                device.name()
            );
            None
        });
    }

    /// Picture → `pixels` [1, 3, S, S].
    pub(crate) fn run_into<'a>(
        &mut self,
        picture: impl Into<FrameView<'a>>,
        pixels: &mut Tensor,
    ) -> Result<()> {
        match &mut self.device {
            Some(on_device) => on_device.run_into(picture, pixels),
            None => {
                let side = self.host.config().imgsz;
                self.host.run_into(picture, pixels.reset_f32(&[1, 3, side, side]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;
    use ocelli_engines::fake::FakeDevice;

    /// One buffer goes round while the place changes.
    #[test]
    fn pixels_lie_where_they_are_wanted() {
        let folder = tempfile::tempdir().expect("a folder");
        let image = Image::from_rgb8(5, 4, (0..60).collect()).expect("60 bytes");
        let mut preprocessor = PlacedPreprocessor::new(PreprocessConfig::new(14)).expect("it is fine");
        let (mut pixels, mut copy, mut expected) = (Tensor::empty(), Tensor::empty(), Tensor::empty());
        preprocessor.run_into(&image, &mut expected).expect("it runs");
        let with_kernels: Arc<dyn Device> = FakeDevice::with_kernels(folder.path());
        let without: Arc<dyn Device> = FakeDevice::new();
        for (device, is_there) in [(Some(&with_kernels), true), (None, false), (Some(&without), false)] {
            preprocessor.place_at(device);
            preprocessor.run_into(&image, &mut pixels).expect("it runs");
            assert_eq!(pixels.device().is_some(), is_there);
            pixels.copy_to_host_into(&mut copy).expect("it is copied");
            assert!(copy == expected);
        }
    }
}
