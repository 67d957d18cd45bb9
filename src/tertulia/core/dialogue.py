"""What people and bots say to each other, as plain frozen values.

A `Message` is a line as it was found in a source (a forum, a chat room); a `Dialogue` is a conversation made of
`Turn`s, with the personas of its speakers and the evidence it talks about; an `Exchange` is one reply with all that
came before it. They carry no ids of any database and do no I/O; `meta` holds what else a source knew.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Json = Any
"""Any value that JSON can hold."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message as found in a source, before anything is made of it."""

    id: str
    author: str
    text: str
    parent: str | None = None
    """Id of the message it answers; None for the one that opens a thread."""
    thread: str | None = None
    time: float | None = None
    """Seconds since 1970, UTC, where the source knows it."""
    meta: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """One utterance of one speaker."""

    speaker: str
    text: str
    source: tuple[str, ...] = ()
    """Ids of the messages it was made from, so that every turn leads back to where it came from."""
    meta: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Persona:
    """Who a speaker is, in a few sentences of the first person."""

    sentences: tuple[str, ...]
    revised: tuple[str, ...] = ()
    """The same person in other words (Persona-Chat's revised personas), where there are any."""
    id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A passage that a reply may lean on."""

    text: str
    source: str = ""
    id: str = ""


Whose = Literal["none", "own", "their", "both"]
"""Whose persona a bot is shown: of the one it speaks for, of the one it answers, or of both."""


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A conversation: its turns in order, who its speakers are, and what they talk about."""

    id: str
    turns: tuple[Turn, ...]
    personas: Mapping[str, Persona] = field(default_factory=dict)
    """By speaker; a speaker without one is just not listed."""
    evidence: tuple[Evidence, ...] = ()
    meta: Mapping[str, Json] = field(default_factory=dict)

    @property
    def speakers(self) -> tuple[str, ...]:
        """The speakers in the order of their first turns."""
        return tuple(dict.fromkeys(turn.speaker for turn in self.turns))

    def said(self, *turns: Turn) -> "Dialogue":
        """The same dialogue with more turns at its end."""
        return replace(self, turns=self.turns + turns)

    def persona_of(self, speaker: str) -> Persona | None:
        """The speaker's persona, or None."""
        return self.personas.get(speaker)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One reply and what it answers: the unit of ranking, grounding and rating."""

    id: str
    context: tuple[Turn, ...]
    response: Turn
    persona: Persona | None = None
    """The persona of the one who replies."""
    partner: Persona | None = None
    """The persona of the one who is answered."""
    evidence: tuple[Evidence, ...] = ()
    label: str | None = None
    """What people found about the reply (for grounding: entailment, hallucination, ...), where they were asked."""

    @property
    def dialogue(self) -> Dialogue:
        """The context as a dialogue that waits for the reply."""
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
