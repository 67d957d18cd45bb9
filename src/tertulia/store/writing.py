"""What writes conversations and the ends of turns: units of work, made from checked values, that need a connection."""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, get_args

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from tertulia.core.codec import evidence_to_json, persona_to_json
from tertulia.core.dialogue import Evidence, Json, Persona
from tertulia.core.errors import UsageError
from tertulia.store import statements as sql
from tertulia.store.ids import new_id
from tertulia.store.records import Conversation, FinalStatus, NotFound, StoredTurn, TurnEnd
from tertulia.store.statements import turn_record
from tertulia.store.validation import check_id, check_names, check_text, json_value

_FINAL = get_args(FinalStatus)


def creating(
    owner: str,
    bot: str,
    persona: Persona | None,
    title: str,
    id: str | None,  # noqa: A002
    evidence: Sequence[Evidence],
) -> Callable[[Connection], Conversation]:
    """A unit of work that adds a conversation."""
    check_names(owner=owner, bot=bot, id=id)
    check_text(title, "title")
    now = datetime.now(UTC)
    new = Conversation(id or new_id(), owner, title, bot, persona, now, now, evidence=tuple(evidence))
    row = {"id": new.id, "owner": owner, "title": title, "bot": bot, "persona": persona_json(persona)}
    row |= {"evidence": evidence_json(evidence), "next_position": 0, "turn_count": 0, "revision": 0}
    row |= {"created": now, "updated": now}

    def add(connection: Connection) -> Conversation:
        try:
            sql.ADD_CONVERSATION.run(connection, row)
        except (IntegrityError, sqlite3.IntegrityError):  # SQLAlchemy's, or the driver's own
            raise UsageError(
                f"A conversation {new.id!r} exists already.", hint="Omit the id to get a new one."
            ) from None
        return new

    return add


def finishing(
    turn_id: str, text: str | None, status: FinalStatus, reply: dict[str, Json] | None, error: str | None
) -> Callable[[Connection], StoredTurn]:
    """A unit of work that ends a pending turn."""
    check_id(turn_id, "turn")
    record = checked_end(TurnEnd(text or "", status, reply, error)).reply
    values: dict[str, Any] = {"turn": turn_id, "status": status, "error": error, "reply": record}
    statement = sql.FINISH_AS_SAVED
    if text is not None:
        values["text"], statement = text, sql.FINISH

    def end(connection: Connection) -> StoredTurn:
        sql.TOUCH_UNFINISHED.run(connection, {"turn": turn_id, "updated": datetime.now(UTC)})
        if rows := statement.rows(connection, values):
            return replace(turn_record(rows[0]), reply=record)
        row = connection.execute(sql.BY_ID, {"turn": turn_id}).one_or_none()
        if row is None:
            raise NotFound("turn")
        return turn_record(row)

    return end


def checked_end(end: TurnEnd) -> TurnEnd:
    """The end of a turn as it can be stored; raises if it cannot."""
    if end.status not in _FINAL:
        allowed = " or ".join(_FINAL)
        raise UsageError(f"A turn cannot end as {end.status!r}.", hint=f"Its final status is {allowed}.")
    check_text(end.text, "reply")
    check_text(end.error or "", "error")
    record: Any = json_value(end.reply, "reply")
    return end._replace(reply=record)


def persona_json(persona: Persona | None) -> Json:
    """A persona as it is stored."""
    return json_value(None if persona is None else persona_to_json(persona), "persona")


def evidence_json(evidence: Sequence[Evidence]) -> Json:
    """Passages as they are stored."""
    return json_value([evidence_to_json(passage) for passage in evidence] or None, "evidence")
