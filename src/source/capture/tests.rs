use std::path::PathBuf;

use super::*;
use crate::image::Image;
use crate::outcome::FrameOutcome;
use crate::sink::{Sink, create_video};

/// A video of 64 × 32 pixels whose left half is bright.
fn half_bright(folder: &Path, frames: u64) -> PathBuf {
    let path = folder.join("half.mp4");
    let row = |_| (0..64).flat_map(|x| [if x < 32 { 220u8 } else { 20 }; 3]);
    let picture = Image::from_rgb8(64, 32, (0..32).flat_map(row).collect()).expect("64 × 32 pixels");
    let mut video = create_video(&path, 10.0).expect("it can be encoded");
    for index in 0..frames {
        let (annotated, time) = (Some(picture.clone()), Duration::from_millis(100 * index));
        video
            .write(&FrameOutcome { index, time, annotated, ..FrameOutcome::default() })
            .expect("there is room");
    }
    video.finish().expect("it is complete");
    path
}

#[test]
fn frames_are_rotated_upright() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = half_bright(folder.path(), 3);
    let whole = std::fs::read(&path).expect("it was written");
    let header = whole.windows(4).position(|window| window == b"tkhd").expect("a track has a header") + 4;
    // The rotation matrix, and the size and a bright pixel of the upright picture.
    let cases: [(&str, [i32; 4], (u32, u32), (u32, u32)); 4] = [
        ("upright", [1, 0, 0, 1], (64, 32), (8, 16)),
        ("clockwise", [0, 1, -1, 0], (32, 64), (16, 8)),
        ("upside down", [-1, 0, 0, -1], (64, 32), (56, 16)),
        ("counter-clockwise", [0, -1, 1, 0], (32, 64), (16, 56)),
    ];
    let mut failures = Vec::new();
    for (name, [a, b, c, d], size, (x, y)) in cases {
        let mut bytes = whole.clone();
        for (place, value) in [(40, a), (44, b), (52, c), (56, d)] {
            bytes[header + place..header + place + 4].copy_from_slice(&(value * 0x1_0000).to_be_bytes());
        }
        std::fs::write(&path, bytes).expect("it can be written to");
        let mut source = open_video(&path).expect("it is a video");
        let mut frame = Frame::default();
        assert!(source.read_into(&mut frame).expect("there is a frame"), "{name}");
        let found = (frame.image.width(), frame.image.height());
        let bright = |(x, y): (u32, u32)| frame.image.as_rgb8()[3 * (y * found.0 + x) as usize] > 128;
        let opposite = (size.0 - 1 - x, size.1 - 1 - y);
        if found != size || source.info().size != Some(size) || !bright((x, y)) || bright(opposite) {
            failures.push(format!("{name}: {found:?}, announced {:?}", source.info().size));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn skipped_frames_keep_their_indices_and_times() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = half_bright(folder.path(), 12);
    let mut source = open_video(&path).expect("it is a video");
    let info = source.info();
    assert_eq!((info.frame_count, info.frame_rate, info.live), (Some(12), Some(10.0), false));
    let (mut frame, mut found) = (Frame::default(), Vec::new());
    for index in 0.. {
        let more = if index % 3 == 0 { source.read_into(&mut frame) } else { source.skip(&mut frame) };
        if !more.expect("it is whole") {
            break;
        }
        found.push((frame.index, frame.time.as_millis() as u64));
    }
    assert_eq!(found, (0..12).map(|index| (index, 100 * index)).collect::<Vec<_>>());
}

#[test]
fn the_index_of_a_file_has_the_time_of_each_frame() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let picture = Image::from_rgb8(64, 48, vec![120; 64 * 48 * 3]).expect("64 × 48 pixels");
    for ending in ["mp4", "mov", "mkv"] {
        let path = folder.path().join(format!("x.{ending}"));
        let mut video = create_video(&path, 25.0).expect("it can be encoded");
        for index in 0..30 {
            let (annotated, time) = (Some(picture.clone()), Duration::from_millis(40 * index));
            video
                .write(&FrameOutcome { index, time, annotated, ..FrameOutcome::default() })
                .expect("there is room");
        }
        video.finish().expect("it is complete");
        let FrameIndex::Times(times) = frame_times(&path).expect("it can be read") else {
            panic!("{ending}: no index");
        };
        let off = times.iter().zip(0..).map(|(time, at)| time.abs_diff(Duration::from_millis(40 * at)));
        assert!(off.max() < Some(Duration::from_millis(1)) && times.len() == 30, "{ending}: {times:?}");
    }
}

#[test]
fn a_live_stream_goes_on_after_frames_that_cannot_be_decoded() {
    let failed = || Err(Error::new(ErrorKind::InvalidData, "cannot decode frame 3, camera 0"));
    for (live, attempt, decoded, expected) in [
        (true, 1, failed(), true),
        (true, ATTEMPTS - 1, failed(), true),
        (true, ATTEMPTS, failed(), false),
        (true, 1, Ok(()), false),
        (false, 1, failed(), false),
    ] {
        let info = SourceInfo { live, ..SourceInfo::default() };
        assert_eq!(is_skipped(&info, attempt, &decoded), expected, "{live}, {attempt}, {decoded:?}");
    }
}
