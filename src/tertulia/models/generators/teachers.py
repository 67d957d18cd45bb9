"""Teachers: functions from texts to vectors, from which models learn (`tertulia.models.generators.ei`).

A teacher maps n texts to (n, k) numbers: for emotion, probabilities that sum to 1; for semantics, a vector. Two
registries have them by name; what follows a colon is an argument of the row (`hf:NAME_OR_FOLDER`), whose target is a
function of that argument. Plugins add rows through `tertulia.emotion_teachers` and `tertulia.semantics_teachers`.

The built-in emotion teacher is a word list written for this project: free to use, fast, without dependencies, and
limited to its words. Well-known lists were not an option: NRC's may not be used commercially, and VADER's and AFINN's
have no emotions, only how pleasant a word is. For anything finer, name a classifier (`hf:`).
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tertulia.core.errors import ConfigError, UsageError
from tertulia.core.registry import Registry
from tertulia.core.text import words

TextTeacher = Callable[[Sequence[str]], NDArray[Any]]
"""Maps n texts to an array (n, k)."""

EMOTION = Registry("emotion teacher", "tertulia.emotion_teachers")
EMOTION.add(
    "lexicon", "tertulia.models.generators.teachers:lexicon", "nine emotions and neutral, by a built-in word list"
)
EMOTION.add(
    "hf", "tertulia.models.generators.teachers:classifier", "a Hugging Face text classifier, by hub name or folder"
)

SEMANTICS = Registry("semantics teacher", "tertulia.semantics_teachers")
SEMANTICS.add("minilm", "tertulia.models.generators.teachers:minilm", "all-MiniLM-L6-v2, 384 dimensions")
SEMANTICS.add(
    "hf", "tertulia.models.generators.teachers:encoder", "a Hugging Face sentence encoder, by hub name or folder"
)

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
"""Words by the emotion that they mostly express."""
EMOTIONS = (*LEXICON, "neutral")
"""The emotions of `lexicon`'s probabilities, in this order."""
NEUTRAL = 1.0
"""Prior count of neutral: as much as one word adds to its emotion."""
SMOOTHING = 0.05
"""Prior count of each emotion: no probability is zero."""
NEGATION_SPAN = 3
"""Words after a negation that are ignored: "not happy", "not very happy"."""
_EMOTION_INDEX = {word: i for i, listed in enumerate(LEXICON.values()) for word in listed.split()}
_LAUGHTER = re.compile(r"a?(?:h[aei]){2,}h?|l+o+l+(?:o+l+)*|ha")
_NEGATIONS = frozenset("not no never nor neither without cannot cant dont hardly".split())
_PATTERNS = {
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


def make_teacher(registry: Registry, spec: str) -> TextTeacher:
    """The teacher of a specification: a name, or a name and an argument after a colon."""
    name, _, argument = spec.partition(":")
    teacher: TextTeacher = registry.get(name)(argument)
    return teacher


def output_size(teacher: TextTeacher) -> int:
    """How many numbers a teacher returns per text."""
    return int(np.asarray(teacher(["hello"])).shape[1])


def cached(teacher: TextTeacher, max_size: int | None = None) -> TextTeacher:
    """The same teacher, called once for each text: training sees the same texts in each epoch.

    Beyond `max_size` texts, the oldest are removed from the cache.
    """
    cache: dict[str, NDArray[np.float16]] = {}

    def outputs(texts: Sequence[str]) -> NDArray[np.float32]:
        new = [text for text in dict.fromkeys(texts) if text not in cache]
        if new:
            # Half precision: half the memory, and finer than any teacher is certain.
            cache.update(zip(new, np.asarray(teacher(new)).astype(np.float16), strict=True))
        rows = np.stack([cache[text] for text in texts]).astype(np.float32)
        for text in list(cache)[: 0 if max_size is None else max(0, len(cache) - max_size)]:
            del cache[text]
        return rows

    return outputs


def lexicon(argument: str) -> TextTeacher:
    """The built-in emotion teacher."""
    _no_argument(argument, "lexicon")
    return lambda texts: np.array([emotions(text) for text in texts], dtype=np.float32).reshape(-1, len(EMOTIONS))


def emotions(text: str) -> list[float]:
    """The probability of each of `EMOTIONS`, from counts of words, emoticons and emojis.

    >>> [EMOTIONS[max(range(10), key=emotions(text).__getitem__)] for text in ("So happy, what fun!", "Not happy.")]
    ['joy', 'neutral']
    """
    counts = [SMOOTHING] * len(LEXICON) + [NEUTRAL]
    negated = 0  # words left in the span of a negation
    for word in words(text):
        negated = NEGATION_SPAN if word in _NEGATIONS or word.endswith("n't") else negated - 1
        if negated < 0 and (emotion := _word_emotion(word)) is not None:
            counts[emotion] += 1
    for i, emotion_name in enumerate(LEXICON):
        counts[i] += len(_PATTERNS[emotion_name].findall(text))
    return [count / sum(counts) for count in counts]


def _word_emotion(word: str) -> int | None:
    return EMOTIONS.index("amusement") if _LAUGHTER.fullmatch(word) else _EMOTION_INDEX.get(word)


def classifier(argument: str) -> TextTeacher:
    """A text classifier as an emotion teacher; scores of multi-label classifiers are normalised."""
    from tertulia.models.classifiers.text_classifier import TextClassifier  # transformers takes seconds to import

    model = TextClassifier.load(_required_argument(argument, "hf:NAME_OR_FOLDER"))
    if len(model.labels) < 2:
        raise ConfigError(
            f"The classifier {argument} has a single label, so it cannot distinguish emotions.",
            hint="Name a classifier with at least two labels.",
        )

    def outputs(texts: Sequence[str]) -> NDArray[np.float32]:
        rows = [[row[label] for label in model.labels] for row in model.probabilities(texts)]
        scores = np.array(rows, dtype=np.float32).reshape(-1, len(model.labels))
        return np.asarray(scores / np.maximum(scores.sum(1, keepdims=True), 1e-9), dtype=np.float32)

    return outputs


def minilm(argument: str) -> TextTeacher:
    """The default semantics teacher."""
    _no_argument(argument, "minilm")
    return _encoder("minilm")


def encoder(argument: str) -> TextTeacher:
    """Any sentence encoder as a semantics teacher."""
    return _encoder(_required_argument(argument, "hf:NAME_OR_FOLDER"))


def _encoder(name: str) -> TextTeacher:
    from tertulia.models.sentence_encoder import SentenceEncoder  # transformers takes seconds to import

    return SentenceEncoder.load(name).eval().encode


def _no_argument(argument: str, name: str) -> None:
    if argument:
        raise UsageError(f"The teacher {name!r} takes no argument, got {argument!r}.", hint=f"Write {name}.")


def _required_argument(argument: str, usage: str) -> str:
    if not argument:
        raise UsageError("A Hugging Face teacher needs a model name or folder.", hint=f"Write {usage}.")
    return argument
