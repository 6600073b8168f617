//! The C library: `ocelli.h` is made from this crate, and `ocelli.hpp` wraps it for C++17.
//!
//! A C program has handles: of a detector, of prompts, of results. A handle is a number in the form of a pointer that is
//! never used again, so a function that gets one that was freed returns an error. Functions return a status, and the text
//! of the last error is kept for each thread. No panic leaves the library.
//!
//! Structs begin with their size in bytes, as the caller was compiled: a library that is newer or older than the header
//! finds out which fields there are.
//!
//! | module | what it has |
//! |---|---|
//! | `status` | the status of each function, the last error |
//! | `handle`, `sized`, `text` | what C passes: handles, structs, strings |
//! | `frame`, `image`, `prompts`, `objects` | what a detector gets |
//! | `options`, `detector`, `tracker`, `pipeline`, `session` | what works |
//! | `results` | what they find |
//! | `engines` | TensorRT engines from a model |

#![allow(non_camel_case_types, reason = "the names are those of the C header")]

mod detector;
mod engines;
mod features;
mod frame;
mod handle;
mod image;
mod objects;
mod options;
mod pipeline;
mod prompts;
mod results;
mod session;
mod sized;
mod status;
mod text;
mod tracker;
mod version;
