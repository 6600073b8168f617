//! Text prompts to token ids.
//!
//! The vocabulary, the merges and the normalisation of text come from the `tokenizer.json` of the checkpoint. Its settings
//! for truncation and padding are ignored: the model fixes the length of a row.

use ocelli_error::{Error, Result, refuse};

/// The part of a model's configuration that describes rows of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenizerConfig {
    /// Length L of every row: `max_position_embeddings` of the text encoder.
    pub context_length: usize,
    /// The id before every phrase, if `tokenizer.json` adds none.
    pub start_id: Option<i64>,
    /// The id after every phrase, if `tokenizer.json` adds none.
    ///
    /// The file takes precedence because old CLIP configurations have a wrong end id.
    pub end_id: Option<i64>,
    /// The id after the end of a phrase; the end id by default.
    pub padding_id: Option<i64>,
}

impl TokenizerConfig {
    /// Rows of `context_length` ids, with the start and end tokens of `tokenizer.json`.
    pub fn new(context_length: usize) -> Self {
        Self { context_length, start_id: None, end_id: None, padding_id: None }
    }
}

/// The inputs of the text encoder for one phrase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenIds {
    /// Start token, phrase, end token, then padding, by default with end tokens: `[L]`.
    pub ids: Vec<i64>,
    /// 1 = token, 0 = padding: `[L]`.
    pub mask: Vec<i64>,
}

/// Tokenises phrases as CLIP's tokeniser in `transformers` does.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    context_length: usize,
    /// Ids before and after every phrase.
    start: Vec<i64>,
    end: Vec<i64>,
    padding: i64,
}

impl Tokenizer {
    /// Parses a `tokenizer.json` in memory; `name` stands for it in errors.
    ///
    /// # Errors
    /// [`InvalidData`](ocelli_error::ErrorKind::InvalidData) if the bytes are not a tokeniser, or if neither they nor
    /// `config` have an end token;
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the context has no room for a token of the
    /// phrase.
    pub fn from_bytes(bytes: &[u8], name: &str, config: TokenizerConfig) -> Result<Self> {
        let invalid = |why: String| Error::invalid_data(format!("cannot use the tokeniser, {name}: {why}"));
        // The library panics at some texts that are not JSON.
        let json: serde_json::Value = serde_json::from_slice(bytes)
            .map_err(|error| invalid(format!("not a tokenizer.json: {error}")).with_source(error))?;
        let mut inner = tokenizers::Tokenizer::from_bytes(bytes)
            .map_err(|error| invalid(format!("not a tokenizer.json: {error}")).with_source(error))?;
        // The library panics where it looks up a special token that the file does not define.
        if let Some(token) = undefined_token(&json["post_processor"]) {
            return Err(invalid(format!("its post_processor does not define the special token {token}")));
        }
        // `encode` cuts and pads rows; some files have these settings and others do not.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|error| invalid(error.to_string()).with_source(error))?;

        let (mut start, mut end) =
            surroundings(&inner).map_err(|error| invalid(error.to_string()).with_source(error))?;
        if start.is_empty() && end.is_empty() {
            start.extend(config.start_id);
            end.extend(config.end_id);
        }
        let Some(&last) = end.last() else {
            let why = "neither its post_processor nor the model's config.json has an end token";
            return Err(invalid(why.into()));
        };
        let padding = config.padding_id.unwrap_or(last);
        let context_length = config.context_length;
        if context_length <= start.len() + end.len() {
            refuse!("tokeniser, {name}: a context of {context_length} tokens has no room for a phrase");
        }
        Ok(Self { inner, context_length, start, end, padding })
    }

    /// Length L of every row.
    pub fn context_length(&self) -> usize {
        self.context_length
    }

    /// The row of one phrase; a long phrase is truncated and keeps its end token.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the phrase is blank or has no characters that
    /// the tokeniser knows.
    pub fn encode(&self, phrase: &str) -> Result<TokenIds> {
        let refuse = |why: &str| Error::invalid_argument(format!("phrase {phrase:?}: {why}"));
        if phrase.trim().is_empty() {
            return Err(refuse("it is blank; expected a word or a short phrase such as \"red apple\""));
        }
        let encoding = self
            .inner
            .encode_fast(phrase, false)
            .map_err(|error| refuse(&format!("the tokeniser failed: {error}")).with_source(error))?;
        if encoding.is_empty() {
            return Err(refuse("it has no characters that the tokeniser knows"));
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

debug_as!(Tokenizer, it => "Tokenizer of {} tokens from {:?} to {:?}", it.context_length, it.start, it.end);

/// A phrase without white space at its ends and with single spaces inside, as the tokeniser normalises it.
pub fn collapse_white_space(phrase: &str) -> String {
    phrase.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The special tokens that the post-processor of the file puts before and after a phrase.
fn surroundings(tokenizer: &tokenizers::Tokenizer) -> tokenizers::Result<(Vec<i64>, Vec<i64>)> {
    let encoding = tokenizer.encode_fast("a", true)?;
    let ids = encoding.get_ids().iter().map(|&id| i64::from(id));
    let special: Vec<bool> = encoding.get_special_tokens_mask().iter().map(|&flag| flag == 1).collect();
    let first = special.iter().position(|flag| !flag).unwrap_or(special.len());
    let last = special.iter().rposition(|flag| !flag).map_or(special.len(), |index| index + 1);
    Ok((ids.clone().take(first).collect(), ids.skip(last).collect()))
}

/// A special token that a template of the post-processor names and does not define.
fn undefined_token(post_processor: &serde_json::Value) -> Option<String> {
    if let Some(steps) = post_processor["processors"].as_array() {
        return steps.iter().find_map(undefined_token);
    }
    let templates = ["single", "pair"].into_iter().filter_map(|name| post_processor[name].as_array());
    let mut tokens = templates.flatten().filter_map(|piece| piece["SpecialToken"]["id"].as_str());
    let defined = &post_processor["special_tokens"];
    tokens.find(|token| defined.get(token).is_none()).map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use ocelli_error::ErrorKind;

    use super::*;

    const BUILTIN: &[u8] = include_bytes!("builtin/tokenizer.json");

    /// The built-in tokeniser after a change of its JSON.
    fn changed(change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
        let mut json = serde_json::from_slice(BUILTIN).expect("the built-in tokeniser is JSON");
        change(&mut json);
        serde_json::to_vec(&json).expect("JSON values can be written")
    }

    #[test]
    fn padding_and_truncation_of_the_file_are_ignored() {
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
                let row = as_shipped.encode(phrase).expect("not blank");
                assert_eq!(other.encode(phrase).expect("not blank"), row, "{name}: {phrase}");
                assert_eq!((row.ids.len(), row.mask.len()), (16, 16));
                assert_eq!((row.ids[0], row.ids[15]), (0, 1), "start and end token");
            }
        }
        let wider =
            Tokenizer::from_bytes(BUILTIN, "wider", TokenizerConfig::new(77)).expect("the file is fine");
        assert_eq!(wider.encode("dog").expect("the phrase has a word").ids.len(), 77);
    }

    #[test]
    fn a_special_token_without_a_definition_is_an_error() {
        let undefined = |json: &mut serde_json::Value| {
            json["post_processor"]["special_tokens"]
                .as_object_mut()
                .expect("it defines its tokens")
                .remove("<|endoftext|>");
        };
        let alone = changed(undefined);
        let nested = changed(|json| {
            undefined(json);
            let step = json["post_processor"].take();
            json["post_processor"] = serde_json::json!({ "type": "Sequence", "processors": [step] });
        });
        for bytes in [alone, nested] {
            let error = Tokenizer::from_bytes(&bytes, "bad.json", TokenizerConfig::new(16))
                .expect_err("the end token is not defined");
            assert_eq!(error.kind(), ErrorKind::InvalidData);
            assert!(error.to_string().contains("special token <|endoftext|>"), "{error}");
        }
    }

    #[test]
    fn ids_of_the_configuration_replace_a_missing_post_processor() {
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
    fn blank_phrases_and_invalid_files_are_errors() {
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

    #[test]
    fn unicode_white_space_is_collapsed() {
        let cases = [
            ("dog", "dog"),
            ("red apple", "red apple"),
            (" red\t\n apple ", "red apple"),
            ("red\u{3000}apple\u{a0}", "red apple"),
            ("red\tapple", "red apple"),
            ("red  apple", "red apple"),
            ("red apple ", "red apple"),
            ("red\u{200b}apple", "red\u{200b}apple"),
            (" ", ""),
            ("", ""),
        ];
        let failed: Vec<_> =
            cases.iter().filter(|(given, expected)| collapse_white_space(given) != *expected).collect();
        assert!(failed.is_empty(), "{failed:?}");
    }
}
