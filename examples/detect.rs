//! Detects objects in one image, prints them and saves an annotated image.
//!
//! ```sh
//! cargo run --example detect                                   # a drawn scene and the built-in model
//! cargo run --example detect -- IMAGE "red apple" dog          # your own image and text prompts
//! ```
//!
//! The built-in model detects drawn pictograms only. For photographs pass an exported model or a checkpoint to the builder:
//! `.with_model(ModelSource::Folder("sam3".into()))`.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use ocelli::draw::Annotator;
use ocelli::{Detector, Image, Prompts};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let park = concat!(env!("CARGO_MANIFEST_DIR"), "/demos/scenes/park.png");
    let image = Image::open(arguments.next().unwrap_or_else(|| park.into()))?;
    let mut classes: Vec<String> = arguments.collect();
    if classes.is_empty() {
        classes = ["dog", "tree", "bicycle"].map(String::from).into();
    }

    // A detector loads its model once; `detect` reuses its engines and buffers for every image.
    let mut detector = Detector::builder().with_confidence(0.4).with_masks(true).build()?;
    let found = detector.detect(&image, &Prompts::new(classes)?)?;

    for detection in &found {
        let [x1, y1, x2, y2] = detection.bbox.to_xyxy();
        let area = detection.mask.as_ref().map_or(0, ocelli::Mask::area);
        println!(
            "{:<10} {:.2}  {x1:.0},{y1:.0} to {x2:.0},{y2:.0}, {area} pixels",
            detection.label, detection.score
        );
    }
    println!("{} detections in {:.0} ms with {}", found.items.len(), found.times.total, detector.engine());

    let mut annotated = image.into_rgb_image();
    Annotator::new().annotate(&mut annotated, &found.items)?;
    let path = std::env::temp_dir().join("ocelli-detect.png");
    annotated.save(&path)?;
    println!("saved {}", path.display());
    Ok(())
}
