"""What bots that choose among given replies share: whom they may know, and what has been said already."""

from collections.abc import Iterable
from dataclasses import dataclass

from tertulia.core.reply import Ask
from tertulia.core.text import words

SAID = "already said in this conversation"
REPEAT = "too like something it has said before"
ECHO = "says again what it answers"
FEW = 3
"""Words that a message must have before a reply can be its echo: a greeting is answered with a greeting."""


def known_sentences(ask: Ask) -> tuple[str, ...]:
    """The sentences of every persona the bot is shown, its own first: who asks decides what it may know.

    >>> from tertulia.core.dialogue import Dialogue, Persona
    >>> shown = {"ana": Persona(("I bake.",)), "bot": Persona(("I sail.", "I sing."))}
    >>> known_sentences(Ask(Dialogue("d", (), shown), "bot"))
    ('I sail.', 'I sing.', 'I bake.')
    """
    personas = ask.dialogue.personas
    own = [persona for speaker, persona in personas.items() if speaker == ask.speaker]
    others = [persona for speaker, persona in personas.items() if speaker != ask.speaker]
    return tuple(sentence for persona in (*own, *others) for sentence in persona.sentences)


def text_key(text: str) -> str:
    """What two texts share that say the same but for case, blanks and punctuation."""
    return " ".join(words(text)) or text


def overlap(one: Iterable[str], other: Iterable[str]) -> float:
    """How many words two texts share, of all the different words they have (Dice): 1 for the same words, 0 for none.

    >>> overlap(words("I love my dogs"), words("I love my two dogs"))
    0.8888888888888888
    """
    left, right = set(one), set(other)
    return 2 * len(left & right) / (len(left) + len(right)) if left and right else 0.0


@dataclass(frozen=True, slots=True)
class Heard:
    """What a conversation has heard, from the side of one of its speakers."""

    keys: frozenset[str]
    own: tuple[frozenset[str], ...]
    """The words of each of the speaker's own turns."""
    last: frozenset[str] = frozenset()
    """The words of the message to be answered."""

    @classmethod
    def by(cls, ask: Ask) -> "Heard":
        """In the dialogue of an ask."""
        turns = ask.dialogue.turns
        own = tuple(frozenset(words(turn.text)) for turn in turns if turn.speaker == ask.speaker)
        last = turns[-1] if turns and turns[-1].speaker != ask.speaker else None
        heard = frozenset(words(last.text)) if last else frozenset()
        return cls(frozenset(text_key(turn.text) for turn in turns), own, heard)

    def against(self, text: str, *, repeat_overlap: float = 1.0, echo: float = 1.0) -> str | None:
        """Why a text is not to be said now; None where nothing speaks against it."""
        if text_key(text) in self.keys:
            return SAID
        found = words(text)
        if len(self.last) > FEW and len(self.last.intersection(found)) >= echo * len(self.last):
            return ECHO
        return REPEAT if any(overlap(found, turn) >= repeat_overlap for turn in self.own) else None
