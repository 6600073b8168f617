//! The loop, with engines of known delay in place of networks, and once with the built-in model.
//!
//! What sleeps here stands for work: a network, a decoder, an encoder. Nothing sleeps to wait for something.

mod builtin;
mod embedded;
mod ends;
mod fakes;
mod flow;
mod rate;
