"""Dialogues of two out of a room, by the rules of the Ubuntu Dialogue Corpus (Lowe et al. 2015, arXiv 1506.08909).

A line whose first word is a nick answers that nick: it opens a dialogue with his last words, if they are not older than
three minutes, and everything the two say to each other belongs to it. What one of them says to nobody by name is added
(a hole is filled) when he was talking to this partner alone. Every step is a function of its own; `extract` does all.

The paper's figure 5 settles what "alone" means: he may be in no other dialogue at the same time in which he addresses
somebody, even if he does so only after this one's last line.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pydantic import Field

from tertulia.corpus.rooms.line import Log
from tertulia.corpus.rooms.turns import Extracted, KeepRules, Utterance, keep, nicks_of, utterances


class LoweRules(KeepRules):
    """The thresholds of the extraction."""

    question_minutes: float = Field(3, ge=0)
    """A question is answered within this time, or it is not the question that was answered."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """What two users said to each other: places in the list of utterances, in order."""

    users: tuple[str, str]
    places: tuple[int, ...]

    @property
    def span(self) -> tuple[int, int]:
        """From its first utterance to its last."""
        return self.places[0], self.places[-1]


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


def extract(log: Log, rules: LoweRules | None = None, *, seen_before: Collection[str] = ()) -> Extracted:
    """The dialogues of one day; `seen_before` are the nicks of the day before."""
    rules = rules or LoweRules()
    said = utterances(log.lines, nicks_of(log.lines) | set(seen_before))
    groups = ((f"{log.name}:{'+'.join(p.users)}", [said[k] for k in p.places]) for p in pairings(said, rules))
    return keep(groups, log, rules)


def line_sets(log: Log, rules: LoweRules | None = None) -> list[set[int]]:
    """The line numbers of each dialogue that is kept, in the order in which they begin: for comparison with threads."""
    return [
        {int(source.rpartition(":")[2]) for turn in dialogue.turns for source in turn.source}
        for dialogue in sorted(extract(log, rules).dialogues, key=lambda d: float(d.meta["time"]))
    ]
