"""Conversations as files that visitors download: JSON, plain text and Markdown. Pure functions.

They carry what was said, by whom and when. How a bot came to its reply (specification, checkpoint, settings,
candidates) is the operator's: `tertulia store export` writes that.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import orjson

from tertulia.core.codec import dialogue_to_json
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.store import Conversation, StoredTurn
from tertulia.web.asks import BOT, USER
from tertulia.web.errors import visible_error
from tertulia.web.grounding import stored_evidence

ExportFormat = Literal["json", "txt", "md"]
Names = Mapping[str, str]
"""Display names of the bots, by id; a bot that is no longer served is called by its id."""


def export_json(conversation: Conversation, names: Names) -> bytes:
    """As a dialogue in our JSON format."""
    dialogue = Dialogue(
        id=conversation.id,
        turns=tuple(Turn(turn.speaker, turn.text, meta=_meta(turn, names)) for turn in conversation.turns),
        personas={BOT: conversation.persona} if conversation.persona else {},
        evidence=conversation.evidence,
        meta={
            "title": conversation.title,
            "bot": names.get(conversation.bot, conversation.bot),
            "created": conversation.created.isoformat(),
        },
    )
    return orjson.dumps(dialogue_to_json(dialogue), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def export_text(conversation: Conversation, names: Names) -> bytes:
    """As plain text, with the speaker and the time before each turn."""
    heads = (f"{_speaker(turn, names)} ({_time(turn)})" for turn in conversation.turns)
    return (
        "\n\n".join(f"{head}: {turn.text}" for head, turn in zip(heads, conversation.turns, strict=True)).encode()
        + b"\n"
    )


def export_markdown(conversation: Conversation, names: Names) -> bytes:
    """As Markdown. Turns are quoted, so that their text cannot pass for headings of ours."""
    parts = [f"# {' '.join(conversation.title.split()) or 'Conversation'}"]
    if conversation.persona:
        parts.append("\n".join(f"- {sentence}" for sentence in conversation.persona.sentences))
    if conversation.evidence:
        passages = "\n".join(f"- {' '.join(passage.text.split())}" for passage in conversation.evidence)
        parts.append(f"Evidence:\n\n{passages}")
    for turn in conversation.turns:
        quoted = "\n".join(f"> {line}".rstrip() for line in turn.text.split("\n"))
        parts.append(f"**{_speaker(turn, names)}** ({_time(turn)}):\n\n{quoted}")
    return "\n\n".join(parts).encode() + b"\n"


def _speaker(turn: StoredTurn, names: Names) -> str:
    if turn.speaker == USER:
        return "You"
    name = names.get(turn.bot or "", turn.bot or BOT)
    return name if turn.status == "done" else f"{name}, {turn.status}"


def _time(turn: StoredTurn) -> str:
    return f"{turn.created:%Y-%m-%d %H:%M} UTC"


def _meta(turn: StoredTurn, names: Names) -> dict[str, Any]:
    """Only what is listed here, so that nothing a bot adds to its record gets out."""
    meta: dict[str, Any] = {"id": turn.id, "created": turn.created.isoformat()}
    if turn.speaker == BOT:
        bot = names.get(turn.bot or "", turn.bot)
        meta |= {"bot": bot, "status": turn.status, "attempt": turn.attempt}
        meta |= {"error": visible_error(turn)} if turn.error else {}
        meta |= {"evidence": evidence} if (evidence := stored_evidence(turn)) else {}
    return meta


class Exporter(NamedTuple):
    """A format of exported files."""

    write: Callable[[Conversation, Names], bytes]
    media_type: str


EXPORTERS: dict[ExportFormat, Exporter] = {
    "json": Exporter(export_json, "application/json"),
    "txt": Exporter(export_text, "text/plain; charset=utf-8"),
    "md": Exporter(export_markdown, "text/markdown; charset=utf-8"),
}


def file_name(conversation: Conversation, suffix: ExportFormat) -> str:
    """The suggested name of the exported file."""
    return f"tertulia-{conversation.created:%Y-%m-%d}-{conversation.id[:6]}.{suffix}"
