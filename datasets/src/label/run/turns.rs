//! Shares work among devices, and returns the results in order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::{Builder, Scope};

use ocelli::{Result, cannot_start_thread};

use crate::label::run::prefetch::{in_order, panicked};
use crate::label::{LabelEvent, OnEvent};

/// Items that wait for the devices, for each thread that makes them.
const AHEAD: usize = 2;

/// Devices that take turns, each on a thread of its own.
struct Turns<T, R> {
    lanes: Vec<(SyncSender<T>, Receiver<R>)>,
    handed: usize,
    taken: usize,
}

impl<T: Send, R: Send> Turns<T, R> {
    /// # Errors
    /// [`Io`](ocelli::ErrorKind::Io) if no thread can be started.
    pub fn start<'scope, D: Send>(
        scope: &'scope Scope<'scope, '_>,
        devices: &'scope mut [D],
        work: &'scope (impl Fn(&mut D, T) -> R + Sync),
    ) -> Result<Self>
    where
        T: 'scope,
        R: 'scope,
    {
        let mut turns = Self { lanes: Vec::new(), handed: 0, taken: 0 };
        for device in devices {
            // One item in work, and one that waits.
            let (sender, items) = sync_channel(1);
            let (results, receiver) = channel();
            let run = move || {
                for item in items {
                    // After a panic, and once nobody takes the results, the lane ends.
                    let Ok(result) = catch_unwind(AssertUnwindSafe(|| work(device, item))) else { break };
                    if results.send(result).is_err() {
                        break;
                    }
                }
            };
            Builder::new().name("device".into()).spawn_scoped(scope, run).map_err(cannot_start_thread)?;
            turns.lanes.push((sender, receiver));
        }
        Ok(turns)
    }

    /// Hands an item to the next device. Returns the oldest result, unless there is room for more items before it.
    ///
    /// # Errors
    /// [`Internal`](ocelli::ErrorKind::Internal) if a device has panicked.
    pub fn hand(&mut self, item: T) -> Result<Option<R>> {
        let devices = self.lanes.len();
        let oldest = if self.handed - self.taken == 2 * devices { self.next()? } else { None };
        self.lanes[self.handed % devices].0.send(item).map_err(|_| panicked())?;
        self.handed += 1;
        Ok(oldest)
    }

    /// Waits for the oldest result; `None` if there is none to wait for.
    ///
    /// # Errors
    /// [`Internal`](ocelli::ErrorKind::Internal) if a device has panicked.
    pub fn next(&mut self) -> Result<Option<R>> {
        if self.taken == self.handed {
            return Ok(None);
        }
        let result = self.lanes[self.taken % self.lanes.len()].1.recv().map_err(|_| panicked())?;
        self.taken += 1;
        Ok(Some(result))
    }
}

/// Makes `count` items on `threads` threads, as [`in_order`]. The devices take turns to work on them, and `finish` gets the
/// results in order, on the caller's thread.
///
/// # Errors
/// Those of `on_event` and `finish`; [`Internal`](ocelli::ErrorKind::Internal) after a panic; [`Io`](ocelli::ErrorKind::Io) if no thread can be started.
pub(crate) fn in_turns<D: Send, T: Send, R: Send>(
    devices: &mut [D],
    (count, threads): (usize, usize),
    make: impl Fn(usize) -> Result<T> + Sync,
    work: impl Fn(&mut D, (usize, Result<T>)) -> R + Sync,
    on_event: &mut OnEvent<'_>,
    mut finish: impl FnMut(R, &mut OnEvent<'_>) -> Result<()>,
) -> Result<()> {
    let ahead = threads * AHEAD;
    // A single device works on the caller's thread.
    if let [alone] = devices {
        return in_order(count, threads, ahead, make, |number, made| {
            on_event(LabelEvent::Waiting)?;
            finish(work(alone, (number, made)), on_event)
        });
    }
    std::thread::scope(|scope| {
        let mut turns = Turns::start(scope, devices, &work)?;
        in_order(count, threads, ahead, make, |number, made| {
            on_event(LabelEvent::Waiting)?;
            turns.hand((number, made))?.map_or(Ok(()), |done| finish(done, on_event))
        })?;
        while let Some(done) = turns.next()? {
            finish(done, on_event)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::thread::{scope, sleep};
    use std::time::Duration;

    use ocelli::ErrorKind;

    use super::*;

    /// The first device is slower.
    fn work((device, done): &mut (u64, usize), item: usize) -> usize {
        assert_ne!(item, 90, "this item was to panic");
        sleep(Duration::from_millis(2 - *device));
        *done += 1;
        10 * item
    }

    fn run(devices: &mut [(u64, usize)], items: std::ops::Range<usize>) -> Result<Vec<usize>> {
        scope(|scope| {
            let mut turns = Turns::start(scope, devices, &work)?;
            let mut found = Vec::new();
            for item in items {
                found.extend(turns.hand(item)?);
            }
            while let Some(result) = turns.next()? {
                found.push(result);
            }
            Ok(found)
        })
    }

    #[test]
    fn results_come_in_order_from_all_devices() {
        let expected: Vec<usize> = (0..21).map(|item| 10 * item).collect();
        for count in 1..=3 {
            let mut devices: Vec<(u64, usize)> = (0..count).map(|device| (device, 0)).collect();
            assert_eq!(run(&mut devices, 0..21).ok(), Some(expected.clone()), "{count} devices");
            assert!(devices.iter().all(|(_, done)| *done >= 21 / count as usize), "{devices:?}");
        }
    }

    #[test]
    fn a_panic_on_one_device_is_an_error() {
        let ended = run(&mut [(0, 0), (1, 0)], 80..100);
        assert_eq!(ended.map_err(|error| error.kind()), Err(ErrorKind::Internal));
    }
}
