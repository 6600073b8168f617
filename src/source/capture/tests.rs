use std::path::PathBuf;

use super::*;
use crate::image::Image;
use crate::outcome::FrameOutcome;
use crate::sink::{VideoOptions, create_video};

/// A video of 64 × 32 pixels whose left half is bright.
fn half_bright(folder: &Path, frames: u64) -> PathBuf {
    let path = folder.join("half.mp4");
    let row = |_| (0..64).flat_map(|x| [if x < 32 { 220u8 } else { 20 }; 3]);
    let image = Image::from_rgb8(64, 32, (0..32).flat_map(row).collect()).expect("64 × 32 pixels");
    let mut video = create_video(&path, &VideoOptions::new(10.0)).expect("it can be encoded");
    for index in 0..frames {
        let (annotated, time) = (Some(image.clone()), Duration::from_millis(100 * index));
        video
            .write(&FrameOutcome { index, time, annotated, ..FrameOutcome::default() })
            .expect("there is room");
    }
    video.finish().expect("it is complete");
    path
}

fn frames_of(path: &Path) -> Vec<Frame> {
    let mut source = open_video(path).unwrap_or_else(|e| panic!("{e}"));
    let (mut frame, mut frames) = (Frame::default(), Vec::new());
    while source.read_into(&mut frame).unwrap_or_else(|e| panic!("{e}")) {
        frames.push(frame.clone());
    }
    frames
}

#[test]
fn frames_are_rotated_upright() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = half_bright(folder.path(), 3);
    let whole = std::fs::read(&path).expect("it was written");
    let header = whole.windows(4).position(|window| window == b"tkhd").expect("a track has a header") + 4;
    // The rotation matrix, and the size and a bright pixel of the upright image.
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

/// An AVI of JPEG files, ten a second.
fn avi(images: &[Vec<u8>]) -> Vec<u8> {
    let chunk = |id: &[u8; 4], content: &[u8]| {
        let padding = &[0][..content.len() % 2];
        [id.as_slice(), &(content.len() as u32).to_le_bytes(), content, padding].concat()
    };
    let numbers =
        |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let count = images.len() as u32;
    let head = numbers(&[100_000, 0, 0, 0, count, 0, 1, 0, 96, 64, 0, 0, 0, 0]);
    let stream = [b"vidsMJPG".as_slice(), &numbers(&[0, 0, 0, 1, 10, 0, count, 0, 0, 0, 0, 0])].concat();
    let format =
        [&numbers(&[40, 96, 64, 1 | 24 << 16]), b"MJPG".as_slice(), &numbers(&[0, 0, 0, 0, 0])].concat();
    let list = [b"strl".as_slice(), &chunk(b"strh", &stream), &chunk(b"strf", &format)].concat();
    let header = [b"hdrl".as_slice(), &chunk(b"avih", &head), &chunk(b"LIST", &list)].concat();
    let frames: Vec<u8> = images.iter().flat_map(|image| chunk(b"00dc", image)).collect();
    let movie = [b"movi".as_slice(), &frames].concat();
    chunk(b"RIFF", &[b"AVI ".as_slice(), &chunk(b"LIST", &header), &chunk(b"LIST", &movie)].concat())
}

/// A JPEG file, red on the left, or grey; its width tells that it is whole.
fn jpeg(width: u32, height: u32, is_grey: bool) -> Vec<u8> {
    let mut encoded = Vec::new();
    let encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut encoded, 95);
    let left = |at: u32| at % width < width / 2;
    let pixels = 0..width * height;
    match is_grey {
        true => {
            let pixels: Vec<u8> = pixels.map(|at| if left(at) { 200 } else { 40 }).collect();
            image::ImageEncoder::write_image(encoder, &pixels, width, height, image::ExtendedColorType::L8)
        }
        false => {
            let pixels: Vec<u8> =
                pixels.flat_map(|at| if left(at) { [220, 20, 20] } else { [20, 20, 20] }).collect();
            image::ImageEncoder::write_image(encoder, &pixels, width, height, image::ExtendedColorType::Rgb8)
        }
    }
    .expect("it can be encoded");
    encoded
}

#[test]
fn frames_of_another_format_or_size_are_whole() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Whether each frame is grey, and its size.
    for frames in [
        [(false, (96, 64)), (true, (96, 64)), (true, (96, 64)), (false, (96, 64))],
        [(true, (96, 64)), (false, (96, 64)), (false, (640, 480)), (true, (33, 17))],
    ] {
        let path = folder.path().join("x.avi");
        let images: Vec<Vec<u8>> =
            frames.iter().map(|(is_grey, (width, height))| jpeg(*width, *height, *is_grey)).collect();
        std::fs::write(&path, avi(&images)).expect("it can be written to");
        let found = frames_of(&path);
        assert_eq!(found.len(), frames.len());
        for ((is_grey, size), frame) in frames.into_iter().zip(&found) {
            assert_eq!((frame.image.width(), frame.image.height()), size, "frame {}", frame.index);
            assert_eq!(frame.time, Duration::from_millis(100 * frame.index));
            let wrong = frame.image.as_rgb8().chunks_exact(3).enumerate().filter(|(at, pixel)| {
                let x = *at as u32 % size.0;
                let expected = match (x < size.0 / 2, is_grey) {
                    (true, true) => [200; 3],
                    (false, true) => [40; 3],
                    (true, false) => [220, 20, 20],
                    (false, false) => [20; 3],
                };
                // Eight pixels beside the edge are in the block of the edge.
                x.abs_diff(size.0 / 2) > 8 && pixel.iter().zip(expected).any(|(a, b)| a.abs_diff(b) > 12)
            });
            assert_eq!(wrong.count(), 0, "frame {}", frame.index);
        }
    }
}

#[test]
fn too_many_pixels_are_refused_before_they_are_decoded() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("x.avi");
    let mut huge = jpeg(96, 64, true);
    let sizes = huge.windows(2).position(|pair| pair == [0xff, 0xc0]).expect("a frame header") + 5;
    huge[sizes..sizes + 4].copy_from_slice(&[0xff, 0, 0xff, 0]);
    std::fs::write(&path, avi(&[huge.clone(), huge])).expect("it can be written to");
    let error = open_video(&path).map(|mut source| source.read_into(&mut Frame::default()));
    assert!(matches!(error, Err(_) | Ok(Err(_))), "{:?}", error.map(drop));
}

#[test]
fn a_device_is_live() {
    let open = |kind, device, ffmpeg: &[&str]| {
        let ffmpeg = ffmpeg.iter().map(|option| InputOptions::parse_ffmpeg(option).expect("it is one"));
        let options = InputOptions { ffmpeg: ffmpeg.collect(), ..InputOptions::default() };
        open_device("camera 7".into(), kind, device, &options)
    };
    // An image that FFmpeg draws stands for a camera.
    let drawn = "testsrc=size=64x48:rate=50:duration=0.1";
    let mut source = open("lavfi", drawn, &[]).unwrap_or_else(|e| panic!("{e}"));
    let info = source.info();
    assert!(info.live && info.frame_count.is_none() && info.size == Some((64, 48)), "{info:?}");
    let mut frame = Frame::default();
    for number in 0..5 {
        assert!(source.read_into(&mut frame).expect("there are five frames"));
        assert!(frame.index == number && frame.captured.is_some(), "{number}");
        assert_eq!((frame.image.width(), frame.image.height()), (64, 48));
    }
    let ended = source.read_into(&mut frame).expect_err("a camera has no end").to_string();
    assert!(ended.contains("camera 7: the stream ended"), "{ended}");
    for (kind, device, options, expected) in [
        ("lavfi", drawn, &["colour=red"][..], "no option colour"),
        ("none", "0", &[], "no devices none"),
        ("lavfi", "nothing", &[], "it does not exist, or another program uses it"),
    ] {
        let error = open(kind, device, options).map(drop).expect_err("it cannot be opened").to_string();
        assert!(error.starts_with("cannot open camera 7: ") && error.contains(expected), "{error}");
    }
}

#[test]
fn hardware_that_is_named_decodes_or_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = half_bright(folder.path(), 3);
    let open = |name: &str| {
        open_video_with(&path, &InputOptions { hwaccel: Some(name.into()), ..InputOptions::default() })
    };
    let mut source = open("auto").unwrap_or_else(|e| panic!("{e}"));
    let mut frame = Frame::default();
    for _ in 0..3 {
        assert!(source.read_into(&mut frame).expect("there are three frames"));
        let pixel = |x: usize| frame.image.as_rgb8()[3 * (16 * 64 + x)];
        assert!(pixel(8) > 200 && pixel(56) < 40, "its left half is bright");
    }
    // No machine has both.
    let name = if cfg!(target_os = "macos") { "d3d11va" } else { "videotoolbox" };
    let error = open(name).map(drop).expect_err("another system has it").to_string();
    assert!(
        error.contains(&format!("half.mp4: hwaccel {name}: ")) && error.contains("cannot be decoded"),
        "{error}"
    );
}

/// A GPU that the pixels may stay on is no promise that they do.
#[test]
fn frames_that_the_cpu_decodes_are_in_memory() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = half_bright(folder.path(), 3);
    for hwaccel in [None, Some("auto".to_owned())] {
        let options = InputOptions { hwaccel, ..InputOptions::default() };
        let mut source = open_video_with(&path, &options).expect("it is a video");
        // No machine has so many.
        let mut frame = Frame { gpu: Some(1000), ..Frame::default() };
        assert!(source.read_into(&mut frame).expect("there are three frames"));
        assert!(frame.on_gpu.is_none(), "it lies in memory");
        assert_eq!((frame.size(), frame.image.width()), ((64, 32), 64));
    }
}

/// In a process of its own, with NVIDIA's driver and decoder of `tests/video/fake_cuda.c`: FFmpeg's frames stay where they were
/// decoded, in the context of our own device, and are given back.
#[test]
#[cfg(target_os = "linux")]
fn frames_of_a_fake_gpu_stay_there() {
    const VIDEO: &str = "OCELLI_TEST_FAKE_GPU";
    let Some(path) = std::env::var_os(VIDEO).map(PathBuf::from) else {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = half_bright(folder.path(), 9);
        let mut build = std::process::Command::new("bash");
        build.args(["tests/video/fake_cuda.sh"]).arg(folder.path()).current_dir(env!("CARGO_MANIFEST_DIR"));
        let built = build.output().expect("bash runs");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let mut run = std::process::Command::new(std::env::current_exe().expect("it has a path"));
        run.args(["--exact", "source::capture::tests::frames_of_a_fake_gpu_stay_there", "--nocapture"]);
        let output = run.env(VIDEO, path).env("LD_LIBRARY_PATH", folder.path()).output().expect("it runs");
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{log}{}", String::from_utf8_lossy(&output.stdout));
        let lines = |text: &str| log.lines().filter(|line| line.starts_with(text)).count();
        assert_eq!(lines("another context") + lines("a context of its own"), 0, "{log}");
        assert_eq!(lines("a plane to the host"), 4, "two frames were copied, of two planes: {log}");
        assert_eq!((lines("the decoder ends with 0 mapped"), lines("the decoder ends")), (1, 1), "{log}");
        return;
    };
    let options = InputOptions { hwaccel: Some("cuda".into()), ..InputOptions::default() };
    let mut source = open_video_with(&path, &options).unwrap_or_else(|e| panic!("{e}"));
    let is_half_bright = |image: &Image| {
        let pixel = |x: usize| image.as_rgb8()[3 * (16 * 64 + x)];
        pixel(8) > 200 && pixel(56) < 40
    };
    let mut kept = Vec::new();
    for index in 0..9 {
        let mut frame = Frame { gpu: Some(0), ..Frame::default() };
        assert!(source.read_into(&mut frame).unwrap_or_else(|e| panic!("{e}")), "frame {index}");
        assert_eq!((frame.index, frame.size()), (index, (64, 32)));
        let Some(on_gpu) = frame.on_gpu else {
            // No more are kept at a time.
            assert_eq!((index, kept.len()), (6, 6));
            assert!(is_half_bright(&frame.image));
            kept.clear();
            continue;
        };
        assert_eq!(frame.image.width(), 1, "nothing was copied");
        let [(luma, stride), (chroma, chroma_stride)] = [&on_gpu.luma, &on_gpu.chroma];
        assert_eq!((stride, chroma_stride, luma.ordinal(), chroma.ordinal()), (&1024, &1024, 0, 0));
        assert_eq!(chroma.address() - luma.address(), 32 * 1024);
        on_gpu.check().expect("its rows are long enough");
        // The matrix that our own videos have is BT.709.
        let colours = Nv12Colours::from_coefficients([117_489, 138_438, 13_975, 34_925], false);
        assert_eq!(on_gpu.colours, colours);
        kept.push(on_gpu);
    }
    // Frames outlive their decoder.
    drop(source);
    let mut image = Image::default();
    kept[0].to_image_into(&mut image).unwrap_or_else(|e| panic!("{e}"));
    assert!(is_half_bright(&image));
}

/// `tests/video/kept.cpp`: what the video library hands over of a frame on a GPU, and when it gives it back.
#[test]
#[cfg(target_os = "linux")]
fn frames_that_are_kept_on_a_gpu_are_given_back_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = "${CXX:-c++} -std=c++14 -O1 -Isrc/opencv/src -o \"$0\" tests/video/kept.cpp \
        ${FFMPEG_FLAGS:-$(pkg-config --cflags --libs libavformat libavcodec libavutil libswscale)} -ldl && \"$0\"";
    let mut run = std::process::Command::new("bash");
    run.args(["-c", script]).arg(folder.path().join("kept")).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = run.output().expect("bash runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn names_are_no_protocols_and_no_patterns() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = half_bright(folder.path(), 3);
    for name in ["12:30:00.mp4", "100%.mp4", "a%03d.jpg", "b*[x]{1}.jpg", "c?d#e.mp4", "http:.mp4", "x%d"] {
        let named = folder.path().join(name);
        std::fs::copy(&path, &named).expect("there is room");
        assert_eq!(frames_of(&named).len(), 3, "{name}");
    }
}

#[test]
fn a_stream_that_is_silent_ends_when_it_is_cancelled() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}/x", listener.local_addr().expect("it is bound"));
    let (cancellation, began) = (Cancellation::new(), Instant::now());
    let cancels = cancellation.clone();
    let server = std::thread::spawn(move || {
        let connection = listener.accept().expect("someone connects");
        cancels.cancel();
        (connection, Instant::now())
    });
    let error =
        open_stream(&url, None, StreamTimeouts::default(), &InputOptions::default(), cancellation).map(drop);
    // First: the server waits as long as nobody connects.
    assert_eq!(error.map_err(|e| e.kind()), Err(ErrorKind::Cancelled));
    let (_, cancelled) = server.join().expect("it is cancelled");
    assert!(
        cancelled.elapsed() < Duration::from_millis(500),
        "{:?} of {:?}",
        cancelled.elapsed(),
        began.elapsed()
    );
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
fn each_frame_of_a_file_has_its_time() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = Image::from_rgb8(64, 48, vec![120; 64 * 48 * 3]).expect("64 × 48 pixels");
    for ending in ["mp4", "mov", "mkv"] {
        let path = folder.path().join(format!("x.{ending}"));
        let mut video = create_video(&path, &VideoOptions::new(25.0)).expect("it can be encoded");
        for index in 0..30 {
            let (annotated, time) = (Some(image.clone()), Duration::from_millis(40 * index));
            video
                .write(&FrameOutcome { index, time, annotated, ..FrameOutcome::default() })
                .expect("there is room");
        }
        video.finish().expect("it is complete");
        let times: Vec<Duration> = frames_of(&path).iter().map(|frame| frame.time).collect();
        let off = times.iter().zip(0..).map(|(time, at)| time.abs_diff(Duration::from_millis(40 * at)));
        assert!(off.max() < Some(Duration::from_millis(1)) && times.len() == 30, "{ending}: {times:?}");
    }
}

#[test]
fn a_live_stream_goes_on_after_frames_that_cannot_be_decoded() {
    let failed = || Err(Error::invalid_data("cannot decode frame 3, camera 0"));
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
