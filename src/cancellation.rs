//! A shared cancellation token.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::threads::locked;
use ocelli_error::{Error, Result};

/// A shared cancellation token: cancelling one clone cancels all of them, for good.
#[derive(Clone, Default)]
pub struct Cancellation(Arc<Token>);

#[derive(Default)]
struct Token {
    cancelled: AtomicBool,
    hooks: Mutex<Vec<Weak<Hook>>>,
    changed: Condvar,
}

type Hook = dyn Fn() + Send + Sync;

/// Keeps what [`Cancellation::on_cancel`] calls.
pub struct CancelHook(#[expect(dead_code, reason = "it lives as long as this")] Arc<Hook>);

impl Cancellation {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels this token and all of its clones.
    pub fn cancel(&self) {
        let hooks = {
            let mut hooks = locked(&self.0.hooks);
            self.0.cancelled.store(true, Ordering::SeqCst);
            std::mem::take(&mut *hooks)
        };
        self.0.changed.notify_all();
        hooks.iter().filter_map(Weak::upgrade).for_each(|wake| wake());
    }

    /// Calls `wake` when the token is cancelled, or now if it is, unless the result is dropped before: for threads and tasks that
    /// wait for something else as well.
    #[must_use = "nothing is called once it is dropped"]
    pub fn on_cancel(&self, wake: impl Fn() + Send + Sync + 'static) -> CancelHook {
        let wake: Arc<Hook> = Arc::new(wake);
        {
            let mut hooks = locked(&self.0.hooks);
            hooks.retain(|hook| hook.strong_count() > 0);
            hooks.push(Arc::downgrade(&wake));
        }
        if self.is_cancelled() {
            wake();
        }
        CancelHook(wake)
    }

    /// Waits for this time, or until the token is cancelled. Whether it is.
    pub fn wait(&self, time: Duration) -> bool {
        let deadline = Instant::now().checked_add(time);
        let mut hooks = locked(&self.0.hooks);
        while !self.is_cancelled() {
            let left = deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            hooks = self.0.changed.wait_timeout(hooks, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Ends work that was cancelled.
    ///
    /// # Errors
    /// [`Cancelled`](ocelli_error::ErrorKind::Cancelled) once any clone was cancelled.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::cancelled("cancelled")) } else { Ok(()) }
    }

    /// As [`check`](Self::check), with the name of the work in the message.
    ///
    /// # Errors
    /// [`Cancelled`](ocelli_error::ErrorKind::Cancelled) once any clone was cancelled.
    pub fn check_for(&self, work: impl Display) -> Result<()> {
        self.check().map_err(|_| Error::cancelled(format!("{work}: cancelled")))
    }

    /// `true` if any clone was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::SeqCst)
    }
}

debug_as!(Cancellation, it => "Cancellation({})", it.is_cancelled());

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn whoever_waits_is_woken() {
        let token = Cancellation::new();
        let calls = Arc::new(AtomicUsize::new(0));
        let hook = |calls: &Arc<AtomicUsize>| {
            let calls = Arc::clone(calls);
            token.on_cancel(move || _ = calls.fetch_add(1, Ordering::SeqCst))
        };
        let (_kept, dropped) = (hook(&calls), hook(&calls));
        drop(dropped);
        assert!(!token.wait(Duration::from_millis(1)));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| token.wait(Duration::MAX));
            token.clone().cancel();
            assert!(waits.join().expect("it does not panic"));
        });
        assert_eq!(calls.load(Ordering::SeqCst), 1, "the one that was kept");
        let _late = hook(&calls);
        assert_eq!(calls.load(Ordering::SeqCst), 2, "it is cancelled already");
        assert!(token.wait(Duration::MAX));
    }
}
