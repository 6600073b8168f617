use std::time::Duration;

use super::*;
use crate::frame::Frame;
use crate::source::open_video;

fn outcome(index: u64, time_ms: u64, (width, height): (u32, u32), gray: u8) -> FrameOutcome {
    let annotated =
        Image::from_rgb8(width, height, vec![gray; 3 * (width * height) as usize]).expect("grey pixels");
    FrameOutcome {
        index,
        time: Duration::from_millis(time_ms),
        annotated: Some(annotated),
        ..FrameOutcome::default()
    }
}

/// Size of a video and the mean grey of each frame.
fn read(path: &Path) -> ((u32, u32), Vec<u8>) {
    let mut source = open_video(path).unwrap_or_else(|e| panic!("{e}"));
    let (mut frame, mut grays, mut size) = (Frame::default(), Vec::new(), (0, 0));
    while source.read_into(&mut frame).unwrap_or_else(|e| panic!("{}: {e}", path.display())) {
        size = (frame.image.width(), frame.image.height());
        let sum: u64 = frame.image.as_rgb8().iter().map(|byte| u64::from(*byte)).sum();
        grays.push((sum / frame.image.as_rgb8().len() as u64) as u8);
    }
    (size, grays)
}

#[test]
fn every_format_can_be_read_back() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut failures = Vec::new();
    for Container { name: ending, .. } in &CONTAINERS {
        for size in [(64, 48), (65, 47), (1, 1)] {
            let path = folder.path().join(format!("{}x{}.{ending}", size.0, size.1));
            let mut video =
                create_video(&path, &VideoOptions::new(25.0)).unwrap_or_else(|e| panic!("{ending}: {e}"));
            assert!(!path.exists(), "{ending}: the file appeared before it was complete");
            for index in 0..12 {
                video
                    .write(&outcome(index, 40 * index, size, 100 + 10 * index as u8))
                    .expect("it can be written to");
            }
            video.finish().unwrap_or_else(|e| panic!("{ending}: {e}"));
            let even = |side: u32| side.max(LEAST_SIDE).next_multiple_of(2);
            let (found, grays) = read(&path);
            let near = grays.iter().zip(0..).all(|(gray, index)| gray.abs_diff(100 + 10 * index) < 8);
            if found != (even(size.0), even(size.1)) || grays.len() != 12 || !near {
                failures.push(format!("{ending} {size:?}: {found:?}, {grays:?}"));
            }
        }
    }
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).expect("it is there").flatten().map(|e| e.file_name()).collect();
    assert_eq!(left.len(), 3 * CONTAINERS.len(), "temporary files were left behind: {left:?}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The times of the frames of a video in milliseconds.
fn times(path: &Path) -> Vec<u64> {
    let mut source = open_video(path).unwrap_or_else(|e| panic!("{e}"));
    let (mut frame, mut times) = (Frame::default(), Vec::new());
    while source.read_into(&mut frame).unwrap_or_else(|e| panic!("{}: {e}", path.display())) {
        times.push((frame.time.as_secs_f64() * 1e3).round() as u64);
    }
    times
}

#[test]
fn frames_keep_their_times() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cases: [(&str, &[u64], &[u64]); 6] = [
        ("constant", &[0, 100, 200], &[0, 100, 200]),
        ("begins late", &[900, 1000, 1100], &[0, 100, 200]),
        ("variable", &[0, 20, 140, 153, 9000], &[0, 20, 140, 153, 9000]),
        ("faster than the rate", &[0, 1, 2, 3, 500], &[0, 1, 2, 3, 500]),
        ("an hour of silence", &[0, 3_600_000, 3_600_100], &[0, 3_600_000, 3_600_100]),
        ("at once, and backwards", &[0, 50, 50, 40, 100], &[0, 50, 51, 52, 100]),
    ];
    for (name, given, expected) in cases {
        for ending in ["mp4", "mov", "mkv", "webm"] {
            let path = folder.path().join(format!("x.{ending}"));
            let mut video = create_video(&path, &VideoOptions::new(10.0)).expect("it can be encoded");
            for (index, time) in (0u64..).zip(given) {
                video.write(&outcome(index, *time, (64, 64), 90)).expect("it can be written to");
            }
            video.finish().expect("it is complete");
            assert_eq!(times(&path), expected, "{name}, .{ending}");
        }
    }
}

#[test]
fn a_container_of_a_constant_rate_shows_frames_within_an_interval_of_their_times() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("x.avi");
    let cases: [(&[u64], &[(u8, u64)]); 4] = [
        (&[0, 100, 200], &[(0, 0), (1, 100), (2, 200)]),
        (&[900, 1000, 1100], &[(0, 0), (1, 100), (2, 200)]),
        (&[0, 100, 400, 500], &[(0, 0), (1, 100), (2, 400), (3, 500)]),
        (&[0, 10, 20, 510], &[(0, 0), (3, 500)]),
    ];
    for (given, expected) in cases {
        let mut video = create_video(&path, &VideoOptions::new(10.0)).expect("it can be encoded");
        for (index, time) in (0u64..).zip(given) {
            let gray = 60 * index as u8 + 20;
            video.write(&outcome(index, *time, (64, 64), gray)).expect("it can be written to");
        }
        video.finish().expect("it is complete");
        let frames: Vec<u8> = read(&path).1.iter().map(|gray| (gray + 10 - 20) / 60).collect();
        let found: Vec<(u8, u64)> = frames.into_iter().zip(times(&path)).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn codecs_and_qualities_can_be_chosen() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let encoded = |name: &str, codec: Option<&str>, quality| {
        let mut options = VideoOptions::new(25.0);
        (options.codec, options.quality) = (codec.map(str::to_owned), quality);
        let path = folder.path().join(name);
        let mut video = create_video(&path, &options)?;
        for index in 0..6 {
            let pixel = |at: u32| (at * at * 7 + at / 64 * 31 + index as u32 * 11) as u8;
            let pixels = (0..3 * 64 * 64).map(pixel).collect();
            let annotated = Image::from_rgb8(64, 64, pixels).expect("pixels");
            video.write(&FrameOutcome {
                annotated: Some(annotated),
                ..outcome(index, 40 * index, (64, 64), 0)
            })?;
        }
        video.finish()?;
        Ok::<_, Error>((path.metadata().expect("it was written").len(), path))
    };
    let size = |quality| encoded("x.mp4", Some("h264"), Some(quality)).expect("x264").0;
    assert!(size(5) > 2 * size(45), "lower is better");
    let (_, lossless) = encoded("x.mkv", Some("ffv1"), None).expect("FFmpeg's own");
    let mut source = open_video(&lossless).unwrap_or_else(|e| panic!("{e}"));
    let mut frame = Frame::default();
    assert!(source.read_into(&mut frame).expect("it can be read"));
    let expected: Vec<u8> = (0..3 * 64 * 64).map(|at: u32| (at * at * 7 + at / 64 * 31) as u8).collect();
    assert!(frame.image.as_rgb8() == expected, "FFV1 keeps every pixel");
    for (name, codec, words) in
        [("x.mp4", "h265", ["codec h265", "hevc"]), ("x.webm", "h264", ["codec h264 in webm", "libopenh264"])]
    {
        let error = encoded(name, Some(codec), None).expect_err("it is refused").to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}

/// Bars of eight colours, in each codec that loses some of them: a matrix or a range other than the one that the file says would
/// move a colour by twenty levels and more.
#[test]
fn colours_stay_in_every_codec() {
    const BARS: [[u8; 3]; 8] = [
        [255, 255, 255],
        [255, 255, 0],
        [0, 255, 255],
        [0, 255, 0],
        [255, 0, 255],
        [255, 0, 0],
        [0, 0, 255],
        [40, 120, 200],
    ];
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bars: Vec<u8> = (0..64 * 256).flat_map(|at| BARS[at % 256 / 32]).collect();
    let mut wrong = Vec::new();
    for (name, codec) in [
        ("h264.mp4", "h264"),
        ("hevc.mkv", "hevc"),
        ("vp9.webm", "vp9"),
        ("vp8.webm", "vp8"),
        ("mpeg4.avi", "mpeg4"),
        ("mjpeg.avi", "mjpeg"),
    ] {
        let path = folder.path().join(name);
        let options = VideoOptions { codec: Some(codec.to_owned()), ..VideoOptions::new(25.0) };
        let mut video = create_video(&path, &options).unwrap_or_else(|e| panic!("{name}: {e}"));
        for index in 0..3 {
            let annotated = Image::from_rgb8(256, 64, bars.clone()).expect("pixels");
            let outcome = outcome(index, 40 * index, (256, 64), 0);
            video
                .write(&FrameOutcome { annotated: Some(annotated), ..outcome })
                .expect("it can be written to");
        }
        video.finish().unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut source = open_video(&path).unwrap_or_else(|e| panic!("{e}"));
        let mut frame = Frame::default();
        assert!(source.read_into(&mut frame).expect("it can be read"), "{name}");
        let row = &frame.image.as_rgb8()[32 * 256 * 3..][..256 * 3];
        for (bar, expected) in BARS.iter().enumerate() {
            let middle = &row[(32 * bar + 16) * 3..][..3];
            if middle.iter().zip(expected).any(|(found, expected)| found.abs_diff(*expected) > 6) {
                wrong.push(format!("{name}: {expected:?} is {middle:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_killed_run_leaves_what_can_be_played() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for ending in ["mp4", "mov", "mkv"] {
        let path = folder.path().join(format!("x.{ending}"));
        let mut video = create_video(&path, &VideoOptions::new(25.0)).expect("it can be encoded");
        for index in 0..250 {
            video.write(&outcome(index, 40 * index, (64, 64), index as u8)).expect("it can be written to");
        }
        let there = |name: &str| name.starts_with(".ocelli-") && name.ends_with(&format!(".part.{ending}"));
        let entries = std::fs::read_dir(folder.path()).expect("it is there").flatten();
        let part = entries
            .map(|entry| entry.path())
            .find(|path| path.file_name().is_some_and(|name| there(&name.to_string_lossy())));
        let killed = folder.path().join(format!("killed.{ending}"));
        std::fs::copy(part.expect("it is being written"), &killed).expect("it can be copied");
        let mut source = open_video(&killed).unwrap_or_else(|e| panic!("{ending}: {e}"));
        let (mut frame, mut frames) = (Frame::default(), 0);
        while source.read_into(&mut frame).unwrap_or(false) {
            frames += 1;
        }
        assert!((100..=250).contains(&frames), "{ending}: {frames} of 250 frames");
    }
}

#[test]
fn unsupported_outputs_are_rejected_before_the_first_frame() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, rate, kind, word) in [
        ("out.foo", 25.0, ErrorKind::InvalidArgument, ".mp4, .mov"),
        ("out", 25.0, ErrorKind::InvalidArgument, ".mp4, .mov"),
        ("out.mp4", 0.0, ErrorKind::InvalidArgument, "frame rate"),
        ("ftp://host/out.mp4", 25.0, ErrorKind::InvalidArgument, "rtsp, rtmp"),
        ("none/out.mp4", 25.0, ErrorKind::Io, "none"),
    ] {
        let error =
            create_video(&folder.path().join(name), &VideoOptions::new(rate)).err().expect("it is refused");
        assert!(error.kind() == kind && error.to_string().contains(word), "{name}: {error}");
    }
    if cfg!(target_os = "linux") {
        let error = create_video(Path::new("/proc/out.mp4"), &VideoOptions::new(25.0))
            .err()
            .expect("no file can be made there");
        assert!(!error.to_string().contains(".ocelli-"), "{error}");
    }
    // Without a frame, an existing file is left alone.
    std::fs::write(folder.path().join("old.mp4"), "old").expect("it can be written to");
    let mut unused =
        create_video(&folder.path().join("old.mp4"), &VideoOptions::new(25.0)).expect("it can be encoded");
    unused.finish().expect("there is nothing to complete");
    drop(unused);
    assert_eq!(std::fs::read(folder.path().join("old.mp4")).expect("it is there"), b"old");
}

#[test]
fn frames_of_another_size_are_scaled_to_fit() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("x.avi");
    let mut video = create_video(&path, &VideoOptions::new(10.0)).expect("it can be encoded");
    video.write(&outcome(0, 0, (64, 64), 200)).expect("it can be written to");
    video.write(&outcome(1, 100, (128, 64), 200)).expect("it can be written to");
    video.finish().expect("it is complete");
    let (size, grays) = read(&path);
    assert_eq!(size, (64, 64));
    assert!(grays[0] > 190 && grays[1].abs_diff(100) < 10, "{grays:?}");
}
