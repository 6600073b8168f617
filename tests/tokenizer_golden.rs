//! Token ids against `transformers`: the phrases and ids are in `tests/golden/tokenizer`, with their script.

use std::path::{Path, PathBuf};

use ocelli::Prompt;
use ocelli::export::CheckpointOptions;
use ocelli::tokenizer::{TokenIds, Tokenizer, TokenizerConfig};
use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn expected() -> Value {
    let path = root().join("golden/tokenizer/expected.json");
    let bytes = std::fs::read(&path).expect("the expected ids are in the repository");
    serde_json::from_slice(&bytes).expect("the script writes JSON")
}

/// Every phrase's row against the ids under `key`; reports all that differ.
fn compare(tokenizer: &Tokenizer, key: &str) {
    let expected = expected();
    let cases = expected["cases"].as_array().expect("cases are a list");
    assert!(cases.len() >= 40, "only {} cases", cases.len());
    let mut failures = Vec::new();
    for case in cases {
        let phrase = case["phrase"].as_str().expect("a phrase is text");
        let tokens =
            case[key].as_array().expect("ids are a list").iter().map(|id| id.as_i64().expect("an integer"));
        let mut ids: Vec<i64> = tokens.collect();
        let mut mask = vec![1; ids.len()];
        ids.resize(tokenizer.context_length(), *ids.last().expect("a row has an end token"));
        mask.resize(tokenizer.context_length(), 0);
        let expected = TokenIds { ids, mask };
        for phrase in [phrase, Prompt::new(phrase).phrase()] {
            match tokenizer.encode(phrase) {
                Ok(row) if row == expected => {}
                other => failures.push(format!("{phrase:?}\n  expected {expected:?}\n  came     {other:?}")),
            }
        }
    }
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}

fn tokenizer_of(path: &Path, context: usize) -> Tokenizer {
    let bytes =
        std::fs::read(path).expect("a tokenizer.json: tests/golden/tokenizer/make.py writes that of CLIP");
    Tokenizer::from_bytes(&bytes, "tokenizer.json", TokenizerConfig::new(context)).expect("the file is fine")
}

#[test]
fn the_built_in_tokenizer_equals_transformers() {
    let context = expected()["builtin_context"].as_u64().expect("a number") as usize;
    let path = root().join("../src/builtin/tokenizer.json");
    let tokenizer = tokenizer_of(&path, context);
    compare(&tokenizer, "builtin");
}

#[test]
#[ignore = "needs the CLIP merges: run tests/golden/tokenizer/make.py --merges-only target/golden/clip"]
fn clips_tokenizer_equals_transformers() {
    let path = std::env::var_os("OCELLI_CLIP_TOKENIZER")
        .map_or_else(|| root().join("../target/golden/clip/tokenizer.json"), PathBuf::from);
    let context = expected()["clip_context"].as_u64().expect("a number") as usize;
    let tokenizer = tokenizer_of(&path, context);
    assert_eq!(tokenizer.encode("dog").expect("a word").ids.last(), Some(&49_407), "the largest id of CLIP");
    compare(&tokenizer, "clip");
}

#[test]
#[ignore = "needs the CLIP merges: run tests/golden/tokenizer/make.py --merges-only target/golden/clip"]
fn merges_become_clips_tokenizer() {
    let written = std::env::var_os("OCELLI_CLIP_TOKENIZER")
        .map_or_else(|| root().join("../target/golden/clip/tokenizer.json"), PathBuf::from);
    let merges = written.with_file_name("bpe_simple_vocab_16e6.txt.gz");
    let options = CheckpointOptions { tokenizer: Some(merges), ..Default::default() };
    let checkpoint = options.open(&root().join("golden/parity/plain")).expect("the golden is whole");
    let json: Value =
        serde_json::from_slice(&checkpoint.tokenizer_json().expect("CLIP's merges")).expect("JSON");
    let expected = std::fs::read(written).expect("make.py has written the file");
    assert!(json == serde_json::from_slice::<Value>(&expected).expect("JSON"), "the files differ");
}
