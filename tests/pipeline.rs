//! The pipeline with fake engines of known delay, and with the built-in model.
//!
//! Sleeping simulates work here: a network, a decoder, an encoder. No test sleeps to wait for something.

mod builtin;
mod devices;
mod ends;
mod fakes;
mod flow;
mod low_memory;
mod pushed;
mod rate;
mod several;
