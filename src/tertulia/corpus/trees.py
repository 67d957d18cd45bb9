"""Message trees to context-reply pairs as in Meena: remove by rule, drop the subtree, keep up to seven ancestors.

This is the reference implementation of mining, for corpora that fit in memory: one message after the other. The engine
in `corpus.mining` must agree with it, pair by pair and count by count.

A message is identified by its thread and its id: the same id in another thread is another message.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tertulia.core.dialogue import Dialogue, Message, Turn
from tertulia.corpus.rules import REASONS, MiningRules, RuleInput, reason_to_remove, without_quotes

STRUCTURAL = ("duplicate id", "no parent", "deleted")
"""Defects of the input: an id that occurs earlier in the thread; a parent that is missing, in another thread, or part
of a cycle; a text that its author or a moderator deleted."""
MessageKey = tuple[str | None, str]
"""Thread and id."""


@dataclass(slots=True)
class Funnel:
    """How many messages were removed for each reason, removed with an ancestor, or kept; and the resulting pairs."""

    messages: int = 0
    removed: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*STRUCTURAL, *REASONS, "subtree"), 0))
    kept: int = 0
    pairs: int = 0

    def add(self, other: "Funnel") -> None:
        """Add the counts of another part of the corpus."""
        self.messages += other.messages
        self.kept += other.kept
        self.pairs += other.pairs
        for reason, count in other.removed.items():
            self.removed[reason] += count

    def steps(self) -> list[tuple[str, int]]:
        """The messages left after each step, for tables and plots."""
        remaining, steps = self.messages, [("messages", self.messages)]
        for reason, count in self.removed.items():
            remaining -= count
            steps.append((f"after {reason}", remaining))
        return [*steps, ("pairs", self.pairs)]


@dataclass(frozen=True, slots=True)
class Mined:
    """The result of mining: one dialogue per reply (its context, then the reply), and the funnel."""

    pairs: tuple[Dialogue, ...]
    funnel: Funnel


def mine_trees(
    messages: Iterable[Message],
    rules: MiningRules | None = None,
    *,
    subwords: Callable[[str], int],
    unsafe: Callable[[Message], bool],
) -> Mined:
    """Mine complete trees. `subwords` counts a text's subwords; `unsafe` decides whether a message is unsafe."""
    rules = rules or MiningRules()
    funnel = Funnel()
    by_key: dict[MessageKey, Message] = {}
    texts_seen: set[tuple[MessageKey, str]] = set()
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
    reasons = _structural_reasons(parents, by_key)
    for key, m in by_key.items():
        parent_text = texts[_key(p)] if (p := parents[key]) else None
        item = RuleInput(m, texts[key], parent_text, repeats[m.text], subwords, unsafe)
        reasons[key] = reasons[key] or reason_to_remove(item, rules)
    kept = _kept(parents, reasons)
    pairs = []
    for key, message in by_key.items():
        if reason := reasons[key]:
            funnel.removed[reason] += 1
        elif not kept[key]:
            funnel.removed["subtree"] += 1
        else:
            funnel.kept += 1
            if parents[key]:
                pairs.append(_pair(message, parents, texts, rules.context))
    funnel.pairs = len(pairs)
    return Mined(tuple(pairs), funnel)


def _key(message: Message) -> MessageKey:
    return message.thread, message.id


def _parent(message: Message, by_key: dict[MessageKey, Message]) -> Message | None:
    return by_key.get((message.thread, message.parent)) if message.parent is not None else None


Parents = dict[MessageKey, Message | None]


def _structural_reasons(parents: Parents, by_key: dict[MessageKey, Message]) -> dict[MessageKey, str | None]:
    """Reason "no parent" for orphans and for all messages in or below a cycle, "deleted" for deleted texts.

    Of an orphan's tree only the orphan itself has the reason; its descendants are removed with its subtree. A reply to
    the thread itself (its parent is the thread's id) whose opening message is missing is not an orphan but a root.
    """
    has_root: dict[MessageKey, bool] = {}
    for start in by_key.values():
        message: Message | None = start
        path = []
        while message is not None and _key(message) not in has_root:
            has_root[_key(message)] = False  # until its path has ended: whoever gets here before that is in a cycle
            path.append(_key(message))
            message = parents[_key(message)]
        has_root |= dict.fromkeys(path, message is None or has_root[_key(message)])
    reasons: dict[MessageKey, str | None] = {}
    for key, m in by_key.items():
        orphan = parents[key] is None and m.parent not in (None, m.thread)
        reasons[key] = "no parent" if orphan or not has_root[key] else "deleted" if m.meta.get("deleted") else None
    return reasons


def _kept(parents: Parents, reasons: dict[MessageKey, str | None]) -> dict[MessageKey, bool]:
    """Whether neither the message nor any of its ancestors has a removal reason. Every path is walked once."""
    kept: dict[MessageKey, bool] = {key: False for key, reason in reasons.items() if reason}
    for start in reasons:
        key: MessageKey | None = start
        path = []
        while key is not None and key not in kept:
            path.append(key)
            key = _key(p) if (p := parents[key]) else None
        kept |= dict.fromkeys(path, key is None or kept[key])
    return kept


def _pair(message: Message, parents: Parents, texts: dict[MessageKey, str], context: int) -> Dialogue:
    path = [message]
    while len(path) <= context and (parent := parents[_key(path[-1])]):
        path.append(parent)
    turns = tuple(Turn(m.author, texts[_key(m)], source=(m.id,)) for m in reversed(path))
    time = {} if message.time is None else {"time": float(message.time)}
    return Dialogue(id=message.id, turns=turns, meta={"thread": message.thread, **time})
