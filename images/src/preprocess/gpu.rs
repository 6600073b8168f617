//! Preprocessing on an NVIDIA GPU: the image is uploaded, not the much larger tensor made from it.

use std::sync::Arc;

use ocelli_engines::cuda::{CudaDevice, CudaKernels, KernelArgument};
use ocelli_engines::{Device, ElementType, Tensor};

use super::PreprocessConfig;
use super::kernel::{self, Planes, Tables};
use crate::device_frame::DeviceFrame;
use crate::frame_view::FrameView;
use ocelli_error::Result;

/// The kernels in the order of their source, one for each layout of pixels.
const KERNELS: [&str; 3] = ["preprocess_interleaved", "preprocess_gray", "preprocess_nv12"];

/// `TILE_WIDTH` and `TILE_HEIGHT` of the kernels.
const TILE: [u32; 2] = [32, 16];
/// `TILE_WIDTH` and `THREAD_ROWS`.
const THREADS: [u32; 3] = [32, 8, 1];

/// Turns images into `pixel_values` on a GPU, bit-identical to [`Preprocessor`](super::Preprocessor), which for NV12 needs the
/// [image in RGB](FrameView::to_image): the GPU converts before the resize.
///
/// The image is uploaded once, as it is (NV12 has half the bytes of RGB), and one kernel does the rest. The buffers grow
/// to the largest image seen; the resize weights are computed when the image size changes.
#[derive(Debug)]
pub struct DevicePreprocessor {
    config: PreprocessConfig,
    device: Device,
    kernels: CudaKernels,
    image: Tensor,
    packed: Vec<u8>,
    tables: Option<(Tables, [Tensor; 2])>,
}

impl DevicePreprocessor {
    /// Compiles the kernel, which takes about a second.
    ///
    /// # Errors
    /// As [`Preprocessor::new`](super::Preprocessor::new), and
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if there is no compiler for the GPU.
    pub fn new(device: &Arc<CudaDevice>, config: PreprocessConfig) -> Result<Self> {
        config.validate()?;
        let kernels = CudaKernels::compile(device, "preprocess", kernel::SOURCE)?;
        let device = Device::from(Arc::clone(device));
        Ok(Self {
            config,
            kernels,
            image: Tensor::on(device.clone()),
            packed: Vec::new(),
            tables: None,
            device,
        })
    }

    /// Uploads one image and enqueues the computation of `pixels`, [1, 3, S, S]; a tensor that is elsewhere moves to the
    /// GPU. The image's bytes can be reused when this returns.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the image has too few bytes;
    /// [`ErrorKind::Execution`](ocelli_error::ErrorKind::Execution) if the GPU has no memory left or fails.
    pub fn run_into<'a>(&mut self, image: impl Into<FrameView<'a>>, pixels: &mut Tensor) -> Result<()> {
        let image = image.into();
        image.check()?;
        let (stride, bytes) = kernel::rows(&image, &mut self.packed)?;
        self.image.copy_from_slice(&[bytes.len()], bytes)?;
        self.set_size((image.width, image.height))?;
        self.launch(&Planes::of_view(&image, stride), [KernelArgument::Read(&self.image); 2], pixels)
    }

    /// As [`run_into`](Self::run_into), of a frame that lies on the GPU: nothing is uploaded. Waits until the kernel has run, so
    /// that the frame is not needed any more when this returns.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the frame is on another GPU or its rows are
    /// too short; [`ErrorKind::Execution`](ocelli_error::ErrorKind::Execution) if the GPU has no memory left or fails.
    pub fn run_device_into(&mut self, frame: &DeviceFrame, pixels: &mut Tensor) -> Result<()> {
        frame.check()?;
        self.set_size((frame.width, frame.height))?;
        let planes = [&frame.luma.0, &frame.chroma.0].map(KernelArgument::Foreign);
        self.launch(&Planes::of_device(frame), planes, pixels)
    }

    /// Enqueues the kernel on an image of the size that was set, and its chroma.
    fn launch(&self, planes: &Planes, image: [KernelArgument<'_>; 2], pixels: &mut Tensor) -> Result<()> {
        let (tables, [first, second]) = self.tables.as_ref().expect("the size was set");
        if pixels.device() != Some(&self.device) {
            *pixels = Tensor::on(self.device.clone());
        }
        let side = self.config.imgsz;
        pixels.reset_to(ElementType::F32, &[1, 3, side, side])?;

        use KernelArgument::{F32, I32, Read, Write};
        let (integers, floats) = tables.arguments(&self.config, planes);
        let mut arguments = Vec::from(image);
        arguments.extend([Read(first), Read(second), Write(pixels)]);
        arguments.extend(integers.map(I32));
        arguments.extend(floats.map(F32));
        let name = KERNELS[kernel::kernel_of(planes.format)];
        let [width, height] = TILE.map(|tile| (side as u32).div_ceil(tile));
        self.kernels.launch(name, [width, height, 1], THREADS, &arguments)
    }

    /// Computes the weights for images of this size, unless the last image had it.
    fn set_size(&mut self, size: (u32, u32)) -> Result<()> {
        if self.tables.as_ref().is_none_or(|(tables, _)| tables.size != size) {
            self.tables = Some(self.upload_tables(size)?);
        }
        Ok(())
    }

    fn upload_tables(&self, size: (u32, u32)) -> Result<(Tables, [Tensor; 2])> {
        let tables = Tables::new(&self.config, size);
        let mut tensors = [(); 2].map(|()| Tensor::on(self.device.clone()));
        for (tensor, pass) in tensors.iter_mut().zip(&tables.passes) {
            tensor.copy_from_slice(&[pass.table.len()], &pass.table)?;
        }
        Ok((tables, tensors))
    }
}
