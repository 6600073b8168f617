//! Calls without a library.
