"""Stored values as the JSON of the page's API. Pure functions; whatever grows with the texts is called on a thread."""

from collections.abc import Sequence
from typing import Any

from tertulia.core.dialogue import Json, Persona
from tertulia.core.text import squash
from tertulia.store import ConversationSummary, StoredTurn
from tertulia.store.records import ConversationPage, SearchHit
from tertulia.talk.bot import traits_of
from tertulia.talk.worker import Worker
from tertulia.web.errors import visible_error
from tertulia.web.grounding import stored_evidence
from tertulia.web.page.markdown import markup, may_have_markup
from tertulia.web.threads import on_thread

EXCERPT_CHARS = 90


def turn_out(turn: StoredTurn, *, attempts: int | None = None, markdown: bool = False) -> dict[str, Any]:
    """A turn, one of so many attempts (by default it is the latest). orjson writes its datetime in ISO 8601."""
    return {
        "id": turn.id,
        "speaker": turn.speaker,
        "text": turn.text,
        "status": turn.status,
        "bot": turn.bot,
        "seconds": turn.reply.get("seconds") if turn.reply else None,
        "created": turn.created,
        "error": visible_error(turn),
        "attempt": turn.attempt if turn.speaker == "bot" else attempts or 1,
        "attempts": attempts or turn.attempt,
        "markup": markup(turn.text) if markdown and turn.speaker == "bot" and turn.status != "pending" else None,
        "evidence": len(stored_evidence(turn)),
    }


async def formatted_turn(turn: StoredTurn, *, markdown: bool) -> dict[str, Any]:
    """A turn with its Markdown, parsed on another thread: a hostile text takes a while."""
    if markdown and may_have_markup(turn.text):
        return await on_thread(turn_out, turn, markdown=True)
    return turn_out(turn)


def attempts_out(turns: Sequence[StoredTurn], *, markdown: bool) -> list[dict[str, Any]]:
    """All attempts at a turn, each numbered among them."""
    rows = [turn_out(turn, attempts=len(turns), markdown=markdown) for turn in turns]
    return [row | {"attempt": number} for number, row in enumerate(rows, 1)]


def page_out(page: ConversationPage, *, markdown: bool = False) -> dict[str, Any]:
    """A conversation with some of its turns."""
    conversation, attempts, earlier = page
    return {
        "id": conversation.id,
        "title": conversation.title,
        "bot": conversation.bot,
        "persona": list(conversation.persona.sentences) if conversation.persona else None,
        "evidence": [passage.text for passage in conversation.evidence] or None,
        "created": conversation.created,
        "updated": conversation.updated,
        "turns": [
            turn_out(turn, attempts=attempts.get(turn.position), markdown=markdown) for turn in conversation.turns
        ],
        "earlier": earlier,
    }


def summary_out(summary: ConversationSummary) -> dict[str, Any]:
    """A conversation in the list."""
    return {
        "id": summary.id,
        "title": summary.title,
        "bot": summary.bot,
        "updated": summary.updated,
        "turns": summary.turns,
    }


def hit_out(hit: SearchHit, words: list[str]) -> dict[str, Any]:
    """A conversation that a search found, with the words in their context."""
    return {
        "id": hit.id,
        "title": hit.title,
        "bot": hit.bot,
        "updated": hit.updated,
        "excerpt": None if hit.text is None else excerpt(hit.text, words[0]),
    }


def excerpt(text: str, word: str) -> str:
    """The surroundings of a word's first occurrence.

    >>> excerpt("one " * 30 + "needle" + " two" * 30, "needle")
    '… one one one one one one one needle two two two two two two two two two two two two two …'
    """
    text = squash(text)
    start = max(0, text.lower().find(word.lower()) - EXCERPT_CHARS // 3)
    start = text.find(" ", start - 1) + 1 if start else 0
    cut = text[start : start + EXCERPT_CHARS]
    if start + EXCERPT_CHARS < len(text):
        cut = cut.rpartition(" ")[0] or cut
    return f"{'… ' if start else ''}{cut}{' …' if start + EXCERPT_CHARS < len(text) else ''}"


def explanation_out(turn: StoredTurn) -> dict[str, Any]:
    """How a reply was chosen, from its stored record. Neither the bot's specification nor addresses are shown."""
    record: dict[str, Any] = dict(turn.reply or {})
    provenance = record.get("provenance") or {}
    settings: dict[str, Json] = provenance.get("settings") or {}
    return {
        "bot": turn.bot,
        "text": turn.text,
        "status": turn.status,
        "created": turn.created,
        "attempt": turn.attempt,
        "score": record.get("score"),
        "candidates": record.get("candidates") or [],
        "settings": {name: value for name, value in settings.items() if "://" not in str(value)},
        "seed": provenance.get("seed"),
        "checkpoint": provenance.get("checkpoint"),
        "version": provenance.get("version") or None,
        "seconds": record.get("seconds"),
        "finish": record.get("finish"),
        "usage": record.get("usage"),
        "note": record.get("note"),
        "redraws": record.get("redraws") or 0,
    }


def bot_out(worker: Worker) -> dict[str, Any]:
    """A bot. The name it was given (`anna=SPEC`) is shown before its own display name, and its id in want of both."""
    own_id = worker.bot.spec.partition("?")[0].partition(":")[0]
    return {
        "id": worker.name,
        "name": worker.display_name if worker.name == own_id else worker.name,
        "summary": worker.bot.summary,
        "streams": worker.streams,
        "evidence": traits_of(worker.bot).reads_evidence,
    }


def persona_out(persona: Persona) -> dict[str, Any]:
    """A suggested persona."""
    return {"id": persona.id, "name": persona.name, "sentences": list(persona.sentences)}
