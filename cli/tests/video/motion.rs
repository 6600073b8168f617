//! `--when-moving`: what is skipped and what is missed; `--blur` and `--redact`; the schema of `--config`.

use image::{Rgb, RgbImage};
use ocelli::report::FrameReport;

use super::{lines_of, run_video, succeed};
use crate::run::{Place, refusal};

const RATE: usize = 10;

/// An effect in a drawn video besides the camera's noise.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Effect {
    Nothing,
    Rain,
    Flicker,
    Dusk,
    /// A second scene is pushed in from the right, slowly.
    Entrant,
}

fn random(seed: usize) -> f32 {
    let mut value = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc_def1);
    value ^= value >> 29;
    value = value.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (value >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

fn golden(number: usize) -> RgbImage {
    let path = format!("{}/../tests/golden/scenes/{number:02}.png", env!("CARGO_MANIFEST_DIR"));
    image::open(path).expect("it is in the repository").to_rgb8()
}

/// Writes a folder of frames.
fn draw(place: &Place, folder: &str, effect: Effect, frames: usize) {
    let (still, other) = (golden(0), golden(1));
    place.folder(folder);
    for frame in 0..frames {
        let (width, height) = still.dimensions();
        let mut image = still.clone();
        if effect == Effect::Entrant {
            // It stops when a third of it is there.
            let entered = (width as usize * frame / (2 * frames)).min(width as usize / 3) as u32;
            for (x, y) in (0..height).flat_map(|y| (width - entered..width).map(move |x| (x, y))) {
                image.put_pixel(
                    x,
                    y,
                    *other.get_pixel((x + entered - width).min(other.width() - 1), y.min(other.height() - 1)),
                );
            }
        }
        let light = match effect {
            Effect::Flicker => 1.0 + 0.05 * (frame % 3) as f32,
            Effect::Dusk => 1.0 - 0.3 * frame as f32 / frames as f32,
            _ => 1.0,
        };
        for (x, y, pixel) in image.enumerate_pixels_mut() {
            let at = (frame * 4_000_000) + (y * width + x) as usize;
            let drop = effect == Effect::Rain
                && random(frame * 5000 + x as usize) > 0.96
                && (y as usize + 41 * frame + 7 * x as usize) % 70 < 14;
            let added = 2.5 * random(at) + if drop { 60.0 } else { 0.0 };
            *pixel = Rgb(pixel.0.map(|value| (light * f32::from(value) + added).clamp(0.0, 255.0) as u8));
        }
        image.save(place.path(&format!("{folder}/{frame:04}.png"))).expect("it can be written");
    }
}

/// The share of the detections of a full run that a gated run has, too.
fn recall(full: &[FrameReport], gated: &[FrameReport]) -> f64 {
    let (mut all, mut found) = (0, 0);
    for (full, gated) in full.iter().zip(gated) {
        for one in full.detections.iter().filter(|one| one.score > 0.5) {
            all += 1;
            let is_same = |other: &&ocelli::Detection| {
                other.class_id == one.class_id && other.bbox.iou(&one.bbox) > 0.5
            };
            found += usize::from(gated.detections.iter().find(is_same).is_some());
        }
    }
    found as f64 / f64::from(all.max(1) as u32)
}

const CLASSES: &str = "person bicycle car boat tv cat dog house moon robot cake bowl";

fn run(place: &Place, folder: &str, more: &str) -> Vec<FrameReport> {
    let arguments = format!("--video {folder} --fps {RATE} --jsonl - -q {more} --classes {CLASSES}");
    lines_of(succeed(place, &arguments).as_bytes())
}

#[test]
fn frames_without_motion_keep_their_detections() {
    let place = Place::new();
    draw(&place, "still", Effect::Nothing, 12);
    let lines = run(&place, "still", "--when-moving --track --stats stats.json");
    let looked: Vec<bool> = lines.iter().map(|line| line.detected).collect();
    assert!(looked[0] && looked[1..].iter().all(|looked| !looked), "{looked:?}");
    assert!(!lines[0].detections.is_empty());
    assert!(lines.iter().all(|line| line.detections == lines[0].detections), "they are kept");
    assert!(lines.last().is_some_and(|line| !line.tracks.is_empty()), "tracks stay");
    assert_eq!(place.json("stats.json")["frames_without_motion"], 11);
    // At least every half a second.
    let lines = run(&place, "still", "--when-moving=0.5");
    assert_eq!(lines.iter().filter(|line| line.detected).count(), 3);
    // Something enters: it is looked at, unless it is where motion is ignored.
    draw(&place, "entrant", Effect::Entrant, 12);
    let lines = run(&place, "entrant", "--when-moving");
    assert!(lines.iter().filter(|line| line.detected).count() > 6);
    place.write("ignore.yaml", "ignore: [{points: [[0.5, 0], [1, 0], [1, 1], [0.5, 1]]}]");
    let lines = run(&place, "entrant", "--when-moving --zones ignore.yaml");
    assert_eq!(lines.iter().filter(|line| line.detected).count(), 1);
    place.refuses(
        super::VIDEO,
        &[
            refusal("--classes|dog|--max-frames|1|--zones|ignore.yaml", 2, &["--when-moving"]),
            refusal("--classes|dog|--max-frames|1|--when-moving=0", 2, &["--when-moving=0", "seconds"]),
        ],
    );
}

/// The table of the guide.
#[test]
#[ignore = "needs minutes; prints the table of docs/video.md"]
#[expect(clippy::print_stdout, reason = "the table is the result")]
fn what_skipping_frames_costs() {
    let place = Place::new();
    println!("| | frames skipped | detections found |\n|---|---|---|");
    for effect in [Effect::Nothing, Effect::Rain, Effect::Flicker, Effect::Dusk, Effect::Entrant] {
        let folder = format!("{effect:?}");
        draw(&place, &folder, effect, 200);
        let full = run(&place, &folder, "");
        let gated = run(&place, &folder, "--when-moving");
        let skipped = gated.iter().filter(|line| !line.detected).count();
        println!("| {folder} | {} % | {:.1} % |", skipped / 2, 100.0 * recall(&full, &gated));
    }
}

#[test]
fn redacted_classes_are_unrecognisable_everywhere() {
    let place = Place::new();
    draw(&place, "frames", Effect::Nothing, 6);
    let plain = run(&place, "frames", "");
    let first = plain[0].detections.first().expect("something is found").clone();
    let label = first.label.to_string();
    let middle = |image: &RgbImage| {
        let [x1, y1, x2, y2] = first.bbox.to_xyxy();
        let at = |low: f32, high: f32, share: f32| (low + share * (high - low)) as u32;
        [0.4, 0.5, 0.6].map(|share| image.get_pixel(at(x1, x2, share), at(y1, y2, share)).0)
    };
    let image = |name: &str| image::load_from_memory(&place.read(name)).expect("an image").to_rgb8();
    // Frames that the detector skips are redacted as well, and so are crops.
    let more = format!("--detect-every 3 --redact {label} -o black/ --crops crops/");
    run(&place, "frames", &more);
    for frame in 0..6 {
        let drawn = image(&format!("black/{frame:06}.png"));
        assert_eq!(middle(&drawn), [[0; 3]; 3], "{label}, frame {frame}");
    }
    // So are those in which other classes have their turn: every eighth frame is searched for this one.
    draw(&place, "long", Effect::Nothing, 18);
    let others: Vec<&str> = ["horse", "cow", "sheep", "bus", "train", "boat", "pizza", "vase"]
        .into_iter()
        .filter(|other| *other != label)
        .take(7)
        .collect();
    let others = others.join(" ");
    succeed(
        &place,
        &format!("--video long --classes {label} {others} --class-budget 1 --redact {label} -o turns/ -q"),
    );
    for frame in 0..18 {
        let drawn = image(&format!("turns/{frame:06}.png"));
        assert_eq!(middle(&drawn), [[0; 3]; 3], "{label}, turns, frame {frame}");
    }
    let crop = image(&format!("crops/{label}/000000-0.jpg"));
    assert!(crop.pixels().all(|pixel| pixel.0.iter().all(|value| *value < 12)), "the crop shows it");

    let still = format!("{}/../tests/golden/scenes/00.png", env!("CARGO_MANIFEST_DIR"));
    let blurred = super::command(
        &place,
        [super::OCELLI, "detect"],
        &format!("--image {still} --classes {label} --blur {label} -o blurred.png -q"),
    )
    .output()
    .expect("it starts");
    assert!(blurred.status.success(), "{blurred:?}");
    let (before, after) = (golden(0), image("blurred.png"));
    assert_ne!(middle(&before), middle(&after));
    let refused = run_video(&place, "--video frames --classes dog --blur face --jsonl x.jsonl");
    refused.is_refusal(2, &["--blur, face", "--classes"]).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn a_config_has_zones() {
    let place = Place::new();
    draw(&place, "frames", Effect::Nothing, 4);
    let config = "\
video: [frames]
fps: 10
classes: [person, boat]
track: true
when-moving: 5
events: events.jsonl
zones:
  zones:
    - {name: all, points: [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]}
";
    place.write("cameras.yaml", config);
    succeed(&place, "--config cameras.yaml -q");
    assert!(place.path("events.jsonl").is_file());
    place.write("wrong.yaml", config.replace("name: all", "nam: all"));
    let refused = run_video(&place, "--config wrong.yaml");
    refused.is_refusal(2, &["--zones, in --config", "expected YAML"]).unwrap_or_else(|e| panic!("{e}"));
}
