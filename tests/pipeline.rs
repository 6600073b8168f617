//! The loop, with engines of known delay in place of networks, and once with the built-in model.
//!
//! What sleeps here stands for work: a network, a decoder, an encoder. Nothing sleeps to wait for something.

#[path = "pipeline/builtin.rs"]
mod builtin;
#[path = "pipeline/embedded.rs"]
mod embedded;
#[path = "pipeline/ends.rs"]
mod ends;
#[path = "pipeline/fakes.rs"]
mod fakes;
#[path = "pipeline/flow.rs"]
mod flow;
#[path = "pipeline/rate.rs"]
mod rate;
