//! Loading a model, which Ctrl-C does not wait for.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ocelli::{Detector, DetectorBuilder};

use crate::{Interrupted, LogArgs, Progress, interrupted};

/// How often a load checks for Ctrl-C.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// How long a load may take to end after Ctrl-C: an export into the cache removes its files.
const PATIENCE: Duration = Duration::from_secs(1);

/// Builds a detector, and returns it with its progress. After Ctrl-C the thread that loads it gets a second to clean up, and
/// is then left to end with the program.
///
/// # Errors
/// As [`DetectorBuilder::build`], and [`Interrupted`].
pub fn load(builder: DetectorBuilder, log: &LogArgs) -> anyhow::Result<(Detector, Arc<Progress>)> {
    let (mut detectors, loading) = load_devices(vec![builder], log)?;
    Ok((detectors.remove(0), loading))
}

/// As [`load`], for each device.
///
/// # Errors
/// As [`load`].
pub(crate) fn load_devices(
    builders: Vec<DetectorBuilder>,
    log: &LogArgs,
) -> anyhow::Result<(Vec<Detector>, Arc<Progress>)> {
    let loading = Arc::new(Progress::waiting(log));
    let shown = Arc::clone(&loading);
    let build = move || {
        let build = |builder: DetectorBuilder| {
            let shown = Arc::clone(&shown);
            builder.with_progress(move |line| shown.announce(line)).build()
        };
        builders.into_iter().map(build).collect::<ocelli::Result<Vec<_>>>()
    };
    let detectors = unless_stopped(build, interrupted)??;
    Ok((detectors, loading))
}

/// The engines of these detectors, for people.
pub(crate) fn engines(detectors: &[Detector]) -> String {
    detectors.iter().map(Detector::engine).collect::<Vec<_>>().join(" and ")
}

/// The result of `work`, unless `check` stops it.
fn unless_stopped<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    check: impl Fn() -> Result<(), Interrupted>,
) -> anyhow::Result<T> {
    let thread = thread::Builder::new().name("ocelli-load".into()).spawn(work)?;
    let mut stopped = None;
    while !thread.is_finished() {
        thread::sleep(CHECK_INTERVAL);
        if let Err(interrupted) = check()
            && stopped.get_or_insert_with(Instant::now).elapsed() > PATIENCE
        {
            return Err(interrupted.into());
        }
    }
    check()?;
    Ok(thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn what_takes_long_is_left_behind() {
        let began = Instant::now();
        let (_never, waits) = channel::<()>();
        let stopped = unless_stopped(move || waits.recv().is_ok(), || Err(Interrupted));
        assert!(stopped.expect_err("it waits for ever").is::<Interrupted>());
        assert!(began.elapsed() < Duration::from_secs(10));
        assert_eq!(unless_stopped(|| 7, || Ok(())).ok(), Some(7));
        assert!(unless_stopped(|| 7, || Err(Interrupted)).is_err(), "the result comes too late");
    }
}
