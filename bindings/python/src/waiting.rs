//! Long work on a thread of its own, while the calling thread waits without the GIL and reacts to Ctrl-C.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ocelli::{Cancellation, Error, ErrorKind, cannot_start_thread};
use pyo3::prelude::*;

use crate::error::{OrRaise, exception};
use crate::options::DetectorOptions;

/// The longest time that Ctrl-C waits.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// Waits for an answer without the GIL.
///
/// # Errors
/// The exception of a signal handler, `KeyboardInterrupt` after Ctrl-C, while the work goes on; `Internal` if the work has
/// panicked.
fn wait<R: Send>(py: Python<'_>, mut answer: Receiver<R>) -> Result<R, (PyErr, Option<Receiver<R>>)> {
    loop {
        let (received, back) = py.detach(move || (answer.recv_timeout(POLL), answer));
        answer = back;
        match received {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(signal) = py.check_signals() {
                    return Err((signal, Some(answer)));
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                let error =
                    Error::new(ErrorKind::Internal, "the work has panicked; see the message on stderr");
                return Err((exception(py, &error), None));
            }
        }
    }
}

/// Runs `work` on a thread. Ctrl-C cancels it, and is raised once it has ended.
///
/// # Errors
/// `KeyboardInterrupt`, or `Internal` if the work has panicked.
pub(crate) fn cancellable<R: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&Cancellation) -> R + Send + 'static,
) -> PyResult<R> {
    let cancellation = Cancellation::new();
    let theirs = cancellation.clone();
    let (reply, answer) = channel();
    spawn(py, "ocelli-work", move || drop(reply.send(work(&theirs))))?;
    wait(py, answer).map_err(|(raised, still_running)| {
        if let Some(answer) = still_running {
            cancellation.cancel();
            py.detach(move || drop(answer.recv()));
        }
        raised
    })
}

/// Runs a function of the package, such as `ocelli.label`, with what Python passed to it.
///
/// # Errors
/// As [`cancellable`], and the exception for what `run` returns.
pub(crate) fn job<A: Send + 'static, R: Send + 'static>(
    py: Python<'_>,
    arguments: A,
    detector: DetectorOptions,
    progress: Option<Py<PyAny>>,
    run: fn(&A, &DetectorOptions, Option<&Py<PyAny>>, &Cancellation) -> ocelli::Result<R>,
) -> PyResult<R> {
    let ended =
        cancellable(py, move |cancellation| run(&arguments, &detector, progress.as_ref(), cancellation))?;
    ended.or_raise(py)
}

fn spawn(py: Python<'_>, name: &str, work: impl FnOnce() + Send + 'static) -> PyResult<()> {
    let started = std::thread::Builder::new().name(name.into()).spawn(work);
    started.map(drop).map_err(|failure| exception(py, &cannot_start_thread(failure)))
}

type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

/// A thread that owns a state and does one job after the other with it.
pub(crate) struct Worker<S> {
    jobs: Mutex<Sender<Job<S>>>,
}

impl<S: Send + 'static> Worker<S> {
    /// Starts the thread, which ends when the worker is dropped and its last job is done.
    ///
    /// # Errors
    /// `Io` if there is no thread to be had.
    pub(crate) fn start(py: Python<'_>, mut state: S) -> PyResult<Self> {
        let (jobs, queue) = channel::<Job<S>>();
        spawn(py, "ocelli-detector", move || queue.into_iter().for_each(|job| job(&mut state)))?;
        Ok(Self { jobs: Mutex::new(jobs) })
    }

    /// Does a job and waits for its result. Jobs of several threads are done one after the other.
    ///
    /// After Ctrl-C the call returns at once. A job that has started is finished on the worker's thread, and its result
    /// dropped; one that waits is not started.
    ///
    /// # Errors
    /// `KeyboardInterrupt`, or `Internal` if this job or one before it has panicked.
    pub(crate) fn call<R: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut S) -> R + Send + 'static,
    ) -> PyResult<R> {
        let (reply, answer) = channel();
        let abandoned = Arc::new(AtomicBool::new(false));
        let is_abandoned = abandoned.clone();
        let job: Job<S> = Box::new(move |state| {
            if !is_abandoned.load(Ordering::SeqCst) {
                drop(reply.send(work(state)));
            }
        });
        // A thread that has ended drops the job, which `wait` reports.
        drop(self.jobs.lock().unwrap_or_else(PoisonError::into_inner).send(job));
        wait(py, answer).map_err(|(raised, _)| {
            abandoned.store(true, Ordering::SeqCst);
            raised
        })
    }
}
