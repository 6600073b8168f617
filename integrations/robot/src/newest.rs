//! A place for one frame.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A place for one value between two threads: a newer value replaces one that nobody has taken.
#[derive(Debug)]
pub struct Newest<T> {
    place: Mutex<Place<T>>,
    filled: Condvar,
}

#[derive(Debug)]
struct Place<T> {
    value: Option<T>,
    replaced: u64,
}

impl<T> Default for Newest<T> {
    fn default() -> Self {
        Self { place: Mutex::new(Place { value: None, replaced: 0 }), filled: Condvar::new() }
    }
}

impl<T> Newest<T> {
    /// Puts a value in place of the one before.
    pub fn put(&self, value: T) {
        let mut place = self.lock();
        let before = place.value.replace(value);
        place.replaced += u64::from(before.is_some());
        drop(place);
        self.filled.notify_one();
    }

    /// Takes the value, if there is one within `timeout`.
    pub fn take(&self, timeout: Duration) -> Option<T> {
        let place = self.lock();
        let (mut place, _) = self
            .filled
            .wait_timeout_while(place, timeout, |place| place.value.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        place.value.take()
    }

    /// Number of values that were replaced before anybody took them.
    pub fn replaced(&self) -> u64 {
        self.lock().replaced
    }

    fn lock(&self) -> MutexGuard<'_, Place<T>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_value_is_taken_once() {
        let newest = Newest::default();
        assert_eq!(newest.take(Duration::ZERO), None);
        for value in 1..=3 {
            newest.put(value);
        }
        assert_eq!((newest.take(Duration::ZERO), newest.replaced()), (Some(3), 2));
        assert_eq!(newest.take(Duration::from_millis(1)), None);
        std::thread::scope(|scope| {
            scope.spawn(|| newest.put(4));
            assert_eq!(newest.take(Duration::from_secs(60)), Some(4));
        });
        assert_eq!(newest.replaced(), 2);
    }
}
