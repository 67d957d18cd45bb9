"""Preferences from chats in which visitors asked for another reply: what `tertulia store export` writes.

A reply that a visitor had generated again was not good enough, and the attempt that stayed is the one they went on
with. So the current attempt is preferred to each earlier one at the same place. It is weaker evidence than a vote:
visitors also try again out of curiosity.
"""

from collections.abc import Iterator

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
    current: list[Turn] = [turn for turn in dialogue.turns if turn.meta.get("current")]
    attempts = {str(turn.meta.get("id")): _chain(turn, dialogue) for turn in current if turn.speaker == BOT}
    for position, turn in enumerate(current):
        if turn.speaker != BOT or turn.meta.get("status") != "done" or not turn.text.strip():
            continue
        said = tuple(Turn(before.speaker, before.text) for before in current[:position])
        context = Dialogue(dialogue.id, said, dialogue.personas, dialogue.evidence)
        for other in attempts[str(turn.meta.get("id"))]:
            if other.meta.get("status") == "done" and other.text.strip():
                yield ReplyChoice(context, BOT, turn.text, other.text, "first")


def _chain(turn: Turn, dialogue: Dialogue) -> list[Turn]:
    """The other attempts at the same reply: those that it replaces, and those that replace one of them."""
    same = {str(turn.meta.get("id"))}
    others: list[Turn] = []
    found = True
    while found:
        found = False
        for other in dialogue.turns:
            name, replaced = str(other.meta.get("id")), str(other.meta.get("replaces"))
            known = [one for one in (turn, *others) if str(one.meta.get("replaces")) == name]
            if other.speaker == BOT and name not in same and (replaced in same or known):
                same.add(name)
                others.append(other)
                found = True
    return others
