"""What speaks for a line answering an earlier one: a row of figures for each candidate, the line itself included.

A line may answer one of the `window` lines before it that are near, related or alike, or begin a conversation (the
candidate that is the line itself).
Logs are read after the fact, so a row may also look a little ahead: who turns to whom next says much about now.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tertulia.corpus.rooms.likeness import Likeness
from tertulia.corpus.rooms.view import CUES, NOBODY, Floats, Ints, View

FAR = 999.0
"""Stands for never: farther than any distance that is counted."""
NEAR, RECENT, ALIKE = 15, 6, 0.1
"""Candidates within so many lines, among so many last lines of a related speaker, or this much alike are scored."""
_CUES = tuple(name for name, _ in CUES)
PAIR = (
    "is_self lines minutes same_speaker i_address_them i_name_them they_address_me they_name_me same_addressee "
    "names_my_addressee their_line_back after_my_last is_my_last my_lines_between "
    "people_between they_answered addressed_since cosine shared meaning cosine_rank shared_best meaning_best "
    "they_address_other last_addressed_by_me last_to_address_me i_last_addressed_ago they_last_addressed_ago "
    "they_address_me_next i_address_them_next talked_before their_first_line their_since_joined their_robot "
    "their_words they_speak_next same_minute others_address_them_next is_last_naming_me"
).split()
OWN = (
    "my_last_lines my_last_minutes my_first my_since_joined addressed named my_words my_robot best_cosine "
    "best_shared best_meaning rate people_around my_line_count named_me_lines addressee_last_lines "
    "i_address_next_ago i_am_addressed_next_ago my_next_lines addressee_count pause"
).split()
NAMES = (*PAIR, *OWN, *(f"my_{cue}" for cue in _CUES), *(f"their_{cue}" for cue in _CUES))
"""The columns of a row, in order."""
_P = {name: k for k, name in enumerate(NAMES)}


@dataclass(frozen=True, slots=True)
class Row:
    """The candidates of one line: places in the view, the line itself last, and a row of figures for each."""

    place: int
    candidates: Ints
    figures: Floats


@dataclass(slots=True)
class _Room:
    """The log, and what is known of it when a line comes in: the lower fields grow line by line."""

    seen: View
    alike: Likeness
    ahead: int
    named_at: dict[int, Ints]
    """For each person the lines that name him."""
    ordinal: Ints
    """For each line how many its speaker had said before."""
    addressed_then: Ints
    """For each line how often its speaker had been addressed before."""
    count: list[int]
    """Lines of each speaker so far."""
    addressed: list[int]
    """How often each was addressed so far."""
    last: dict[int, int] = field(default_factory=dict)
    """Last line of each speaker."""
    turned: dict[int, dict[int, int]] = field(default_factory=dict)
    """For each speaker, whom he addressed, and in which line last."""

    def comes(self, i: int) -> None:
        """Line i is about to be looked at."""
        me = int(self.seen.speaker[i])
        self.ordinal[i], self.addressed_then[i] = self.count[me], self.addressed[me]

    def goes(self, i: int) -> None:
        """Line i belongs to the past now."""
        me, to = int(self.seen.speaker[i]), int(self.seen.addressee[i])
        self.count[me] += 1
        self.last[me] = i
        if to != NOBODY:
            self.addressed[to] += 1
            self.turned.setdefault(me, {})[to] = i


def rows(
    seen: View, alike: Likeness, *, window: int, ahead: int, wanted: Collection[int] | None = None
) -> Iterator[Row]:
    """The rows of every line of a log (or of the places that are wanted), in order."""
    people = 1 + int(max(seen.speaker.max(initial=0), seen.addressee.max(initial=0)))
    zeros = [np.zeros(len(seen), np.int32) for _ in range(2)]
    room = _Room(seen, alike, ahead, _named_at(seen), zeros[0], zeros[1], [0] * people, [0] * people)
    for i in range(len(seen)):
        room.comes(i)
        if wanted is None or i in wanted:
            before = np.arange(i - 1, max(0, i - window) - 1, -1, dtype=np.int32)
            figures = np.zeros((len(before) + 1, len(NAMES)), np.float32)
            _fill_own(figures, i, before, room)
            if len(before):
                _fill_pairs(_Columns(figures[:-1]), i, before, room)
                figures[:-1, -len(CUES) :] = seen.cues[before]
            figures[-1, _P["is_self"]] = 1
            likely = _likely(figures)
            yield Row(i, np.append(before, np.int32(i))[likely], figures[likely])
        room.goes(i)


def _likely(figures: Floats) -> NDArray[np.bool_]:
    """The candidates worth a score: near ones, later words of people who have to do with me, and lines much alike.

    On #ubuntu that leaves a quarter of the candidates and loses one true link in 2,400.
    """

    def column(name: str) -> Floats:
        return figures[:, _P[name]]

    related = column("same_speaker") + column("i_name_them") + column("they_name_me") + column("talked_before") > 0
    near = column("lines") <= NEAR
    return near | (related & (column("their_line_back") < RECENT)) | (column("cosine") > ALIKE)


def _named_at(seen: View) -> dict[int, Ints]:
    found: dict[int, list[int]] = {}
    for i, named in enumerate(seen.named):
        for who in named:
            found.setdefault(who, []).append(i)
    return {who: np.array(lines, np.int32) for who, lines in found.items()}


def _fill_own(figures: Floats, i: int, before: Ints, room: _Room) -> None:
    """What is true of the line whatever it answers: the same in all its rows."""
    seen, alike = room.seen, room.alike
    me, to = int(seen.speaker[i]), int(seen.addressee[i])
    mine, theirs = room.last.get(me), room.last.get(to)
    now, recent = seen.minutes[i], before[:20]
    later = range(i + 1, min(len(seen), i + 1 + room.ahead))
    my_later = [j for j in later if seen.speaker[j] == me]
    naming = room.named_at.get(me, np.zeros(0, np.int32))
    naming = naming[: np.searchsorted(naming, i)]
    own = {
        "my_last_lines": i - mine if mine is not None else FAR,
        "my_last_minutes": min(now - seen.minutes[mine], FAR) if mine is not None else FAR,
        "my_first": mine is None,
        "my_since_joined": i - seen.joined[i] if seen.joined[i] != NOBODY else FAR,
        "addressed": to != NOBODY,
        "named": len(seen.named[i]),
        "my_words": len(seen.words[i]),
        "my_robot": seen.robot[i],
        "best_cosine": alike.cosine[i].max(initial=0),
        "best_shared": alike.shared[i].max(initial=0),
        "best_meaning": alike.meaning[i].max(initial=0),
        "rate": min(now - seen.minutes[recent[-1]], FAR) if len(recent) else FAR,
        "people_around": len(set(seen.speaker[recent].tolist())),
        "my_line_count": min(room.count[me], 50),
        "named_me_lines": i - naming[-1] if len(naming) else FAR,
        "addressee_last_lines": i - theirs if theirs is not None else FAR,
        "i_address_next_ago": next((j - i for j in my_later if seen.addressee[j] != NOBODY), FAR),
        "i_am_addressed_next_ago": next((j - i for j in later if seen.addressee[j] == me), FAR),
        "my_next_lines": my_later[0] - i if my_later else FAR,
        "addressee_count": min(room.count[to], 50) if to != NOBODY else -1,
        "pause": min(now - seen.minutes[i - 1], FAR) if i else FAR,
    }
    start = len(PAIR)
    figures[:, start : start + len(OWN)] = [own[name] for name in OWN]
    figures[:, start + len(OWN) : start + len(OWN) + len(CUES)] = seen.cues[i]


def _fill_pairs(put: "_Columns", i: int, before: Ints, room: _Room) -> None:
    """What is true of the line and each line before it."""
    seen = room.seen
    me = int(seen.speaker[i])
    who, whom = seen.speaker[before], seen.addressee[before]
    people = who.tolist()
    mine = room.last.get(me, NOBODY)
    back = np.array([room.count[p] for p in people]) - 1 - room.ordinal[before]
    is_last = (back == 0).astype(np.float32)
    put["lines"] = i - before
    put["minutes"] = np.minimum(seen.minutes[i] - seen.minutes[before], FAR)
    put["same_minute"] = seen.minutes[i] == seen.minutes[before]
    put["same_speaker"] = who == me
    put["their_line_back"] = np.minimum(back, 50)
    put["after_my_last"] = np.clip(before - mine, -50, 50) if mine != NOBODY else 99
    put["is_my_last"] = before == mine
    put["my_lines_between"] = np.cumsum(who == me) - (who == me)
    put["people_between"] = np.cumsum(is_last) - is_last
    put["they_answered"] = np.array([room.addressed[p] for p in people]) - room.addressed_then[before]
    put["addressed_since"] = np.cumsum(whom != NOBODY) - (whom != NOBODY)
    put["their_first_line"] = room.ordinal[before] == 0
    put["their_since_joined"] = np.where(seen.joined[before] != NOBODY, before - seen.joined[before], FAR)
    put["their_robot"] = seen.robot[before]
    put["their_words"] = np.array([len(seen.words[j]) for j in before.tolist()])
    _fill_addresses(put, i, before, room)
    _fill_likeness(put, i, len(before), room.alike)
    _fill_ahead(put, i, people, seen, room.ahead)


def _fill_addresses(put: "_Columns", i: int, before: Ints, room: _Room) -> None:
    """Who names whom, in these two lines and before them."""
    seen = room.seen
    me, to, named = int(seen.speaker[i]), int(seen.addressee[i]), seen.named[i]
    who, whom = seen.speaker[before], seen.addressee[before]
    people = who.tolist()
    names_me = _within(room.named_at.get(me), before)
    i_turned = room.turned.get(me, {})
    my_latest = max(i_turned.values(), default=NOBODY)
    they_turned = np.array([room.turned.get(p, {}).get(me, NOBODY) for p in people])
    put["i_address_them"] = who == to
    put["i_name_them"] = np.array([p in named for p in people])
    put["they_address_me"] = whom == me
    put["they_name_me"] = names_me
    put["same_addressee"] = (whom == to) & (to != NOBODY)
    put["names_my_addressee"] = _within(room.named_at.get(to) if to != NOBODY else None, before)
    put["they_address_other"] = (whom != NOBODY) & (whom != me) & (who != me)
    put["last_addressed_by_me"] = np.array([i_turned.get(p, NOBODY) == my_latest != NOBODY for p in people])
    put["last_to_address_me"] = (np.cumsum(whom == me) == 1) & (whom == me)
    put["is_last_naming_me"] = (np.cumsum(names_me) == 1) & names_me
    put["i_last_addressed_ago"] = np.array([i - i_turned[p] if p in i_turned else FAR for p in people])
    put["they_last_addressed_ago"] = np.where(they_turned != NOBODY, i - they_turned, FAR)
    put["talked_before"] = np.array([p in i_turned for p in people]).astype(np.float32) + (they_turned != NOBODY)


def _fill_likeness(put: "_Columns", i: int, n: int, alike: Likeness) -> None:
    """How alike the two lines are, by themselves and beside the other candidates."""
    cosine, shared, meaning = alike.cosine[i, :n], alike.shared[i, :n], alike.meaning[i, :n]
    put["cosine"], put["shared"], put["meaning"] = cosine, shared, meaning
    put["cosine_rank"] = np.argsort(np.argsort(-cosine, kind="stable"), kind="stable")
    put["shared_best"] = shared >= max(shared.max(), 1e-6)
    put["meaning_best"] = meaning >= max(meaning.max(), 1e-6)


def _fill_ahead(put: "_Columns", i: int, people: list[int], seen: View, ahead: int) -> None:
    """Who turns to whom in the lines to come."""
    me = int(seen.speaker[i])
    to_me: dict[int, int] = {}
    from_me: dict[int, int] = {}
    speak: dict[int, int] = {}
    others: dict[int, int] = {}
    for j in range(min(len(seen) - 1, i + ahead), i, -1):
        who, whom = int(seen.speaker[j]), int(seen.addressee[j])
        speak[who] = j - i
        if whom == me:
            to_me[who] = j - i
        if who == me:
            from_me[whom] = j - i
        elif whom != NOBODY:
            others[whom] = j - i
    put["they_address_me_next"] = np.array([to_me.get(p, FAR) for p in people])
    put["i_address_them_next"] = np.array([from_me.get(p, FAR) for p in people])
    put["they_speak_next"] = np.array([speak.get(p, FAR) for p in people])
    put["others_address_them_next"] = np.array([others.get(p, FAR) for p in people])


def _within(lines: Ints | None, places: Ints) -> NDArray[np.bool_]:
    if lines is None:
        return np.zeros(len(places), np.bool_)
    return np.isin(places, lines, assume_unique=True)


class _Columns:
    """Columns of a table by name."""

    def __init__(self, figures: Floats) -> None:
        self._figures = figures

    def __setitem__(self, name: str, values: NDArray[Any] | float) -> None:
        self._figures[:, _P[name]] = values
