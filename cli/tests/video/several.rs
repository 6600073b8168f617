//! Several sources through one model.

use ocelli::report::FrameReport;

use super::{draw_video, frames_of, index_last, lines_of, run_video, succeed};
use crate::run::{Place, refusal};

#[test]
fn several_videos_share_the_model() {
    let place = Place::new();
    draw_video(&place, "a.mp4", 20);
    succeed(&place, "--classes dog --scene-size 320x240 --max-frames 12 -o b.mp4 -q");
    let run = "--imgsz 112 --classes moon dog --track --jsonl - -q";
    let alone = |name: &str| lines_of(succeed(&place, &format!("--video {name} {run}")).as_bytes());
    let both =
        lines_of(succeed(&place, &format!("--video a.mp4 --video b.mp4 {run} -o grid.mp4")).as_bytes());
    for name in ["a.mp4", "b.mp4"] {
        let of_source = both.iter().filter(|line| line.source.as_deref() == Some(name));
        let of_source: Vec<FrameReport> =
            of_source.map(|line| FrameReport { source: None, ..line.clone() }).collect();
        assert_eq!(of_source, alone(name), "{name}: as if it were alone");
    }
    let (frames, _) = frames_of(&place.path("grid.mp4"));
    let sizes: Vec<_> = frames.iter().map(|frame| (frame.image.width(), frame.image.height())).collect();
    assert!(sizes.iter().all(|size| *size == (640, 240)), "two cells: {sizes:?}");
    assert!((19..=21).contains(&frames.len()), "as long as the longest: {} frames", frames.len());
    // The second cell of the grid shows the second video.
    let (second, _) = frames_of(&place.path("b.mp4"));
    let bright = |pixels: Vec<u8>| pixels.iter().map(|v| u64::from(*v)).sum::<u64>() / pixels.len() as u64;
    let last = frames.last().expect("there are frames").image.clone().into_rgb_image();
    let cell = image::imageops::crop_imm(&last, 320, 0, 320, 240).to_image().into_raw();
    let expected = bright(second.last().expect("there are frames").image.as_rgb8().to_vec());
    assert!(bright(cell).abs_diff(expected) < 12);

    // A file of names.
    place.write("sources.txt", "# two cameras\ndoor = a.mp4\ngate=b.mp4\n\n");
    let lines = lines_of(succeed(&place, &format!("--sources sources.txt {run}")).as_bytes());
    let count = |name: &str| lines.iter().filter(|line| line.source.as_deref() == Some(name)).count();
    assert_eq!((count("door"), count("gate"), lines.len()), (20, 12, 32));
}

#[test]
fn a_source_that_fails_harms_no_other() {
    let place = Place::new();
    draw_video(&place, "a.mp4", 20);
    succeed(
        &place,
        "--classes moon --scene-size 320x240 --max-frames 20 -o whole.avi -q --detect-every 1000",
    );
    let bytes = place.read("whole.avi");
    place.write("cut.avi", &bytes[..bytes.len() * 2 / 3]);
    let bytes = index_last(&place.read("a.mp4"));
    place.write("cut.mp4", &bytes[..bytes.len() / 2]);
    let run =
        "--video a.mp4 cut.avi cut.mp4 --classes moon --jsonl lines --stats stats.json --detect-every 1000";
    let outcome = run_video(&place, run);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert!(outcome.stderr.contains("cut.avi") && outcome.stderr.contains("truncated"), "{outcome:?}");
    let lines = lines_of(&place.read("lines"));
    let whole = lines.iter().filter(|line| line.source.as_deref() == Some("a.mp4")).count();
    assert_eq!(whole, 20);
    let sources = &place.json("stats.json")["sources"];
    assert_eq!(sources[0]["error"], serde_json::Value::Null, "{sources}");
    assert!(sources[1]["error"].as_str().is_some_and(|error| error.contains("truncated")), "{sources}");
    assert!(sources[2]["error"].as_str().is_some_and(|error| error.contains("no index")), "{sources}");
    let strict = run_video(&place, &format!("{run} --strict"));
    assert_eq!(strict.status, Some(1), "{strict:?}");
    assert!(strict.stderr.contains("2 of 3 sources failed"), "{strict:?}");
    let all =
        run_video(&place, "--video cut.avi --video cut.avi --classes moon --jsonl lines --detect-every 1000");
    assert_eq!(all.status, Some(1), "{all:?}");
    assert!(all.stderr.contains("all 2 sources failed"), "{all:?}");
}

#[test]
fn sources_that_cannot_be_combined_are_refused() {
    let place = Place::new();
    draw_video(&place, "a.mp4", 2);
    place.write("empty.txt", "# nothing\n");
    place.write("colon.txt", "door:2=a.mp4\n");
    place.refuses(
        super::VIDEO,
        &[
            refusal("--video|a.mp4|--video|a.mp4|--classes|moon|--mot|x.txt", 2, &["--mot", "--jsonl"]),
            refusal("--video|a.mp4|--video|none.mp4|--classes|moon", 2, &["none.mp4"]),
            refusal("--video|a.mp4|--video|-|--classes|moon", 2, &["stdin"]),
            refusal("--sources|empty.txt|--classes|moon", 2, &["empty.txt", "a source per line"]),
            refusal("--sources|colon.txt|--classes|moon", 2, &["colon.txt", "no colon in a name"]),
            refusal("--sources|none.txt|--classes|moon", 2, &["none.txt"]),
        ],
    );
}
