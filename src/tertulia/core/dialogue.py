"""Messages, turns, personas and dialogues as plain frozen values.

A `Message` is a message of a source (a forum, a chat room) before any processing; a `Dialogue` is a conversation of
`Turn`s, with the personas of its speakers and the evidence it refers to; an `Exchange` is one reply with its context.
They have no database ids and do no I/O; `meta` holds additional data of the source.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Json = Any
"""Any value that JSON can hold."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a source, before any processing."""

    id: str
    author: str
    text: str
    parent: str | None = None
    """Id of the message it replies to; None for the first message of a thread."""
    thread: str | None = None
    time: float | None = None
    """Seconds since 1970 (UTC), if the source has them."""
    meta: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """One utterance of one speaker."""

    speaker: str
    text: str
    source: tuple[str, ...] = ()
    """Ids of the messages it was made from, so that every turn can be traced to its source."""
    meta: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Persona:
    """Who a speaker is, in a few sentences of the first person."""

    sentences: tuple[str, ...]
    revised: tuple[str, ...] = ()
    """Paraphrases of the sentences (Persona-Chat's revised personas), if there are any."""
    id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A passage that a reply may be based on."""

    text: str
    source: str = ""
    id: str = ""


PersonaScope = Literal["none", "own", "their", "both"]
"""Whose persona a bot is shown: its own, its partner's, or both."""


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A conversation: its turns in order, the personas of its speakers, and its evidence."""

    id: str
    turns: tuple[Turn, ...]
    personas: Mapping[str, Persona] = field(default_factory=dict)
    """By speaker; speakers without a persona are not listed."""
    evidence: tuple[Evidence, ...] = ()
    meta: Mapping[str, Json] = field(default_factory=dict)

    @property
    def speakers(self) -> tuple[str, ...]:
        """The speakers, in the order of their first turns."""
        return tuple(dict.fromkeys(turn.speaker for turn in self.turns))

    def with_turns(self, *turns: Turn) -> "Dialogue":
        """The dialogue with these turns appended."""
        return replace(self, turns=self.turns + turns)

    def persona_of(self, speaker: str) -> Persona | None:
        """The speaker's persona, or None."""
        return self.personas.get(speaker)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One reply and its context: the unit of ranking, grounding and rating."""

    id: str
    context: tuple[Turn, ...]
    response: Turn
    persona: Persona | None = None
    """The persona of the speaker who replies."""
    partner: Persona | None = None
    """The persona of the speaker who is replied to."""
    evidence: tuple[Evidence, ...] = ()
    label: str | None = None
    """An annotation of the reply (for grounding: entailment, hallucination, ...), if there is one."""

    @property
    def dialogue(self) -> Dialogue:
        """The context as a dialogue, without the reply."""
        personas = {self.response.speaker: self.persona} if self.persona else {}
        other = next((t.speaker for t in reversed(self.context) if t.speaker != self.response.speaker), None)
        if other is not None and self.partner:
            personas[other] = self.partner
        return Dialogue(id=self.id, turns=self.context, personas=personas, evidence=self.evidence)


def exchanges(dialogue: Dialogue, *, speaker: str | None = None, min_context: int = 1) -> Iterator[Exchange]:
    """Every reply of a dialogue (or of one of its speakers) as an exchange.

    >>> d = Dialogue("d", (Turn("a", "hi"), Turn("b", "hello"), Turn("a", "bye")))
    >>> [(len(e.context), e.response.text) for e in exchanges(d)]
    [(1, 'hello'), (2, 'bye')]
    """
    for i, turn in enumerate(dialogue.turns):
        if i < min_context or (speaker is not None and turn.speaker != speaker):
            continue
        before = dialogue.turns[:i]
        other = next((t.speaker for t in reversed(before) if t.speaker != turn.speaker), "")
        yield Exchange(
            id=f"{dialogue.id}#{i}",
            context=before,
            response=turn,
            persona=dialogue.persona_of(turn.speaker),
            partner=dialogue.persona_of(other),
            evidence=dialogue.evidence,
        )
