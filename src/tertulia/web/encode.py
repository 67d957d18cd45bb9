"""Stored values on their way out as JSON, and on their way to a bot as an ask. Pure functions."""

from collections.abc import Mapping
from typing import Any

import orjson

from tertulia.core.codec import dialogue_to_json
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.reply import Ask, Reply
from tertulia.core.text import clean
from tertulia.store import Conversation, ConversationLine, Said, StoredTurn
from tertulia.talk.worker import Worker

BOT, USER = "bot", "user"


def ask_of(head: Conversation, said: Said) -> Ask:
    """What the bot has to answer. Its seed comes from the turn's id: another attempt is another turn and reply."""
    heard = (turn for turn in (*said.before, said.user) if turn.text and turn.status in ("done", "stopped"))
    dialogue = Dialogue(
        id=head.id,
        turns=tuple(Turn(turn.speaker, turn.text) for turn in heard),
        personas={BOT: head.persona} if head.persona else {},
    )
    return Ask(dialogue, speaker=BOT, seed=int(said.bot.id[:8], 16), attempt=said.bot.attempt)


def reply_to_json(reply: Reply) -> dict[str, Any]:
    """All a bot told about its reply."""
    source, usage = reply.provenance, reply.usage
    told = {
        "provenance": {
            "bot": source.bot,
            "checkpoint": source.checkpoint,
            "settings": source.settings,
            "seed": source.seed,
            "version": source.version,
        },
        "score": reply.score,
        "candidates": [
            {"text": c.text, "score": c.score, "dropped": c.dropped, "source": c.source} for c in reply.candidates
        ],
        "seconds": reply.seconds,
        "finish": reply.finish,
        "usage": {"prompt": usage.prompt, "completion": usage.completion} if usage else None,
        "note": reply.note,
    }
    plain: dict[str, Any] = _plain(told)
    return plain


def _plain(value: Any) -> Any:
    """What every database takes as JSON: a bot's odd settings or scores must not cost it its reply."""
    match value:
        case str():
            return clean(value)
        case None | bool() | int() | float():
            return value
        case Mapping():
            return {clean(str(key)): _plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(item) for item in value]
    return _plain(value.tolist()) if hasattr(value, "tolist") else clean(str(value))  # NumPy's numbers and arrays


def turn_out(turn: StoredTurn) -> dict[str, Any]:
    """A turn as the page gets it. Times go out as orjson writes them, in ISO 8601 with their zone."""
    return {
        "id": turn.id,
        "speaker": turn.speaker,
        "text": turn.text,
        "status": turn.status,
        "bot": turn.bot,
        "seconds": turn.reply.get("seconds") if turn.reply else None,
        "created": turn.created,
        "error": turn.error,
        "attempts": turn.attempt,
    }


def conversation_out(conversation: Conversation) -> dict[str, Any]:
    """A conversation as the page gets it."""
    return {
        "id": conversation.id,
        "title": conversation.title,
        "bot": conversation.bot,
        "persona": list(conversation.persona.sentences) if conversation.persona else None,
        "created": conversation.created,
        "updated": conversation.updated,
        "turns": [turn_out(turn) for turn in conversation.turns],
    }


def line_out(line: ConversationLine) -> dict[str, Any]:
    """A conversation in the page's list."""
    return {"id": line.id, "title": line.title, "bot": line.bot, "updated": line.updated, "turns": line.turns}


def bot_out(worker: Worker) -> dict[str, Any]:
    """A bot to talk with; one without a name of its own goes by its id."""
    bot = worker.bot
    name = getattr(bot, "name", "") or worker.name
    return {"id": worker.name, "name": name, "summary": bot.summary, "streams": worker.streams}


def persona_out(persona: Persona) -> dict[str, Any]:
    """A persona to choose."""
    return {"id": persona.id, "name": persona.name, "sentences": list(persona.sentences)}


def export_json(conversation: Conversation) -> bytes:
    """The conversation as one of our dialogues, with all that is known of each reply in its turn's meta."""
    dialogue = Dialogue(
        id=conversation.id,
        turns=tuple(Turn(turn.speaker, turn.text, meta=_meta(turn)) for turn in conversation.turns),
        personas={BOT: conversation.persona} if conversation.persona else {},
        meta={"title": conversation.title, "bot": conversation.bot, "created": conversation.created.isoformat()},
    )
    return orjson.dumps(dialogue_to_json(dialogue), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def export_text(conversation: Conversation) -> bytes:
    """The conversation as plain text, who said it before each turn."""
    return "\n\n".join(f"{_who(turn)}: {turn.text}" for turn in conversation.turns).encode() + b"\n"


def export_markdown(conversation: Conversation) -> bytes:
    """The conversation as Markdown. Turns are quoted, so that what they hold cannot pass for our own headings."""
    parts = [f"# {' '.join(conversation.title.split()) or 'Conversation'}"]
    if conversation.persona:
        parts.append("\n".join(f"- {sentence}" for sentence in conversation.persona.sentences))
    for turn in conversation.turns:
        quoted = "\n".join(f"> {line}".rstrip() for line in turn.text.split("\n"))
        parts.append(f"**{_who(turn)}:**\n\n{quoted}")
    return "\n\n".join(parts).encode() + b"\n"


def _who(turn: StoredTurn) -> str:
    if turn.speaker == USER:
        return "You"
    return f"{turn.bot}" + ("" if turn.status == "done" else f" ({turn.status})")


def _meta(turn: StoredTurn) -> dict[str, Any]:
    meta: dict[str, Any] = {"id": turn.id, "created": turn.created.isoformat()}
    if turn.speaker == BOT:
        meta |= {"bot": turn.bot, "status": turn.status, "attempt": turn.attempt, **(turn.reply or {})}
        meta |= {"error": turn.error} if turn.error else {}
    return meta
