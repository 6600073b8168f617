//! Sessions on images: sources, prompts, kept features, errors.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ocelli::masklets::{
    Click, KeepFeatures, RunDirection, SessionSource, StreamObject, TrackedFrame, VideoSession,
    VideoSessionOptions, VideoShape,
};
use ocelli::pipeline::FrameOutcome;
use ocelli::source::{ImageFiles, SourceInfo, natural_order};
use ocelli::tracking::masklets::BitMask;
use ocelli::{BoundingBox, Detector, ErrorKind, Frame, Image, Mask, Prompt, Source};

use super::replay::{MaskDetector, Replay, Tracker, eager, embedded};
use super::runs::frames;
use crate::parity::exported::Outcome;
use crate::parity::golden::Golden;

const SIZE: (u32, u32) = (96, 72);

fn image(number: usize, (width, height): (u32, u32)) -> Image {
    let pixel = |index: usize| {
        (index * 37 % 251) as u8
            ^ ((index / width as usize / 3) as u8).wrapping_add((number as u8).wrapping_mul(40))
    };
    let pixels = (0..width as usize * height as usize * 3).map(pixel).collect();
    Image::from_rgb8(width, height, pixels).expect("three bytes for each pixel")
}

/// A folder of `count` images; those of `odd` have another size.
fn folder(count: usize, odd: &[usize]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for number in 0..count {
        let size = if odd.contains(&number) { (SIZE.0 / 2, SIZE.1) } else { SIZE };
        let path = folder.path().join(format!("{number}.png"));
        ocelli::sink::write_image(&path, &image(number, size)).expect("it can be written to");
    }
    folder
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = folder.read_dir().expect("the folder exists").flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    natural_order(&mut files);
    files
}

/// Finds something in any image.
fn options(replay: &Replay<'_>, detector: &Detector) -> VideoSessionOptions {
    let mut options = VideoSessionOptions::new(detector);
    options.masklets = eager(replay);
    options.masklets.new_object_threshold = 0.0;
    options
}

fn session(replay: &Replay<'_>, source: SessionSource) -> Outcome<VideoSession> {
    let detector = replay.detector()?;
    let options = options(replay, &detector);
    Ok(VideoSession::new(detector, source, options)?)
}

/// Image files that announce more frames than there are, or do not say how many.
struct Announcing(ImageFiles, SourceInfo);

impl Source for Announcing {
    fn info(&self) -> &SourceInfo {
        &self.1
    }

    fn read_into(&mut self, frame: &mut Frame) -> ocelli::Result<bool> {
        self.0.read_into(frame)
    }
}

fn reopened(folder: &Path, announced: Option<u64>, estimates_frames: bool) -> Outcome<SessionSource> {
    let files = files(folder);
    Ok(SessionSource::reopened(move || {
        let source = ImageFiles::new("street.mp4", files.clone(), 30.0)?;
        let mut info = source.info().clone();
        (info.frame_count, info.estimates_frames) = (announced, estimates_frames);
        Ok(Box::new(Announcing(source, info)))
    })?)
}

#[test]
fn sources_and_kept_features_change_nothing() -> Outcome<()> {
    let golden = Golden::of_session("tracker");
    let replay = embedded(&golden)?;
    let folder = folder(6, &[]);
    let source = |name: &str| -> Outcome<SessionSource> {
        Ok(match name {
            "folder" => SessionSource::open(folder.path())?,
            "reopened" => reopened(folder.path(), Some(6), false)?,
            "unknown length" => reopened(folder.path(), None, false)?,
            "estimated length" => reopened(folder.path(), Some(137), true)?,
            _ => SessionSource::pushed(image(0, SIZE)),
        })
    };
    let cases = [
        ("folder", KeepFeatures::None, 9),
        ("reopened", KeepFeatures::Host, 2),
        ("unknown length", KeepFeatures::Device, 9),
        ("estimated length", KeepFeatures::None, 9),
        ("pushed", KeepFeatures::Host, 0),
    ];
    let mut expected: Option<(TrackedFrame, Vec<TrackedFrame>)> = None;
    for (name, keep, most) in cases {
        let detector = replay.detector()?;
        let mut options = options(&replay, &detector);
        (options.keep_features, options.kept_frames) = (keep, most);
        let mut session = VideoSession::new(detector, source(name)?, options)?;
        if name == "pushed" {
            for number in 1..6 {
                assert_eq!(session.push(image(number, SIZE))?, number);
            }
        }
        assert_eq!((session.frame_count(), session.size()), (6, (96, 72)), "{name}");
        let first = session.add_text(2, "dog")?;
        assert!(!first.objects.is_empty(), "{name}: the prompt finds nothing");
        let run = frames(&mut session, RunDirection::Both, None, None)?;
        let numbers: Vec<usize> = run.iter().map(|frame| frame.frame).collect();
        assert_eq!(numbers, [2, 3, 4, 5, 1, 0], "{name}");
        let found = (first, run);
        assert!(*expected.get_or_insert_with(|| found.clone()) == found, "{name}: other results");
    }
    Ok(())
}

/// A file is opened again where a run goes back; the frames are those of the file.
#[test]
#[cfg_attr(without_video, ignore = "needs the video library")]
fn a_video_file_is_read_in_any_order() -> Outcome<()> {
    let golden = Golden::of_session("tracker");
    let replay = embedded(&golden)?;
    let place = tempfile::tempdir()?;
    let file = place.path().join("street.mp4");
    let mut sink = ocelli::sink::create_video(&file, &ocelli::sink::VideoOptions::new(10.0))?;
    for number in 0..20 {
        let mut outcome = FrameOutcome::default();
        (outcome.index, outcome.time) = (number, Duration::from_millis(100 * number));
        outcome.size = SIZE;
        outcome.annotated = Some(image(number as usize, SIZE));
        sink.write(&outcome)?;
    }
    sink.finish()?;
    // The encoder changes pixels: the same frames as images.
    let mut source = ocelli::source::open_video(&file)?;
    let (mut frame, mut files) = (Frame::default(), Vec::new());
    while source.read_into(&mut frame)? {
        files.push(place.path().join(format!("{}.png", frame.index)));
        ocelli::sink::write_image(files.last().expect("just pushed"), &frame.image)?;
    }
    assert_eq!(files.len(), 20);
    let run = |source: SessionSource| -> Outcome<Vec<TrackedFrame>> {
        let mut session = session(&replay, source)?;
        assert_eq!(session.frame_count(), 20);
        session.add_mask(0, 18, &left_half())?;
        frames(&mut session, RunDirection::Both, None, None)
    };
    let of_file = run(SessionSource::open(&file)?)?;
    let numbers: Vec<usize> = of_file.iter().map(|frame| frame.frame).collect();
    assert_eq!(numbers, [18, 19].into_iter().chain((0..18).rev()).collect::<Vec<_>>());
    assert!(of_file == run(SessionSource::images("street", files)?)?, "other frames");
    Ok(())
}

/// A second run over frames whose features are kept computes nothing; one over others computes them again.
#[test]
fn features_are_kept_or_computed_again() -> Outcome<()> {
    let golden = Golden::of_session("tracker");
    let replay = embedded(&golden)?;
    let mut seen = None;
    for (keep, most, expected) in [
        (KeepFeatures::None, 32, [10, 21]),
        (KeepFeatures::Host, 32, [10, 10]),
        (KeepFeatures::Device, 32, [10, 10]),
        // The frames 0 to 2 are kept; the click on frame 4 drops frame 2.
        (KeepFeatures::Host, 3, [10, 19]),
        (KeepFeatures::Host, 0, [10, 21]),
    ] {
        let count = Arc::new(AtomicUsize::new(0));
        let detector = replay.detector()?;
        let mut options = VideoSessionOptions::new(&detector);
        options.masklets = replay.options();
        (options.keep_features, options.kept_frames) = (keep, most);
        let mut session = VideoSession::new(detector, replay.source(&count)?, options)?;
        session.add_text(3, "dog")?;
        let mut runs = frames(&mut session, RunDirection::Both, None, None)?;
        let first = count.load(Ordering::Relaxed);
        session.add_points(1, 4, &[Click { x: 0.2, y: 0.8, is_foreground: true }])?;
        runs.extend(frames(&mut session, RunDirection::Forward, Some(0), None)?);
        let second = count.load(Ordering::Relaxed);
        let counts = [first, second];
        assert!(
            *seen.get_or_insert_with(|| runs.clone()) == runs,
            "{keep:?} of {most} frames: other results"
        );
        assert_eq!(counts, expected, "{keep:?} of {most} frames");
    }
    Ok(())
}

fn left_half() -> Mask {
    let bitmap: Vec<u8> = (0..96 * 72).map(|index| u8::from(index % 96 < 40)).collect();
    Mask::from_bitmap(&bitmap, 96, 72).expect("a byte for each pixel")
}

/// Two devices share the objects, and find what one finds.
#[test]
fn devices_share_the_objects_of_a_session() -> Outcome<()> {
    let golden = Golden::of_session("tracker");
    let replay = embedded(&golden)?;
    let images = folder(6, &[]);
    let click = [Click { x: 0.8, y: 0.5, is_foreground: true }];
    let mut seen = Vec::new();
    for devices in [1, 2] {
        let mut session = session(&replay, SessionSource::open(images.path())?)?;
        let other = replay.detector()?;
        (1..devices).try_for_each(|_| session.add_device(&other))?;
        let mut shown = vec![session.add_mask(0, 0, &left_half())?, session.add_points(4, 0, &click)?];
        shown.extend(frames(&mut session, RunDirection::Forward, None, None)?);
        assert_eq!(session.objects_on_devices(), if devices == 1 { vec![2] } else { vec![1, 1] });
        let refused = session.add_device(&other).expect_err("it has objects");
        assert!(refused.to_string().contains("before the first"), "{refused}");
        seen.push(shown);
    }
    assert!(seen[0] == seen[1], "other results on two devices");
    Ok(())
}

/// Clicks and masks alone: a session and a stream find the same, and show what was given.
#[test]
fn objects_are_given_without_a_text() -> Outcome<()> {
    let golden = Golden::of_session("tracker");
    let replay = embedded(&golden)?;
    let images = folder(6, &[]);
    let clicks = [Click { x: 0.8, y: 0.5, is_foreground: true }];
    let mut session = session(&replay, SessionSource::open(images.path())?)?;
    let given = session.add_mask(0, 0, &left_half())?;
    assert_eq!(
        given.objects.iter().map(|object| (object.id, &object.mask)).collect::<Vec<_>>(),
        [(0, &left_half())]
    );
    session.add_points(4, 2, &clicks)?;
    assert_eq!((session.objects(), session.next_object()), (vec![0, 4], 5));
    let run = frames(&mut session, RunDirection::Forward, None, None)?;
    assert_eq!(run.iter().map(|frame| frame.frame).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(run[0].objects[0].mask.iou(&left_half())?, 1.0, "the first frame shows what was given");

    // As a stream: what comes on frame 2 cannot be seen before.
    let video = VideoShape { frames: Some(6), width: 96, height: 72 };
    let detector = replay.detector()?;
    let mut tracker = Tracker::new(&detector, None, video, eager(&replay))?;
    let mut bits = BitMask::empty(96, 72);
    (0..72).for_each(|y| (0..40).for_each(|x| bits.insert(x, y)));
    let mut streamed = Vec::new();
    let mut again = self::session(&replay, SessionSource::open(images.path())?)?;
    again.add_mask(0, 0, &left_half())?;
    let alone = frames(&mut again, RunDirection::Forward, None, Some(1))?;
    again.add_points(4, 2, &clicks)?;
    let rest = frames(&mut again, RunDirection::Forward, Some(2), None)?;
    let expected: Vec<TrackedFrame> = alone.into_iter().chain(rest).collect();
    let mut encoder = MaskDetector::new(&replay, &["dog"], &eager(&replay))?;
    for number in 0..6 {
        let frame = encoder.detect(&image(number, SIZE))?;
        let objects = match number {
            0 => vec![StreamObject::Mask { id: 0, mask: bits.clone() }],
            2 => vec![StreamObject::Clicks { id: 4, clicks: clicks.to_vec() }],
            _ => Vec::new(),
        };
        let shown = tracker.push(frame, &objects)?;
        assert_eq!(shown.len(), 1, "frames leave at once");
        streamed.extend(shown);
    }
    assert!(tracker.finish()?.is_empty());
    let ids = |frames: &[TrackedFrame]| -> Vec<Vec<(u64, u64)>> {
        let areas = |frame: &TrackedFrame| {
            frame.objects.iter().map(|object| (object.id, object.mask.area())).collect()
        };
        frames.iter().map(areas).collect()
    };
    assert_eq!(ids(&streamed), ids(&expected));
    assert!(ids(&streamed).iter().flatten().any(|(id, _)| *id == 4), "the clicked object is shown");

    again.remove(0)?;
    let left = frames(&mut again, RunDirection::Forward, Some(0), None)?;
    assert!(left.iter().flat_map(|frame| &frame.objects).all(|object| object.id == 4), "object 0 is gone");
    Ok(())
}

/// Texts, boxes and exemplars start over; what a box found stays, however long nothing matches it.
#[test]
fn boxes_and_exemplars_start_over() -> Outcome<()> {
    let golden = Golden::of_session("tracker");
    let replay = embedded(&golden)?;
    let images = folder(12, &[]);
    let mut session = session(&replay, SessionSource::open(images.path())?)?;
    let bbox = BoundingBox::new(10.0, 8.0, 60.0, 50.0);
    let boxed = session.add_box(1, bbox)?;
    assert!(!boxed.objects.is_empty());
    let found = session.objects();
    let mut run = session.propagate(RunDirection::Forward, None, None)?;
    let first = run.next().ok_or("a frame")??;
    assert_eq!(first.frame, 1, "frames leave at once");
    assert_eq!(
        run.map(|frame| frame.map(|frame| frame.frame)).collect::<ocelli::Result<Vec<_>>>()?,
        (2..12).collect::<Vec<_>>()
    );
    assert_eq!(session.objects(), found, "nothing is removed as false, and nothing is added");

    let prompt = |bbox| Prompt::new("dog").with_exemplar(bbox, true);
    let like = session.add_exemplars(3, prompt(bbox))?;
    let text = session.add_text(3, "dog")?;
    assert!(!like.objects.is_empty() && like.frame == 3);
    assert!(like != text, "the box makes a difference");
    let other = session.add_exemplars(3, prompt(BoundingBox::new(70.0, 50.0, 90.0, 70.0)))?;
    assert!(like != other, "another box makes another difference");
    assert_eq!(session.objects().first(), Some(&0), "ids begin again");
    Ok(())
}

/// A run goes on where its iterator was dropped, and ends where another one or another video begins.
#[test]
fn a_run_is_taken_up_again() -> Outcome<()> {
    let golden = Golden::of_session("tracker");
    let replay = embedded(&golden)?;
    let images = folder(6, &[]);
    let detector = replay.detector()?;
    let mut options = options(&replay, &detector);
    options.keep_features = KeepFeatures::Host;
    let mut session = VideoSession::new(detector, SessionSource::open(images.path())?, options)?;
    assert!(session.next_frame().is_none(), "there is no run");
    session.add_text(0, "dog")?;
    let whole = frames(&mut session, RunDirection::Forward, None, None)?;
    session.add_text(0, "dog")?;
    let mut parts = Vec::new();
    parts.extend(session.propagate(RunDirection::Forward, None, None)?.next().transpose()?);
    assert!(!parts[0].objects.is_empty(), "there is an object to remove");
    parts.extend(session.next_frame().transpose()?);
    assert!(parts[..] == whole[..2], "other frames than those of one run");
    // The hotstart buffer left at once, before the object was removed.
    session.remove(u32::try_from(parts[0].objects[0].id)?)?;
    while let Some(frame) = session.next_frame().transpose()? {
        assert!(frame.objects.iter().all(|object| object.id != parts[0].objects[0].id), "a removed object");
        parts.push(frame);
    }
    assert_eq!(parts.iter().map(|frame| frame.frame).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);

    session.add_mask(9, 0, &left_half())?;
    session.propagate(RunDirection::Forward, None, None)?.next().transpose()?;
    let other = || SessionSource::pushed(image(3, (40, 30)));
    session.open(other())?;
    assert!(session.next_frame().is_none(), "the run was over the other video");
    assert_eq!((session.frame_count(), session.size(), session.objects()), (1, (40, 30), Vec::new()));
    let clicks = [Click { x: 0.2, y: 0.3, is_foreground: true }];
    let alone = self::session(&replay, other())?.add_points(0, 0, &clicks)?;
    assert!(
        !alone.objects.is_empty() && session.add_points(0, 0, &clicks)? == alone,
        "the other video's features"
    );
    session.open(SessionSource::open(images.path())?)?;
    session.add_text(0, "dog")?;
    assert!(
        frames(&mut session, RunDirection::Forward, None, None)? == whole,
        "the first video, found again"
    );
    Ok(())
}

/// Errors say in one line what cannot be done.
#[test]
fn wrong_use_of_a_session_is_an_error() -> Outcome<()> {
    let golden = Golden::of_session("tracker");
    let replay = embedded(&golden)?;
    let (images, odd) = (folder(4, &[]), folder(4, &[2]));
    let click = [Click { x: 0.5, y: 0.5, is_foreground: true }];
    let small = Mask::from_bitmap(&[1; 6], 3, 2)?;
    let empty = Mask::from_bitmap(&[0; 96 * 72], 96, 72)?;
    let bbox = BoundingBox::new(10.0, 8.0, 60.0, 50.0);
    let mut session = session(&replay, SessionSource::open(images.path())?)?;
    let mut failures = Vec::new();
    let mut check = |what: &str, found: ocelli::Result<()>, kind: ErrorKind, text: &str| {
        let found = found.map_err(|error| (error.kind(), error.to_string()));
        match &found {
            Err((is, message)) if *is == kind && message.contains(text) && !message.contains('\n') => {}
            _ => failures.push(format!("{what}: {found:?}, expected {text:?}")),
        }
    };
    let invalid = ErrorKind::InvalidArgument;
    let out = "frame 4 is not in the video: expected 0 to 3";
    check("text", session.add_text(4, "dog").map(drop), invalid, out);
    check("box", session.add_box(4, bbox).map(drop), invalid, out);
    check("points", session.add_points(0, 4, &click).map(drop), invalid, out);
    check("mask", session.add_mask(0, 4, &empty).map(drop), invalid, out);
    check("blank", session.add_text(0, " ").map(drop), invalid, "blank");
    check("no boxes", session.add_exemplars(0, Prompt::new("dog")).map(drop), invalid, "has no exemplars");
    let outside = BoundingBox::new(200.0, 10.0, 230.0, 20.0);
    check("box beside the frame", session.add_box(0, outside).map(drop), invalid, "outside the image");
    let run = session.propagate(RunDirection::Forward, None, None).map(drop);
    check("nothing to follow", run, invalid, "the session has no prompt");
    check("small mask", session.add_mask(0, 0, &small).map(drop), invalid, "3 × 2 pixels: expected 96 × 72");
    check("empty mask", session.add_mask(0, 0, &empty).map(drop), invalid, "too few pixels");
    check("push", session.push(image(0, SIZE)).map(drop), invalid, "frames can be pushed to");

    session.add_mask(3, 0, &left_half())?;
    check("twice", session.add_mask(3, 1, &left_half()).map(drop), invalid, "object 3 is tracked already");
    check("no object", session.remove(9), invalid, "there is no object 9: expected one of [3]");
    session.remove(3)?;
    let gone = "object 3 was removed: expected one that is tracked, or a new one, 4";
    check("removed", session.remove(3), invalid, gone);
    check("removed, clicked", session.add_points(3, 0, &click).map(drop), invalid, gone);
    check("removed, given", session.add_mask(3, 0, &left_half()).map(drop), invalid, gone);
    session.add_text(0, "dog")?;
    check("not shown", session.add_points(0, 2, &click).map(drop), invalid, "frame 2 has no results");

    let mut session = self::session(&replay, SessionSource::open(odd.path())?)?;
    session.add_text(0, "dog")?;
    let run: Vec<_> = session.propagate(RunDirection::Forward, None, None)?.collect();
    assert!(run.len() == 3 && run[..2].iter().all(Result::is_ok), "what was found before is shown");
    let text = "2.png: it has 48×72 pixels, the first frame 96×72";
    check("another size", run.into_iter().next_back().map_or(Ok(()), |last| last.map(drop)), invalid, text);
    let mut session = self::session(&replay, SessionSource::pushed(image(0, SIZE)))?;
    check("pushed size", session.push(image(1, (4, 4))).map(drop), invalid, "it has 4×4 pixels");

    let mut session = self::session(&replay, reopened(images.path(), Some(6), false)?)?;
    session.add_text(0, "dog")?;
    let run: Vec<_> = session.propagate(RunDirection::Forward, None, None)?.collect();
    assert_eq!(run.len(), 5, "four frames and an error");
    let text = "frame 4, street.mp4: the video ends after 4 of the 6 frames that it announces";
    check(
        "ends early",
        run.into_iter().next_back().map_or(Ok(()), |last| last.map(drop)),
        ErrorKind::InvalidData,
        text,
    );

    let nothing = tempfile::tempdir()?;
    let source = SessionSource::open(nothing.path()).map(drop);
    check("an empty folder", source, invalid, "the folder has no images");
    let source = SessionSource::open(nothing.path().join("none.mp4")).map(drop);
    check("no file", source, ErrorKind::Io, "none.mp4");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

/// A live session: frames are pushed and followed one by one. With a window the results are the same, and what left it is said.
#[test]
fn a_window_bounds_a_live_session() -> Outcome<()> {
    const WINDOW: usize = 4;
    let golden = Golden::of_session("tracker");
    let replay = embedded(&golden)?;
    let click = [Click { x: 0.4, y: 0.5, is_foreground: true }];
    let mut all = Vec::new();
    for window in [None, Some(WINDOW)] {
        let detector = replay.detector()?;
        let mut options = options(&replay, &detector);
        (options.window, options.keep_features) = (window, KeepFeatures::Host);
        let mut session = VideoSession::new(detector, SessionSource::pushed(image(0, SIZE)), options)?;
        let mut shown = vec![session.add_text(0, "dog")?];
        assert!(!shown[0].objects.is_empty(), "there is an object to follow");
        for number in 1..14 {
            assert_eq!(session.push(image(number, SIZE))?, number);
            shown.extend(frames(&mut session, RunDirection::Forward, Some(number), Some(0))?);
            if number == 9 {
                shown.push(session.add_points(7, 8, &click)?);
                shown.extend(frames(&mut session, RunDirection::Forward, Some(8), None)?);
            }
        }
        let first = window.map_or(0, |window| 14 - window);
        assert_eq!((session.frames(), session.frame_count()), (first..14, 14));
        if window.is_some() {
            let text = "frame 9 has left the window: expected 10 to 13";
            let errors = [
                session.add_points(7, 9, &click).expect_err("it left").to_string(),
                session.add_text(9, "dog").expect_err("it left").to_string(),
                session.propagate(RunDirection::Forward, Some(9), None).err().expect("it left").to_string(),
            ];
            assert_eq!(errors, [text; 3]);
            let back = frames(&mut session, RunDirection::Backward, Some(13), None)?;
            assert_eq!(back.iter().map(|frame| frame.frame).collect::<Vec<_>>(), [12, 11, 10]);
            assert!(!session.add_text(11, "dog")?.objects.is_empty(), "it starts over in the window");
            let again = frames(&mut session, RunDirection::Both, None, None)?;
            assert_eq!(again.iter().map(|frame| frame.frame).collect::<Vec<_>>(), [11, 12, 13, 10]);
        }
        all.push(shown);
    }
    assert!(all[0].iter().filter(|frame| !frame.objects.is_empty()).count() > 10, "little is shown: {all:?}");
    assert!(all[0] == all[1], "the window changes what is found");
    Ok(())
}
