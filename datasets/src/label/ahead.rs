//! Work that several threads do ahead of one that takes it in order.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard};

use ocelli::{Error, ErrorKind, Result};

/// What the threads share.
struct Window<T> {
    /// The next that somebody begins.
    next: usize,
    /// How many were taken.
    taken: usize,
    /// Made, and not taken yet.
    ready: BTreeMap<usize, Result<T>>,
    ended: bool,
}

/// Makes things 0 to `count` on `threads` threads and hands them to `take` in order, on the caller's thread. No more
/// than `ahead` are made and not taken. An error of `make` is handed on like a thing; one of `take` ends all.
///
/// # Errors
/// What `take` says.
pub(super) fn in_order<T: Send>(
    count: usize,
    threads: usize,
    ahead: usize,
    make: impl Fn(usize) -> Result<T> + Sync,
    mut take: impl FnMut(usize, Result<T>) -> Result<()>,
) -> Result<()> {
    let window = Mutex::new(Window { next: 0, taken: 0, ready: BTreeMap::new(), ended: false });
    let (room, made) = (Condvar::new(), Condvar::new());
    let lock = || -> MutexGuard<'_, Window<T>> {
        // Nothing panics while it holds the lock.
        window.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    };
    let wait =
        |condition: &Condvar, guard| condition.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner);
    let work = || {
        loop {
            let mut guard = lock();
            while !guard.ended && guard.next < count && guard.next >= guard.taken + ahead.max(1) {
                guard = wait(&room, guard);
            }
            if guard.ended || guard.next >= count {
                return;
            }
            let index = guard.next;
            guard.next += 1;
            drop(guard);
            // A decoder that gives up on a picture must not take the others with it.
            let thing = catch_unwind(AssertUnwindSafe(|| make(index)))
                .unwrap_or_else(|_| Err(Error::new(ErrorKind::InvalidData, "the decoder gave up")));
            lock().ready.insert(index, thing);
            made.notify_all();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, count.max(1)) {
            scope.spawn(work);
        }
        let mut outcome = Ok(());
        for index in 0..count {
            let mut guard = lock();
            let thing = loop {
                match guard.ready.remove(&index) {
                    Some(thing) => break thing,
                    None => guard = wait(&made, guard),
                }
            };
            guard.taken = index + 1;
            drop(guard);
            room.notify_all();
            outcome = take(index, thing);
            if outcome.is_err() {
                break;
            }
        }
        lock().ended = true;
        room.notify_all();
        outcome
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn everything_comes_in_order_and_no_more_than_so_many_wait() {
        for (count, threads, ahead) in
            [(0, 3, 2), (1, 4, 1), (200, 1, 1), (200, 4, 3), (200, 8, 50), (5, 2, 0)]
        {
            let (begun, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let mut found = Vec::new();
            let make = |i| {
                let waiting = begun.fetch_add(1, Ordering::SeqCst) - taken.load(Ordering::SeqCst);
                assert!(waiting <= ahead.max(1) + threads, "{waiting} are waiting");
                if i % 7 == 3 { Err(Error::new(ErrorKind::InvalidData, "bad")) } else { Ok(i * 2) }
            };
            let ended = in_order(count, threads, ahead, make, |i, thing| {
                taken.fetch_add(1, Ordering::SeqCst);
                found.push((i, thing.ok()));
                Ok(())
            });
            let expected: Vec<_> = (0..count).map(|i| (i, (i % 7 != 3).then_some(i * 2))).collect();
            assert!(ended.is_ok() && found == expected, "{count}, {threads} threads: {found:?}");
        }
    }

    #[test]
    fn an_error_of_the_taker_ends_all() {
        let made = AtomicUsize::new(0);
        let make = |i| Ok(made.fetch_add(1, Ordering::SeqCst) + i);
        let ended = in_order(1000, 4, 4, make, |i, _| match i {
            10 => Err(Error::new(ErrorKind::Cancelled, "stop")),
            _ => Ok(()),
        });
        assert_eq!(ended.map_err(|e| e.kind()), Err(ErrorKind::Cancelled));
        assert!(made.load(Ordering::SeqCst) < 30);
    }
}
