"""Preferences from chats in which visitors asked for another reply: what `tertulia store export` writes.

A reply that a visitor had generated again was not good enough, and the attempt that stayed is the one they went on
with. So the current attempt is preferred to each earlier one at the same place. It is weaker evidence than a vote:
visitors also try again out of curiosity.
"""

from collections.abc import Iterator, Mapping

from tertulia.core.dialogue import Dialogue, Json, Turn
from tertulia.corpus.preferences.judgements import ReplyChoice

BOT = "bot"


def recognises(record: Json) -> bool:
    """Whether a record is a conversation with its replaced turns."""
    turns = record.get("turns") if isinstance(record, dict) else None
    return isinstance(turns, list) and any(
        isinstance(turn, dict) and "current" in (turn.get("meta") or {}) for turn in turns
    )


def choices_of(dialogue: Dialogue) -> Iterator[ReplyChoice]:
    """The current attempt at each reply against every replaced one."""
    by_id = {str(turn.meta.get("id")): turn for turn in dialogue.turns}
    attempts: dict[str, list[Turn]] = {}
    for turn in dialogue.turns:
        if turn.speaker == BOT and turn.meta.get("status") == "done" and turn.text.strip():
            attempts.setdefault(_first_attempt(turn, by_id), []).append(turn)
    said: tuple[Turn, ...] = ()
    for turn in dialogue.turns:
        if not turn.meta.get("current"):
            continue
        context = Dialogue(dialogue.id, said, dialogue.personas, dialogue.evidence)
        same_place = attempts.get(_first_attempt(turn, by_id), ())
        if turn in same_place:
            yield from (ReplyChoice(context, BOT, turn.text, o.text, "first") for o in same_place if o is not turn)
        said = (*said, Turn(turn.speaker, turn.text))


def _first_attempt(turn: Turn, by_id: Mapping[str, Turn]) -> str:
    """The id of the attempt that all others at the same place replace, directly or not."""
    while (replaced := by_id.get(str(turn.meta.get("replaces")))) is not None:
        turn = replaced
    return str(turn.meta.get("id"))
