"""What retrieval bots share: personas and evidence as they are shown them, and checks against repeating the
conversation."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.reply import Ask, Candidate
from tertulia.core.text import sentences, words

SAID = "already used in this conversation"
REPEAT = "too similar to one of its earlier turns"
ECHO = "repeats the message it answers"
EVIDENCE_SOURCE = "evidence"
"""The source of a candidate from a passage that names none."""
MAX_EVIDENCE_SENTENCES = 200
"""Sentences of evidence that can be candidates."""
ECHO_MIN_WORDS = 4
"""Shorter messages cannot be echoed: a greeting is a good reply to a greeting."""


def persona_sentences(ask: Ask) -> tuple[str, ...]:
    """The sentences of every persona that the ask shows to the bot, its own first.

    >>> from tertulia.core.dialogue import Dialogue, Persona
    >>> shown = {"ana": Persona(("I bake.",)), "bot": Persona(("I sail.", "I sing."))}
    >>> persona_sentences(Ask(Dialogue("d", (), shown), "bot"))
    ('I sail.', 'I sing.', 'I bake.')
    """
    personas = ask.dialogue.personas
    own = [persona for speaker, persona in personas.items() if speaker == ask.speaker]
    others = [persona for speaker, persona in personas.items() if speaker != ask.speaker]
    return tuple(sentence for persona in (*own, *others) for sentence in persona.sentences)


def evidence_candidates(ask: Ask) -> list[Candidate]:
    """The sentences of the evidence as candidates without scores, each once; their source is that of their passage.

    >>> from tertulia.core.dialogue import Dialogue, Evidence
    >>> ask = Ask(Dialogue("d", (), evidence=(Evidence("It is round. It is grey.", "moon.txt"),)))
    >>> [(one.text, one.source) for one in evidence_candidates(ask)]
    [('It is round.', 'moon.txt'), ('It is grey.', 'moon.txt')]
    """
    candidates: dict[str, Candidate] = {}
    for passage in ask.dialogue.evidence:
        for sentence in sentences(passage.text):
            candidates.setdefault(sentence, Candidate(sentence, source=passage.source or EVIDENCE_SOURCE))
    return list(candidates.values())[:MAX_EVIDENCE_SENTENCES]


@lru_cache(maxsize=50_000)  # a conversation's turns are compared again for each of its messages
def text_key(text: str) -> str:
    """A key that is equal for texts that differ only in case, white space and punctuation."""
    return " ".join(words(text)) or text


@dataclass(slots=True, eq=False)
class UsedTexts:
    """What a conversation has used up."""

    keys: set[str] = field(default_factory=set)
    """The text keys of its turns."""
    rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """The rows of a bot's index that lead to one of them."""


class SaidTexts:
    """What recent conversations have used up, so that a long one is not gone through for every message.

    A conversation goes on where it was if it begins with the same turns; those that are the same objects are compared
    in no time. What is kept only saves work: the turns alone say what was used. Thread-safe.

    >>> from tertulia.core.dialogue import Dialogue, Turn
    >>> said, first = SaidTexts(), Turn("ana", "Hi!")
    >>> sorted(said.of(Dialogue("d", (first,))).keys)
    ['hi']
    >>> sorted(said.of(Dialogue("d", (first, Turn("bot", "Hello.")))).keys)
    ['hello', 'hi']
    """

    def __init__(
        self, rows_by_key: Mapping[str, Sequence[int]] | None = None, *, max_conversations: int = 1000
    ) -> None:
        self._rows_by_key = rows_by_key or {}
        self._max = max_conversations
        self._kept: OrderedDict[str, tuple[tuple[Turn, ...], UsedTexts]] = OrderedDict()
        self._lock = Lock()

    def of(self, dialogue: Dialogue) -> UsedTexts:
        """What all turns have used up; it grows with the conversation."""
        turns = dialogue.turns
        with self._lock:
            before, said = self._kept.pop(dialogue.id, ((), None))
            count = len(before)
            # The last one differs most often.
            if said is None or turns[count - 1 : count] != before[-1:] or turns[:count] != before:
                said, count = UsedTexts(), 0
            rows: list[int] = []
            for turn in turns[count:]:
                if (key := text_key(turn.text)) not in said.keys:
                    said.keys.add(key)
                    rows += self._rows_by_key.get(key, ())
            if rows:
                said.rows = np.concatenate([said.rows, rows])
            self._kept[dialogue.id] = turns, said
            if len(self._kept) > self._max:
                self._kept.popitem(last=False)
            return said


def overlap(one: Iterable[str], other: Iterable[str]) -> float:
    """Dice coefficient of the sets of words of two texts: 1 for the same words, 0 for none in common.

    >>> overlap(words("I love my dogs"), words("I love my two dogs"))
    0.8888888888888888
    """
    return _dice_coefficient(frozenset(one), frozenset(other))


def _dice_coefficient(left: frozenset[str], right: frozenset[str]) -> float:
    return 2 * len(left & right) / (len(left) + len(right)) if left and right else 0.0


@dataclass(frozen=True, slots=True)
class RepetitionCheck:
    """Checks a reply against what the conversation already contains."""

    keys: frozenset[str]
    """The text keys of all turns."""
    own: tuple[frozenset[str], ...]
    """The words of each of the speaker's own turns."""
    last: frozenset[str] = frozenset()
    """The words of the message to reply to."""

    @classmethod
    def of(cls, ask: Ask) -> "RepetitionCheck":
        """From the dialogue of an ask."""
        turns = ask.dialogue.turns
        own = tuple(frozenset(words(turn.text)) for turn in turns if turn.speaker == ask.speaker)
        last = turns[-1] if turns and turns[-1].speaker != ask.speaker else None
        last_words = frozenset(words(last.text)) if last else frozenset()
        return cls(frozenset(text_key(turn.text) for turn in turns), own, last_words)

    def reason(self, text: str, *, repeat_overlap: float = 1.0, echo: float = 1.0) -> str | None:
        """The reason not to reply with a text, or None."""
        if text_key(text) in self.keys:
            return SAID
        its_words = frozenset(words(text))
        if len(self.last) >= ECHO_MIN_WORDS and len(self.last.intersection(its_words)) >= echo * len(self.last):
            return ECHO
        return REPEAT if any(_dice_coefficient(its_words, turn) >= repeat_overlap for turn in self.own) else None
