"""The tokeniser of the built-in model: a small byte-pair vocabulary learnt from names and synonyms.

The steps are those of CLIP (NFC, lower case, `</w>` at the end of a word, start and end tokens); the vocabulary has 497
entries instead of 49408.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from vocabulary import VOCABULARY

CONTEXT = 16
START, END, UNKNOWN = "<|startoftext|>", "<|endoftext|>", "<|unk|>"


SHIPPED = Path(__file__).resolve().parents[2] / "src" / "builtin" / "tokenizer.json"


def load_tokenizer(path: Path = SHIPPED) -> Tokenizer:
    """Loads a tokeniser; by default that of the built-in model, so that new weights use the same tokens."""
    return Tokenizer.from_file(str(path))


def learn_tokenizer() -> Tokenizer:
    """Learns new merges, for a changed vocabulary.

    The trainer breaks ties by hash order: two runs may rank equally frequent pairs differently. So the result
    is saved with the weights trained with it, and never learnt again for them.
    """
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN, end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(
        vocab_size=512, special_tokens=[START, END, UNKNOWN], end_of_word_suffix="</w>",
        initial_alphabet=list("abcdefghijklmnopqrstuvwxyz"), show_progress=False,
    )
    phrases = [phrase for pictogram in VOCABULARY for phrase in pictogram.phrases]
    tokenizer.train_from_iterator(phrases * 3, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A {END}", special_tokens=[(START, 0), (END, 1)])
    tokenizer.enable_truncation(CONTEXT)
    tokenizer.enable_padding(length=CONTEXT, pad_id=1, pad_token=END)
    return tokenizer
