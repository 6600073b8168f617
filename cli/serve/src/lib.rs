//! A web page and a REST API for a detector, on one port.
//!
//! A [`Server`] takes a [`Detector`](ocelli::Detector) and a [`ServeConfig`], and serves until a
//! [`Cancellation`](ocelli::Cancellation):
//!
//! ```no_run
//! use ocelli::{Cancellation, Detector};
//! use ocelli_serve::{Bound, ServeConfig};
//!
//! # fn main() -> ocelli::Result<()> {
//! let detector = Detector::builder().with_masks(true).build()?;
//! let server = Bound::new(ServeConfig::default())?.with(detector, vec![]);
//! println!("{}", server.url());
//! server.run(&Cancellation::new())
//! # }
//! ```
//!
//! What requests share, from the engine to the sessions, is the `App` of `state`, which knows no route. The routes stand on it,
//! `api` joins them, and `server` runs them.
//!
//! A request passes the checks of `guard` (host, origin, token), takes one of a limited number of slots, and waits in a
//! queue that serves the clients in turn. Threads decode the images ahead of the threads that own the engines. A client
//! that goes away gives its slot back, and its image is skipped.
//!
//! A video session ([`Bound::with_sessions`]) has a thread and a detector of its own, which requests give work to; a run sends
//! its frames as they are found, and ends when its client goes away.
//!
//! Nothing that a client sends becomes a path. The only addresses that are fetched are images of the
//! [Label Studio](LabelStudio) that the configuration names.

#![forbid(unsafe_code)]

mod api;
mod config;
mod detect;
mod engine;
mod extract;
mod gallery;
mod guard;
mod http;
mod label_studio;
mod live_view;
mod metrics;
mod objects;
mod page;
mod queue;
mod request;
mod server;
mod sessions;
mod state;
mod video;

pub use config::{LabelStudio, ServeConfig, random_token};
pub use http::limits::Limits;
pub use live_view::LiveView;
pub use server::{Bound, Server};
