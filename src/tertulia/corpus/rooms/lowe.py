"""Dialogues of two out of a room, by the rules of the Ubuntu Dialogue Corpus (Lowe et al. 2015, arXiv 1506.08909).

A line whose first word is a nick answers that nick: it opens a dialogue with his last words, if they are not older than
three minutes, and everything the two say to each other belongs to it. What one of them says to nobody by name is added
(a hole is filled) when he was talking to this partner alone. Every step is a function of its own; `extract` does all.

The paper's figure 5 settles what "alone" means: he may be in no other dialogue at the same time in which he addresses
somebody, even if he does so only after this one's last line.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from pydantic import Field

from tertulia.core.config import Config
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.text import squash
from tertulia.corpus.rooms.address import address
from tertulia.corpus.rooms.line import Log, RoomLine

_END_MARKS = tuple(".!?…:;,)")


class LoweRules(Config):
    """The thresholds of the extraction."""

    question_minutes: float = Field(3, ge=0)
    """A question is answered within this time, or it is not the question that was answered."""
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


@dataclass(frozen=True, slots=True)
class Pairing:
    """What two users said to each other: places in the list of utterances, in order."""

    users: tuple[str, str]
    places: tuple[int, ...]

    @property
    def span(self) -> tuple[int, int]:
        """From its first utterance to its last."""
        return self.places[0], self.places[-1]


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


def pairings(said: Sequence[Utterance], rules: LoweRules) -> list[Pairing]:
    """Every two users who address each other, with the question that began it and the holes filled."""
    ignored = {nick.lower() for nick in rules.ignore}
    addressed: dict[tuple[str, str], list[int]] = {}
    own: dict[str, list[int]] = {}
    opening: dict[tuple[str, str], int | None] = {}
    for place, utterance in enumerate(said):
        sender, recipient = utterance.sender, utterance.recipient
        if recipient is not None and not ignored & {sender, recipient}:
            users = (min(sender, recipient), max(sender, recipient))
            if users not in addressed:
                opening[users] = _question(said, own.get(recipient, []), utterance, rules)
            addressed.setdefault(users, []).append(place)
        own.setdefault(sender, []).append(place)
    begun = [
        Pairing(users, tuple(places) if (first := opening[users]) is None else (first, *places))
        for users, places in addressed.items()
    ]
    return _filled(begun, said, own)


def _question(said: Sequence[Utterance], earlier: Sequence[int], answer: Utterance, rules: LoweRules) -> int | None:
    """The recipient's last utterance before the first answer, if it is not too old."""
    if earlier and answer.line.time - said[earlier[-1]].line.time <= 60 * rules.question_minutes:
        return earlier[-1]
    return None


def _filled(begun: Sequence[Pairing], said: Sequence[Utterance], own: dict[str, list[int]]) -> list[Pairing]:
    """Add what a user says to nobody by name while he addresses nobody else."""
    of_user: dict[str, list[Pairing]] = {}
    for pairing in begun:
        for user in pairing.users:
            of_user.setdefault(user, []).append(pairing)
    filled = []
    for pairing in begun:
        low, high = pairing.span
        places = set(pairing.places)
        for user in pairing.users:
            if not any(_busy(user, other, pairing, said) for other in of_user[user]):
                places.update(p for p in own.get(user, []) if low <= p <= high and said[p].recipient is None)
        filled.append(Pairing(pairing.users, tuple(sorted(places))))
    return filled


def _busy(user: str, other: Pairing, pairing: Pairing, said: Sequence[Utterance]) -> bool:
    """Whether the user talks to somebody else in another dialogue at the same time."""
    if other is pairing or other.span[0] > pairing.span[1] or other.span[1] < pairing.span[0]:
        return False
    return any(said[p].sender == user and said[p].recipient in other.users for p in other.places)


def reason_to_drop(pairing: Pairing, said: Sequence[Utterance], rules: LoweRules) -> str | None:
    """Why a dialogue is not kept; None for one that is."""
    senders = [said[p].sender for p in pairing.places]
    turns = 1 + sum(one != other for one, other in zip(senders, senders[1:], strict=False))
    if turns < rules.min_turns:
        return "too short"
    most = Counter(senders).most_common(1)[0][1]
    if len(senders) > rules.one_sided_over and most > rules.max_share * len(senders):
        return "one-sided"
    return None


def as_dialogue(pairing: Pairing, said: Sequence[Utterance], log: Log) -> Dialogue:
    """A pairing as a dialogue: consecutive utterances of a user become one turn."""
    groups: list[list[Utterance]] = []
    for place in pairing.places:
        if groups and groups[-1][-1].sender == said[place].sender:
            groups[-1].append(said[place])
        else:
            groups.append([said[place]])
    turns = tuple(
        Turn(group[0].line.nick, joined([u.text for u in group]), tuple(f"{log.name}:{u.line.number}" for u in group))
        for group in groups
    )
    times = [said[place].line.time for place in pairing.places]
    meta = {"room": log.room, "log": log.name, "time": times[0], "minutes": (times[-1] - times[0]) / 60}
    return Dialogue(f"{log.name}:{'+'.join(pairing.users)}", turns, meta=meta)


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


def extract(log: Log, rules: LoweRules | None = None, *, seen_before: Collection[str] = ()) -> Extracted:
    """The dialogues of one day; `seen_before` are the nicks of the day before."""
    rules = rules or LoweRules()
    said = utterances(log.lines, nicks_of(log.lines) | set(seen_before))
    dropped: Counter[str] = Counter()
    kept = []
    for pairing in pairings(said, rules):
        if reason := reason_to_drop(pairing, said, rules):
            dropped[reason] += 1
        else:
            kept.append(as_dialogue(pairing, said, log))
    return Extracted(tuple(kept), dropped)
