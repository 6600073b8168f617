use super::*;

const SIZE: (usize, usize) = (640, 360);

/// A background of soft blobs, whose point (x, y) is the same wherever a camera looks.
fn ground(x: f64, y: f64) -> f64 {
    let wave = |a: f64, b: f64, c: f64| (a * x + b * y + c).sin();
    128.0
        + 30.0 * wave(0.11, 0.05, 0.3) * wave(-0.04, 0.13, 1.0)
        + 40.0 * wave(0.031, -0.023, 2.0) * wave(0.017, 0.041, 0.5)
}

/// Frame `index` of a camera at `camera(point)`, with a block that moves on its own.
fn frame(camera: impl Fn([f64; 2]) -> [f64; 2], block: Option<(f64, f64, f64)>) -> Vec<u8> {
    (0..SIZE.0 * SIZE.1)
        .map(|i| {
            let at = [(i % SIZE.0) as f64 + 0.5, (i / SIZE.0) as f64 + 0.5];
            if let Some((left, top, side)) = block
                && (left..left + side).contains(&at[0])
                && (top..top + side).contains(&at[1])
            {
                // Its texture moves with it.
                return ground(3.0 * (at[0] - left), 3.0 * (at[1] - top)) as u8;
            }
            let [x, y] = camera(at);
            ground(x, y) as u8
        })
        .collect()
}

fn view(data: &[u8]) -> FrameView<'_> {
    FrameView {
        data,
        width: SIZE.0 as u32,
        height: SIZE.1 as u32,
        stride: SIZE.0,
        format: PixelFormat::Gray8,
        timestamp: std::time::Duration::ZERO,
    }
}

/// The largest distance of the estimate from the truth in pixels, over the image.
fn error(motion: &CameraMotion, truth: impl Fn([f64; 2]) -> [f64; 2]) -> f64 {
    let [[a, b, c], [d, e, f]] = motion.matrix();
    let (width, height) = (SIZE.0 as f64, SIZE.1 as f64);
    let points = [[0.0, 0.0], [width, 0.0], [0.0, height], [width, height], [width / 2.0, height / 2.0]];
    let distance = |[x, y]: [f64; 2]| {
        let expected = truth([x, y]);
        (a * x + b * y + c - expected[0]).hypot(d * x + e * y + f - expected[1])
    };
    points.into_iter().map(distance).fold(0.0, f64::max)
}

fn estimate(before: &[u8], after: &[u8]) -> CameraMotion {
    let mut estimator = CameraMotionEstimator::default();
    assert_eq!(estimator.next(&view(before)).expect("a frame"), CameraMotion::STILL, "the first frame");
    estimator.next(&view(after)).expect("a frame")
}

#[test]
fn shifts_turns_and_zooms_are_found() {
    let (cx, cy) = (SIZE.0 as f64 / 2.0, SIZE.1 as f64 / 2.0);
    // The image moves by: scale, turn in radians, shift.
    for (scale, turn, shift) in [
        (1.0, 0.0, [7.3, -4.1]),
        (1.0, 0.0, [-60.0, 25.0]),
        (1.0, 0.03, [3.0, 2.0]),
        (1.04, 0.0, [0.0, 0.0]),
        (0.97, -0.02, [-12.0, 9.0]),
    ] {
        let (cos, sin) = (scale * f64::cos(turn), scale * f64::sin(turn));
        let moves = |[x, y]: [f64; 2]| {
            let (x, y) = (x - cx, y - cy);
            [cos * x - sin * y + cx + shift[0], sin * x + cos * y + cy + shift[1]]
        };
        let square = scale * scale;
        let back = |[x, y]: [f64; 2]| {
            let (x, y) = (x - cx - shift[0], y - cy - shift[1]);
            [(cos * x + sin * y) / square + cx, (cos * y - sin * x) / square + cy]
        };
        let motion = estimate(&frame(|at| at, None), &frame(back, None));
        let error = error(&motion, moves);
        assert!(error < 0.5, "{scale}, {turn}, {shift:?}: {motion:?} is {error} pixels off");
    }
}

#[test]
fn objects_that_move_do_not_count() {
    let shift = [10.0, -6.0];
    let before = frame(|at| at, Some((100.0, 60.0, 220.0)));
    let after = frame(|[x, y]| [x - shift[0], y - shift[1]], Some((80.0, 75.0, 220.0)));
    let motion = estimate(&before, &after);
    let error = error(&motion, |[x, y]| [x + shift[0], y + shift[1]]);
    assert!(error < 0.5, "{motion:?} is {error} pixels off");
    // And of a camera that stands still they are no motion.
    let after = frame(|at| at, Some((80.0, 75.0, 220.0)));
    assert_eq!(estimate(&before, &after), CameraMotion::STILL);
}

#[test]
fn what_cannot_be_followed_is_no_motion() {
    let ground = frame(|at| at, None);
    let noise = |seed: usize| {
        (0..SIZE.0 * SIZE.1)
            .map(|i| ((i + seed).wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect::<Vec<u8>>()
    };
    let flat = vec![90; SIZE.0 * SIZE.1];
    let cases = [
        ("flat", &flat, &flat),
        ("a cut", &ground, &flat),
        ("noise", &noise(0), &noise(977)),
        ("the same", &ground, &ground),
    ];
    for (name, before, after) in cases {
        assert_eq!(estimate(before, after), CameraMotion::STILL, "{name}");
    }
    // Sensor noise of a still camera.
    let noisy = |seed: usize| {
        let noise = noise(seed);
        ground.iter().zip(noise).map(|(pixel, noise)| pixel - 3 + noise % 7).collect::<Vec<u8>>()
    };
    assert_eq!(estimate(&noisy(3), &noisy(4001)), CameraMotion::STILL, "sensor noise");
}

#[test]
fn every_format_and_size_is_read() {
    let shift = [8.0, 4.0];
    let frames = [frame(|at| at, None), frame(|[x, y]| [x - shift[0], y - shift[1]], None)];
    for format in [PixelFormat::Rgb8, PixelFormat::Bgr8, PixelFormat::Nv12] {
        let [before, after] = frames.each_ref().map(|grey| match format {
            PixelFormat::Nv12 => [grey.as_slice(), &vec![128; SIZE.0 * SIZE.1 / 2]].concat(),
            _ => grey.iter().flat_map(|grey| [*grey; 3]).collect(),
        });
        let stride = if format == PixelFormat::Nv12 { SIZE.0 } else { 3 * SIZE.0 };
        let mut estimator = CameraMotionEstimator::default();
        let motions = [&before, &after]
            .map(|data| estimator.next(&FrameView { stride, format, ..view(data) }).expect("a frame"));
        assert!(error(&motions[1], |[x, y]| [x + shift[0], y + shift[1]]) < 0.5, "{format:?}: {motions:?}");
        // Another size starts anew.
        let small = FrameView { width: 320, height: 180, stride, format, ..view(&before) };
        assert_eq!(estimator.next(&small).expect("a frame"), CameraMotion::STILL);
    }
    for (width, height) in [(1, 1), (7, 3), (640, 1), (5, 360)] {
        let tiny = FrameView { width, height, stride: 640, ..view(&frames[0]) };
        let mut estimator = CameraMotionEstimator::default();
        for _ in 0..2 {
            assert_eq!(estimator.next(&tiny).expect("a frame"), CameraMotion::STILL, "{width}x{height}");
        }
    }
    assert!(CameraMotionEstimator::default().next(&FrameView { stride: 3, ..view(&frames[0]) }).is_err());
}

#[test]
fn a_camera_that_is_shaken_over_a_drawn_scene() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../demos/scenes");
    let (mut near, mut count) = (0, 0);
    for entry in folder.read_dir().expect("it is in the repository") {
        let Ok(image) = crate::image::Image::open(entry.expect("it can be listed").path()) else { continue };
        let (width, height) = (image.width() - 64, image.height() - 48);
        let mut estimator = CameraMotionEstimator::default();
        let mut before = None;
        for index in 0..20usize {
            let number = index.wrapping_mul(2_654_435_761) >> 7;
            let (x, y) = (number % 64, number / 64 % 48);
            let stride = 3 * image.width() as usize;
            let data = &image.as_rgb8()[y * stride + 3 * x..];
            let frame = FrameView { data, width, height, stride, format: PixelFormat::Rgb8, ..view(data) };
            let motion = estimator.next(&frame).expect("a frame");
            if let Some((x_before, y_before)) = before.replace((x as f64, y as f64)) {
                let [[_, _, dx], [_, _, dy]] = motion.matrix();
                near += usize::from((dx - x_before + x as f64).hypot(dy - y_before + y as f64) < 2.0);
                count += 1;
            }
        }
    }
    // The figure in docs/accuracy.md.
    assert_eq!((near, count), (114, 114));
}
