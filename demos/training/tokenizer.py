"""The words the built-in model can read: a small byte-pair vocabulary learnt from the names and synonyms.

The steps are CLIP's (NFC, lower case, `</w>` at the end of a word, start and end tokens), the vocabulary is not:
497 entries in place of 49408.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from vocabulary import VOCABULARY

CONTEXT = 16
START, END, UNKNOWN = "<|startoftext|>", "<|endoftext|>", "<|unk|>"


SHIPPED = Path(__file__).resolve().parents[2] / "src" / "builtin" / "tokenizer.json"


def load_tokenizer(path: Path = SHIPPED) -> Tokenizer:
    """The tokeniser of a file; by default the built-in model's, so that new weights read the same tokens."""
    return Tokenizer.from_file(str(path))


def learn_tokenizer() -> Tokenizer:
    """Learns the merges anew, for a changed vocabulary.

    The trainer breaks ties by hash order: two runs may rank equally frequent pairs differently. The result is
    therefore saved beside the weights that were trained with it, and never learnt again for them.
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
