//! Handles: numbers in the form of pointers.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use ocelli::Result;

use crate::status::invalid;

/// The number of the next handle, of any kind. Never used again, so a freed handle is recognised.
static NEXT: AtomicUsize = AtomicUsize::new(0x1000);
/// Between two handles, so that they look like aligned pointers.
const STEP: usize = 16;

/// The open handles `H` of one kind, and what they stand for.
pub(crate) struct Registry<H, T> {
    /// The name of such a handle, for messages.
    what: &'static str,
    open: RwLock<BTreeMap<usize, Arc<T>>>,
    handle: PhantomData<fn() -> H>,
}

impl<H, T> Registry<H, T> {
    pub(crate) const fn new(what: &'static str) -> Self {
        Self { what, open: RwLock::new(BTreeMap::new()), handle: PhantomData }
    }

    /// Opens a handle.
    pub(crate) fn add(&self, value: T) -> *mut H {
        let number = NEXT.fetch_add(STEP, Ordering::Relaxed);
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(value));
        std::ptr::without_provenance_mut(number)
    }

    /// The value behind a handle. It lives on while it is used, if another thread frees the handle.
    ///
    /// # Errors
    /// `InvalidArgument` for a null pointer and for a handle that is not open.
    pub(crate) fn find(&self, handle: *const H) -> Result<Arc<T>> {
        if handle.is_null() {
            return Err(invalid(format!("{} is null: expected an open handle", self.what)));
        }
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&handle.addr()).cloned().ok_or_else(|| self.not_open())
    }

    /// Closes a handle; `None` for a null pointer.
    ///
    /// # Errors
    /// `InvalidArgument` for a handle that is not open.
    pub(crate) fn remove(&self, handle: *mut H) -> Result<Option<Arc<T>>> {
        if handle.is_null() {
            return Ok(None);
        }
        let removed = self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.addr());
        removed.map(Some).ok_or_else(|| self.not_open())
    }

    fn not_open(&self) -> ocelli::Error {
        invalid(format!(
            "{} is not an open handle: it was freed, or is a pointer to something else",
            self.what
        ))
    }
}

impl<H, T> Registry<H, Mutex<T>> {
    /// Works on what an open handle stands for, one caller at a time.
    pub(crate) fn with<R>(&self, handle: *const H, work: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        work(&mut self.find(handle)?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Handle;

    #[test]
    fn a_freed_handle_is_never_open_again() {
        let registry = Registry::<Handle, u32>::new("number");
        let first = registry.add(1);
        let used = registry.find(first).expect("it is open");
        assert_eq!(registry.remove(first).ok().flatten().as_deref(), Some(&1));
        let second = registry.add(2);
        assert_ne!(first, second);
        assert_eq!((*used, registry.find(second).map(|found| *found).ok()), (1, Some(2)));
        for refused in [registry.find(first), registry.find(std::ptr::null())] {
            let message = refused.expect_err("not open").to_string();
            assert!(message.starts_with("number is n"), "{message}");
        }
        assert!(registry.remove(first).is_err());
        assert!(registry.remove(std::ptr::null_mut()).is_ok_and(|removed| removed.is_none()));
    }
}
