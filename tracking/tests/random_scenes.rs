//! Some things hold in every session, whatever the scene: random ones are tried.

use crate::scene::{options, random_scene};
use crate::test_random::Random;
use ocelli_tracking::masklets::{
    BitMask, Click, DetectorPrompt, FrameReport, MaskletSession, ObjectId, Retention, RunDirection,
    ShownFrame, VideoShape,
};
use std::collections::BTreeSet;

const FRAMES: usize = 80;
const SCENES: u64 = 24;

fn session(seed: u64, retention: Retention) -> MaskletSession {
    let mut options = options(!seed.is_multiple_of(3));
    (options.max_objects, options.chooses_for_each) = (6, seed.is_multiple_of(2));
    if options.recondition_frames > 0 {
        (options.recondition_frames, options.recondition_score) = (4, 0.5);
    }
    let video = VideoShape { frames: Some(FRAMES), width: 20, height: 14 };
    MaskletSession::new(video, retention, options).expect("the options are valid")
}

/// Plays scenes in both directions, with the reports and what leaves after each.
fn play(direction: RunDirection, mut visit: impl FnMut(u64, &MaskletSession, &FrameReport, &[ShownFrame])) {
    for seed in 0..SCENES {
        let mut session = session(seed, Retention::Video);
        let mut scene = random_scene(seed);
        let start = if direction == RunDirection::Forward { 0 } else { FRAMES / 2 };
        let step = session.prompt(DetectorPrompt::Text, start, &mut scene).expect("the scene does not fail");
        visit(seed, &session, step.report.as_ref().expect("a prompt has a report"), &step.shown);
        session.propagate(direction, Some(start), None).expect("the session has a prompt");
        while let Some(step) = session.advance(&mut scene).expect("the scene does not fail") {
            if let Some(report) = &step.report {
                visit(seed, &session, report, &step.shown);
            }
        }
        let [memories, pointers] = scene.most_read;
        assert!(
            (1..=10).contains(&memories) && pointers <= 19,
            "{memories} memories and {pointers} pointers were read"
        );
    }
}

#[test]
fn ids_are_not_used_again() {
    for direction in [RunDirection::Forward, RunDirection::Both] {
        let (mut scene, mut next) = (u64::MAX, 0);
        let mut births = 0;
        play(direction, |seed, _, report, _| {
            if seed != scene {
                (scene, next) = (seed, 0);
            }
            for &(id, _) in &report.born {
                assert_eq!(id, next, "scene {seed}, frame {}", report.frame);
                next += 1;
                births += 1;
            }
        });
        assert!(births > 200, "{births} births are too few to tell");
    }
}

#[test]
fn banks_are_bounded() {
    let mut conditioned = 0;
    play(RunDirection::Both, |seed, session, report, _| {
        for bank in &report.banks {
            let from = |row: usize| bank.memories.iter().filter(|memory| memory.row == row).count();
            assert!(from(6) <= 4, "scene {seed}: {bank:?}");
            assert!((0..6).all(|row| from(row) <= 1), "scene {seed}: a row is read once, {bank:?}");
            assert!(bank.pointers.len() <= 4 + 15, "scene {seed}: {bank:?}");
            conditioned = conditioned.max(from(6));
        }
        assert!(session.objects().len() <= 6, "scene {seed}: {:?}", session.objects());
    });
    assert_eq!(conditioned, 4, "some bank is full");
}

/// Where memories are chosen for each object, fewer of those that it reads are of frames on which it was hidden.
#[test]
fn memories_of_hidden_objects_are_read_less_if_each_has_its_own() {
    let shares = [false, true].map(|chooses_for_each| {
        let mut read = [0; 2];
        for seed in 0..SCENES {
            let mut options = options(true);
            (options.max_objects, options.chooses_for_each) = (6, chooses_for_each);
            let video = VideoShape { frames: Some(FRAMES), width: 20, height: 14 };
            let session = MaskletSession::new(video, Retention::Video, options);
            let (mut session, mut scene) = (session.expect("the options are valid"), random_scene(seed));
            session.prompt(DetectorPrompt::Text, 0, &mut scene).expect("the scene does not fail");
            session.propagate(RunDirection::Forward, None, None).expect("the session has a prompt");
            while session.advance(&mut scene).expect("the scene does not fail").is_some() {}
            read = [read[0] + scene.read[0], read[1] + scene.read[1]];
        }
        read[1] as f64 / (read[0] + read[1]) as f64
    });
    assert!(shares[1] < 0.95 * shares[0], "{shares:?}");
}

#[test]
fn shown_masks_do_not_overlap() {
    let mut several = 0;
    play(RunDirection::Both, |seed, _, _, shown| {
        for frame in shown {
            let area: usize = frame.objects.iter().map(|object| object.mask.area()).sum();
            let mut rest = BitMask::from_fn(20, 14, |_, _| true);
            frame.objects.iter().for_each(|object| rest.subtract(&object.mask));
            assert_eq!(area + rest.area(), 20 * 14, "scene {seed}, frame {}", frame.frame);
            several += usize::from(frame.objects.len() > 1);
        }
    });
    assert!(several > 500, "{several} frames with several objects are too few to tell");
}

#[test]
fn removed_objects_are_not_shown_any_more() {
    let (mut scene, mut removed) = (u64::MAX, BTreeSet::new());
    let mut count = 0;
    play(RunDirection::Both, |seed, session, report, shown| {
        if seed != scene {
            (scene, removed) = (seed, BTreeSet::new());
        }
        removed.extend(report.removed.iter().copied());
        count += report.removed.len();
        let ids: BTreeSet<ObjectId> =
            shown.iter().flat_map(|frame| &frame.objects).map(|object| object.id).collect();
        assert!(ids.is_disjoint(&removed), "scene {seed}, frame {}: {ids:?} of {removed:?}", report.frame);
        assert!(session.objects().iter().all(|id| !removed.contains(id)));
    });
    assert!(count > 20, "{count} removals are too few to tell");
}

#[test]
fn objects_that_the_user_removes_leave_the_buffer() {
    let mut held_back = 0;
    for seed in (0..SCENES).filter(|seed| !seed.is_multiple_of(3)) {
        let (mut session, mut scene) = (session(seed, Retention::Video), random_scene(seed));
        session.prompt(DetectorPrompt::Text, 0, &mut scene).expect("the scene does not fail");
        session.propagate(RunDirection::Forward, None, None).expect("the session has a prompt");
        let mut removed = None;
        while let Some(step) = session.advance(&mut scene).expect("the scene does not fail") {
            let ids: Vec<_> =
                step.shown.iter().flat_map(|frame| &frame.objects).map(|object| object.id).collect();
            assert!(
                removed.is_none_or(|id| !ids.contains(&id)),
                "scene {seed}, frame {}: {ids:?}",
                step.frame
            );
            if step.frame == 20
                && let Some(&id) = session.objects().first()
            {
                assert!(session.remove_object(id) && !session.remove_object(id));
                removed = Some(id);
                held_back += 1;
            }
        }
    }
    assert!(held_back > 10, "{held_back} removals are too few to tell");
}

/// Clicks, removals and runs in any order: slots are used as they should (the scene checks it), and nothing panics.
#[test]
fn any_order_of_requests_is_handled() {
    let mut used = 0;
    for seed in 0..SCENES {
        let (mut session, mut scene) = (session(seed, Retention::Video), random_scene(seed));
        let mut random = Random::new(seed);
        session.prompt(DetectorPrompt::Text, 40, &mut scene).expect("the scene does not fail");
        for _ in 0..12 {
            let frame = random.below(FRAMES);
            let id = random.below(8) as ObjectId;
            match random.below(5) {
                0 => _ = session.remove_object(id),
                1 => {
                    let click = Click { x: 0.5, y: 0.5, is_foreground: true };
                    let found = session.click(frame, id, &[click], &mut scene);
                    let message = found.err().map(|error| error.to_string()).unwrap_or_default();
                    assert!(
                        message.is_empty()
                            || message.contains("no results")
                            || message.contains("max_objects"),
                        "{message}"
                    );
                }
                kind => {
                    let direction =
                        [RunDirection::Forward, RunDirection::Backward, RunDirection::Both][kind - 2];
                    session.propagate(direction, Some(frame), Some(10)).expect("the session has a prompt");
                    while let Ok(Some(step)) = session.advance(&mut scene) {
                        assert!(step.shown.iter().all(|shown| shown.frame < FRAMES));
                    }
                }
            }
        }
        used += session.slots_in_use().iter().sum::<usize>();
        session.reset();
        assert_eq!(session.slots_in_use(), [0, 0], "scene {seed}");
    }
    assert!(used > 1000, "{used} slots are too few to tell");
}
