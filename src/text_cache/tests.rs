use std::collections::HashMap;

use ocelli_error::ErrorKind;

use super::*;

fn identity() -> TextCacheIdentity {
    TextCacheIdentity {
        weights_sha256: "ab12".repeat(16),
        text_sha256: "cd34".repeat(16),
        number_format: "fp32".into(),
        context_length: 4,
        width: 3,
    }
}

fn filled(phrases: &[&str]) -> TextCache {
    let mut cache = TextCache::new(identity());
    for (index, phrase) in phrases.iter().enumerate() {
        insert(&mut cache, phrase, index as f32);
    }
    cache
}

fn insert(cache: &mut TextCache, phrase: &str, value: f32) {
    cache.insert(phrase, &[value; 12], &[1, 1, 1, 0]).expect("the lengths are the model's");
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder can be made")
}

/// The names in a folder.
fn listing(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder exists");
    entries.map(|entry| entry.expect("it can be listed").file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn any_phrase_is_saved_and_read() {
    let phrases = [
        "dog",
        "red apple",
        "Red apple",
        "__metadata__",
        "text_features:dog",
        "token_mask:dog",
        "caf\u{e9}",
        "cafe\u{301}",
        "\u{1f600} \"quoted\" \\ / \u{0} \u{7f}",
        "\u{7ea2}\u{82f9}\u{679c}",
    ];
    let folder = folder();
    let path = folder.path().join("words.safetensors");
    filled(&phrases).save(&path).expect("the folder is writable");
    assert_eq!(listing(folder.path()), ["words.safetensors"], "nothing is left beside the file");

    let cache = TextCache::open_or_new(&path, identity()).expect("the file is fine");
    assert_eq!(cache.entries.len(), phrases.len());
    let mut failures = Vec::new();
    for (index, phrase) in phrases.iter().enumerate().rev() {
        match cache.get(phrase) {
            Some(text) if text.features == [index as f32; 12] && text.mask == [1, 1, 1, 0] => {}
            other => failures.push(format!("{phrase:?}: {other:?}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(cache.get("DOG"), None);
}

#[test]
fn entries_of_other_lengths_are_errors() {
    let mut cache = TextCache::new(identity());
    let kind = |result: Result<()>| result.expect_err("each is wrong").kind();
    assert_eq!(kind(cache.insert("dog", &[0.0; 11], &[1; 4])), ErrorKind::Mismatch);
    assert_eq!(kind(cache.insert("dog", &[0.0; 12], &[1; 5])), ErrorKind::Mismatch);
    assert!(cache.entries.is_empty());
}

#[test]
fn entries_saved_by_others_are_kept() {
    let folder = folder();
    let path = folder.path().join("words.safetensors");
    let mut first = TextCache::open_or_new(&path, identity()).expect("a missing file is an empty cache");
    let mut second = first.clone();
    insert(&mut first, "dog", 1.0);
    insert(&mut first, "cat", 1.0);
    insert(&mut second, "cat", 2.0);
    insert(&mut second, "bird", 2.0);
    first.save(&path).expect("the folder is writable");
    second.save(&path).expect("the folder is writable");
    for cache in [second, TextCache::open_or_new(&path, identity()).expect("the file is fine")] {
        assert_eq!(cache.entries.keys().collect::<Vec<_>>(), ["bird", "cat", "dog"]);
        assert_eq!(cache.get("cat").map(|text| text.features[0]), Some(2.0), "the saver's own entry stays");
    }
}

#[test]
fn simultaneous_savers_lose_nothing() {
    let folder = folder();
    let path = folder.path().join("words.safetensors");
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let path = &path;
            scope.spawn(move || {
                for n in 0..5 {
                    filled(&[&format!("phrase {thread} {n}")]).save(path).expect("the folder is writable");
                }
            });
        }
    });
    assert_eq!(TextCache::open_or_new(&path, identity()).expect("the file is fine").entries.len(), 40);
    assert_eq!(listing(folder.path()), ["words.safetensors"]);
}

#[test]
fn caches_of_other_models_are_errors_and_stay_unchanged() {
    let folder = folder();
    let path = folder.path().join("words.safetensors");
    filled(&["dog"]).save(&path).expect("the folder is writable");
    let before = std::fs::read(&path).expect("it was just written");
    let others = [
        (TextCacheIdentity { weights_sha256: "cd34".repeat(16), ..identity() }, "weights_sha256"),
        (TextCacheIdentity { text_sha256: String::new(), ..identity() }, "text_sha256"),
        (TextCacheIdentity { number_format: "fp16,none".into(), ..identity() }, "number_format"),
        (TextCacheIdentity { context_length: 5, ..identity() }, "context_length"),
        (TextCacheIdentity { width: 2, ..identity() }, "width"),
    ];
    for (other, key) in others {
        let opened = TextCache::open_or_new(&path, other.clone()).expect_err("another model");
        let saved = TextCache::new(other.clone()).save(&path).expect_err("another model");
        for error in [opened, saved] {
            assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
            let text = error.to_string();
            assert!(text.contains("words.safetensors") && text.contains(key), "{text}");
            if key == "weights_sha256" {
                assert!(
                    text.contains(&identity().weights_sha256) && text.contains(&other.weights_sha256),
                    "{text}"
                );
            }
        }
    }
    assert_eq!(std::fs::read(&path).expect("it is still there"), before);
}

#[test]
fn errors_name_corrupt_files() {
    let folder = folder();
    let whole = filled(&["dog", "cat"]).to_bytes().expect("the shapes fit");
    let tensor = |name: &str, dtype, shape: Vec<usize>, data: &[u8], format: &str| {
        let view = TensorView::new(dtype, shape, data).expect("the length is right");
        let metadata = HashMap::from([
            ("format".to_owned(), format.to_owned()),
            ("version".to_owned(), VERSION.to_owned()),
            ("weights_sha256".to_owned(), identity().weights_sha256),
            ("text_sha256".to_owned(), identity().text_sha256),
            ("number_format".to_owned(), identity().number_format),
            ("context_length".to_owned(), "4".to_owned()),
            ("width".to_owned(), "3".to_owned()),
        ]);
        safetensors::serialize([(name, view)], Some(metadata)).expect("one tensor can be written")
    };
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty", vec![], "safetensors"),
        ("text", b"these are words, not tensors, and there are many of them".to_vec(), "safetensors"),
        ("torch.save", b"PK\x03\x04 and an archive".to_vec(), "torch.save, as DART writes"),
        ("cut in the header", whole[..40].to_vec(), "safetensors"),
        ("cut in the data", whole[..whole.len() - 1].to_vec(), "safetensors"),
        ("longer", [whole.clone(), vec![0]].concat(), "safetensors"),
        ("another safetensors", tensor("w", Dtype::F32, vec![1], &[0; 4], "pt"), "format"),
        ("unknown tensor", tensor("w", Dtype::F32, vec![1], &[0; 4], FORMAT), "\"w\""),
        ("mask alone", tensor("token_mask:dog", Dtype::I64, vec![4], &[0; 32], FORMAT), "token_mask:dog"),
        ("no mask", tensor("text_features:dog", Dtype::F32, vec![4, 3], &[0; 48], FORMAT), "token_mask:dog"),
        ("wrong shape", tensor("text_features:dog", Dtype::F32, vec![3, 4], &[0; 48], FORMAT), "[4, 3]"),
        ("wrong type", tensor("text_features:dog", Dtype::I32, vec![4, 3], &[0; 48], FORMAT), "I32"),
    ];
    let mut failures = Vec::new();
    for (name, bytes, part) in cases {
        let path = folder.path().join("bad.safetensors");
        std::fs::write(&path, bytes).expect("the folder is writable");
        match TextCache::open_or_new(&path, identity()) {
            Err(error)
                if error.kind() == ErrorKind::InvalidData
                    && error.to_string().contains("bad.safetensors: ")
                    && error.to_string().contains(part)
                    && error.to_string().lines().count() == 1 => {}
            other => failures.push(format!("{name}: {other:?}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));

    let nowhere =
        filled(&["dog"]).save(&folder.path().join("no/such/folder/x")).expect_err("there is no folder");
    assert_eq!(nowhere.kind(), ErrorKind::Io);
    assert!(nowhere.to_string().contains("no/such/folder"), "{nowhere}");
}
