"""Teachers: what others make of a text, as numbers, for models to learn from (`tertulia.models.ei`).

A teacher is any function from n texts to (n, k) numbers: of emotion, shares that sum to 1; of semantics, a vector. Two
tables have them by name; what stands behind a colon is the row's own business (`hf:NAME_OR_FOLDER`), and a row's target
is a function of that. Plugins add rows through `tertulia.emotion_teachers` and `tertulia.semantics_teachers`.

The built-in teacher of emotion is a word list written for this project: free to use, quick, needs nothing, and knows
no more than its words. Well-known lists were left out: NRC's may not be used commercially, and VADER's and AFINN's have
no emotions, only how pleasant a word is. For anything finer, name a classifier (`hf:`).
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tertulia.core.errors import ConfigError, UsageError
from tertulia.core.registry import Registry
from tertulia.core.text import words

Teacher = Callable[[Sequence[str]], NDArray[Any]]
"""What somebody makes of n texts: (n, k)."""

EMOTION = Registry("teacher of emotion", "tertulia.emotion_teachers")
EMOTION.add("lexicon", "tertulia.models.teachers:lexicon", "nine emotions and none, by a word list; needs nothing")
EMOTION.add("hf", "tertulia.models.teachers:classifier", "a Hugging Face text classifier, by hub name or folder")

SEMANTICS = Registry("teacher of semantics", "tertulia.semantics_teachers")
SEMANTICS.add("minilm", "tertulia.models.teachers:minilm", "all-MiniLM-L6-v2, 384 numbers")
SEMANTICS.add("hf", "tertulia.models.teachers:encoder", "a Hugging Face sentence encoder, by hub name or folder")

LEXICON = {
    "joy": """happy happier happiest happily happiness glad joy joyful cheerful delighted delightful pleased pleasure
        enjoy enjoyed enjoying enjoys fun great awesome amazing wonderful fantastic excellent perfect brilliant superb
        terrific yay hooray woohoo excited exciting thrilled cool nice good lucky proud celebrate celebrated celebrating
        beautiful lovely smile smiling best sweet relaxing relaxed hope hopeful""",
    "love": """love loved loves loving lover adore adored adores adorable cuddle cuddles cuddly cute darling dear
        dearest hug hugs kiss kisses beloved affection affectionate fond caring cherish heart sweetheart honey
        romantic tender crush""",
    "amusement": """funny funnier funniest hilarious joke jokes joking kidding laugh laughed laughing laughs laughter
        giggle giggled giggling lol lmao rofl silly comedy comical amusing amused ridiculous witty prank pun puns""",
    "gratitude": """thank thanks thankful thankfully grateful gratefully gratitude appreciate appreciated appreciates
        appreciation cheers thx ty indebted kindness generous helpful""",
    "surprise": """wow whoa omg gosh surprise surprised surprising surprisingly unexpected unexpectedly unbelievable
        incredible astonished astonishing amazed shocked shocking suddenly stunned
        speechless""",
    "sadness": """sad sadder saddest sadly sadness unhappy depressed depressing depression cry cried cries crying tears
        lonely alone loneliness grief grieve grieving mourn mourning heartbroken heartbreaking miserable hopeless
        disappointed disappointing disappointment sorry regret regrets died death dead funeral gloomy upset hurt
        hurts pain painful unfortunately unfortunate exhausted""",
    "anger": """angry angrier angrily anger mad furious rage raging annoyed annoying annoys irritated irritating hate
        hated hates hating outraged outrageous pissed damn hell stupid idiot idiots unfair rude liar lying blame
        frustrated frustrating frustration jerk fight fighting yell yelled yelling resent insult insulted""",
    "fear": """afraid scared scare scares scary fear fears fearful terrified terrifying terror horror frightened
        frightening nervous anxious anxiety worry worried worries worrying panic panicked dread dreading creepy spooky
        threat threatening danger dangerous nightmare nightmares phobia stress stressed stressful""",
    "disgust": """disgust disgusted disgusting gross nasty yuck yucky ew eww ewww ugh sickening vomit puke filthy
        smelly stink stinks stinky revolting awful horrible terrible rotten creep vile worst""",
}
"""Words by the emotion that they mostly speak of."""
EMOTIONS = (*LEXICON, "neutral")
"""What the shares of `lexicon` are of, in this order."""
NEUTRAL = 1.0
"""What speaks for no emotion before a word is read: as much as one word does for its own."""
DOUBT = 0.05
"""What speaks for each emotion before a word is read."""
NEGATED = 3
"""Words after a negation that say nothing: "not happy", "not very happy"."""
_PLACE = {word: i for i, listed in enumerate(LEXICON.values()) for word in listed.split()}
_LAUGHTER = re.compile(r"a?(?:h[aei]){2,}h?|l+o+l+(?:o+l+)*|ha")
_NEGATIONS = frozenset("not no never nor neither without cannot cant dont hardly".split())
_SIGNS = {
    "joy": re.compile(r"[:;=]-?[)\]D]|[😀😃😄😊🙂🎉]"),
    "love": re.compile(r"<3|[❤😍😘🥰]"),
    "amusement": re.compile(r"[xX]D|[😂🤣😆]"),
    "gratitude": re.compile(r"🙏"),
    "surprise": re.compile(r"[:=]-?[oO](?!\w)|[😮😲]|\b(?i:really|seriously|no way) ?[?!]"),
    "sadness": re.compile(r"[:=]'?-?[(\[]|[😢😭😞🙁]"),
    "anger": re.compile(r"[😠😡🤬]"),
    "fear": re.compile(r"[😨😱]"),
    "disgust": re.compile(r"[🤢🤮]"),
}


def make_teacher(table: Registry, spec: str) -> Teacher:
    """The teacher that a name, or a name and something behind a colon, stands for."""
    name, _, target = spec.partition(":")
    made: Teacher = table.get(name)(target)
    return made


def size_of(teacher: Teacher) -> int:
    """How many numbers a teacher has for a text."""
    return int(np.asarray(teacher(["hello"])).shape[1])


def remembering(teacher: Teacher, most: int | None = None) -> Teacher:
    """The same teacher, asked once for each text: training comes to the same texts in each epoch.

    Of more than `most` texts, those that it was asked first are forgotten.
    """
    known: dict[str, NDArray[np.float16]] = {}

    def ask(texts: Sequence[str]) -> NDArray[np.float32]:
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            # Half precision: half the memory, and finer than any teacher is sure of.
            known.update(zip(new, np.asarray(teacher(new)).astype(np.float16), strict=True))
        found = np.stack([known[text] for text in texts]).astype(np.float32)
        for text in list(known)[: 0 if most is None else max(0, len(known) - most)]:
            del known[text]
        return found

    return ask


def lexicon(target: str) -> Teacher:
    """The built-in teacher of emotion."""
    _nothing(target, "lexicon")
    return lambda texts: np.array([shares(text) for text in texts], dtype=np.float32).reshape(-1, len(EMOTIONS))


def shares(text: str) -> list[float]:
    """How much speaks for each of `EMOTIONS`, in sum 1.

    >>> [EMOTIONS[max(range(10), key=shares(text).__getitem__)] for text in ("So happy, what fun!", "Not happy.")]
    ['joy', 'neutral']
    """
    counts = [DOUBT] * len(LEXICON) + [NEUTRAL]
    silent = 0
    for word in words(text):
        silent = NEGATED if word in _NEGATIONS or word.endswith("n't") else silent - 1
        if silent < 0 and (place := _placed(word)) is not None:
            counts[place] += 1
    for place, emotion in enumerate(LEXICON):
        counts[place] += len(_SIGNS[emotion].findall(text))
    return [count / sum(counts) for count in counts]


def _placed(word: str) -> int | None:
    return EMOTIONS.index("amusement") if _LAUGHTER.fullmatch(word) else _PLACE.get(word)


def classifier(target: str) -> Teacher:
    """A text classifier as a teacher of emotion; scores of labels that do not exclude each other become shares."""
    from tertulia.models.text_classifier import TextClassifier  # transformers takes seconds to import

    model = TextClassifier.load(_something(target, "hf:NAME_OR_FOLDER"))
    if len(model.labels) < 2:
        raise ConfigError(f"The classifier {target} has one label: it tells no emotions apart.")

    def ask(texts: Sequence[str]) -> NDArray[np.float32]:
        rows = [[found[label] for label in model.labels] for found in model.probabilities(texts)]
        scores = np.array(rows, dtype=np.float32).reshape(-1, len(model.labels))
        return np.asarray(scores / np.maximum(scores.sum(1, keepdims=True), 1e-9), dtype=np.float32)

    return ask


def minilm(target: str) -> Teacher:
    """The default teacher of semantics."""
    _nothing(target, "minilm")
    return _encoder("minilm")


def encoder(target: str) -> Teacher:
    """Any sentence encoder as a teacher of semantics."""
    return _encoder(_something(target, "hf:NAME_OR_FOLDER"))


def _encoder(name: str) -> Teacher:
    from tertulia.models.sentence_encoder import SentenceEncoder  # transformers takes seconds to import

    return SentenceEncoder.load(name).eval().encode


def _nothing(target: str, name: str) -> None:
    if target:
        raise UsageError(f"The teacher {name!r} takes nothing behind its name, not {target!r}.")


def _something(target: str, wanted: str) -> str:
    if not target:
        raise UsageError("A teacher from Hugging Face needs a name.", hint=f"Write {wanted}.")
    return target
