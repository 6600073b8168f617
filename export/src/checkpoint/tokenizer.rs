//! The tokeniser of a checkpoint: `tokenizer.json`, or the merges of CLIP, from which it is written.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::contract::file;
use crate::errors::invalid;
use ocelli_error::{Error, Result};

/// The name under which CLIP's merges circulate.
const MERGES: &str = "bpe_simple_vocab_16e6.txt.gz";
/// Words of CLIP's vocabulary: bytes twice, merges, start and end.
const VOCABULARY: usize = 49408;
const START: &str = "<|startoftext|>";
const END: &str = "<|endoftext|>";
/// The merges are 3 MB; more than this is refused.
const MAX_MERGES_BYTES: u64 = 16 << 20;

/// The tokeniser beside a checkpoint, if there is one.
pub(super) fn beside(folder: &Path) -> Option<PathBuf> {
    [file::TOKENIZER, MERGES].into_iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

/// The error for a checkpoint without one.
pub(super) fn missing(folder: &Path) -> Error {
    invalid(format!(
        "tokenizer.json is missing, {}: put tokenizer.json of a SAM3 folder or CLIP's {MERGES} there, or name the \
         file as tokenizer",
        folder.display()
    )).about("tokenizer")
}

/// The content of a `tokenizer.json`, read or written from merges.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    let data = std::fs::read(path).map_err(|e| Error::io("cannot read the tokeniser", path, e))?;
    if data.trim_ascii_start().first() == Some(&b'{') {
        return Ok(data);
    }
    let wrong = |why: &str| {
        invalid(format!(
            "not a tokeniser, {}: {why}; expected tokenizer.json or CLIP's {MERGES}",
            path.display()
        ))
    };
    let text = if data.starts_with(&[0x1f, 0x8b]) {
        let mut text = String::new();
        flate2::read::GzDecoder::new(&data[..])
            .take(MAX_MERGES_BYTES)
            .read_to_string(&mut text)
            .map_err(|e| wrong(&e.to_string()))?;
        text
    } else {
        String::from_utf8(data).map_err(|_| wrong("it is neither JSON nor text"))?
    };
    let json = from_merges(&text).map_err(|why| wrong(&why))?;
    Ok(serde_json::to_vec(&json).expect("a tokeniser is plain data"))
}

/// The ids of the start and the end of a phrase, and the size of the vocabulary.
pub(super) fn special_ids(json: &[u8]) -> Option<(i64, i64, usize)> {
    let json: Value = serde_json::from_slice(json).ok()?;
    let vocabulary = json.pointer("/model/vocab")?.as_object()?;
    let added = json.get("added_tokens").and_then(Value::as_array);
    let id = |word: &str| {
        let token = added?.iter().find(|token| token.get("content").and_then(Value::as_str) == Some(word));
        token.and_then(|token| token.get("id")).or_else(|| vocabulary.get(word)).and_then(Value::as_i64)
    };
    let largest = vocabulary.values().filter_map(Value::as_u64).max()?;
    Some((id(START)?, id(END)?, usize::try_from(largest).ok()? + 1))
}

/// CLIP's `tokenizer.json` from its list of merges.
fn from_merges(text: &str) -> Result<Value, String> {
    let letters = byte_letters();
    let count = VOCABULARY - 2 * letters.len() - 2;
    // The first line is a title; the file has more merges than the vocabulary.
    let merges: Vec<[&str; 2]> = text
        .lines()
        .skip(1)
        .take(count)
        .map(|line| line.split_once(' ').map(|(a, b)| [a, b.trim_end()]).ok_or("a line is no pair of words"))
        .collect::<Result<_, _>>()?;
    if merges.len() < count {
        return Err(format!("it has {} merges, and CLIP {count}", merges.len()));
    }
    let mut words: Vec<String> = letters.iter().map(char::to_string).collect();
    words.extend(letters.iter().map(|letter| format!("{letter}</w>")));
    words.extend(merges.iter().map(|pair| pair.concat()));
    words.extend([START, END].map(str::to_owned));
    let vocab: serde_json::Map<String, Value> =
        words.iter().enumerate().map(|(id, word)| (word.clone(), id.into())).collect();
    if vocab.len() != VOCABULARY {
        let mut seen = HashSet::new();
        let twice = words.iter().find(|word| !seen.insert(*word)).cloned().unwrap_or_default();
        return Err(format!("{twice:?} is there twice"));
    }
    let ids: HashMap<&str, usize> = [(START, VOCABULARY - 2), (END, VOCABULARY - 1)].into();
    let special = |word: &str| {
        json!({
            "id": ids[word], "content": word, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        })
    };
    let pattern =
        r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+";
    let byte_level = |prefix: bool| json!({"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": true});
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [special(START), special(END)],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFC"},
            {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
            {"type": "Lowercase"},
        ]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": true},
            byte_level(false),
        ]},
        "post_processor": {
            "type": "RobertaProcessing", "sep": [END, ids[END]], "cls": [START, ids[START]],
            "trim_offsets": false, "add_prefix_space": false,
        },
        "decoder": byte_level(true),
        "model": {
            "type": "BPE", "dropout": null, "unk_token": END, "continuing_subword_prefix": "",
            "end_of_word_suffix": "</w>", "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": merges,
        },
    }))
}

/// GPT-2's letter for each byte, in the order of CLIP's vocabulary: printable ones stand for themselves.
fn byte_letters() -> Vec<char> {
    let plain: Vec<u32> = (0x21..=0x7E).chain(0xA1..=0xAC).chain(0xAE..=0xFF).collect();
    let others = (0..=0xFF).filter(|byte| !plain.contains(byte)).count() as u32;
    let letters = plain.iter().copied().chain(256..256 + others);
    letters.map(|code| char::from_u32(code).expect("all are letters")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_become_clips_vocabulary() {
        let merge = |i: usize| format!("w{i} x\n");
        let lines = |count: usize| (0..count).map(merge).collect::<String>();
        let json = from_merges(&format!("title\n{}", lines(50_000))).expect("enough merges");
        let bytes = serde_json::to_vec(&json).expect("plain data");
        assert_eq!(special_ids(&bytes), Some((49_406, 49_407, 49_408)));
        let vocab = &json["model"]["vocab"];
        for (word, id) in [("!", 0), ("~", 93), ("!</w>", 256), ("w0x", 512), ("w48893x", 49_405)] {
            assert_eq!(vocab[word], id, "{word}");
        }
        for (text, why) in [
            ("title\na b\n".to_owned(), "1 merges"),
            (format!("title\nlonely\n{}", lines(50_000)), "no pair"),
            (format!("title\nw0 x\n{}", lines(50_000)), "twice"),
        ] {
            assert!(from_merges(&text).is_err_and(|e| e.contains(why)), "{why}");
        }
    }
}
