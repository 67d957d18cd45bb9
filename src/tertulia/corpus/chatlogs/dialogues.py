"""From log lines to dialogues: utterances with recipients, merged turns, and rules for which dialogues are kept."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pydantic import Field

from tertulia.core.config import Config
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.text import squash
from tertulia.corpus.chatlogs.gold import Links, clusters_of
from tertulia.corpus.chatlogs.log import Log, LogLine
from tertulia.corpus.chatlogs.nicks import parse_address

_END_MARKS = tuple(".!?…:;,)")


class KeepRules(Config):
    """Which dialogues are kept; the defaults are those of Lowe et al. (2015, section 3.2)."""

    min_turns: int = Field(default=3, ge=2)
    """Drop dialogues with fewer turns."""
    one_sided_over: int = Field(default=5, ge=0)
    """Drop one-sided dialogues that have more utterances than this."""
    max_share: float = Field(default=0.8, gt=0, le=1)
    """A dialogue is one-sided if one user has more than this share of its utterances."""
    ignore: tuple[str, ...] = ()
    """Nick whose lines are ignored, such as a bot of the room; repeat the option for more."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """A line with its recipient: the quadruple (time, sender, recipient, utterance) of Lowe et al. (2015)."""

    line: LogLine
    sender: str
    """Lower case, as all nicks are compared."""
    recipient: str | None
    text: str
    """Without the recipient's name at its head."""


def nicks_of(lines: Iterable[LogLine]) -> frozenset[str]:
    """All users who wrote a line, lower case."""
    return frozenset(line.nick.lower() for line in lines if line.is_utterance)


def utterances_of(lines: Iterable[LogLine], nicks: Collection[str]) -> list[Utterance]:
    """The utterances with their recipients; `nicks` are those seen on this day or the day before."""
    utterances = []
    for line in lines:
        if line.is_utterance:
            address, sender = parse_address(line.text, nicks), line.nick.lower()
            if address is None or address.nick == sender:
                utterances.append(Utterance(line, sender, None, line.text))
            else:
                utterances.append(Utterance(line, sender, address.nick, address.rest))
    return utterances


def reason_to_drop(utterances: Sequence[Utterance], rules: KeepRules) -> str | None:
    """Why a dialogue is dropped; None if it is kept."""
    senders = [utterance.sender for utterance in utterances]
    turns = 1 + sum(one != other for one, other in pairwise(senders))
    if not senders or turns < rules.min_turns:
        return "too short"
    most = Counter(senders).most_common(1)[0][1]
    if len(senders) > rules.one_sided_over and most > rules.max_share * len(senders):
        return "one-sided"
    return None


def as_dialogue(utterances: Sequence[Utterance], log: Log, name: str) -> Dialogue:
    """Utterances as a dialogue: consecutive ones of a user become one turn.

    Between two people the addressee is clear, so the name at the head of a line is removed; among more it stays.
    """
    two_party = len({utterance.sender for utterance in utterances}) <= 2
    groups: list[list[Utterance]] = []
    for utterance in utterances:
        if groups and groups[-1][-1].sender == utterance.sender:
            groups[-1].append(utterance)
        else:
            groups.append([utterance])
    turns = tuple(
        Turn(
            group[0].line.nick,
            join_texts([u.text if two_party else u.line.text for u in group]),
            tuple(f"{log.name}:{u.line.number}" for u in group),
        )
        for group in groups
    )
    times = [utterance.line.time for utterance in utterances]
    minutes = (max(times) - min(times)) / 60
    return Dialogue(name, turns, meta={"room": log.room, "log": log.name, "time": times[0], "minutes": minutes})


def join_texts(texts: Sequence[str]) -> str:
    """Join consecutive utterances, with a full stop after one that ends without punctuation, as Lowe et al. do.

    >>> join_texts(["you can't move the drives", "definitely not", "sorry!", "bye"])
    "you can't move the drives. definitely not. sorry! bye"
    """
    parts = [part for text in texts if (part := squash(text))]
    closed = [part if part.endswith(_END_MARKS) else f"{part}." for part in parts[:-1]]
    return " ".join((*closed, *parts[-1:]))


@dataclass(frozen=True, slots=True)
class ExtractedDialogues:
    """The dialogues of a log, and how many were dropped for each reason."""

    dialogues: tuple[Dialogue, ...]
    dropped: Counter[str]


def filter_dialogues(
    groups: Iterable[tuple[str, Sequence[Utterance]]], log: Log, rules: KeepRules
) -> ExtractedDialogues:
    """Turn named groups of utterances into dialogues and drop those that break the rules."""
    dropped: Counter[str] = Counter()
    kept = []
    for name, utterances in groups:
        if reason := reason_to_drop(utterances, rules):
            dropped[reason] += 1
        else:
            kept.append(as_dialogue(utterances, log, name))
    return ExtractedDialogues(tuple(kept), dropped)


def dialogues_from_links(log: Log, links: Links, rules: KeepRules | None = None) -> ExtractedDialogues:
    """The dialogues, of two or more people, that the links of a log form, in the order in which they begin."""
    rules = rules or KeepRules()
    ignored = {nick.lower() for nick in rules.ignore}
    by_number = {u.line.number: u for u in utterances_of(log.lines, nicks_of(log.lines)) if u.sender not in ignored}

    def groups() -> Iterator[tuple[str, list[Utterance]]]:
        for cluster in sorted(clusters_of(links), key=min):
            if utterances := [by_number[number] for number in sorted(cluster) if number in by_number]:
                yield f"{log.name}:{min(cluster)}", utterances

    return filter_dialogues(groups(), log, rules)
