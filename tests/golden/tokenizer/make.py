#!/usr/bin/env python3
"""Expected token ids for phrases of every odd kind: writes expected.json beside this script.

    python3 make.py                        # needs transformers 5.23.0
    python3 make.py --merges-only FOLDER   # the standard library and pip alone: writes FOLDER/tokenizer.json

The ids are what transformers' CLIPTokenizer gives with padding="max_length" and truncation, once for CLIP's real
vocabulary (context 32) and once for the built-in model's tokenizer.json (context 16). CLIP's merges are not kept
here: --merges-only takes them from the open_clip_torch wheel, which pip downloads.
"""

import argparse
import gzip
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
BUILTIN = HERE.parents[2] / "src" / "builtin" / "tokenizer.json"
WHEEL = "open_clip_torch==3.3.0"
MERGES = "open_clip/bpe_simple_vocab_16e6.txt.gz"
CLIP_CONTEXT, BUILTIN_CONTEXT = 32, 16
START, END = "<|startoftext|>", "<|endoftext|>"

PHRASES = [
    "person",
    "red apple",
    "a photo of a cat.",
    "Traffic Light",
    "STOP SIGN",
    "  leading and trailing  ",
    "tab\tand\nnewline\r\nand   many    spaces",
    "vertical\x0btab\x0cform feed\x85next line\xa0no-break\u2003em\u3000ideographic",
    "don't you've they're I'm we'll he'd it's cats'",
    "DON'T IT'S",
    "O\u2019Neill\u2019s",
    "rock'n'roll",
    "2 dogs, 10 cats and 1234567890 birds",
    "3.14 50% $20 #1 A4",
    "caf\u00e9",
    "cafe\u0301",
    "\u00c5ngstr\u00f6m A\u030angstro\u0308m \u212bngstr\u00f6m",
    "\u00fcber stra\u00dfe \u00d1and\u00fa \u00c7a \u00d8re",
    "\u0130stanbul \u0131\u015f\u0131k I\u0307",
    "\u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2 \u03a3\u0391\u03a3",
    "\u041a\u0440\u0430\u0441\u043d\u043e\u0435 \u044f\u0431\u043b\u043e\u043a\u043e",
    "\u7ea2\u82f9\u679c",
    "\u308a\u3093\u3054 \u30ea\u30f3\u30b4 \ud55c\uad6d\uc5b4",
    "\u0633\u064a\u0627\u0631\u0629 \u05db\u05dc\u05d1",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22",
    "\U0001f600",
    "dog \U0001f436 and \U0001f468\u200d\U0001f469\u200d\U0001f467 family",
    "\U0001f1e9\U0001f1ea flag \u2764\ufe0f heart",
    "\u00bd \u00b2 \u2167 \u2460 \u0663",
    "\ufb01re \uff26\uff55\uff4c\uff4c width",
    "snake_case camelCase kebab-case a/b\\c",
    "!!! ??? ... --- (())",
    "control\x00null\x01one\x1besc\x7fdel",
    "separators\x1c\x1d\x1e\x1fbetween",
    "zero\u200bwidth\u200djoin\ufeffmark\u00adsoft",
    "&amp; &lt;b&gt; &#39; &eacute; <br/>",
    "a <|endoftext|> b",
    "<|startoftext|>cat<|endoftext|>",
    "< | endoftext | > <|ENDOFTEXT|>",
    "e\u0301\u0323\u0300 z\u0310\u0301\u0338algo",
    "\U00010348\U0001d518\U0001d52b\U00020000",
    "x" * 300,
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    " ".join(f"word{n}" for n in range(200)),
    " ".join(["the red car"] * 70),
    "a " * 29 + "a",
    "a " * 30 + "a",
    "a " * 13 + "a",
    "a " * 14 + "a",
    "\u00e9" * 40,
    "'",
    "\u200b",
]


def merges_file():
    """The bytes of CLIP's merges, from the wheel."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*pip, "--dest", folder, WHEEL], check=True)
        (wheel,) = pathlib.Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            return gzip.decompress(archive.read(MERGES))


def byte_letters():
    """GPT-2's letter for each byte, in the order of CLIP's vocabulary."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) for byte in plain] + [chr(256 + index) for index in range(len(rest))]


def clip_tokenizer(merges_bytes):
    """tokenizer.json as CLIP's checkpoints ship it, without truncation and padding."""
    lines = merges_bytes.decode("utf-8").split("\n")
    merges = [line.split() for line in lines[1 : 49152 - 256 - 2 + 1]]
    letters = byte_letters()
    words = letters + [letter + "</w>" for letter in letters] + ["".join(pair) for pair in merges] + [START, END]
    vocab = {word: index for index, word in enumerate(words)}

    def special(word):
        flags = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)
        return {"id": vocab[word], "content": word, **flags, "special": True}

    pattern = (
        r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    )
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [special(START), special(END)],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "NFC"},
                {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
                {"type": "Lowercase"},
            ],
        },
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": True},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            ],
        },
        "post_processor": {
            "type": "RobertaProcessing",
            "sep": [END, vocab[END]],
            "cls": [START, vocab[START]],
            "trim_offsets": False,
            "add_prefix_space": False,
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": END,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "</w>",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": merges,
        },
    }


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")


def expected_ids(tokenizer, context):
    """One row of ids a phrase, without the padding, which is the end token throughout."""
    rows = []
    for phrase in PHRASES:
        out = tokenizer(phrase, padding="max_length", truncation=True, max_length=context)
        ids, count = out["input_ids"], sum(out["attention_mask"])
        assert len(ids) == context and out["attention_mask"] == [1] * count + [0] * (context - count)
        assert ids[count:] == [ids[count - 1]] * (context - count)
        rows.append(ids[:count])
    return rows


def write_expected(clip_json):
    import tokenizers
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        write_json(pathlib.Path(folder) / "tokenizer.json", clip_json)
        clip = transformers.CLIPTokenizer.from_pretrained(folder)
        clip_rows = expected_ids(clip, CLIP_CONTEXT)
    builtin = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(BUILTIN), bos_token=START, eos_token=END, pad_token=END, unk_token="<|unk|>"
    )
    builtin_rows = expected_ids(builtin, BUILTIN_CONTEXT)
    document = {
        "made_with": {"transformers": transformers.__version__, "tokenizers": tokenizers.__version__, "merges": WHEEL},
        "clip_context": CLIP_CONTEXT,
        "builtin_context": BUILTIN_CONTEXT,
        "builtin_sha256": hashlib.sha256(BUILTIN.read_bytes()).hexdigest(),
        "cases": [],
    }
    text = json.dumps(document, indent=1)[: -len("]\n}")]
    rows = [
        "  " + json.dumps({"phrase": phrase, "clip": clip_ids, "builtin": builtin_ids})
        for phrase, clip_ids, builtin_ids in zip(PHRASES, clip_rows, builtin_rows, strict=True)
    ]
    (HERE / "expected.json").write_text(text + "\n" + ",\n".join(rows) + "\n ]\n}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--merges-only", metavar="FOLDER", type=pathlib.Path)
    folder = parser.parse_args().merges_only
    merges = merges_file()
    clip_json = clip_tokenizer(merges)
    if folder:
        write_json(folder / "tokenizer.json", clip_json)
        # As it is published: the exporter reads it, too.
        (folder / "bpe_simple_vocab_16e6.txt.gz").write_bytes(gzip.compress(merges))
    else:
        write_expected(clip_json)


if __name__ == "__main__":
    main()
