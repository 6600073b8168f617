//! Preprocessing where the backbone computes: what crosses is the picture's own bytes, not the tensor made of them.

use std::sync::Arc;

use ocelli_engines::kernels::{KernelArgument, KernelCompiler, KernelProgram, Launch};
use ocelli_engines::{Device, ElementType, Tensor};

use super::weights::PassWeights;
use super::{PreprocessConfig, Rounding, resize};
use crate::error::{Error, ErrorKind, Result};
use crate::frame_view::{FrameView, PixelFormat};

/// The kernels, and how many values of the square a block of threads makes.
const SOURCE: &str = include_str!("preprocess.cu");
const TILE: [u32; 2] = [32, 16];
const THREADS: [u32; 3] = [32, 8, 1];

/// Turns pictures into `pixel_values` that lie on a device; equal to [`Preprocessor`](super::Preprocessor) to the bit.
///
/// The picture is copied to the device as it is, NV12 as half the bytes of RGB; one kernel does the rest. Its buffers on
/// the device grow to the largest picture seen; tables of weights are made when the size of the pictures changes.
pub struct DevicePreprocessor {
    config: PreprocessConfig,
    element_type: ElementType,
    device: Arc<dyn Device>,
    program: Arc<dyn KernelProgram>,
    /// The picture's bytes, its rows a stride apart.
    picture: Tensor,
    /// The same on their way, where the picture's rows lie far apart.
    packed: Vec<u8>,
    tables: Option<Tables>,
}

/// What the kernel needs to know of a size.
struct Tables {
    size: (u32, u32),
    down_first: bool,
    /// Of the first pass and of the second.
    passes: [(Tensor, u32); 2],
}

impl DevicePreprocessor {
    /// Compiles the kernels for the compiler's device.
    ///
    /// # Errors
    /// As [`Preprocessor::new`](super::Preprocessor::new), and [`ErrorKind::Unavailable`] where there is no compiler for
    /// the device's programs.
    pub fn new(compiler: &dyn KernelCompiler, config: PreprocessConfig) -> Result<Self> {
        config.validate()?;
        let once = u8::from(config.rounding == Rounding::Once);
        let ([width, height], rows) = (TILE, THREADS[1]);
        let source = format!(
            "#define ROUND_ONCE {once}\n#define TILE_WIDTH {width}\n#define TILE_HEIGHT {height}\n\
             #define THREAD_ROWS {rows}\n{SOURCE}"
        );
        let device = Arc::clone(compiler.device());
        Ok(Self {
            config,
            element_type: ElementType::F32,
            program: compiler.compile("preprocess", &source)?,
            picture: Tensor::on(Arc::clone(&device)),
            packed: Vec::new(),
            tables: None,
            device,
        })
    }

    /// What the values are: `F32`, as by default, or `F16`, the nearest of 16 bits.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for any other type.
    pub fn with_element_type(mut self, element_type: ElementType) -> Result<Self> {
        if !matches!(element_type, ElementType::F32 | ElementType::F16) {
            let message = format!("preprocessing, {element_type}: pixels are f32 or f16");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        self.element_type = element_type;
        Ok(self)
    }

    /// What it was made for.
    pub fn config(&self) -> &PreprocessConfig {
        &self.config
    }

    /// The device that the pixels lie on.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Copies one picture to the device and enqueues what makes `pixels` of it, [1, 3, S, S]; a tensor that lies
    /// elsewhere becomes one of the device's. The picture's bytes are not needed any more when this returns.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when the picture's bytes are too few; [`ErrorKind::Engine`] when the device has no
    /// memory left or fails.
    pub fn run_into<'a>(&mut self, picture: impl Into<FrameView<'a>>, pixels: &mut Tensor) -> Result<()> {
        let picture = picture.into();
        picture.check()?;
        let stride = self.upload(&picture)?;
        self.prepare_tables(picture.width, picture.height)?;
        let tables = self.tables.as_ref().expect("they were prepared");
        if pixels.device().is_none_or(|device| device.kind() != self.device.kind()) {
            *pixels = Tensor::on(Arc::clone(&self.device));
        }
        let side = self.config.imgsz;
        pixels.reset_to(self.element_type, &[1, 3, side, side])?;

        use KernelArgument::{F32, I32, Read, Write};
        let [(across, across_digits), (along, along_digits)] = &tables.passes;
        let [mean, deviation] = [self.config.mean, self.config.std].map(|rgb| rgb.map(|v| F32(v * 255.0)));
        let arguments = [
            Read(&self.picture),
            Read(across),
            Read(along),
            Write(pixels),
            I32(picture.width as i32),
            I32(picture.height as i32),
            I32(stride as i32),
            I32(side as i32),
            I32(*across_digits as i32),
            I32(*along_digits as i32),
            I32(i32::from(tables.down_first)),
            I32(i32::from(picture.format == PixelFormat::Bgr8)),
            I32(i32::from(self.element_type == ElementType::F16)),
            mean[0],
            mean[1],
            mean[2],
            deviation[0],
            deviation[1],
            deviation[2],
        ];
        let kernel = match picture.format {
            PixelFormat::Rgb8 | PixelFormat::Bgr8 => "preprocess_interleaved",
            PixelFormat::Gray8 => "preprocess_gray",
            PixelFormat::Nv12 => "preprocess_nv12",
        };
        let blocks = TILE.map(|tile| (side as u32).div_ceil(tile));
        let blocks = [blocks[0], blocks[1], 1];
        self.program.launch(&Launch { kernel, blocks, threads: THREADS, arguments: &arguments })?;
        Ok(())
    }

    /// Copies the picture's bytes to the device and says how far apart its rows lie there.
    fn upload(&mut self, picture: &FrameView<'_>) -> Result<usize> {
        let (width, height) = (picture.width as usize, picture.height as usize);
        let (row, rows) = match picture.format {
            PixelFormat::Rgb8 | PixelFormat::Bgr8 => (width * 3, height),
            PixelFormat::Gray8 => (width, height),
            PixelFormat::Nv12 => (width.next_multiple_of(2), height + height.div_ceil(2)),
        };
        // What lies between the rows goes along, unless it is much.
        let (stride, bytes) = if picture.stride <= row + row / 8 {
            (picture.stride, &picture.data[..picture.stride * (rows - 1) + row])
        } else {
            self.packed.clear();
            let lines = picture.data.chunks(picture.stride).take(rows);
            lines.for_each(|line| self.packed.extend_from_slice(&line[..row]));
            (row, &self.packed[..])
        };
        if i32::try_from(stride).is_err() || i32::try_from(rows).is_err() {
            let message = format!("preprocessing, {picture:?}: a kernel takes sides below 2^31 bytes");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        self.picture.reset_to(ElementType::U8, &[bytes.len()])?;
        let target = self.picture.device_slice().expect("a picture has bytes");
        target.buffer.copy_from_host(target.offset, bytes)?;
        Ok(stride)
    }

    fn prepare_tables(&mut self, width: u32, height: u32) -> Result<()> {
        if self.tables.as_ref().is_some_and(|tables| tables.size == (width, height)) {
            return Ok(());
        }
        let side = self.config.imgsz;
        let down_first = resize::is_down_first(width, height, side);
        let (first, second) = if down_first { (height, width) } else { (width, height) };
        let to_device = |length: u32| -> Result<(Tensor, u32)> {
            let PassWeights { digits, table } = PassWeights::new(length, side, self.config.rounding);
            let mut tensor = Tensor::on(Arc::clone(&self.device));
            tensor.copy_from_host(&Tensor::new(&[table.len() / side, side], table)?)?;
            Ok((tensor, digits))
        };
        self.tables = Some(Tables {
            size: (width, height),
            down_first,
            passes: [to_device(first)?, to_device(second)?],
        });
        Ok(())
    }
}

impl std::fmt::Debug for DevicePreprocessor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (config, device) = (&self.config, self.device.name());
        f.debug_struct("DevicePreprocessor")
            .field("config", config)
            .field("device", &device)
            .finish_non_exhaustive()
    }
}
