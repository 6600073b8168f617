//! Sessions as a caller uses them: memory, live sources, errors.

use crate::scene::{SIDE, Scene, options, random_scene, rectangle};
use crate::test_random::Random;
use ocelli_tracking::ErrorKind;
use ocelli_tracking::masklets::{
    BitMask, Click, DetectorPrompt, FrameReport, LogitMask, MaskNetwork, MaskletOptions, MaskletSession,
    ObjectId, Retention, RunDirection, StreamObject, VideoShape,
};

/// One object that is always there, and detected on every frame.
fn steady()
-> Scene<impl FnMut(usize) -> Vec<(f32, LogitMask)>, impl FnMut(ObjectId, usize) -> Option<LogitMask>> {
    Scene::new(|_| vec![(0.9, rectangle([2, 2, 9, 9]))], |_, _| Some(rectangle([2, 2, 9, 9])))
}

fn session(frames: Option<usize>, retention: Retention, options: MaskletOptions) -> MaskletSession {
    let video = VideoShape { frames, width: SIDE, height: SIDE };
    MaskletSession::new(video, retention, options).expect("the options are valid")
}

/// The slots in use after a run over `frames` frames with one object.
fn slots_after(frames: usize, retention: Retention, is_on: bool) -> [usize; 2] {
    let (mut session, mut scene) = (session(Some(frames), retention, options(is_on)), steady());
    session.prompt(DetectorPrompt::Text, 0, &mut scene).expect("the scene does not fail");
    session.propagate(RunDirection::Forward, None, None).expect("the session has a prompt");
    while session.advance(&mut scene).expect("the scene does not fail").is_some() {}
    assert_eq!(session.objects(), [0]);
    session.slots_in_use()
}

#[test]
fn a_thousand_frames_cost_as_many_slots_as_a_hundred() {
    // With reconditioning four conditioning frames, without it one.
    for (is_on, expected) in [(true, [10, 4 + 15]), (false, [1 + 6, 1 + 15])] {
        for frames in [100, 1000] {
            assert_eq!(slots_after(frames, Retention::Window, is_on), expected, "{frames} frames");
        }
        assert_eq!(slots_after(100, Retention::Video, is_on), [100, 100]);
    }
}

#[test]
fn memory_is_bounded_by_the_number_of_objects() {
    for seed in 0..20u64 {
        let mut options = options(!seed.is_multiple_of(3));
        (options.max_objects, options.chooses_for_each) = (5, seed.is_multiple_of(2));
        let (mut session, mut scene) = (session(Some(400), Retention::Window, options), random_scene(seed));
        session.prompt(DetectorPrompt::Text, 0, &mut scene).expect("the scene does not fail");
        session.propagate(RunDirection::Forward, None, None).expect("the session has a prompt");
        while session.advance(&mut scene).expect("the scene does not fail").is_some() {
            let ([memories, pointers], objects) = (session.slots_in_use(), session.objects().len());
            assert!(
                memories <= 10 * objects && pointers <= 20 * objects,
                "{memories}, {pointers} of {objects} objects"
            );
        }
        // While a frame is processed, each object has one more.
        let [memories, pointers] = session.slot_counts();
        assert!(memories <= 11 * 5 && pointers <= 21 * 5, "scene {seed}: {memories} and {pointers} slots");
    }
}

#[test]
fn a_live_source_has_no_end() {
    let (mut session, mut scene) = (session(None, Retention::Window, options(true)), steady());
    session.prompt(DetectorPrompt::Text, 0, &mut scene).expect("the scene does not fail");
    session.propagate(RunDirection::Forward, None, None).expect("the session has a prompt");
    let mut shown = Vec::new();
    for _ in 0..40 {
        let step =
            session.advance(&mut scene).expect("the scene does not fail").expect("a live source goes on");
        shown.extend(step.shown.iter().map(|frame| frame.frame));
    }
    assert_eq!(shown, (0..26).collect::<Vec<_>>(), "14 frames are held back");
    shown.extend(
        session.finish().expect("the masks have the size of the video").iter().map(|frame| frame.frame),
    );
    assert_eq!(shown, (0..40).collect::<Vec<_>>());
    assert!(session.finish().expect("nothing is left").is_empty());
}

#[test]
fn a_box_is_looked_for_on_its_frame_alone() {
    let (mut session, mut scene) = (session(Some(30), Retention::Video, options(true)), steady());
    session.prompt(DetectorPrompt::Box, 0, &mut scene).expect("the scene does not fail");
    session.propagate(RunDirection::Forward, None, None).expect("the session has a prompt");
    let mut removed = Vec::new();
    while let Some(step) = session.advance(&mut scene).expect("the scene does not fail") {
        let report = step.report.expect("a full run has reports");
        assert_eq!(report.detections.len(), usize::from(report.frame == 0));
        removed.extend(report.removed.iter().map(|&id| (id, report.frame)));
    }
    assert_eq!(removed, [(0, 8)], "without detections the hotstart removes it");
}

/// Clicks, then runs: the frames that were clicked show what the clicks showed, the last click of each object, whatever
/// overlaps it and whichever of its holes are small.
#[test]
fn a_run_shows_the_masks_of_clicks() {
    let pierced = || {
        let mut mask = rectangle([0, 0, 9, 9]);
        let values = mask.values().iter().enumerate();
        let values = values.map(|(index, &value)| if index == 4 * SIDE + 4 { -5.0 } else { value }).collect();
        mask = LogitMask::new(SIDE, SIDE, values).expect("a logit for each pixel");
        mask
    };
    let count = std::cell::Cell::new(0);
    // Each answer of the network is another one: a mask that is asked for again would not be the same.
    let tracks = |id: ObjectId, _: usize| {
        count.set((count.get() + 1) % 4);
        Some(if id == 0 { pierced() } else { rectangle([6, 6, 12 + count.get(), 13]) })
    };
    let detections = |_: usize| vec![(0.9, rectangle([0, 0, 9, 9])), (0.9, rectangle([9, 0, 14, 5]))];
    let mut scene = Scene::new(detections, tracks);
    // Larger than the network's masks: a hole that is small there is not small in the video.
    let video = VideoShape { frames: Some(8), width: 3 * SIDE, height: 3 * SIDE };
    let mut session = MaskletSession::new(video, Retention::Video, options(true)).expect("valid options");
    session.prompt(DetectorPrompt::Text, 0, &mut scene).expect("the scene does not fail");
    session.propagate(RunDirection::Forward, None, None).expect("the session has a prompt");
    while session.advance(&mut scene).expect("the scene does not fail").is_some() {}
    let click = |is_foreground| Click { x: 0.5, y: 0.5, is_foreground };
    let mut failures = Vec::new();
    let rounds: [&[(usize, ObjectId, bool)]; 5] = [
        &[(2, 0, true)],
        &[(2, 1, true)],
        &[(2, 0, true), (2, 0, false)],
        &[(5, 1, true), (5, 1, false), (5, 7, true)],
        &[(0, 1, true), (3, 0, true)],
    ];
    for clicks in rounds {
        let mut clicked = std::collections::BTreeMap::new();
        for &(frame, id, is_foreground) in clicks {
            let shown = session.click(frame, id, &[click(is_foreground)], &mut scene);
            clicked.insert(frame, shown.expect("the scene does not fail"));
        }
        session.propagate(RunDirection::Forward, Some(0), None).expect("the session has a prompt");
        while let Some(step) = session.advance(&mut scene).expect("the scene does not fail") {
            let Some(expected) = clicked.get(&step.frame) else { continue };
            let areas = |objects: &[ocelli_tracking::masklets::ShownObject]| -> Vec<_> {
                objects.iter().map(|object| (object.id, object.mask.area())).collect()
            };
            if step.shown[0] != *expected {
                let (run, click) = (areas(&step.shown[0].objects), areas(&expected.objects));
                failures.push(format!("{clicks:?}, frame {}: {run:?}, the click {click:?}", step.frame));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Without a text, clicks and masks are followed from their frames on, and nothing is held back or removed.
#[test]
fn objects_are_given_in_place_of_a_text() {
    let mut given = BitMask::empty(SIDE, SIDE);
    (4..8).for_each(|x| (4..8).for_each(|y| given.insert(x, y)));
    let click = [Click { x: 0.5, y: 0.5, is_foreground: true }];
    let mut session = session(Some(30), Retention::Video, options(true));
    let mut scene = steady();
    let shown = session.add_mask(3, 5, &given, &mut scene).expect("the scene does not fail");
    assert_eq!((shown.objects[0].id, &shown.objects[0].mask, shown.objects[0].score), (5, &given, 1.0));
    session.click(7, 2, &click, &mut scene).expect("the scene does not fail");
    assert_eq!((session.objects(), session.next_object()), (vec![5, 2], 6));
    for (direction, expected) in [
        (RunDirection::Forward, (3..30).collect::<Vec<_>>()),
        (RunDirection::Both, (3..30).chain([2, 1, 0]).collect()),
    ] {
        session.propagate(direction, None, None).expect("there are objects");
        let mut frames = Vec::new();
        while let Some(step) = session.advance(&mut scene).expect("the scene does not fail") {
            let [shown] = &step.shown[..] else { panic!("frames leave at once") };
            // The scene draws both objects at one place, where the pixels are those of the first one.
            let areas: Vec<_> = shown.objects.iter().map(|object| (object.id, object.mask.area())).collect();
            match shown.frame {
                3 => assert_eq!((areas[1], &shown.objects[1].mask), ((5, 16), &given), "as it was given"),
                frame => assert_eq!(areas.len(), 2, "frame {frame}: {areas:?}"),
            }
            frames.push(shown.frame);
        }
        assert_eq!(frames, expected, "{direction:?}");
    }
    assert!(session.remove_object(5) && session.removed().is_empty());
    session.propagate(RunDirection::Forward, None, None).expect("there is an object");
    while let Some(step) = session.advance(&mut scene).expect("the scene does not fail") {
        let ids: Vec<_> = step.shown[0].objects.iter().map(|object| object.id).collect();
        assert_eq!(ids, [2], "frame {}", step.frame);
    }
}

/// A stream without a text takes objects with its frames, in bounded memory.
#[test]
fn a_stream_takes_objects_with_its_frames() {
    let mut given = BitMask::empty(SIDE, SIDE);
    (0..4).for_each(|x| (0..4).for_each(|y| given.insert(x, y)));
    let click = [Click { x: 0.5, y: 0.5, is_foreground: true }];
    let (mut session, mut scene) = (session(None, Retention::Window, options(true)), steady());
    session.propagate(RunDirection::Forward, None, None).expect("objects come with the frames");
    for frame in 0..200 {
        let prompts = match frame {
            2 => vec![StreamObject::Mask { id: 0, mask: given.clone() }],
            50 => vec![
                StreamObject::Clicks { id: 0, clicks: click.to_vec() },
                StreamObject::Clicks { id: 1, clicks: click.to_vec() },
            ],
            _ => Vec::new(),
        };
        let step = session.advance_with(&prompts, &mut scene).expect("the scene does not fail");
        let step = step.expect("a stream goes on");
        let ids: Vec<_> = step.shown[0].objects.iter().map(|object| object.id).collect();
        let expected: &[ObjectId] = match frame {
            0..2 => &[],
            2..50 => &[0],
            _ => &[0, 1],
        };
        assert_eq!(ids, expected, "frame {frame}");
        let [memories, pointers] = session.slots_in_use();
        assert!(memories <= 20 && pointers <= 40, "frame {frame}: {memories}, {pointers}");
    }
}

/// Without holding back, frames leave at once, and the report names objects that were shown and turned out to be false. Frames that
/// are not searched are no misses: the eighth look decides, in the hotstart of fifteen looks.
#[test]
fn false_objects_are_shown_and_retracted() {
    let every: [(usize, fn(usize) -> bool); 2] = [(1, |_| true), (3, |frame| frame.is_multiple_of(3))];
    for (every, is_searched) in every {
        let mut options = options(true);
        options.holds_back = false;
        // Detected once: object 0 is unmatched from then on.
        let detections =
            |frame: usize| if frame == 0 { vec![(0.9, rectangle([2, 2, 9, 9]))] } else { Vec::new() };
        let mut scene = Scene::new(detections, |_, _| Some(rectangle([2, 2, 9, 9])));
        scene.is_searched = is_searched;
        let mut session = session(None, Retention::Window, options);
        session.prompt(DetectorPrompt::Text, 0, &mut scene).expect("the scene does not fail");
        session.propagate(RunDirection::Forward, None, None).expect("the session has a prompt");
        for frame in 0..12 * every {
            let step = session.advance(&mut scene).expect("the scene does not fail").expect("it goes on");
            let shown: Vec<_> = step.shown.iter().map(|shown| (shown.frame, shown.objects.len())).collect();
            let last = 8 * every;
            assert_eq!(shown, [(frame, usize::from(frame < last))], "it is shown until it is removed");
            let report = step.report.expect("a full run has reports");
            let removed = if frame == last { vec![0] } else { Vec::new() };
            assert_eq!(report.removed, removed, "every {every}, frame {frame}");
            let looks = (frame / every).min(8) as i32;
            assert_eq!(report.identities[&0].keep_alive, Some(30 - looks), "every {every}, frame {frame}");
        }
    }
}

/// An object starts on a frame that is searched, and is followed by memory on the others.
#[test]
fn objects_start_and_are_reconditioned_on_looks() {
    let detections = |frame: usize| if frame < 4 { Vec::new() } else { vec![(0.9, rectangle([2, 2, 9, 9]))] };
    let mut scene = Scene::new(detections, |_, _| Some(rectangle([2, 2, 9, 9])));
    scene.is_searched = |frame| frame.is_multiple_of(3);
    let mut session = session(None, Retention::Window, options(true));
    session.prompt(DetectorPrompt::Text, 0, &mut scene).expect("the scene does not fail");
    session.propagate(RunDirection::Forward, None, None).expect("the session has a prompt");
    for frame in 0..60 {
        let step = session.advance(&mut scene).expect("the scene does not fail").expect("it goes on");
        let report = step.report.expect("a full run has reports");
        assert_eq!(report.born, if frame == 6 { vec![(0, 0)] } else { Vec::new() }, "frame {frame}");
        assert_eq!(report.tracked, if frame > 6 { vec![0] } else { Vec::new() }, "frame {frame}");
        let is_match = frame > 6 && frame % 3 == 0;
        assert_eq!(report.matches.len(), usize::from(is_match), "frame {frame}");
        // Every sixteenth look, and not every sixteenth frame.
        assert_eq!(report.reconditioned, if frame == 48 { vec![0] } else { Vec::new() }, "frame {frame}");
    }
}

/// Objects of SAM 3.1 are confirmed by looks in a row; a frame that is not searched is none, and interrupts no row.
#[test]
fn objects_of_buckets_are_confirmed_by_looks() {
    let mut scene = steady();
    scene.is_searched = |frame| frame.is_multiple_of(3);
    let mut options = MaskletOptions::multiplex();
    (options.patch_grid, options.holds_back) = (SIDE / 4, false);
    let mut session = session(None, Retention::Window, options);
    session.prompt(DetectorPrompt::Text, 0, &mut scene).expect("the scene does not fail");
    session.propagate(RunDirection::Forward, None, None).expect("the session has a prompt");
    // The prompted frame is passed again, and counts twice.
    for (frame, shown) in [0, 0, 0, 1, 1, 1, 1, 1].into_iter().enumerate() {
        let step = session.advance(&mut scene).expect("the scene does not fail").expect("it goes on");
        assert_eq!(step.shown[0].objects.len(), shown, "frame {frame}");
        let looks = step.report.expect("a full run has reports").identities[&0].matched_in_a_row;
        assert_eq!(looks, 2 + frame / 3, "frame {frame}");
    }
}

/// A click takes an object of SAM 3.1 out of the bucket that it shares: the run after it leaves the others as they are.
#[test]
fn a_click_takes_an_object_out_of_its_bucket() {
    let places = [[2, 2, 9, 9], [10, 10, 14, 14]].map(rectangle);
    let (drawn, asked) = (places.clone(), std::cell::RefCell::default());
    let mut scene = Scene::new(
        move |_| drawn.iter().cloned().map(|mask| (0.9, mask)).collect(),
        |id, _| {
            let asked: &mut Vec<ObjectId> = &mut asked.borrow_mut();
            asked.push(id);
            Some(places[id as usize].clone())
        },
    );
    let mut options = MaskletOptions::multiplex();
    options.patch_grid = SIDE / 4;
    let mut session = session(Some(40), Retention::Video, options);
    session.prompt(DetectorPrompt::Text, 0, &mut scene).expect("the scene does not fail");
    session.propagate(RunDirection::Forward, None, None).expect("the session has a prompt");
    while session.advance(&mut scene).expect("the scene does not fail").is_some() {}
    assert!([0, 1].iter().all(|id| asked.borrow().contains(id)));
    asked.borrow_mut().clear();
    let click = [Click { x: 0.7, y: 0.7, is_foreground: true }];
    session.click(5, 1, &click, &mut scene).expect("the frame was shown");
    session.propagate(RunDirection::Forward, Some(5), Some(20)).expect("the session has a prompt");
    let mut shown = 0;
    while let Some(step) = session.advance(&mut scene).expect("the scene does not fail") {
        shown += step.shown.iter().filter(|shown| shown.objects.iter().any(|object| object.id == 1)).count();
    }
    assert!(shown > 20 && asked.borrow().iter().all(|id| *id == 1), "{shown}, {:?}", asked.borrow());
}

/// Two objects start together. The second one is hidden on the frames 3 to 12, and no detection of it is sure enough to recondition.
#[test]
fn memories_are_chosen_for_each_object_if_it_is_asked_for() {
    let together = vec![(0, 6), (7, 5), (8, 4), (9, 3), (10, 2), (11, 1), (12, 0)];
    let alone = vec![(0, 6), (1, 2), (2, 1), (12, 0)];
    for (chooses_for_each, conditioning, read) in
        [(false, vec![vec![0, 16]], together), (true, vec![vec![0, 16], vec![0]], alone)]
    {
        let places = [[1, 1, 7, 7], [9, 9, 15, 15]].map(rectangle);
        let drawn = places.clone();
        let detections = move |_| vec![(0.9, drawn[0].clone()), (0.75, drawn[1].clone())];
        let is_hidden = |id: ObjectId, frame: usize| id == 1 && (3..13).contains(&frame);
        let tracks = |id: ObjectId, frame| (!is_hidden(id, frame)).then(|| places[id as usize].clone());
        let mut scene = Scene::new(detections, tracks);
        let mut options = options(true);
        (options.chooses_for_each, options.max_objects) = (chooses_for_each, 2);
        let reports = reports(options, &mut scene);
        let bank = reports[13].banks.last().expect("objects are tracked");
        let memories: Vec<_> = bank.memories.iter().map(|memory| (memory.frame, memory.row)).collect();
        assert_eq!((bank.objects.last(), memories), (Some(&1), read));
        assert_eq!(reports[19].conditioning_frames, conditioning);
    }
}

/// An object joins the bucket of another one on frame 5.
#[test]
fn births_in_buckets_are_remembered_if_it_is_asked_for() {
    for (births_condition, frames) in [(false, vec![0]), (true, vec![0, 5])] {
        let places = [[1, 1, 7, 7], [9, 9, 15, 15]].map(rectangle);
        let drawn = places.clone();
        let detections = move |frame| {
            let drawn = drawn.iter().take(if frame < 5 { 1 } else { 2 });
            drawn.map(|mask| (0.9, mask.clone())).collect()
        };
        let mut scene = Scene::new(detections, |id, _| Some(places[id as usize].clone()));
        let mut options = MaskletOptions::multiplex();
        (options.births_condition, options.patch_grid) = (births_condition, SIDE / 4);
        let reports = reports(options, &mut scene);
        assert_eq!((&reports[5].born[..], &reports[19].groups[..]), (&[(1, 1)][..], &[vec![0, 1]][..]));
        let read = reports[19].banks[0].memories.iter().filter(|memory| memory.row == 6);
        assert_eq!(read.map(|memory| memory.frame).collect::<Vec<_>>(), frames);
    }
}

/// The decisions on twenty frames.
fn reports(options: MaskletOptions, scene: &mut impl MaskNetwork) -> Vec<FrameReport> {
    let mut session = session(Some(20), Retention::Video, options);
    session.prompt(DetectorPrompt::Text, 0, scene).expect("the scene does not fail");
    session.propagate(RunDirection::Forward, None, None).expect("the session has a prompt");
    let next = || session.advance(scene).expect("the scene does not fail")?.report;
    std::iter::from_fn(next).collect()
}

/// A frame that is repeated leaves in its turn, with the objects of the frame before, and moves no counter.
#[test]
fn frames_without_motion_repeat_the_frame_before() {
    let mut scene = steady();
    let mut options = options(true);
    options.hotstart_frames = 3;
    let mut session = session(None, Retention::Window, options);
    session.prompt(DetectorPrompt::Text, 0, &mut scene).expect("the scene does not fail");
    session.propagate(RunDirection::Forward, None, None).expect("the session has a prompt");
    let mut shown = Vec::new();
    for frame in 0..4 {
        shown
            .extend(session.advance(&mut scene).expect("the scene does not fail").expect("it goes on").shown);
        for _ in 0..2 * (frame % 2) {
            shown.extend(session.repeat().expect("a frame came before"));
        }
    }
    assert_eq!(shown.len(), 4 + 4 - 2, "two are held back");
    shown.extend(session.finish().expect("the masks have the size of the video"));
    let frames: Vec<_> = shown.iter().map(|shown| (shown.frame, shown.objects.len())).collect();
    assert_eq!(frames, [(0, 1), (1, 1), (1, 1), (1, 1), (2, 1), (3, 1), (3, 1), (3, 1)]);
    assert!(shown.iter().all(|frame| frame.objects == shown[0].objects));
}

#[test]
fn what_cannot_be_done_is_said() {
    let click = |x: f32| [Click { x, y: 0.5, is_foreground: true }];
    let mut scene = steady();
    let mut kept = session(Some(5), Retention::Video, options(true));
    let mut live = session(None, Retention::Window, options(true));
    let mut window = session(Some(5), Retention::Window, options(true));
    let mut errors = vec![
        kept.propagate(RunDirection::Forward, None, None).expect_err("there is no prompt"),
        kept.prompt(DetectorPrompt::Text, 5, &mut scene).expect_err("there is no frame 5"),
        kept.click(5, 0, &click(0.5), &mut scene).expect_err("there is no frame 5"),
        kept.click(1, 0, &[], &mut scene).expect_err("there are no clicks"),
        kept.click(1, 0, &click(1.5), &mut scene).expect_err("a click beside the frame"),
        kept.add_mask(1, 0, &BitMask::empty(8, 8), &mut scene).expect_err("another size"),
        kept.add_mask(1, 0, &BitMask::empty(SIDE, SIDE), &mut scene).expect_err("no pixels"),
    ];
    kept.prompt(DetectorPrompt::Text, 0, &mut scene).expect("the scene does not fail");
    errors.push(kept.click(1, 0, &click(0.5), &mut scene).expect_err("frame 1 was not shown"));
    let given = [StreamObject::Clicks { id: 0, clicks: click(0.5).to_vec() }];
    errors.push(kept.advance_with(&given, &mut scene).expect_err("the session has a prompt"));
    for session in [&mut live, &mut window] {
        session.prompt(DetectorPrompt::Text, 0, &mut scene).expect("the scene does not fail");
    }
    errors.push(live.propagate(RunDirection::Backward, None, None).expect_err("a live source has no past"));
    errors.push(window.click(0, 0, &click(0.5), &mut scene).expect_err("frames are not kept"));
    errors.push(window.propagate(RunDirection::Both, None, None).expect_err("frames are not kept"));
    let empty = VideoShape { frames: Some(5), width: 0, height: 4 };
    errors.push(MaskletSession::new(empty, Retention::Video, options(true)).expect_err("no pixels"));
    let expected = [
        "the session has no prompt: expected a prompt before a run",
        "frame 5 is not in the video: expected 0 to 4",
        "frame 5 is not in the video: expected 0 to 4",
        "expected at least one click with coordinates of 0 to 1",
        "expected at least one click with coordinates of 0 to 1",
        "the mask of object 0 has 8 × 8 pixels: expected 16 × 16, as the video",
        "the mask of object 0 on frame 1 has too few pixels to be followed",
        "frame 1 has no results: expected a click on a frame that was shown",
        "the session has a prompt: expected clicks and masks on frames that were shown",
        "the video is a live source: expected a forward run",
        "shown frames were not kept: expected clicks in a session with Retention::Video",
        "earlier frames were not kept: expected one run, or a session with Retention::Video",
        "a video of 0 × 4 pixels with Some(5) frames: expected some",
    ];
    let found: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
    assert!(errors.iter().all(|error| error.kind() == ErrorKind::InvalidArgument));
}

#[test]
fn masks_of_another_size_are_refused() {
    let wrong = || LogitMask::new(8, 8, vec![5.0; 64]).expect("a logit for each pixel");
    let (mut session, mut scene) = (
        session(Some(5), Retention::Video, options(true)),
        Scene::new(|_| vec![(0.9, wrong())], |_, _| None),
    );
    let error = session.prompt(DetectorPrompt::Text, 0, &mut scene).expect_err("8 is not 16");
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::Mismatch, "the network gave a mask of 8 × 8: expected 16 × 16")
    );
}

/// Frames come one by one, and are followed as they come. A session that forgets all but the last 20 decides, reads and shows the
/// same as one that keeps everything, whatever is clicked, removed and passed again in between.
#[test]
fn a_growing_video_can_be_forgotten() {
    const WINDOW: usize = 20;
    let (mut clicks, mut removals, mut objects) = (0, 0, 0);
    for seed in 0..40u64 {
        let mut random = Random::new(seed);
        let options = options(!seed.is_multiple_of(3));
        let start = || {
            let mut scene = random_scene(seed);
            let mut session = session(Some(1), Retention::Video, options);
            session.prompt(DetectorPrompt::Text, 0, &mut scene).expect("the scene does not fail");
            (session, scene)
        };
        let mut both = [start(), start()];
        for frame in 1..120_usize {
            let first = (frame + 1).saturating_sub(WINDOW);
            let mut runs = vec![(frame, 0)];
            let tracked = both[0].0.objects();
            let click = Click { x: 0.5, y: 0.5, is_foreground: true };
            let clicked = match random.below(12) {
                0 if !tracked.is_empty() => Some(tracked[random.below(tracked.len())]),
                1 => Some(both[0].0.next_object()),
                _ => None,
            };
            // The detector's conditioning frames near a click become ordinary ones, and earlier ones are read in their place.
            let at = frame.saturating_sub(1 + random.below(3));
            let removed = if random.below(30) == 0 { tracked.first().copied() } else { None };
            if clicked.is_some() {
                clicks += 1;
                runs.push((at, frame - at));
            }
            let mut answers = Vec::new();
            for (index, (session, scene)) in both.iter_mut().enumerate() {
                session.set_frame_count(frame + 1);
                if index == 1 {
                    session.forget_before(first);
                }
                let mut steps = Vec::new();
                for (run, &(start, more)) in runs.iter().enumerate() {
                    if let Some(id) = clicked.filter(|_| run == 1) {
                        session.click(at, id, &[click], scene).expect("the frame was shown");
                    }
                    session.propagate(RunDirection::Forward, Some(start), Some(more)).expect("a prompt");
                    while let Some(mut step) = session.advance(scene).expect("the scene does not fail") {
                        // Attention does not depend on the order, which is another one if there are no others.
                        let reports = step.report.iter_mut().flat_map(|report| &mut report.banks);
                        for bank in reports.chain(&mut step.banks) {
                            bank.memories.sort_by_key(|memory| memory.frame);
                            bank.pointers.sort_by_key(|pointer| pointer.frame);
                        }
                        // Of those it lists more.
                        let lists = step.report.iter_mut().flat_map(|report| {
                            report.conditioning_frames.iter_mut().chain(&mut report.frames)
                        });
                        lists.for_each(|frames| frames.retain(|frame| *frame >= first));
                        let is_full = step.report.is_some();
                        assert!(
                            run == 1 || is_full,
                            "seed {seed}, frame {frame}: a new frame is detected in"
                        );
                        steps.push(step);
                    }
                }
                if let Some(id) = removed.filter(|id| Some(*id) != clicked) {
                    removals += usize::from(session.remove_object(id) && index == 0);
                }
                answers.push(steps);
            }
            assert_eq!(answers[0], answers[1], "seed {seed}, frame {frame}");
            objects = objects.max(tracked.len());
        }
        let session = &both[1].0;
        let [memories, pointers] = session.slots_in_use();
        let count = session.objects().len();
        assert!(
            memories <= (26 + WINDOW) * count && pointers <= (36 + WINDOW) * count,
            "seed {seed}: {memories} memories and {pointers} pointers of {count} objects"
        );
        assert!(session.history().len() < 12, "seed {seed}: {:?}", session.history());
        let (session, scene) = &mut both[1];
        let click = Click { x: 0.5, y: 0.5, is_foreground: true };
        let error = session.click(99, 1000, &[click], scene).expect_err("frame 99 was forgotten");
        assert!(error.to_string().contains("frame 99 was forgotten: expected 100"), "{error}");
        session.propagate(RunDirection::Backward, Some(103), None).expect("a prompt");
        let mut passed = Vec::new();
        while let Some(step) = session.advance(scene).expect("the scene does not fail") {
            passed.push(step.frame);
        }
        assert_eq!(passed, [102, 101, 100], "a backward run ends where the video begins");
    }
    assert!(clicks > 100 && removals > 20 && objects > 2, "{clicks} clicks, {removals} removals, {objects}");
}
