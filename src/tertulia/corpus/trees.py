"""Message trees to context-reply pairs, after Meena: remove by rule, drop the sub-tree, keep up to seven ancestors.

This is the plain form of mining, for corpora that fit in memory: one pass over each tree, every step in the open. It is
the definition that any faster engine has to agree with.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tertulia.core.dialogue import Dialogue, Message, Turn
from tertulia.corpus.rules import REASONS, Case, MiningRules, reason_to_remove, without_quotes

STRUCTURAL = ("duplicate id", "no parent")
"""Faults of the input itself: an id seen before; a parent that is missing, in another thread, or in a circle."""


@dataclass(slots=True)
class Funnel:
    """Where the messages went: removed by each reason, removed with an ancestor, kept; and the pairs that came out."""

    messages: int = 0
    removed: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*STRUCTURAL, *REASONS, "subtree"), 0))
    kept: int = 0
    pairs: int = 0

    def steps(self) -> list[tuple[str, int]]:
        """For tables and pictures: what was left after each step."""
        left, steps = self.messages, [("messages", self.messages)]
        for reason, count in self.removed.items():
            left -= count
            steps.append((f"after {reason}", left))
        return [*steps, ("pairs", self.pairs)]


@dataclass(frozen=True, slots=True)
class Mined:
    """What mining gives: one dialogue per reply (its context, then the reply), and the funnel."""

    pairs: tuple[Dialogue, ...]
    funnel: Funnel


def mine_trees(
    messages: Iterable[Message],
    rules: MiningRules | None = None,
    *,
    subwords: Callable[[str], int],
    unsafe: Callable[[Message], bool],
) -> Mined:
    """Mine whole trees. `subwords` counts a text's subwords; `unsafe` is any judge of a message."""
    rules = rules or MiningRules()
    funnel = Funnel()
    by_id: dict[str, Message] = {}
    for message in messages:
        funnel.messages += 1
        if message.id in by_id:
            funnel.removed["duplicate id"] += 1
        else:
            by_id[message.id] = message
    parents = {m.id: _parent(m, by_id) for m in by_id.values()}
    repeats = Counter(message.text for message in by_id.values())
    texts = {m.id: without_quotes(m.text, p.text if (p := parents[m.id]) else None) for m in by_id.values()}
    reasons = _structural(parents, by_id)
    for m in by_id.values():
        above = texts[p.id] if (p := parents[m.id]) else None
        case = Case(m, texts[m.id], above, repeats[m.text], subwords, unsafe)
        reasons[m.id] = reasons[m.id] or reason_to_remove(case, rules)
    stays = _staying(parents, by_id, reasons)
    pairs = []
    for message in by_id.values():
        if reason := reasons[message.id]:
            funnel.removed[reason] += 1
        elif not stays[message.id]:
            funnel.removed["subtree"] += 1
        else:
            funnel.kept += 1
            if parents[message.id]:
                pairs.append(_pair(message, parents, texts, rules.context))
    funnel.pairs = len(pairs)
    return Mined(tuple(pairs), funnel)


def _parent(message: Message, by_id: dict[str, Message]) -> Message | None:
    parent = by_id.get(message.parent) if message.parent is not None else None
    return parent if parent is not None and parent.thread == message.thread else None


Parents = dict[str, Message | None]


def _structural(parents: Parents, by_id: dict[str, Message]) -> dict[str, str | None]:
    """Replies whose lines do not lead to a root: orphans, and all in a circle or below one.

    Of an orphan's tree only the orphan itself is charged; what hangs below it goes with its sub-tree.
    """
    ends: dict[str, bool] = {}
    for start in by_id.values():
        message: Message | None = start
        line = []
        while message is not None and message.id not in ends:
            ends[message.id] = False  # until its line has come to an end: who meets it before goes in a circle
            line.append(message.id)
            message = parents[message.id]
        ends |= dict.fromkeys(line, message is None or ends[message.id])
    return {
        m.id: "no parent" if not ends[m.id] or (m.parent is not None and parents[m.id] is None) else None
        for m in by_id.values()
    }


def _staying(parents: Parents, by_id: dict[str, Message], reasons: dict[str, str | None]) -> dict[str, bool]:
    """Whether neither the message nor any of its ancestors has a reason to go. Every line is walked once."""
    stays: dict[str, bool] = {name: False for name, reason in reasons.items() if reason}
    for start in by_id.values():
        message: Message | None = start
        line = []
        while message is not None and message.id not in stays:
            line.append(message.id)
            message = parents[message.id]
        stays |= dict.fromkeys(line, message is None or stays[message.id])
    return stays


def _pair(message: Message, parents: Parents, texts: dict[str, str], context: int) -> Dialogue:
    line = [message]
    while len(line) <= context and (parent := parents[line[-1].id]):
        line.append(parent)
    turns = tuple(Turn(m.author, texts[m.id], source=(m.id,)) for m in reversed(line))
    return Dialogue(id=message.id, turns=turns, meta={"thread": message.thread})
