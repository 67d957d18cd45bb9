"""Metrics of whole conversations: the eleven of Ghandeharioun et al. (2019), and how long the conversations are.

They are about the *judged* turns of a conversation. In a chat with a person those are the bot's; in self-play of a bot
with itself they are all turns, and each speaker is the other's user. A turn that is judged is a *reply* to the turn
before it (U/B, or B/B in self-play); the turn after it is the *user's next utterance*. So the definitions are the same
for both, and nothing but `judged` says which of them it is. Consecutive turns of one speaker are expected as one.

The value of a conversation is the mean over its turns (or pairs of turns) that have a value, and nan if none has one:

- user's next utterance: sentiment, sentiment transition (next minus previous user turn), laughter, words elicited;
- user turn and reply: sentiment coherence, semantic coherence, word coherence (average, extrema, greedy);
- reply: question score;
- sentiment min-max is the slope between the lowest and the highest sentiment of the user's turns.

The released code of the paper counts "ha" in "that" and "what" as laughter. "laughter" counts laughter; "laughter
(literal)" follows the released code.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tertulia.core.text import words
from tertulia.metrics.embeddings import Similarity, TextPairs, WordVectors, pair_similarities
from tertulia.metrics.metric import ConversationExample, Floats, Metric

Ints = NDArray[np.int64]
TextVectors = Callable[[Sequence[str]], NDArray[Any]]
"""From n texts to an array (n, d)."""
PAPER = "Ghandeharioun et al. 2019"
MAX_LAUGHS, MAX_WORDS_ELICITED = 4, 30
"""More in one utterance do not count."""
QUESTION_WORDS = frozenset("who what why where how when".split())
CONVERSATION_METRICS: tuple[str, ...] = (
    "sentiment",
    "sentiment coherence",
    "sentiment transition",
    "sentiment min-max",
    "laughter",
    "words elicited",
    "semantic coherence",
    "word coherence average",
    "word coherence extrema",
    "word coherence greedy",
    "question score",
)
"""The eleven of the paper."""


@dataclass(frozen=True, slots=True)
class EmotionModel:
    """Which emotions a text expresses, and how pleasant each of them is."""

    labels: tuple[str, ...]
    valence: tuple[float, ...]
    """From -1 (unpleasant) to 1, one per label."""
    probabilities: TextVectors
    """From n texts to (n, labels); rows sum to 1."""

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.valence):
            raise ValueError(f"{len(self.labels)} labels, but {len(self.valence)} valences")

    def sentiment(self, texts: Sequence[str]) -> Floats:
        """The expected valence of each text."""
        probabilities = np.asarray(self.probabilities(texts), dtype=np.float64)  # (texts, labels)
        return np.asarray(probabilities @ np.array(self.valence), dtype=np.float64)


class TurnTable(NamedTuple):
    """The turns of many conversations, one after another."""

    texts: list[str]
    owner: Ints
    """The index of each turn's conversation."""
    judged: NDArray[np.bool_]
    conversations: int

    @classmethod
    def of(cls, batch: Sequence[ConversationExample]) -> "TurnTable":
        """From conversations; `judged` must have an entry per turn."""
        for one in batch:
            if len(one.turns) != len(one.judged):
                raise ValueError(f"{len(one.turns)} turns, but {len(one.judged)} entries of `judged`")
        lengths = [len(one.turns) for one in batch]
        return cls(
            [text for one in batch for text in one.turns],
            np.repeat(np.arange(len(batch), dtype=np.int64), lengths),
            np.array([flag for one in batch for flag in one.judged], dtype=np.bool_),
            len(batch),
        )

    @property
    def has_previous(self) -> NDArray[np.bool_]:
        """Whether a turn is preceded by another of the same conversation."""
        return np.concatenate([[False], self.owner[1:] == self.owner[:-1]])[: len(self.owner)]

    @property
    def replies(self) -> Ints:
        """Judged turns that are preceded by another turn."""
        return np.flatnonzero(self.judged & self.has_previous)

    @property
    def next_utterances(self) -> Ints:
        """Turns that follow a judged one."""
        return np.flatnonzero(self.has_previous & np.roll(self.judged, 1))

    @property
    def partner_turns(self) -> Ints:
        """Turns before or after a judged one: all those of the other speaker, and in self-play of both."""
        return np.union1d(self.replies - 1, self.next_utterances)

    @property
    def pairs(self) -> TextPairs:
        """Each reply with the turn before it."""
        return TextPairs(self.texts, self.replies - 1, self.replies)

    def means(self, turns: Ints, values: Floats) -> Floats:
        """The mean value by conversation; nan where there is none."""
        valid = ~np.isnan(values)
        owner = self.owner[turns[valid]]
        totals = np.bincount(owner, values[valid], minlength=self.conversations)
        counts = np.bincount(owner, minlength=self.conversations)
        return np.asarray(np.where(counts > 0, totals / np.maximum(counts, 1), np.nan), dtype=np.float64)


def sentiment(batch: Sequence[ConversationExample], *, emotions: EmotionModel) -> Floats:
    """The sentiment of the user's next utterances."""
    table = TurnTable.of(batch)
    turns = table.next_utterances
    return table.means(turns, emotions.sentiment([table.texts[i] for i in turns]))


def sentiment_transition(batch: Sequence[ConversationExample], *, emotions: EmotionModel) -> Floats:
    """The sentiment after a reply minus that before it."""
    table = TurnTable.of(batch)
    replies = table.replies
    replies = replies[np.isin(replies + 1, table.next_utterances)]
    values = _sentiments(table, emotions)
    return table.means(replies, values[replies + 1] - values[replies - 1])


def sentiment_min_max(batch: Sequence[ConversationExample], *, emotions: EmotionModel) -> Floats:
    """(max - min) / (index of max - index of min) over the user's turns; 0 where that is not finite.

    >>> table = {"good": 1.0, "ok": 0.0, "bad": -1.0}
    >>> model = EmotionModel(("valence",), (1.0,), lambda texts: np.array([[table.get(text, 0.0)] for text in texts]))
    >>> chat = ConversationExample(("bad", "B", "ok", "B", "good"), (False, True, False, True, False))
    >>> sentiment_min_max([chat], emotions=model).tolist()
    [1.0]
    """
    table = TurnTable.of(batch)
    turns = table.partner_turns
    sentiments = _sentiments(table, emotions)[turns]
    values = np.full(table.conversations, np.nan)
    owners, starts = np.unique(table.owner[turns], return_index=True)
    parts = np.split(sentiments, starts[1:]) if len(owners) else []
    for owner, own in zip(owners.tolist(), parts, strict=True):
        high, low = int(own.argmax()), int(own.argmin())
        values[owner] = (own[high] - own[low]) / (high - low) if high != low else 0.0
    return values


def sentiment_coherence(batch: Sequence[ConversationExample], *, emotions: EmotionModel) -> Floats:
    """The cosine of the emotions of user turn and reply."""
    return _coherence(batch, emotions.probabilities)


def semantic_coherence(batch: Sequence[ConversationExample], *, sentences: TextVectors) -> Floats:
    """The cosine of the sentence vectors of user turn and reply."""
    return _coherence(batch, sentences)


def word_coherence(
    batch: Sequence[ConversationExample], *, word_vectors: WordVectors, similarity: Similarity
) -> Floats:
    """The similarity of the word vectors of user turn and reply."""
    table = TurnTable.of(batch)
    return table.means(table.replies, pair_similarities(table.pairs, word_vectors, similarity))


def laughter(batch: Sequence[ConversationExample], *, count: Callable[[str], int]) -> Floats:
    """Laughs in the user's next utterances, at most `MAX_LAUGHS` in each."""
    return _of_next(batch, lambda text: min(count(text), MAX_LAUGHS))


def words_elicited(batch: Sequence[ConversationExample]) -> Floats:
    """Words of the user's next utterances, at most `MAX_WORDS_ELICITED` in each.

    >>> words_elicited([ConversationExample(("Hi!", "Hello, you?", "I am fine"), (False, True, False))]).tolist()
    [3.0]
    """
    return _of_next(batch, lambda text: min(len(words(text)), MAX_WORDS_ELICITED))


def question_score(batch: Sequence[ConversationExample]) -> Floats:
    """Half a point for a question mark in a reply, half a point for a question word.

    >>> question_score([ConversationExample(("Hi!", "What's new?"), (False, True))]).tolist()
    [1.0]
    """
    return _of_judged(batch, _question_points)


def turns(batch: Sequence[ConversationExample]) -> list[int]:
    """Turns of all speakers."""
    return [len(one.turns) for one in batch]


def words_per_turn(batch: Sequence[ConversationExample]) -> Floats:
    """Words of the judged turns."""
    return _of_judged(batch, lambda text: len(words(text)))


def count_laughs(text: str) -> int:
    """Laughs: syllables of "haha" and its kind, and words, emoji and letters that stand for laughter.

    >>> [count_laughs(text) for text in ("That is what I have", "Haha! Ha.", "lol 😂", "哈哈哈, jaja", "hahahahaha")]
    [0, 3, 2, 5, 5]
    """
    lower = text.lower()
    syllables = sum(len(_SYLLABLE.findall(laugh)) for laugh in _LAUGH.findall(lower))
    return syllables + len(_LAUGH_WORD.findall(lower)) + sum(map(len, _LAUGH_LETTERS.findall(lower)))


def count_ha(text: str) -> int:
    """How often the letters "ha" occur, in "that" too: the rule of the paper's released code.

    >>> count_ha("That is what I have")
    3
    """
    return text.lower().count("ha")


# Possessive quantifiers keep these linear.
_LAUGH = re.compile(r"(?<![^\W_])(?:[bm]?w?a?(?:[hjх]++[aeiаеи]++){2,}+[hjх]*+|ha|ха)(?![^\W_])")
_SYLLABLE = re.compile(r"[hjх]++[aeiаеи]")
_LAUGH_WORD = re.compile(
    r"(?<![^\W_])(?:l++o++l++(?:o++l++)*+z?|lmf?ao++|rofl(?:mao)?|lulz?|heh)(?![^\W_])|[😂🤣😆😹😄😁]"
)
_LAUGH_LETTERS = re.compile(r"[哈ㅋㅎ]{2,}+")


def _question_points(text: str) -> float:
    mark = 0.5 if any(sign in text for sign in "?？؟") else 0.0
    return mark + (0.5 if any(word.partition("'")[0] in QUESTION_WORDS for word in words(text)) else 0.0)


def _sentiments(table: TurnTable, emotions: EmotionModel) -> Floats:
    return emotions.sentiment(table.texts) if table.texts else np.zeros(0)


def _coherence(batch: Sequence[ConversationExample], vectors_of: TextVectors) -> Floats:
    """The mean cosine of the vectors of user turn and reply; a blank turn has none."""
    table = TurnTable.of(batch)
    replies = table.replies
    blank = np.array([not text or text.isspace() for text in table.texts], dtype=np.bool_)
    replies = replies[~(blank[replies] | blank[replies - 1])] if len(replies) else replies
    if not len(replies):
        return np.full(table.conversations, np.nan)
    before, after = (np.asarray(vectors_of([table.texts[i] for i in side])) for side in (replies - 1, replies))
    sizes = np.linalg.norm(before.astype(np.float64), axis=1) * np.linalg.norm(after.astype(np.float64), axis=1)
    products = np.einsum("ij,ij->i", before, after, dtype=np.float64)
    return table.means(replies, products / np.where(sizes > 0, sizes, 1.0))


def _of_next(batch: Sequence[ConversationExample], value: Callable[[str], float]) -> Floats:
    table = TurnTable.of(batch)
    turns = table.next_utterances
    return table.means(turns, np.array([value(table.texts[i]) for i in turns], dtype=np.float64))


def _of_judged(batch: Sequence[ConversationExample], value: Callable[[str], float]) -> Floats:
    table = TurnTable.of(batch)
    turns = np.flatnonzero(table.judged)
    return table.means(turns, np.array([value(table.texts[i]) for i in turns], dtype=np.float64))


def _metric(
    name: str,
    summary: str,
    compute: Callable[..., Any],
    *needs: str,
    citation: str = PAPER,
    higher_is_better: bool | None = None,
) -> Metric:
    return Metric(name, "conversation", "mean", summary, citation, higher_is_better, compute=compute, needs=needs)


SENTIMENT = _metric(
    "sentiment", "sentiment of the user's next utterances", sentiment, "emotions", higher_is_better=True
)
SENTIMENT_COHERENCE = _metric(
    "sentiment coherence", "cosine of the emotions of user turn and reply", sentiment_coherence, "emotions"
)
SENTIMENT_TRANSITION = _metric(
    "sentiment transition",
    "change of the user's sentiment over a reply",
    sentiment_transition,
    "emotions",
    higher_is_better=True,
)
SENTIMENT_MIN_MAX = _metric(
    "sentiment min-max",
    "slope between the user's lowest and highest sentiment",
    sentiment_min_max,
    "emotions",
    higher_is_better=True,
)
LAUGHTER = _metric(
    "laughter", "laughs in the user's next utterances", partial(laughter, count=count_laughs), higher_is_better=True
)
LAUGHTER_LITERAL = _metric(
    "laughter (literal)",
    "letters \"ha\" in the user's next utterances, as the paper's code counts",
    partial(laughter, count=count_ha),
)
WORDS_ELICITED = _metric("words elicited", "words of the user's next utterances", words_elicited, higher_is_better=True)
SEMANTIC_COHERENCE = _metric(
    "semantic coherence", "cosine of the sentence vectors of user turn and reply", semantic_coherence, "sentences"
)
WORD_COHERENCE_AVERAGE = _metric(
    "word coherence average",
    "cosine of the mean word vectors of user turn and reply",
    partial(word_coherence, similarity="average"),
    "word_vectors",
)
WORD_COHERENCE_EXTREMA = _metric(
    "word coherence extrema",
    "cosine of the extreme values of the word vectors of user turn and reply",
    partial(word_coherence, similarity="extrema"),
    "word_vectors",
)
WORD_COHERENCE_GREEDY = _metric(
    "word coherence greedy",
    "mean best cosine between words of user turn and reply",
    partial(word_coherence, similarity="greedy"),
    "word_vectors",
)
QUESTION_SCORE = _metric("question score", "half for a question mark, half for a question word", question_score)
TURNS = _metric("turns", "turns of a conversation, of all speakers", turns, citation="")
WORDS_PER_TURN = _metric("words per turn", "words of the judged turns", words_per_turn, citation="")
