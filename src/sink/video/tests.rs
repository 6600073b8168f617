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
    for (ending, _) in CODECS {
        for size in [(64, 48), (65, 47), (1, 1)] {
            let path = folder.path().join(format!("{}x{}.{ending}", size.0, size.1));
            let mut video = create_video(&path, 25.0).unwrap_or_else(|e| panic!("{ending}: {e}"));
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
    assert_eq!(left.len(), 3 * CODECS.len(), "temporary files were left behind: {left:?}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_frame_is_shown_within_an_interval_of_its_time() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cases: [(&str, &[u64], &[u8]); 5] = [
        ("constant", &[0, 100, 200], &[0, 1, 2]),
        ("begins late", &[900, 1000, 1100], &[0, 1, 2]),
        ("a gap", &[0, 100, 400, 500], &[0, 1, 1, 1, 2, 3]),
        ("a burst, then a gap", &[0, 10, 20, 500], &[0, 1, 1, 1, 1, 3]),
        ("rounded stamps", &[0, 99, 201, 299], &[0, 1, 2, 3]),
    ];
    for (name, times, expected) in cases {
        let path = folder.path().join("x.mp4");
        let mut video = create_video(&path, 10.0).expect("it can be encoded");
        for (index, time) in (0u64..).zip(times) {
            video
                .write(&outcome(index, *time, (64, 64), 60 * index as u8 + 20))
                .expect("it can be written to");
        }
        video.finish().expect("it is complete");
        let frames: Vec<u8> = read(&path).1.iter().map(|gray| (gray + 10 - 20) / 60).collect();
        assert_eq!(frames, expected, "{name}");
    }
    let path = folder.path().join("long.mp4");
    let mut video = create_video(&path, 10.0).expect("it can be encoded");
    for (index, time) in [(0, 0), (1, 3_600_000), (2, 3_600_100)] {
        video.write(&outcome(index, time, (64, 64), 90)).expect("it can be written to");
    }
    video.finish().expect("it is complete");
    assert_eq!(read(&path).1.len(), 103, "an hour's gap is ten seconds of video");
}

#[test]
fn unsupported_outputs_are_rejected_before_the_first_frame() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, rate, kind, word) in [
        ("out.foo", 25.0, ErrorKind::InvalidArgument, ".mp4, .mov"),
        ("out", 25.0, ErrorKind::InvalidArgument, ".mp4, .mov"),
        ("out.mp4", 0.0, ErrorKind::InvalidArgument, "frame rate"),
        ("none/out.mp4", 25.0, ErrorKind::Io, "none"),
    ] {
        let error = create_video(&folder.path().join(name), rate).err().expect("it is refused");
        assert!(error.kind() == kind && error.to_string().contains(word), "{name}: {error}");
    }
    if cfg!(target_os = "linux") {
        let error = create_video(Path::new("/proc/out.mp4"), 25.0).err().expect("no file can be made there");
        assert!(!error.to_string().contains(".ocelli-"), "{error}");
    }
    // Without a frame, an existing file is left alone.
    std::fs::write(folder.path().join("old.mp4"), "old").expect("it can be written to");
    let mut unused = create_video(&folder.path().join("old.mp4"), 25.0).expect("it can be encoded");
    unused.finish().expect("there is nothing to complete");
    drop(unused);
    assert_eq!(std::fs::read(folder.path().join("old.mp4")).expect("it is there"), b"old");
}

#[test]
fn frames_of_another_size_are_scaled_to_fit() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("x.avi");
    let mut video = create_video(&path, 10.0).expect("it can be encoded");
    video.write(&outcome(0, 0, (64, 64), 200)).expect("it can be written to");
    video.write(&outcome(1, 100, (128, 64), 200)).expect("it can be written to");
    video.finish().expect("it is complete");
    let (size, grays) = read(&path);
    assert_eq!(size, (64, 64));
    assert!(grays[0] > 190 && grays[1].abs_diff(100) < 10, "{grays:?}");
}
