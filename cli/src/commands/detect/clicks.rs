//! `--point`, `--box-prompt` and `--mask-prompt`: the masks of objects that are shown, not named.

use std::path::PathBuf;
use std::time::Instant;

use ocelli::{Detections, Detector, Image, ObjectPrompt, Result, StageTimes};

use super::DetectArgs;
use crate::status;

/// Checks what can be checked before a model is loaded.
///
/// # Errors
/// Wrong usage: several images, a prompt that does not fit the image, a model that has no tracker.
pub fn check(args: &DetectArgs, objects: &[ObjectPrompt], files: &[PathBuf]) -> anyhow::Result<()> {
    let [file] = files else {
        refuse!("--point, --box-prompt and --mask-prompt are in pixels of one image: name one with --image");
    };
    args.detector.model.check_tracker("clicks")?;
    let image = Image::open(file)?;
    let size = (image.width(), image.height());
    let fits = |object: &ObjectPrompt| object.check(size).map_err(|error| error.at(file));
    Ok(objects.iter().try_for_each(fits)?)
}

/// The masks of the objects as detections: the class is the number of the object, the score the predicted IoU.
pub fn segment(
    detector: &mut Detector,
    image: &Image,
    objects: &[ObjectPrompt],
    args: &DetectArgs,
) -> Result<Detections> {
    let (start, mut times) = (Instant::now(), StageTimes::default());
    let elapsed = || start.elapsed().as_secs_f64() * 1e3;
    let features = detector.encode(image)?;
    times.backbone = elapsed();
    let found = detector.segment_each(&features, objects, args.objects.multimask)?;
    times.total = elapsed();
    times.decode = times.total - times.backbone;
    let mut items = Vec::new();
    for (index, (object, masks)) in objects.iter().zip(found).enumerate() {
        let before = items.len();
        items.extend(masks.iter().filter_map(|mask| mask.to_detection(index, object.label().clone())));
        if items.len() == before {
            status(format!("object \"{}\": its mask has no pixels; try other points", object.label()));
        }
    }
    if let Some(least) = args.detector.confidence {
        items.retain(|item| item.score > least);
    }
    items.sort_by(|a, b| b.score.total_cmp(&a.score));
    items.truncate(args.detector.max_det.unwrap_or(usize::MAX));
    Ok(Detections { items, semantic: Vec::new(), times })
}
