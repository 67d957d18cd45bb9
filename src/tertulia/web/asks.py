"""From a stored conversation to the ask for a bot, and from its reply to the record that is stored."""

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import orjson

from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.reply import Ask, Reply
from tertulia.core.text import clean
from tertulia.store import StoredExchange, StoredTurn
from tertulia.talk.evidence import passages_of

BOT, USER = "bot", "user"
TURN_CHARACTERS = 300
"""Roughly what a turn takes in addition to its text."""
_STRICT = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_UNCLEAN = re.compile(rb'[^\x20-\x7e]|\\[^"\\nt]')
"""What JSON may contain whose texts `clean` would change: other than ASCII, and escaped control characters."""


class AskBuilder:
    """Makes asks, and keeps the turns of recent dialogues, so that a long one is not converted for every message.

    A store gives the same objects for the turns it has cached: if the last one of a kept context is at the same index
    of a new one, so are all before it. Thread-safe.
    """

    def __init__(self, max_characters: int = 20_000_000) -> None:
        self._max_characters = max_characters
        self._characters = 0
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = Lock()

    def ask_for(self, exchange: StoredExchange) -> Ask:
        """What the bot has to answer. The seed comes from the turn's id, so another attempt gives another reply."""
        head = exchange.conversation
        with self._lock:
            context = self._context(head.id, exchange.context)
        dialogue = Dialogue(
            id=head.id,
            turns=context + _readable([exchange.user]),
            personas={BOT: head.persona} if head.persona else {},
            evidence=head.evidence,
        )
        return Ask(dialogue, speaker=BOT, seed=int(exchange.bot.id[:8], 16), attempt=exchange.bot.attempt)

    def _context(self, conversation: str, context: tuple[StoredTurn, ...]) -> tuple[Turn, ...]:
        kept = self._kept.pop(conversation, _NOTHING)
        self._characters -= kept.characters
        count = len(kept.context)
        if count > len(context) or (count and context[count - 1] is not kept.context[-1]):
            kept, count = _NOTHING, 0
        added = context[count:]
        characters = kept.characters + sum([len(turn.text) + TURN_CHARACTERS for turn in added])
        kept = _Kept(context, kept.turns + _readable(added), characters)
        if "pending" not in [turn.status for turn in added]:  # else it will change
            self._kept[conversation] = kept
            self._characters += characters
        while self._characters > self._max_characters:
            self._characters -= self._kept.popitem(last=False)[1].characters
        return kept.turns


class _Kept(NamedTuple):
    context: tuple[StoredTurn, ...]
    turns: tuple[Turn, ...]
    characters: int


_NOTHING = _Kept((), (), 0)


def _readable(turns: Sequence[StoredTurn]) -> tuple[Turn, ...]:
    """The turns that a bot is shown: those with a text, unless they failed or are pending."""
    return tuple([Turn(turn.speaker, turn.text) for turn in turns if turn.text and turn.status in ("done", "stopped")])


def reply_record(reply: Reply, ask: Ask | None = None) -> dict[str, Any]:
    """All that a bot reports about its reply, in values that JSON knows; with its ask, also the evidence that it was
    given. A tuple may stay one, and a score that is no number: a store makes JSON of them when it encodes the record.
    """
    source, usage = reply.provenance, reply.usage
    passages = reply.evidence if ask is None else passages_of(ask, reply)
    record: dict[str, Any] = {
        "provenance": {
            "bot": source.bot,
            "checkpoint": source.checkpoint,
            "settings": source.settings,
            "seed": source.seed,
            "version": source.version,
        },
        "score": reply.score,
        "candidates": [
            {"text": c.text, "score": c.score, "dropped": c.dropped, "source": c.source, "note": c.note}
            for c in reply.candidates
        ],
        "seconds": reply.seconds,
        "finish": reply.finish,
        "usage": {"prompt": usage.prompt, "completion": usage.completion} if usage else None,
        "note": reply.note,
        "redraws": reply.redraws,
    }
    if passages:
        record["evidence"] = [{"text": p.text, "source": p.source, "score": p.score} for p in passages]
    try:
        is_clean = not _UNCLEAN.search(orjson.dumps(record, option=_STRICT))  # takes a tenth of walking through it
    except TypeError:  # something that only we can convert
        is_clean = False
    return record if is_clean else {name: _json_value(value) for name, value in record.items()}


def _json_value(value: Any) -> Any:
    """The value as JSON that every database accepts: a bot's unusual settings or scores must not lose its reply."""
    match value:
        case np.generic() | np.ndarray():  # first: some of these are Python's floats, too
            return _json_value(value.tolist())
        case str():
            return clean(value)
        case None | bool() | int() | float():
            return value
        case list() | tuple() | set() | frozenset():
            return [_json_value(item) for item in value]
        case dict() | Mapping():
            return {clean(str(key)): _json_value(item) for key, item in value.items()}
    return clean(str(value))
