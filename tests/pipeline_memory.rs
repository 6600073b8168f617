//! A pipeline's memory does not grow over twenty thousand frames.
//!
//! A separate test program, because it counts all allocations of the process.

#![allow(unsafe_code, reason = "a global allocator needs it")]
#![allow(clippy::print_stdout, reason = "the counts are also of interest when the test passes")]

#[path = "pipeline/fakes.rs"]
mod fakes;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fakes::{Count, Fakes, Levels, detector, prompts};
use ocelli::source::{Feed, Several};
use ocelli::tracking::ByteTrackerOptions;
use ocelli::{Cancellation, FrameView, Pipeline, PixelFormat, Sink, Source};

static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static ALLOCATED_BYTES: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: all calls are forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        ALLOCATED_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` above, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    live_bytes: usize,
    allocations: usize,
    allocated_bytes: usize,
}

fn counts() -> Counts {
    Counts {
        live_bytes: LIVE_BYTES.load(Ordering::Relaxed),
        allocations: ALLOCATIONS.load(Ordering::Relaxed),
        allocated_bytes: ALLOCATED_BYTES.load(Ordering::Relaxed),
    }
}

const FRAMES: u64 = 20_000;
const EARLY: u64 = 2_000;
/// Frames in flight may hold a few more or fewer small lists when the bytes are counted.
const SLACK_BYTES: usize = 64 << 10;
/// The size of a frame, whose pixels take more bytes than all allocations of a frame.
const SIZE: (u32, u32) = (320, 240);

fn check(name: &str, early: Counts, late: Counts) {
    let frames = (FRAMES - EARLY) as usize;
    let grown = late.live_bytes.saturating_sub(early.live_bytes);
    let (count, bytes) = (
        (late.allocations - early.allocations) / frames,
        (late.allocated_bytes - early.allocated_bytes) / frames,
    );
    println!(
        "{name}: {grown} bytes more after {FRAMES} frames than after {EARLY}; each frame {count} allocations, {bytes} bytes"
    );
    assert!(grown <= SLACK_BYTES, "{name}: from {early:?} to {late:?}");
    // Measured: 70 allocations and 15,067 bytes.
    assert!(count <= 80, "{name}: {count} allocations a frame");
    assert!(bytes <= 18_000, "{name}: {bytes} bytes a frame");
}

/// One test, because the counters are the process's.
#[test]
fn nothing_grows_over_twenty_thousand_frames() {
    for sequential in [false, true] {
        let seen = Arc::new(AtomicUsize::new(0));
        let marks = Arc::new(std::sync::Mutex::new((Counts::default(), Counts::default())));
        let at = marks.clone();
        let mut sinks = [Box::new(Count(seen.clone())) as Box<dyn Sink>];
        Pipeline::builder(detector(&Fakes::default()), prompts(3))
            .with_tracker(ByteTrackerOptions::default())
            .with_options(|options| options.class_budget = Some(2))
            .with_sequential(sequential)
            .with_observer(move |outcome| {
                let mut marks = at.lock().expect("no observer panics");
                match outcome.index + 1 {
                    EARLY => marks.0 = counts(),
                    FRAMES => marks.1 = counts(),
                    _ => {}
                }
            })
            .run(Levels::new(FRAMES, SIZE.0, SIZE.1), &mut sinks)
            .expect("it runs");
        assert_eq!(seen.load(Ordering::Relaxed) as u64, FRAMES);
        let (early, late) = *marks.lock().expect("no observer panics");
        check(if sequential { "sequential" } else { "pipelined" }, early, late);
    }

    let pipeline = Pipeline::builder(detector(&Fakes::default()), prompts(3))
        .with_tracker(ByteTrackerOptions::default())
        .build()
        .expect("it starts");
    let data = vec![100; SIZE.0 as usize * SIZE.1 as usize * 3];
    let (width, height) = SIZE;
    let mut early = Counts::default();
    for index in 0..FRAMES {
        let timestamp = std::time::Duration::from_millis(40 * index);
        let stride = width as usize * 3;
        let frame = FrameView { data: &data, width, height, stride, format: PixelFormat::Bgr8, timestamp };
        pipeline.push(frame).expect("the pipeline is open");
        let outcome = pipeline.recv().expect("no stage fails").expect("it was pushed");
        pipeline.recycle(outcome);
        if index + 1 == EARLY {
            early = counts();
        }
    }
    check("pushed", early, counts());

    // Each further source needs as much memory as the ones before.
    let mut most = Vec::new();
    for sources in [1, 4, 16] {
        let feed = |number| Feed {
            name: format!("camera {number}"),
            source: Box::new(Levels::new(200, SIZE.0, SIZE.1)) as Box<dyn Source>,
        };
        let before = counts().live_bytes;
        let feeds = (0..sources).map(feed).collect();
        let several = Several::start(feeds, None, Cancellation::new()).expect("they have names");
        let (peak, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let at = peak.clone();
        Pipeline::builder(detector(&Fakes::default()), prompts(3))
            .with_tracker(ByteTrackerOptions::default())
            .with_observer(move |_| {
                at.fetch_max(counts().live_bytes, Ordering::Relaxed);
            })
            .run(several, &mut [Box::new(Count(seen.clone())) as Box<dyn Sink>])
            .expect("it runs");
        assert_eq!(seen.load(Ordering::Relaxed), 200 * sources);
        most.push(peak.load(Ordering::Relaxed).saturating_sub(before));
    }
    let frame_bytes = SIZE.0 as usize * SIZE.1 as usize * 3;
    println!("1, 4 and 16 sources: {most:?} bytes at most; a frame is {frame_bytes}");
    for (pair, more) in most.windows(2).zip([3, 12]) {
        let each = pair[1].saturating_sub(pair[0]) / more;
        assert!(each <= 4 * frame_bytes, "{each} bytes for each of {more} more sources: {most:?}");
    }
}
