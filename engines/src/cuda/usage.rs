//! A use of a buffer on one stream has to wait for earlier uses on others.
//!
//! A read waits for the last write. A write waits for the last write and for every read since. Work on one stream runs
//! in order, so a use never waits for an earlier use on its own stream.

/// A point on a stream: `event` is reached once everything enqueued before it has finished.
#[derive(Debug, Clone)]
pub(super) struct Mark<E> {
    /// The stream's number, unique within the process.
    pub(super) stream: u64,
    pub(super) event: E,
}

/// The enqueued uses of one buffer that later uses may have to wait for.
#[derive(Debug)]
pub(super) struct Usage<E> {
    last_write: Option<Mark<E>>,
    /// Since the last write, the latest of each stream.
    reads: Vec<Mark<E>>,
    /// True while a thread is enqueueing a write, which two threads must not do at once.
    pub(super) being_written: bool,
}

impl<E> Usage<E> {
    /// The events that a read on this stream has to wait for.
    pub(super) fn before_reading(&self, stream: u64) -> impl Iterator<Item = &E> {
        self.last_write.iter().filter(move |mark| mark.stream != stream).map(|mark| &mark.event)
    }

    /// The events that a write on this stream has to wait for.
    pub(super) fn before_writing(&self, stream: u64) -> impl Iterator<Item = &E> {
        self.marks().filter(move |mark| mark.stream != stream).map(|mark| &mark.event)
    }

    /// Records a read that has been enqueued.
    pub(super) fn read(&mut self, mark: Mark<E>) {
        self.reads.retain(|earlier| earlier.stream != mark.stream);
        self.reads.push(mark);
    }

    /// Records a write that has been enqueued, after everything in [`before_writing`](Self::before_writing).
    pub(super) fn written(&mut self, mark: Mark<E>) {
        self.reads.clear();
        self.last_write = Some(mark);
    }

    pub(super) fn last_write(&self) -> Option<&E> {
        self.last_write.as_ref().map(|mark| &mark.event)
    }

    /// The last write and all reads since.
    pub(super) fn marks(&self) -> impl Iterator<Item = &Mark<E>> {
        self.last_write.iter().chain(&self.reads)
    }
}

impl<E> Default for Usage<E> {
    fn default() -> Self {
        Self { last_write: None, reads: Vec::new(), being_written: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A use of the buffer: on which stream, and whether it writes.
    type Use = (u64, bool);

    /// Enqueues the uses one after the other. The result is what each of them waits for, by position.
    fn waits(uses: &[Use]) -> Vec<Vec<usize>> {
        let mut usage = Usage::default();
        let mut all = Vec::new();
        for (event, &(stream, writes)) in uses.iter().enumerate() {
            let mark = Mark { stream, event };
            if writes {
                all.push(usage.before_writing(stream).copied().collect());
                usage.written(mark);
            } else {
                all.push(usage.before_reading(stream).copied().collect());
                usage.read(mark);
            }
        }
        all
    }

    #[test]
    fn uses_wait_for_other_streams_only() {
        const fn read(stream: u64) -> Use {
            (stream, false)
        }
        const fn write(stream: u64) -> Use {
            (stream, true)
        }
        let cases: [(&str, &[Use], &[&[usize]]); 7] = [
            ("the first use waits for nothing", &[read(1)], &[&[]]),
            ("one stream is in order by itself", &[write(1), read(1), write(1)], &[&[], &[], &[]]),
            ("a read waits for the write", &[write(1), read(2)], &[&[], &[0]]),
            ("reads do not wait for each other", &[read(1), read(2), read(3)], &[&[], &[], &[]]),
            ("a write waits for every reader", &[read(1), read(2), write(3)], &[&[], &[], &[0, 1]]),
            (
                "of two reads on one stream the later counts",
                &[read(1), read(2), read(1), write(3)],
                &[&[], &[], &[], &[1, 2]],
            ),
            (
                "a write ends the reads before it",
                &[read(1), write(2), write(3), read(1)],
                &[&[], &[0], &[1], &[2]],
            ),
        ];
        let mut failures = Vec::new();
        for (name, uses, expected) in cases {
            let actual = waits(uses);
            if actual != expected {
                failures.push(format!("{name}: expected {expected:?}, got {actual:?}"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    /// Every sequence of six uses on three streams: for any timing of the streams, two uses of which one writes never
    /// overlap, and happen in the order in which they were enqueued.
    #[test]
    fn no_sequence_of_uses_has_a_race() {
        const LENGTH: u32 = 6;
        let kinds: Vec<Use> = (0..3).flat_map(|stream| [(stream, false), (stream, true)]).collect();
        for number in 0..kinds.len().pow(LENGTH) {
            let uses: Vec<Use> =
                (0..LENGTH).map(|digit| kinds[number / kinds.len().pow(digit) % kinds.len()]).collect();
            let waits = waits(&uses);
            // What is certain to have finished before each use begins.
            let mut finished: Vec<BTreeSet<usize>> = Vec::new();
            for (at, &(stream, writes)) in uses.iter().enumerate() {
                let previous = (0..at).rev().find(|&earlier| uses[earlier].0 == stream);
                let direct: Vec<usize> = previous.into_iter().chain(waits[at].iter().copied()).collect();
                let own: BTreeSet<usize> =
                    direct.iter().flat_map(|&one| finished[one].iter().copied().chain([one])).collect();
                let missing = (0..at).find(|earlier| (writes || uses[*earlier].1) && !own.contains(earlier));
                assert_eq!(missing, None, "{uses:?}: use {at} does not wait for it");
                finished.push(own);
            }
        }
    }
}
