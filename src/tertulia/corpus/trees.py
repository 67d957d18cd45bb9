"""Message trees to context-reply pairs, after Meena: remove by rule, drop the sub-tree, keep up to seven ancestors.

This is the plain form of mining, for corpora that fit in memory: one pass over each tree, every step in the open. It is
the definition that the engine in `corpus.mining` has to agree with, pair by pair and count by count.

A message is known by its thread and its id: the same id in another thread is another message.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tertulia.core.dialogue import Dialogue, Message, Turn
from tertulia.corpus.rules import REASONS, Case, MiningRules, reason_to_remove, without_quotes

STRUCTURAL = ("duplicate id", "no parent", "deleted")
"""Faults of the input itself: an id seen before in its thread; a parent that is missing, in another thread, or in a
circle; a text that its author or a moderator took away."""
Key = tuple[str | None, str]
"""Thread and id."""


@dataclass(slots=True)
class Funnel:
    """Where the messages went: removed by each reason, removed with an ancestor, kept; and the pairs that came out."""

    messages: int = 0
    removed: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*STRUCTURAL, *REASONS, "subtree"), 0))
    kept: int = 0
    pairs: int = 0

    def add(self, other: "Funnel") -> None:
        """Count another part of the corpus too."""
        self.messages += other.messages
        self.kept += other.kept
        self.pairs += other.pairs
        for reason, count in other.removed.items():
            self.removed[reason] += count

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
    by_key: dict[Key, Message] = {}
    texts_seen: set[tuple[Key, str]] = set()
    for message in messages:
        funnel.messages += 1
        texts_seen.add((_key(message), message.text))
        if _key(message) in by_key:
            funnel.removed["duplicate id"] += 1
        else:
            by_key[_key(message)] = message
    parents = {key: _parent(m, by_key) for key, m in by_key.items()}
    repeats = Counter(text for _, text in texts_seen)
    texts = {key: without_quotes(m.text, p.text if (p := parents[key]) else None) for key, m in by_key.items()}
    reasons = _structural(parents, by_key)
    for key, m in by_key.items():
        above = texts[_key(p)] if (p := parents[key]) else None
        case = Case(m, texts[key], above, repeats[m.text], subwords, unsafe)
        reasons[key] = reasons[key] or reason_to_remove(case, rules)
    stays = _staying(parents, reasons)
    pairs = []
    for key, message in by_key.items():
        if reason := reasons[key]:
            funnel.removed[reason] += 1
        elif not stays[key]:
            funnel.removed["subtree"] += 1
        else:
            funnel.kept += 1
            if parents[key]:
                pairs.append(_pair(message, parents, texts, rules.context))
    funnel.pairs = len(pairs)
    return Mined(tuple(pairs), funnel)


def _key(message: Message) -> Key:
    return message.thread, message.id


def _parent(message: Message, by_key: dict[Key, Message]) -> Message | None:
    return by_key.get((message.thread, message.parent)) if message.parent is not None else None


Parents = dict[Key, Message | None]


def _structural(parents: Parents, by_key: dict[Key, Message]) -> dict[Key, str | None]:
    """Replies whose lines do not lead to a root: orphans, and all in a circle or below one. And what was deleted.

    Of an orphan's tree only the orphan itself is charged; what hangs below it goes with its sub-tree. A reply to the
    thread itself (its parent is the thread's id) whose opening is not in the corpus is no orphan: it opens a tree.
    """
    ends: dict[Key, bool] = {}
    for start in by_key.values():
        message: Message | None = start
        line = []
        while message is not None and _key(message) not in ends:
            ends[_key(message)] = False  # until its line has come to an end: who meets it before goes in a circle
            line.append(_key(message))
            message = parents[_key(message)]
        ends |= dict.fromkeys(line, message is None or ends[_key(message)])
    reasons: dict[Key, str | None] = {}
    for key, m in by_key.items():
        orphan = parents[key] is None and m.parent not in (None, m.thread)
        reasons[key] = "no parent" if orphan or not ends[key] else "deleted" if m.meta.get("deleted") else None
    return reasons


def _staying(parents: Parents, reasons: dict[Key, str | None]) -> dict[Key, bool]:
    """Whether neither the message nor any of its ancestors has a reason to go. Every line is walked once."""
    stays: dict[Key, bool] = {key: False for key, reason in reasons.items() if reason}
    for start in reasons:
        key: Key | None = start
        line = []
        while key is not None and key not in stays:
            line.append(key)
            key = _key(p) if (p := parents[key]) else None
        stays |= dict.fromkeys(line, key is None or stays[key])
    return stays


def _pair(message: Message, parents: Parents, texts: dict[Key, str], context: int) -> Dialogue:
    line = [message]
    while len(line) <= context and (parent := parents[_key(line[-1])]):
        line.append(parent)
    turns = tuple(Turn(m.author, texts[_key(m)], source=(m.id,)) for m in reversed(line))
    return Dialogue(id=message.id, turns=turns, meta={"thread": message.thread})
