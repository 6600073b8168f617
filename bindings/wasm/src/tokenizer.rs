//! The tokeniser of a page.

use ocelli::tokenizer::{self, TokenizerConfig};
use wasm_bindgen::prelude::*;

use crate::{js_error, to_json};

/// Text prompts to token ids, as the text encoder reads them.
#[wasm_bindgen]
pub struct Tokenizer(tokenizer::Tokenizer);

#[wasm_bindgen]
impl Tokenizer {
    /// Reads a `tokenizer.json`; rows have `context_length` ids.
    #[wasm_bindgen(constructor)]
    pub fn new(json: &[u8], context_length: usize) -> Result<Self, JsError> {
        let config = TokenizerConfig::new(context_length);
        Ok(Self(tokenizer::Tokenizer::from_bytes(json, "tokenizer.json", config).map_err(js_error)?))
    }

    /// The row of a phrase, `{"ids": […], "mask": […]}`.
    pub fn encode(&self, phrase: &str) -> Result<String, JsError> {
        let row = self.0.encode(phrase).map_err(js_error)?;
        to_json(&serde_json::json!({ "ids": row.ids, "mask": row.mask }))
    }
}
