//! Features of images on disk, where backbone and decoder are not to be in memory together.

use std::io::{self, Read, Write};

use ocelli_engines::Tensor;
use ocelli_export::contract::Manifest;

use super::encode::ImageFeatures;

/// What a file of features may ask for at most: the largest model at the largest size has a hundredth of it.
const MAX_VALUES: u64 = 1 << 34;

impl ImageFeatures {
    /// About how many bytes the features of one image take on disk, whatever its size; `masks` says whether what masks
    /// need is among them.
    pub fn bytes_on_disk(manifest: &Manifest, masks: bool) -> u64 {
        let cell = 4 * manifest.model_width as u64;
        let coarse = (manifest.grid() as u64).pow(2) * cell;
        coarse * if masks { 1 + 4 + 16 } else { 1 } + cell
    }

    /// Writes the features as they lie in memory, the host's or a device's, for this machine to read again.
    ///
    /// # Errors
    /// Where `out` fails.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        for side in [self.size.0, self.size.1] {
            out.write_all(&side.to_le_bytes())?;
        }
        for tensor in self.fpn.iter().chain([&self.image_prompt]) {
            let mut host = Tensor::empty();
            let tensor = match tensor.device() {
                Some(_) => {
                    tensor.copy_to_host_into(&mut host).map_err(io::Error::other)?;
                    &host
                }
                None => tensor,
            };
            let values =
                if tensor.is_empty() { &[][..] } else { tensor.as_f32().map_err(io::Error::other)? };
            let shape = if tensor.is_empty() { &[][..] } else { tensor.shape() };
            out.write_all(&(shape.len() as u64).to_le_bytes())?;
            shape.iter().try_for_each(|side| out.write_all(&(*side as u64).to_le_bytes()))?;
            let mut bytes = Vec::with_capacity(values.len() * 4);
            values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
            out.write_all(&bytes)?;
        }
        Ok(())
    }

    /// Reads what [`write_to`](Self::write_to) wrote, into the host's memory.
    ///
    /// # Errors
    /// Where `from` fails or ends, or holds something else.
    pub fn read_from(&mut self, from: &mut impl Read) -> io::Result<()> {
        let number = |from: &mut dyn Read| -> io::Result<u64> {
            let mut bytes = [0; 8];
            from.read_exact(&mut bytes)?;
            Ok(u64::from_le_bytes(bytes))
        };
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "these are no features");
        let sides = number(from)?;
        self.size = (sides as u32, (sides >> 32) as u32);
        for tensor in self.fpn.iter_mut().chain([&mut self.image_prompt]) {
            let rank = number(from)?;
            if rank > 8 {
                return Err(wrong());
            }
            if rank == 0 {
                *tensor = Tensor::empty();
                continue;
            }
            let shape: Vec<u64> = (0..rank).map(|_| number(from)).collect::<io::Result<_>>()?;
            let values = shape.iter().try_fold(1u64, |product, side| product.checked_mul(*side));
            if values.is_none_or(|values| values > MAX_VALUES) {
                return Err(wrong());
            }
            let shape: Vec<usize> = shape.iter().map(|side| *side as usize).collect();
            let values = tensor.reset_f32(&shape);
            let mut bytes = vec![0; values.len() * 4];
            from.read_exact(&mut bytes)?;
            for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(4)) {
                *value = f32::from_le_bytes(bytes.try_into().expect("chunks of four"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let values = |count: usize, step: f32| (0..count).map(|i| i as f32 * step - 3.0).collect::<Vec<_>>();
        let tensor = |shape: &[usize], step| {
            Tensor::f32(shape, values(shape.iter().product(), step)).expect("the shape fits")
        };
        let whole = ImageFeatures {
            fpn: [tensor(&[1, 2, 4, 4], 0.1), tensor(&[1, 2, 2, 2], 7.0), tensor(&[1, 2, 1, 1], 1e-9)],
            image_prompt: tensor(&[1, 1, 2], 1e30),
            size: (640, 480),
        };
        let coarse = ImageFeatures {
            fpn: [Tensor::empty(), Tensor::empty(), tensor(&[1, 2, 1, 1], 0.5)],
            ..Default::default()
        };
        let mut bytes = Vec::new();
        whole.write_to(&mut bytes).and_then(|()| coarse.write_to(&mut bytes)).expect("memory takes all");
        let (mut from, mut read) = (&bytes[..], ImageFeatures::default());
        for expected in [&whole, &coarse] {
            read.read_from(&mut from).expect("it was written");
            assert_eq!(read.size, expected.size);
            for (found, expected) in read.fpn.iter().zip(&expected.fpn) {
                assert_eq!(found.is_empty(), expected.is_empty());
                if !expected.is_empty() {
                    assert_eq!(
                        (found.shape(), found.as_f32().ok()),
                        (expected.shape(), expected.as_f32().ok())
                    );
                }
            }
        }
        assert!(read.read_from(&mut from).is_err(), "there is no more");
        assert!(read.read_from(&mut &[0xff; 64][..]).is_err(), "these are no features");
    }
}
