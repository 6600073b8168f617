"""The 80 things the built-in model knows: a name, the pictogram that is drawn, and other words for it.

The first name of an entry is COCO's where a pictogram fits a COCO category. The order is part of the checkpoint's
evaluation files (category ids count from 1 in this order), so entries are only ever appended.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pictogram:
    """One thing: its name, the character that draws it, and its synonyms."""

    name: str
    character: str
    synonyms: tuple[str, ...]

    @property
    def phrases(self) -> tuple[str, ...]:
        """The name first, then the synonyms."""
        return (self.name, *self.synonyms)


VOCABULARY: tuple[Pictogram, ...] = (
    Pictogram("person", "🧍", ("pedestrian", "human")),
    Pictogram("bicycle", "🚲", ("bike",)),
    Pictogram("car", "🚗", ("automobile",)),
    Pictogram("motorcycle", "🏍", ("motorbike",)),
    Pictogram("airplane", "✈", ("plane", "aircraft")),
    Pictogram("bus", "🚌", ("coach",)),
    Pictogram("train", "🚆", ("locomotive",)),
    Pictogram("truck", "🚚", ("lorry",)),
    Pictogram("boat", "⛵", ("sailboat",)),
    Pictogram("traffic light", "🚦", ("stoplight",)),
    Pictogram("fire hydrant", "🧯", ("fire extinguisher",)),
    Pictogram("stop sign", "🛑", ("octagonal sign",)),
    Pictogram("bird", "🐦", ()),
    Pictogram("cat", "🐈", ("kitty",)),
    Pictogram("dog", "🐕", ("puppy",)),
    Pictogram("horse", "🐎", ("pony",)),
    Pictogram("sheep", "🐑", ("lamb",)),
    Pictogram("cow", "🐄", ("cattle",)),
    Pictogram("elephant", "🐘", ()),
    Pictogram("bear", "🐻", ()),
    Pictogram("zebra", "🦓", ()),
    Pictogram("giraffe", "🦒", ()),
    Pictogram("backpack", "🎒", ("school bag",)),
    Pictogram("umbrella", "☂", ("parasol",)),
    Pictogram("handbag", "👜", ("purse",)),
    Pictogram("tie", "👔", ("necktie",)),
    Pictogram("suitcase", "🧳", ("luggage",)),
    Pictogram("frisbee", "🥏", ("flying disc",)),
    Pictogram("skis", "🎿", ()),
    Pictogram("sports ball", "⚽", ("ball", "football")),
    Pictogram("kite", "🪁", ()),
    Pictogram("skateboard", "🛹", ()),
    Pictogram("tennis racket", "🎾", ("tennis ball",)),
    Pictogram("bottle", "🍾", ("champagne bottle",)),
    Pictogram("wine glass", "🍷", ("glass of wine",)),
    Pictogram("cup", "☕", ("coffee", "mug")),
    Pictogram("fork", "🍴", ("cutlery",)),
    Pictogram("knife", "🔪", ()),
    Pictogram("spoon", "🥄", ()),
    Pictogram("bowl", "🥣", ()),
    Pictogram("banana", "🍌", ()),
    Pictogram("apple", "🍎", ("red apple",)),
    Pictogram("sandwich", "🥪", ()),
    Pictogram("orange", "🍊", ("tangerine",)),
    Pictogram("broccoli", "🥦", ()),
    Pictogram("carrot", "🥕", ()),
    Pictogram("hot dog", "🌭", ()),
    Pictogram("pizza", "🍕", ("slice of pizza",)),
    Pictogram("donut", "🍩", ("doughnut",)),
    Pictogram("cake", "🎂", ("birthday cake",)),
    Pictogram("chair", "🪑", ("seat",)),
    Pictogram("couch", "🛋", ("sofa",)),
    Pictogram("potted plant", "🪴", ("houseplant",)),
    Pictogram("bed", "🛏", ()),
    Pictogram("toilet", "🚽", ()),
    Pictogram("tv", "📺", ("television",)),
    Pictogram("laptop", "💻", ("computer",)),
    Pictogram("mouse", "🖱", ("computer mouse",)),
    Pictogram("keyboard", "⌨", ()),
    Pictogram("cell phone", "📱", ("mobile phone", "smartphone")),
    Pictogram("book", "📕", ()),
    Pictogram("clock", "🕐", ()),
    Pictogram("vase", "🏺", ("amphora",)),
    Pictogram("scissors", "✂", ()),
    Pictogram("teddy bear", "🧸", ()),
    Pictogram("toothbrush", "🪥", ()),
    Pictogram("snowboard", "🏂", ("snowboarder",)),
    Pictogram("tree", "🌲", ("evergreen",)),
    Pictogram("house", "🏠", ("home",)),
    Pictogram("robot", "🤖", ()),
    Pictogram("rocket", "🚀", ("spaceship",)),
    Pictogram("star", "⭐", ()),
    Pictogram("heart", "❤", ()),
    Pictogram("moon", "🌙", ("crescent",)),
    Pictogram("flower", "🌻", ("sunflower",)),
    Pictogram("fish", "🐟", ()),
    Pictogram("turtle", "🐢", ("tortoise",)),
    Pictogram("butterfly", "🦋", ()),
    Pictogram("hammer", "🔨", ("tool",)),
    Pictogram("key", "🔑", ()),
)

NAMES: tuple[str, ...] = tuple(pictogram.name for pictogram in VOCABULARY)
