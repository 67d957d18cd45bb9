"""Dialogues, messages and exchanges as JSON, one object per line, and reading lines that may be damaged.

A reader takes lines, not paths. A damaged line is skipped and counted with its number (`Problems`), or raises. Fields
that are not part of the format are errors too, so that no data is lost silently.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tertulia.core.dialogue import Dialogue, Evidence, Exchange, Json, Message, Persona, Turn
from tertulia.core.errors import DamagedLine

T = TypeVar("T")
DAMAGE = (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, OverflowError)
"""Exceptions that decoding a damaged record may raise."""


@dataclass(slots=True)
class Problems:
    """Lines that were skipped while reading: how many, and a description of the first few."""

    count: int = 0
    examples: list[str] = field(default_factory=list)
    keep: int = 5

    def add(self, error: DamagedLine) -> None:
        """Count one damaged line."""
        self.count += 1
        if len(self.examples) < self.keep:
            self.examples.append(error.message)


def read_lines(
    lines: Iterable[str | bytes],
    decode: Callable[[Json], T],
    *,
    source: str = "<lines>",
    problems: Problems | None = None,
) -> Iterator[T]:
    """Decode JSON lines. With `problems`, damaged ones are skipped and counted there; without, the first one raises."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield decode(loads(line))
        except DAMAGE as why:
            error = DamagedLine(source, number, reason_of(why))
            if problems is None:
                raise error from None
            problems.add(error)


def loads(line: str | bytes) -> Json:
    """Parse one line. Invalid UTF-8 and lone surrogates raise, because such text could not be stored or shown."""
    text = line.decode("utf-8", "surrogateescape") if isinstance(line, bytes) else line
    value = json.loads(text)
    if not text.isascii():
        text.encode("utf-8")
    if "\\ud" in text or "\\uD" in text:
        dump_line({"": value}).encode("utf-8")
    return value


def dump_line(value: Mapping[str, Json]) -> str:
    """One compact line of JSON, without a line break."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def dialogue_to_json(dialogue: Dialogue) -> dict[str, Json]:
    """The dialogue as JSON, without empty fields."""
    return _without_empty(
        id=dialogue.id,
        turns=[turn_to_json(t) for t in dialogue.turns],
        personas={speaker: persona_to_json(p) for speaker, p in dialogue.personas.items()},
        evidence=[evidence_to_json(e) for e in dialogue.evidence],
        meta=dict(dialogue.meta),
    )


def dialogue_from_json(value: Json) -> Dialogue:
    """A dialogue from JSON.

    >>> dialogue_from_json({"id": "d1", "turns": [{"speaker": "a", "text": "hi"}]}).turns[0].text
    'hi'
    """
    fields = _fields(value, "dialogue", need=("id", "turns"), may=("personas", "evidence", "meta"))
    return Dialogue(
        id=_text(fields["id"], "id"),
        turns=tuple(turn_from_json(t) for t in _list(fields["turns"], "turns")),
        personas={
            _text(s, "speaker"): persona_from_json(p) for s, p in _dict(fields.get("personas"), "personas").items()
        },
        evidence=tuple(evidence_from_json(e) for e in _list(fields.get("evidence", []), "evidence")),
        meta=_dict(fields.get("meta"), "meta"),
    )


def turn_to_json(turn: Turn) -> dict[str, Json]:
    """The turn as JSON."""
    return _without_empty(speaker=turn.speaker, text=turn.text, source=list(turn.source), meta=dict(turn.meta))


def turn_from_json(value: Json) -> Turn:
    """A turn from JSON."""
    fields = _fields(value, "turn", need=("speaker", "text"), may=("source", "meta"))
    return Turn(
        speaker=_text(fields["speaker"], "speaker"),
        text=_text(fields["text"], "text"),
        source=_texts(fields.get("source", []), "source"),
        meta=_dict(fields.get("meta"), "meta"),
    )


def persona_to_json(persona: Persona) -> dict[str, Json]:
    """The persona as JSON."""
    return _without_empty(
        sentences=list(persona.sentences), revised=list(persona.revised), id=persona.id, name=persona.name
    )


def persona_from_json(value: Json) -> Persona:
    """A persona from JSON."""
    fields = _fields(value, "persona", need=(), may=("sentences", "revised", "id", "name"))
    return Persona(
        sentences=_texts(fields.get("sentences", []), "sentences"),
        revised=_texts(fields.get("revised", []), "revised"),
        id=_text(fields.get("id", ""), "id"),
        name=_text(fields.get("name", ""), "name"),
    )


def evidence_to_json(evidence: Evidence) -> dict[str, Json]:
    """The evidence as JSON."""
    return _without_empty(text=evidence.text, source=evidence.source, id=evidence.id)


def evidence_from_json(value: Json) -> Evidence:
    """Evidence from JSON."""
    fields = _fields(value, "evidence", need=("text",), may=("source", "id"))
    return Evidence(**{name: _text(text, name) for name, text in fields.items()})


def message_to_json(message: Message) -> dict[str, Json]:
    """The message as JSON."""
    return _without_empty(
        id=message.id,
        author=message.author,
        text=message.text,
        parent=message.parent,
        thread=message.thread,
        time=message.time,
        meta=dict(message.meta),
    )


def message_from_json(value: Json) -> Message:
    """A message from JSON."""
    fields = _fields(value, "message", need=("id", "author", "text"), may=("parent", "thread", "time", "meta"))
    time = fields.get("time")
    if time is not None and (isinstance(time, bool) or not isinstance(time, int | float)):
        raise ValueError("'time' must be a number of seconds")
    return Message(
        id=_text(fields["id"], "id"),
        author=_text(fields["author"], "author"),
        text=_text(fields["text"], "text"),
        parent=None if fields.get("parent") is None else _text(fields["parent"], "parent"),
        thread=None if fields.get("thread") is None else _text(fields["thread"], "thread"),
        time=None if time is None else float(time),
        meta=_dict(fields.get("meta"), "meta"),
    )


def exchange_to_json(exchange: Exchange) -> dict[str, Json]:
    """The exchange as JSON."""
    return _without_empty(
        id=exchange.id,
        context=[turn_to_json(t) for t in exchange.context],
        response=turn_to_json(exchange.response),
        persona=persona_to_json(exchange.persona) if exchange.persona else None,
        partner=persona_to_json(exchange.partner) if exchange.partner else None,
        evidence=[evidence_to_json(e) for e in exchange.evidence],
        label=exchange.label,
    )


def exchange_from_json(value: Json) -> Exchange:
    """An exchange from JSON."""
    may = ("persona", "partner", "evidence", "label")
    fields = _fields(value, "exchange", need=("id", "context", "response"), may=may)
    return Exchange(
        id=_text(fields["id"], "id"),
        context=tuple(turn_from_json(t) for t in _list(fields["context"], "context")),
        response=turn_from_json(fields["response"]),
        persona=None if fields.get("persona") is None else persona_from_json(fields["persona"]),
        partner=None if fields.get("partner") is None else persona_from_json(fields["partner"]),
        evidence=tuple(evidence_from_json(e) for e in _list(fields.get("evidence", []), "evidence")),
        label=None if fields.get("label") is None else _text(fields["label"], "label"),
    )


def _without_empty(**fields: Json) -> dict[str, Json]:
    """Drop None, and fields that are empty by default; fields such as an empty text carry information and stay."""
    always = ("id", "turns", "text", "author", "speaker", "context", "response", "parent", "thread", "label")
    return {k: v for k, v in fields.items() if (v is not None if k in always else v not in (None, [], {}, ""))}


def _fields(value: Json, kind: str, *, need: tuple[str, ...], may: tuple[str, ...]) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise TypeError(f"a {kind} must be an object, not {type(value).__name__}")
    for name in need:
        if name not in value:
            raise ValueError(f"a {kind} needs {name!r}")
    unknown = sorted(set(value) - {*need, *may})
    if unknown:
        raise ValueError(f"a {kind} has no field {unknown[0]!r} (put additional data under 'meta')")
    return value


def _text(value: Json, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name!r} must be text, not {type(value).__name__}")
    return value


def _list(value: Json, name: str) -> list[Json]:
    if not isinstance(value, list):
        raise TypeError(f"{name!r} must be a list, not {type(value).__name__}")
    return value


def _texts(value: Json, name: str) -> tuple[str, ...]:
    return tuple(_text(item, name) for item in _list(value, name))


def _dict(value: Json, name: str) -> dict[str, Json]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError(f"{name!r} must be an object, not {type(value).__name__}")
    return value


def reason_of(why: Exception) -> str:
    """What is wrong with a record, in plain words."""
    if isinstance(why, json.JSONDecodeError):
        return f"not valid JSON ({why.msg} at column {why.colno})"
    if isinstance(why, UnicodeError):
        return "not valid UTF-8, or a lone surrogate"
    if isinstance(why, KeyError):
        return f"{why.args[0]!r} is missing"
    return str(why) or type(why).__name__
