//! Tests stop a run at any write, as `kill -9` or a full disk would.

use std::io;

/// Called before every change of the output folder.
#[cfg(not(test))]
pub(super) fn before_write() -> io::Result<()> {
    Ok(())
}

/// Called before every hard link.
#[cfg(not(test))]
pub(super) fn before_hard_link() -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
thread_local! {
    /// Whether hard links are refused, as between two file systems.
    pub(super) static REFUSES_HARD_LINKS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    /// Writes until the run stops. Once stopped, nothing more is written until this is set again.
    pub(super) static WRITES_LEFT: std::cell::Cell<u64> = const { std::cell::Cell::new(u64::MAX) };
}

#[cfg(test)]
pub(super) fn before_hard_link() -> io::Result<()> {
    if REFUSES_HARD_LINKS.get() { Err(io::ErrorKind::CrossesDevices.into()) } else { Ok(()) }
}

#[cfg(test)]
pub(super) fn before_write() -> io::Result<()> {
    WRITES_LEFT.with(|left| match left.get() {
        0 => Err(io::Error::other("stopped by the test")),
        u64::MAX => Ok(()),
        some => {
            left.set(some - 1);
            Ok(())
        }
    })
}
