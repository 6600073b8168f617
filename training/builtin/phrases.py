"""Text prompts for an object: its name, a synonym, or a short phrase that must not confuse the model."""

from __future__ import annotations

import random

from vocabulary import KNOWN, Pictogram

# Names that only exist in the plural, or have an irregular one.
PLURALS = {
    "person": "people", "human": "humans", "sheep": "sheep", "fish": "fish", "mouse": "mice", "skis": "skis",
    "scissors": "scissors", "cattle": "cattle", "luggage": "luggage", "cutlery": "cutlery", "knife": "knives",
    "broccoli": "broccoli", "coffee": "coffees", "glass of wine": "glasses of wine",
    "slice of pizza": "slices of pizza",
    "headphones": "headphones", "grapes": "grapes", "cherries": "cherries", "glasses": "glasses", "loaf": "loaves",
    "spectacles": "spectacles", "french fries": "french fries", "fries": "fries", "maple leaf": "maple leaves",
    "computer mouse": "computer mice", "medicine": "medicine", "lightning": "lightning", "bread": "bread",
}

# The colours of the pictograms. A wrong colour is never prompted, because it is debatable whether a red apple matches
# "green apple".
COLOURS = {
    "car": "red", "motorcycle": "red", "bus": "yellow", "fire hydrant": "red", "stop sign": "red", "bird": "blue",
    "elephant": "grey", "bear": "brown", "giraffe": "yellow", "backpack": "red", "umbrella": "purple",
    "banana": "yellow",
    "apple": "red", "orange": "orange", "broccoli": "green", "carrot": "orange", "donut": "pink", "couch": "brown",
    "book": "red", "vase": "brown", "teddy bear": "brown", "tree": "green", "star": "yellow", "heart": "red",
    "moon": "yellow", "flower": "yellow", "turtle": "green", "butterfly": "blue", "cow": "brown", "horse": "brown",
    "pumpkin": "orange", "crown": "golden", "gem": "blue", "guitar": "red", "balloon": "red", "cactus": "green",
    "clover": "green", "grapes": "purple", "lemon": "yellow", "pear": "green", "cherries": "red", "strawberry": "red",
    "eggplant": "purple", "corn": "yellow", "cheese": "yellow", "frog": "green", "crab": "red", "snake": "green",
    "sun": "yellow", "fire": "red", "bell": "golden",
}

ONE = ("a {}", "the {}", "one {}", "my {}", "small {}", "big {}", "a small {}", "the big {}", "picture of a {}",
       "a {} here", "every {}", "any {}")
MANY = ("{}", "two {}", "three {}", "some {}", "many {}", "all {}", "the {}", "all the {}", "both {}")


def plural(word: str) -> str:
    """The plural of a name."""
    if word in PLURALS:
        return PLURALS[word]
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "sh", "ch")) else "s")


def phrase_for(rng: random.Random, thing: Pictogram) -> str:
    """Half the time the name; else a synonym, or a name or synonym in a phrase."""
    kind = rng.random()
    if kind < 0.5:
        return thing.name
    word = rng.choice(thing.phrases)
    if kind < 0.75:
        return word
    if kind < 0.8 and thing.name in COLOURS:
        return rng.choice(("{}", "a {}", "the {}")).format(f"{COLOURS[thing.name]} {thing.name}")
    if kind < 0.9:
        return rng.choice(ONE).format(word)
    return rng.choice(MANY).format(plural(word))


def longest_in_tokens(tokenizer) -> int:
    """The length of the longest phrase in tokens, start and end included: the minimum context."""
    tokenizer.no_padding()
    tokenizer.no_truncation()
    phrases = (form.format(word) for thing in KNOWN for name in thing.phrases
               for forms, word in ((ONE, name), (MANY, plural(name))) for form in forms)
    return max(len(tokenizer.encode(phrase).ids) for phrase in phrases)
