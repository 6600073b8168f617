//! Preprocessing on the host or on the device that the backbone works on.

use std::sync::Arc;

#[cfg(test)]
use ocelli_engines::kernels::KernelCompiler;
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
        let made = compiler_for(&**device).and_then(|compiler| {
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

    /// As [`place_at`](Self::place_at) with a compiler at hand.
    #[cfg(test)]
    fn place_with(&mut self, compiler: &dyn KernelCompiler) -> Result<()> {
        self.device = Some(DevicePreprocessor::new(compiler, *self.host.config())?);
        self.placed_at = Some(compiler.device().kind());
        Ok(())
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
    use ocelli_engines::fake::{FakeDevice, HostKernels};

    /// One buffer goes round while the place changes.
    #[test]
    fn pixels_lie_where_they_are_wanted() {
        let folder = tempfile::tempdir().expect("a folder");
        let device = FakeDevice::new();
        let compiler = HostKernels::new(device.clone(), folder.path());
        let image = Image::from_rgb8(5, 4, (0..60).collect()).expect("60 bytes");
        let mut preprocessor = PlacedPreprocessor::new(PreprocessConfig::new(14)).expect("it is fine");
        let (mut pixels, mut copy) = (Tensor::empty(), Tensor::empty());
        preprocessor.run_into(&image, &mut pixels).expect("it runs");
        let expected = pixels.clone();
        assert!(pixels.device().is_none());

        preprocessor.place_with(&compiler).expect("the kernels compile");
        preprocessor.run_into(&image, &mut pixels).expect("it runs");
        assert_eq!(pixels.device().map(|device| device.kind()), Some(DeviceKind::Fake));
        pixels.copy_to_host_into(&mut copy).expect("it is copied");
        assert!(copy == expected);

        preprocessor.place_at(None);
        preprocessor.run_into(&image, &mut pixels).expect("it runs");
        assert!(pixels == expected);

        // A device that runs no kernels of ours reads what the host makes.
        let device: Arc<dyn Device> = device;
        preprocessor.place_at(Some(&device));
        preprocessor.run_into(&image, &mut pixels).expect("it runs");
        assert!(pixels == expected);
    }
}
