//! Ocelli in a web page: the detector, the tracker and the tokeniser, as WebAssembly.
//!
//! `index.js` and `index.d.ts` are what a page imports. Values cross as JSON, pixels as bytes: RGBA, as canvases have them.

#![forbid(unsafe_code)]

mod detector;
mod files;
mod tokenizer;
mod tracker;

use wasm_bindgen::prelude::*;

pub use detector::Detector;
pub use tokenizer::Tokenizer;
pub use tracker::Tracker;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = console, js_name = error)]
    fn console_error(text: &str);
}

/// Shows where the program panicked: WebAssembly itself says `unreachable` only.
#[wasm_bindgen(start)]
pub fn start() {
    std::panic::set_hook(Box::new(|panic| console_error(&panic.to_string())));
}

/// The version of the library.
#[wasm_bindgen]
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// The names that the built-in model knows, as a JSON list.
#[wasm_bindgen]
pub fn vocabulary() -> Result<String, JsError> {
    to_json(ocelli::builtin::vocabulary())
}

fn js_error(error: impl std::fmt::Display) -> JsError {
    JsError::new(&error.to_string())
}

fn to_json(value: &(impl serde::Serialize + ?Sized)) -> Result<String, JsError> {
    serde_json::to_string(value).map_err(js_error)
}

fn from_json<'j, T: serde::Deserialize<'j>>(what: &str, json: &'j str) -> Result<T, JsError> {
    serde_json::from_str(json).map_err(|error| JsError::new(&format!("{what}: {error}")))
}

/// `#rrggbb`
fn hex([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}
