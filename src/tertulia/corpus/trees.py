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
    repeats = Counter(message.text for message in by_id.values())
    texts = {
        m.id: without_quotes(m.text, parent.text if (parent := _parent(m, by_id)) else None) for m in by_id.values()
    }
    reasons = {
        m.id: _structural(m, by_id)
        or reason_to_remove(
            Case(m, texts[m.id], texts.get(m.parent or ""), repeats[m.text], subwords, unsafe),
            rules,
        )
        for m in by_id.values()
    }
    pairs = []
    for message in by_id.values():
        line = _line_of_descent(message, by_id, reasons)
        if reasons[message.id]:
            funnel.removed[str(reasons[message.id])] += 1
        elif line is None:
            funnel.removed["subtree"] += 1
        else:
            funnel.kept += 1
            if len(line) > 1:
                pairs.append(_pair(line[: rules.context + 1], texts))
    funnel.pairs = len(pairs)
    return Mined(tuple(pairs), funnel)


def _parent(message: Message, by_id: dict[str, Message]) -> Message | None:
    parent = by_id.get(message.parent) if message.parent is not None else None
    return parent if parent is not None and parent.thread == message.thread else None


def _structural(message: Message, by_id: dict[str, Message]) -> str | None:
    """A reply whose line of descent does not lead to a root: an orphan, or one caught in a circle."""
    seen: set[str] = set()
    while message.parent is not None:
        parent = _parent(message, by_id)
        if parent is None:
            # Only the orphan itself is charged; what hangs below it goes with its sub-tree.
            return "no parent" if not seen else None
        if message.id in seen:
            return "no parent"
        seen.add(message.id)
        message = parent
    return None


def _line_of_descent(
    message: Message, by_id: dict[str, Message], reasons: dict[str, str | None]
) -> list[Message] | None:
    """The message and its ancestors up to the root; None where one of them was removed."""
    line = [message]
    while (parent := _parent(line[-1], by_id)) is not None:
        if reasons[line[-1].id]:
            return None
        line.append(parent)
    return None if reasons[line[-1].id] else line


def _pair(line: list[Message], texts: dict[str, str]) -> Dialogue:
    turns = tuple(Turn(m.author, texts[m.id], source=(m.id,)) for m in reversed(line))
    return Dialogue(id=line[0].id, turns=turns, meta={"thread": line[0].thread})
