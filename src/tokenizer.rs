//! From a phrase to the token ids that the text encoder reads.
//!
//! The vocabulary, the merges and how text is taken apart come from the `tokenizer.json` beside the checkpoint;
//! how long a row is, what surrounds and what fills it is decided here, whatever that file says about truncation
//! and padding.

use std::path::Path;

use crate::error::{Error, ErrorKind, Result};

/// What a model's configuration says about its token rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenizerConfig {
    /// Length L of every row: `max_position_embeddings` of the text encoder.
    pub context_length: usize,
    /// The id in front of every phrase, where `tokenizer.json` itself adds none.
    pub start_id: Option<i64>,
    /// The id behind every phrase and of the padding, where `tokenizer.json` itself adds none.
    ///
    /// The file goes first because old CLIP configurations carry an end id that was never true.
    pub end_id: Option<i64>,
}

impl TokenizerConfig {
    /// Rows of `context_length` ids, surrounded by what `tokenizer.json` adds to a phrase.
    pub fn new(context_length: usize) -> Self {
        Self { context_length, start_id: None, end_id: None }
    }
}

/// One phrase as the text encoder takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenIds {
    /// Start token, the phrase, end token, then end tokens to the end of the row: `[L]`.
    pub ids: Vec<i64>,
    /// 1 = token, 0 = padding: `[L]`.
    pub mask: Vec<i64>,
}

/// Takes phrases apart the way CLIP's tokeniser in `transformers` does.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    context_length: usize,
    /// Ids in front of and behind every phrase.
    start: Vec<i64>,
    end: Vec<i64>,
    /// Fills the row behind the end token: the end token again.
    padding: i64,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// `Io` when the file cannot be read, else as [`from_bytes`](Self::from_bytes); the file is named.
    pub fn from_file(path: impl AsRef<Path>, config: TokenizerConfig) -> Result<Self> {
        let path = path.as_ref();
        let bytes =
            std::fs::read(path).map_err(|error| Error::io("cannot read the tokeniser", path, error))?;
        Self::from_bytes(&bytes, &path.display().to_string(), config)
    }

    /// Takes a `tokenizer.json` that is in memory; `name` stands for it in errors.
    ///
    /// # Errors
    /// `InvalidData` when the bytes are no tokeniser or neither they nor `config` say which token ends a phrase;
    /// `InvalidArgument` when the context has no place for a single token of the phrase.
    pub fn from_bytes(bytes: &[u8], name: &str, config: TokenizerConfig) -> Result<Self> {
        let invalid = |why: String| {
            Error::new(
                ErrorKind::InvalidData,
                format!("cannot use the tokeniser, {name}: {}", one_line(&why)),
            )
        };
        let mut inner = tokenizers::Tokenizer::from_bytes(bytes)
            .map_err(|error| invalid(format!("it is no tokenizer.json: {error}")).with_source(error))?;
        // Rows are cut and filled below. Both settings are in some files and not in others.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|error| invalid(error.to_string()).with_source(error))?;

        let (mut start, mut end) =
            surroundings(&inner).map_err(|error| invalid(error.to_string()).with_source(error))?;
        if start.is_empty() && end.is_empty() {
            start.extend(config.start_id);
            end.extend(config.end_id);
        }
        let Some(&padding) = end.last() else {
            let why = "neither its post_processor nor the model's config.json says which token ends a phrase";
            return Err(invalid(why.into()));
        };
        let context_length = config.context_length;
        if context_length <= start.len() + end.len() {
            let message =
                format!("tokeniser, {name}: a context of {context_length} tokens has no place for a phrase");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        Ok(Self { inner, context_length, start, end, padding })
    }

    /// Length L of every row.
    pub fn context_length(&self) -> usize {
        self.context_length
    }

    /// The largest id that a row can hold; the text encoder's vocabulary must reach it.
    pub fn largest_id(&self) -> i64 {
        let known = self.inner.get_vocab(true).into_values().max().map_or(0, i64::from);
        self.start.iter().chain(&self.end).copied().fold(known, i64::max)
    }

    /// The row of one phrase. An over-long phrase is truncated and keeps its end token.
    ///
    /// # Errors
    /// `InvalidArgument` when the phrase is empty, blank, or holds nothing the tokeniser keeps.
    pub fn encode(&self, phrase: &str) -> Result<TokenIds> {
        let refuse = |why: &str| Error::new(ErrorKind::InvalidArgument, format!("phrase {phrase:?}: {why}"));
        if phrase.trim().is_empty() {
            return Err(refuse("it is empty; name what to look for, such as \"red apple\""));
        }
        let encoding = self.inner.encode_fast(phrase, false).map_err(|error| {
            refuse(&format!("the tokeniser failed: {}", one_line(&error.to_string()))).with_source(error)
        })?;
        if encoding.is_empty() {
            return Err(refuse("it holds nothing that the tokeniser keeps"));
        }
        let room = self.context_length - self.start.len() - self.end.len();
        let mut ids = Vec::with_capacity(self.context_length);
        ids.extend_from_slice(&self.start);
        ids.extend(encoding.get_ids().iter().take(room).map(|&id| i64::from(id)));
        ids.extend_from_slice(&self.end);
        let mut mask = vec![1; ids.len()];
        ids.resize(self.context_length, self.padding);
        mask.resize(self.context_length, 0);
        Ok(TokenIds { ids, mask })
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("context_length", &self.context_length)
            .field("start", &self.start)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

/// The special tokens that the file's post-processor puts in front of and behind a phrase.
fn surroundings(tokenizer: &tokenizers::Tokenizer) -> tokenizers::Result<(Vec<i64>, Vec<i64>)> {
    let encoding = tokenizer.encode_fast("a", true)?;
    let ids = encoding.get_ids().iter().map(|&id| i64::from(id));
    let special: Vec<bool> = encoding.get_special_tokens_mask().iter().map(|&flag| flag == 1).collect();
    let first = special.iter().position(|flag| !flag).unwrap_or(special.len());
    let last = special.iter().rposition(|flag| !flag).map_or(special.len(), |index| index + 1);
    Ok((ids.clone().take(first).collect(), ids.skip(last).collect()))
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILTIN: &[u8] = include_bytes!("builtin/tokenizer.json");

    /// The built-in tokeniser after a change of its JSON.
    fn changed(change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
        let mut json = serde_json::from_slice(BUILTIN).expect("the built-in tokeniser is JSON");
        change(&mut json);
        serde_json::to_vec(&json).expect("JSON values can be written")
    }

    #[test]
    fn what_the_file_says_of_padding_and_truncation_does_not_matter() {
        let config = TokenizerConfig::new(16);
        let as_shipped = Tokenizer::from_bytes(BUILTIN, "shipped", config).expect("the file is fine");
        let without = changed(|json| {
            json["padding"] = serde_json::Value::Null;
            json["truncation"] = serde_json::Value::Null;
        });
        let shorter = changed(|json| {
            json["padding"]["strategy"]["Fixed"] = 5.into();
            json["padding"]["direction"] = "Left".into();
            json["padding"]["pad_id"] = 2.into();
            json["truncation"]["max_length"] = 4.into();
        });
        for (name, bytes) in [("without", without), ("shorter", shorter)] {
            let other = Tokenizer::from_bytes(&bytes, name, config).expect("the file is fine");
            for phrase in ["dog", "a red traffic light and a very long story about giraffes"] {
                let row = as_shipped.encode(phrase).expect("the phrase has words");
                assert_eq!(other.encode(phrase).expect("the phrase has words"), row, "{name}: {phrase}");
                assert_eq!((row.ids.len(), row.mask.len()), (16, 16));
                assert_eq!((row.ids[0], row.ids[15]), (0, 1), "start and end token");
            }
        }
        let wider =
            Tokenizer::from_bytes(BUILTIN, "wider", TokenizerConfig::new(77)).expect("the file is fine");
        assert_eq!(wider.encode("dog").expect("the phrase has a word").ids.len(), 77);
        assert_eq!(as_shipped.largest_id(), 496);
    }

    #[test]
    fn ids_of_the_configuration_stand_in_for_a_missing_post_processor() {
        let bytes = changed(|json| json["post_processor"] = serde_json::Value::Null);
        let error =
            Tokenizer::from_bytes(&bytes, "bare.json", TokenizerConfig::new(16)).expect_err("no end token");
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.to_string().contains("bare.json"), "{error}");

        let config = TokenizerConfig { start_id: Some(0), end_id: Some(1), ..TokenizerConfig::new(16) };
        let bare = Tokenizer::from_bytes(&bytes, "bare.json", config).expect("the configuration has the ids");
        let wrong = TokenizerConfig { start_id: Some(7), end_id: Some(9), ..config };
        let shipped = Tokenizer::from_bytes(BUILTIN, "shipped", wrong).expect("the file goes first");
        assert_eq!(bare.encode("dog").expect("a word"), shipped.encode("dog").expect("a word"));
    }

    #[test]
    fn phrases_without_words_and_bad_files_are_refused() {
        let tokenizer =
            Tokenizer::from_bytes(BUILTIN, "shipped", TokenizerConfig::new(16)).expect("the file is fine");
        for phrase in ["", " ", "\t\r\n", "\u{3000}\u{a0}\u{2003}"] {
            let error = tokenizer.encode(phrase).expect_err("the phrase is blank");
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().starts_with(&format!("phrase {phrase:?}: ")), "{error}");
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
        }
        for bytes in [b"".as_slice(), b"{}", b"no json", &BUILTIN[..BUILTIN.len() / 2]] {
            let error = Tokenizer::from_bytes(bytes, "bad.json", TokenizerConfig::new(16))
                .expect_err("not a tokeniser");
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
            assert!(
                error.to_string().contains("bad.json") && error.to_string().lines().count() == 1,
                "{error}"
            );
        }
        for context_length in [0, 1, 2] {
            let error = Tokenizer::from_bytes(BUILTIN, "shipped", TokenizerConfig::new(context_length))
                .expect_err("no place for a phrase");
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        }
    }
}
