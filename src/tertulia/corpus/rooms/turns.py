"""From lines to dialogues, whoever grouped them: utterances with recipients, turns, and which dialogues are kept."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pydantic import Field

from tertulia.core.config import Config
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.text import squash
from tertulia.corpus.rooms.address import address
from tertulia.corpus.rooms.line import Log, RoomLine

_END_MARKS = tuple(".!?…:;,)")


class KeepRules(Config):
    """Which dialogues are kept."""

    min_turns: int = Field(3, ge=2)
    """Shorter dialogues go."""
    one_sided_over: int = Field(5, ge=0)
    """Dialogues of more utterances than this go when one user has too many of them ..."""
    max_share: float = Field(0.8, gt=0, le=1)
    """... namely more than this share."""
    ignore: tuple[str, ...] = ()
    """Nicks that hold no dialogues: the room's bots."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """A line with its recipient: the quadruple (time, sender, recipient, utterance) of the paper."""

    line: RoomLine
    sender: str
    """Lower case, as all nicks are compared."""
    recipient: str | None
    text: str
    """Without the recipient's name at its head."""


def nicks_of(lines: Iterable[RoomLine]) -> frozenset[str]:
    """Everybody who says something, lower case."""
    return frozenset(line.nick.lower() for line in lines if line.said)


def utterances(lines: Iterable[RoomLine], nicks: Collection[str]) -> list[Utterance]:
    """Who says what to whom; `nicks` are those seen today or the day before."""
    found = []
    for line in lines:
        if line.said:
            to, sender = address(line.text, nicks), line.nick.lower()
            if to is None or to.nick == sender:
                found.append(Utterance(line, sender, None, line.text))
            else:
                found.append(Utterance(line, sender, to.nick, to.rest))
    return found


def reason_to_drop(said: Sequence[Utterance], rules: KeepRules) -> str | None:
    """Why the utterances of a dialogue are not kept; None where they are."""
    senders = [utterance.sender for utterance in said]
    turns = 1 + sum(one != other for one, other in pairwise(senders))
    if not senders or turns < rules.min_turns:
        return "too short"
    most = Counter(senders).most_common(1)[0][1]
    if len(senders) > rules.one_sided_over and most > rules.max_share * len(senders):
        return "one-sided"
    return None


def as_dialogue(said: Sequence[Utterance], log: Log, name: str) -> Dialogue:
    """Utterances as a dialogue: consecutive ones of a user become one turn.

    Of two who talk, each knows whom the other means, and the name at the head of a line goes; among more it stays.
    """
    alone = len({utterance.sender for utterance in said}) <= 2
    groups: list[list[Utterance]] = []
    for utterance in said:
        if groups and groups[-1][-1].sender == utterance.sender:
            groups[-1].append(utterance)
        else:
            groups.append([utterance])
    turns = tuple(
        Turn(
            group[0].line.nick,
            joined([u.text if alone else u.line.text for u in group]),
            tuple(f"{log.name}:{u.line.number}" for u in group),
        )
        for group in groups
    )
    times = [utterance.line.time for utterance in said]
    minutes = (max(times) - min(times)) / 60
    return Dialogue(name, turns, meta={"room": log.room, "log": log.name, "time": times[0], "minutes": minutes})


def joined(texts: Sequence[str]) -> str:
    """Consecutive utterances as one: a full stop between two where the first ends without a mark, as in the paper.

    >>> joined(["you can't move the drives", "definitely not", "sorry!", "bye"])
    "you can't move the drives. definitely not. sorry! bye"
    """
    parts = [part for text in texts if (part := squash(text))]
    closed = [part if part.endswith(_END_MARKS) else f"{part}." for part in parts[:-1]]
    return " ".join((*closed, *parts[-1:]))


@dataclass(frozen=True, slots=True)
class Extracted:
    """The dialogues of a log, and how many were dropped for each reason."""

    dialogues: tuple[Dialogue, ...]
    dropped: Counter[str]


def keep(groups: Iterable[tuple[str, Sequence[Utterance]]], log: Log, rules: KeepRules) -> Extracted:
    """Named groups of utterances as dialogues, as far as the rules keep them."""
    dropped: Counter[str] = Counter()
    kept = []
    for name, said in groups:
        if reason := reason_to_drop(said, rules):
            dropped[reason] += 1
        else:
            kept.append(as_dialogue(said, log, name))
    return Extracted(tuple(kept), dropped)
