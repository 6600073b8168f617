//! A small file must not make a parser allocate much: the allocator of the program counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A parser may allocate this much, and [`BYTES_PER_BYTE`] times its input.
const BASE_BYTES: usize = 64 << 20;
const BYTES_PER_BYTE: usize = 64;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Counts what is allocated.
pub struct Counting;

fn grow(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes);
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: all calls are forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller keeps the promises of `alloc_zeroed`. Zeroed pages cost nothing until they are used.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` above, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Runs a parser on an input of `length` bytes; says so if it allocates more than it may.
pub fn exceeded(length: usize, parse: impl FnOnce()) -> Option<String> {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    parse();
    let peak = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    (peak > BASE_BYTES + BYTES_PER_BYTE * length)
        .then(|| format!("allocated {peak} bytes for an input of {length}"))
}
