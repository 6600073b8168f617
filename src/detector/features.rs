//! The features of an image, in memory and in a file.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::sync::OnceLock;

use ocelli_engines::{Device, Engine, Tensor};
use ocelli_export::contract::{Manifest, tensor};

use super::engine_io::{is_readable_on, move_to, readable_on};
use ocelli_error::Result;

/// The index of `image_prompt` among the [features](ImageFeatures).
pub(super) const IMAGE_PROMPT: usize = 3;
/// The index of `fpn_2`.
pub(super) const COARSE: usize = 2;

/// The most values that a tensor in a file can have: a hundred times those of the largest model at its largest size.
const MAX_VALUES: u64 = 1 << 34;

/// Images whose features are in memory at once: 64 with 256 MiB of features.
#[derive(Default)]
pub(crate) struct Group {
    images: usize,
    bytes: usize,
}

impl Group {
    pub(crate) fn is_full(&self) -> bool {
        self.images >= 64 || self.bytes >= 256 << 20
    }

    /// Adds an image for which `bytes` are kept.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.images += 1;
        self.bytes += bytes;
    }
}

/// The backbone's output for an image, on the backbone's device if it has one. The buffers are reused.
#[derive(Debug, Default)]
pub struct ImageFeatures {
    /// `fpn_0` `[1, D, 4P, 4P]` and `fpn_1` `[1, D, 2P, 2P]` if masks are computed, `fpn_2` `[1, D, P, P]`, and
    /// `image_prompt` `[1, 1, D]` if the model's prompts have a CLS token. The others are empty.
    pub(super) tensors: [Tensor; 4],
    /// `hidden` `[1, hidden, P, P]`, if a tracker needs it; not in files.
    pub(crate) hidden: Tensor,
    /// The features for clicks, from `hidden`, once there was a click; not in files.
    pub(super) clicks: OnceLock<ClickFeatures>,
    /// Pixels of the image: width, height.
    pub(super) size: (u32, u32),
}

impl ImageFeatures {
    /// Width and height of the image, in pixels.
    pub fn size(&self) -> (u32, u32) {
        self.size
    }

    /// `true` if masks can be computed from them.
    pub fn support_masks(&self) -> bool {
        !self.tensors[0].is_empty()
    }

    /// The backbone's outputs by name, in any memory: those that the model has and that were requested.
    #[doc(hidden)]
    pub fn tensors(&self) -> impl Iterator<Item = (&'static str, &Tensor)> {
        let names = tensor::FPN.into_iter().chain([tensor::IMAGE_PROMPT]);
        names.zip(&self.tensors).filter(|(_, tensor)| !tensor.is_empty())
    }

    /// The bytes that they take, those for clicks included, on the device or in host memory.
    pub fn bytes(&self) -> usize {
        let clicks = self.clicks.get().into_iter().flat_map(ClickFeatures::tensors);
        let tensors = self.tensors.iter().chain([&self.hidden]).chain(clicks);
        tensors.map(|tensor| tensor.len() * tensor.element_type().size()).sum()
    }

    /// About how many bytes the features of an image of any size take in a file, with or without those for masks.
    pub fn bytes_on_disk(manifest: &Manifest, masks: bool) -> u64 {
        let cell = 4 * manifest.model_width as u64;
        let coarse = (manifest.grid() as u64).pow(2) * cell;
        coarse * if masks { 1 + 4 + 16 } else { 1 } + cell
    }

    /// Writes the features for [`read_from`](Self::read_from).
    ///
    /// # Errors
    /// If `out` fails.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        for side in [self.size.0, self.size.1] {
            out.write_all(&side.to_le_bytes())?;
        }
        for tensor in &self.tensors {
            let tensor = readable_on(None, Cow::Borrowed(tensor)).map_err(io::Error::other)?;
            let shape = if tensor.is_empty() { &[][..] } else { tensor.shape() };
            let values =
                if tensor.is_empty() { &[][..] } else { tensor.as_f32().map_err(io::Error::other)? };
            out.write_all(&(shape.len() as u64).to_le_bytes())?;
            shape.iter().try_for_each(|side| out.write_all(&(*side as u64).to_le_bytes()))?;
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            out.write_all(&bytes)?;
        }
        Ok(())
    }

    /// Reads what [`write_to`](Self::write_to) wrote, into host memory.
    ///
    /// # Errors
    /// If `from` fails, is truncated or has other content.
    pub fn read_from(&mut self, from: &mut impl Read) -> io::Result<()> {
        let number = |from: &mut dyn Read| -> io::Result<u64> {
            let mut bytes = [0; 8];
            from.read_exact(&mut bytes)?;
            Ok(u64::from_le_bytes(bytes))
        };
        let corrupt = || io::Error::new(io::ErrorKind::InvalidData, "corrupt image features");
        let sides = number(from)?;
        self.size = (sides as u32, (sides >> 32) as u32);
        // Those of another image must not be taken for those of this one.
        self.hidden = Tensor::empty();
        self.clicks.take();
        for tensor in &mut self.tensors {
            let rank = number(from)?;
            if rank > 8 {
                return Err(corrupt());
            }
            if rank == 0 {
                *tensor = Tensor::empty();
                continue;
            }
            let shape: Vec<u64> = (0..rank).map(|_| number(from)).collect::<io::Result<_>>()?;
            let values = shape.iter().try_fold(1u64, |product, side| product.checked_mul(*side));
            if values.is_none_or(|values| values > MAX_VALUES) {
                return Err(corrupt());
            }
            let shape: Vec<usize> = shape.iter().map(|side| *side as usize).collect();
            let values = tensor.reset_f32(&shape);
            let mut bytes = vec![0; values.len() * 4];
            from.read_exact(&mut bytes)?;
            for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
                *value = f32::from_le_bytes(*bytes);
            }
        }
        Ok(())
    }
}

/// An image's features for clicks, on the device that the engines share, if they do.
#[derive(Debug, Default)]
pub(crate) struct ClickFeatures {
    pub(crate) high_res: [Tensor; 2],
    /// Empty if the graph has none.
    pub(crate) pixel: Tensor,
}

impl ClickFeatures {
    /// Computes them, and `others`, from the backbone's last features.
    pub(crate) fn run(
        &mut self,
        graph: &mut Box<dyn Engine>,
        device: Option<&Device>,
        hidden: &Tensor,
        others: Vec<(&'static str, &mut Tensor)>,
    ) -> Result<()> {
        let mut outputs = others;
        if graph.spec().output(tensor::PIXEL).is_some() {
            outputs.push((tensor::PIXEL, &mut self.pixel));
        }
        outputs.extend(tensor::HIGH_RES.into_iter().zip(&mut self.high_res));
        outputs.iter_mut().for_each(|(_, tensor)| move_to(tensor, device));
        let hidden = readable_on(graph.device().as_ref(), Cow::Borrowed(hidden))?;
        graph.run(&[(tensor::HIDDEN, &hidden)], &mut outputs)
    }

    fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.high_res.iter().chain([&self.pixel])
    }
}

/// Copies of one image's features in host memory, for engines that cannot read the device that the features are on. The
/// buffers are reused for the next image.
#[derive(Default)]
pub(super) struct HostCopies {
    tensors: [Tensor; 4],
    /// Set for those that have been copied for this image.
    is_copied: [bool; 4],
    is_logged: bool,
}

impl HostCopies {
    /// Starts the next image.
    pub(super) fn begin(&mut self) {
        self.is_copied = [false; 4];
    }

    /// The features with these indices that an engine on `device` can read, and copies of the others, made once an image.
    pub(super) fn readable_on<'t, const N: usize>(
        &'t mut self,
        device: Option<&Device>,
        features: &'t ImageFeatures,
        indices: [usize; N],
    ) -> Result<[&'t Tensor; N]> {
        for index in indices {
            let tensor = &features.tensors[index];
            let unreadable = tensor.device().filter(|_| !is_readable_on(tensor, device));
            let Some(source) = unreadable.filter(|_| !self.is_copied[index]) else { continue };
            if !std::mem::replace(&mut self.is_logged, true) {
                let target = device.map_or("the CPU", Device::name);
                tracing::info!(
                    "one engine runs on {}, the next on {target}: features are copied through host memory",
                    source.name()
                );
            }
            tensor.copy_to_host_into(&mut self.tensors[index])?;
            self.is_copied[index] = true;
        }
        let copies = &self.tensors;
        let whole = |index: usize| is_readable_on(&features.tensors[index], device);
        Ok(indices.map(|index| if whole(index) { &features.tensors[index] } else { &copies[index] }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_round_trip_through_a_file() {
        let values = |count: usize, step: f32| (0..count).map(|i| i as f32 * step - 3.0).collect::<Vec<_>>();
        let tensor = |shape: &[usize], step| {
            Tensor::f32(shape, values(shape.iter().product(), step)).expect("the shape fits")
        };
        let fine = (tensor(&[1, 2, 4, 4], 0.1), tensor(&[1, 2, 2, 2], 7.0));
        let tensors = [fine.0, fine.1, tensor(&[1, 2, 1, 1], 1e-9), tensor(&[1, 1, 2], 1e30)];
        let whole = ImageFeatures { tensors, size: (640, 480), ..ImageFeatures::default() };
        let mut coarse = ImageFeatures::default();
        coarse.tensors[2] = tensor(&[1, 2, 1, 1], 0.5);
        let mut bytes = Vec::new();
        whole.write_to(&mut bytes).and_then(|()| coarse.write_to(&mut bytes)).expect("a vector grows");
        let (mut from, mut read) = (&bytes[..], ImageFeatures::default());
        for expected in [&whole, &coarse] {
            read.read_from(&mut from).expect("it was written");
            assert_eq!(read.size, expected.size);
            for (found, expected) in read.tensors.iter().zip(&expected.tensors) {
                assert_eq!(found.is_empty(), expected.is_empty());
                if !expected.is_empty() {
                    assert_eq!(
                        (found.shape(), found.as_f32().ok()),
                        (expected.shape(), expected.as_f32().ok())
                    );
                }
            }
        }
        assert!(read.read_from(&mut from).is_err(), "the end of the file");
        assert!(read.read_from(&mut &[0xff; 64][..]).is_err(), "other content");
    }
}
