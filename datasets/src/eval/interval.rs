//! A difference of two models may be chance; its confidence interval tells.

use ocelli::Result;

use super::{Overlap, Predictions, Truth, average_precision};

/// Blocks of images that are left out in turn.
const BLOCKS: usize = 20;
/// The 0.975 quantile of Student's t distribution with 19 degrees of freedom.
const QUANTILE: f64 = 2.093;

/// The 95 % confidence interval of the average precision of `second` minus that of `first`, paired: both saw the same images.
/// `None` with fewer than twenty images, or without instances in some of them.
///
/// Average precision is no mean over images, so the error is that of the delete-a-block jackknife (Shao and Tu, *The
/// Jackknife and Bootstrap*, 1995, section 2.3): a twentieth of the images is left out in turn.
///
/// # Errors
/// Those of [`average_precision`].
pub fn difference_interval(
    truth: &Truth,
    [first, second]: [&Predictions; 2],
    image_ids: &[u64],
    overlap: Overlap,
) -> Result<Option<[f64; 2]>> {
    if image_ids.len() < BLOCKS {
        return Ok(None);
    }
    let difference = |ids: &[u64]| -> Result<Option<f64>> {
        let ap = |found: &Predictions| {
            Ok(average_precision(truth, &found.clone().of_images(ids), ids, overlap)?.ap)
        };
        Ok(ap(second)?.zip(ap(first)?).map(|(second, first)| second - first))
    };
    let Some(whole) = difference(image_ids)? else { return Ok(None) };
    let mut partial = Vec::with_capacity(BLOCKS);
    for block in 0..BLOCKS {
        let rest = image_ids.iter().enumerate().filter(|(index, _)| index % BLOCKS != block);
        let Some(value) = difference(&rest.map(|(_, id)| *id).collect::<Vec<_>>())? else { return Ok(None) };
        partial.push(value);
    }
    let blocks = BLOCKS as f64;
    let mean = partial.iter().sum::<f64>() / blocks;
    let squares: f64 = partial.iter().map(|value| (value - mean).powi(2)).sum();
    let margin = QUANTILE * ((blocks - 1.0) / blocks * squares).sqrt();
    Ok(Some([whole - margin, whole + margin]))
}
