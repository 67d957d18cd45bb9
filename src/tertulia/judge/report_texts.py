"""The texts behind a unit in one shape, whatever judge wrote them, so that a report can show them as a conversation.

Judges save what they have: a context with a reply and a reference, candidates, a complete conversation, a rater. `view`
turns it into turns with speakers, candidates, and facts; what it does not know becomes a fact too, so nothing is lost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import orjson

from tertulia.core.dialogue import Json

Role = Literal["", "judged", "reply", "reference"]
_TURNS = ("turns", "conversation")
_KNOWN = {*_TURNS, "context", "reply", "reference", "candidates", "truth", "judged", "speaker", "personas", "persona"}
MAX_FACT = 2000
"""Longest fact in characters; a longer one ends in an ellipsis."""


class ShownTurn(NamedTuple):
    """One turn of a conversation."""

    speaker: str
    text: str
    role: Role = ""
    source: Mapping[str, Json] | None = None
    """Where it is from: the provenance of a reply, the thread of a retrieved one."""


class ShownCandidate(NamedTuple):
    """A reply that was considered or ranked."""

    text: str
    truth: bool = False
    about: str = ""
    """Score, source, and why it was dropped, where they are recorded."""


@dataclass(frozen=True, slots=True)
class TextView:
    """What to show of one item."""

    turns: tuple[ShownTurn, ...] = ()
    candidates: tuple[ShownCandidate, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()

    def as_json(self) -> Json:
        """As the page gets it: short keys, nothing empty."""
        turns = [[turn.speaker, turn.text, turn.role, *([turn.source] if turn.source else [])] for turn in self.turns]
        candidates = [[c.text, int(c.truth), c.about] for c in self.candidates]
        pairs = (("t", turns), ("c", candidates), ("f", [list(fact) for fact in self.facts]))
        return {name: value for name, value in pairs if value}


def view(content: Mapping[str, Json]) -> TextView:
    """The texts of an item.

    >>> [(t.speaker, t.text, t.role) for t in view({"context": ["Hi!"], "reply": "Hello.", "reference": "Hey"}).turns]
    [('A', 'Hi!', ''), ('B', 'Hello.', 'reply'), ('B', 'Hey', 'reference')]
    >>> view({"turns": 3, "rater": "r1"}).facts
    (('turns', '3'), ('rater', 'r1'))
    """
    name = next((name for name in _TURNS if isinstance(content.get(name), Sequence)), None)
    turns = _conversation(content, content[name]) if name else []
    turns += _exchange(content)
    shown = {name, *(_KNOWN - set(_TURNS))}
    facts = [(key, _text(value)) for key, value in content.items() if key not in shown and value not in (None, "", {})]
    return TextView(tuple(turns), tuple(_candidates(content)), (*_personas(content), *facts))


def _conversation(content: Mapping[str, Json], given: Sequence[Json]) -> list[ShownTurn]:
    """A complete conversation; `judged` says by turn or by speaker who is judged."""
    judged = content.get("judged", content.get("speaker"))
    turns = []
    for i, turn in enumerate(given):
        one = _turn(turn, "AB"[i % 2])
        flagged = judged[i] if isinstance(judged, list) and i < len(judged) and isinstance(judged[i], bool) else None
        named = one.speaker in judged if isinstance(judged, list) else one.speaker == judged
        turns.append(one._replace(role="judged" if (named if flagged is None else flagged) else ""))
    return turns


def _exchange(content: Mapping[str, Json]) -> list[ShownTurn]:
    """A context with the reply and the reference; speakers of plain texts alternate, back from the reply."""
    context = content.get("context")
    context = context if isinstance(context, list | tuple) else [context] if context else []
    turns = [_turn(turn, "AB"[(len(context) - i + 1) % 2]) for i, turn in enumerate(context)]
    source = content.get("provenance")
    for role in ("reply", "reference"):
        if isinstance(text := content.get(role), str) and (text or role == "reply"):
            about = source if role == "reply" and isinstance(source, Mapping) else None
            turns.append(ShownTurn("B", text, role, about))
    return turns


def _turn(turn: Json, speaker: str) -> ShownTurn:
    if isinstance(turn, str):
        return ShownTurn(speaker, turn)
    if isinstance(turn, Mapping):
        meta = turn.get("meta")
        source = turn.get("provenance") or (meta.get("provenance") if isinstance(meta, Mapping) else None)
        return ShownTurn(str(turn.get("speaker", speaker)), str(turn.get("text", "")), "", source)
    if isinstance(turn, Sequence) and len(turn) == 2:  # speaker and text
        return ShownTurn(str(turn[0]), str(turn[1]))
    return ShownTurn(speaker, _text(turn))


def _candidates(content: Mapping[str, Json]) -> list[ShownCandidate]:
    given, truth = content.get("candidates"), content.get("truth")
    if not isinstance(given, list | tuple):
        return []
    shown = []
    for i, one in enumerate(given):
        if isinstance(one, Mapping):
            about = ", ".join(f"{k}: {v}" for k, v in one.items() if k != "text" and v is not None)
            shown.append(ShownCandidate(str(one.get("text", "")), i == truth, about))
        else:
            shown.append(ShownCandidate(str(one), i == truth))
    return shown


def _personas(content: Mapping[str, Json]) -> list[tuple[str, str]]:
    facts = [("persona", _text(content["persona"]))] if content.get("persona") else []
    personas = content.get("personas")
    if isinstance(personas, Mapping):
        facts += [(f"persona of {speaker}", _text(persona)) for speaker, persona in personas.items()]
    elif personas:
        facts.append(("personas", _text(personas)))
    return facts


def _text(value: Json) -> str:
    if isinstance(value, Mapping) and isinstance(value.get("sentences"), list | tuple):
        value = value["sentences"]
    if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        text = " ".join(value)
    else:
        text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    return text if len(text) <= MAX_FACT else f"{text[:MAX_FACT]}…"
