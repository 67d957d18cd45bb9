"""What speaks for a line answering an earlier one: a row of figures for each candidate, the line itself included.

A line may answer one of the `window` lines before it, or begin a conversation (the candidate that is the line itself).
Logs are read after the fact, so a row may also look a little ahead: who turns to whom next says much about now.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tertulia.corpus.rooms.likeness import Likeness
from tertulia.corpus.rooms.view import CUES, NOBODY, Floats, Ints, View

FAR = 999.0
"""Stands for never: farther than any distance that is counted."""
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
class _Past:
    """What is known when a line comes in; grows line by line."""

    count: list[int]
    """Lines of each speaker so far."""
    last: dict[int, int]
    """Last line of each speaker."""
    addressed: list[int]
    """How often each was addressed so far."""
    turned: dict[int, dict[int, int]]
    """For each speaker, whom he addressed, and in which line last."""


def rows(
    seen: View, alike: Likeness, *, window: int, ahead: int, wanted: Collection[int] | None = None
) -> Iterator[Row]:
    """The rows of every line of a log (or of the places that are wanted), in order."""
    people = int(max(seen.speaker.max(initial=0), seen.addressee.max(initial=0))) + 1
    past = _Past([0] * people, {}, [0] * people, {})
    ordinal = np.zeros(len(seen), np.int32)
    addressed_then = np.zeros(len(seen), np.int32)
    named_at = _named_at(seen)
    for i in range(len(seen)):
        me, to = int(seen.speaker[i]), int(seen.addressee[i])
        ordinal[i], addressed_then[i] = past.count[me], past.addressed[me]
        if wanted is None or i in wanted:
            before = np.arange(i - 1, max(0, i - window) - 1, -1, dtype=np.int32)
            figures = np.zeros((len(before) + 1, len(NAMES)), np.float32)
            _fill_own(figures, i, seen, alike, past, named_at, before, ahead)
            if len(before):
                _fill_pairs(figures[:-1], i, before, seen, alike, past, named_at, ordinal, addressed_then, ahead)
            figures[-1, _P["is_self"]] = 1
            yield Row(i, np.append(before, np.int32(i)), figures)
        past.count[me] += 1
        past.last[me] = i
        if to != NOBODY:
            past.addressed[to] += 1
            past.turned.setdefault(me, {})[to] = i


def _named_at(seen: View) -> dict[int, Ints]:
    """For each person the lines that name him."""
    found: dict[int, list[int]] = {}
    for i, named in enumerate(seen.named):
        for who in named:
            found.setdefault(who, []).append(i)
    return {who: np.array(lines, np.int32) for who, lines in found.items()}


def _fill_own(
    figures: Floats,
    i: int,
    seen: View,
    alike: Likeness,
    past: _Past,
    named_at: dict[int, Ints],
    before: Ints,
    ahead: int,
) -> None:
    """What is true of the line whatever it answers: the same in all its rows."""
    me, to = int(seen.speaker[i]), int(seen.addressee[i])
    mine, theirs = past.last.get(me), past.last.get(to)
    now = seen.minutes[i]
    recent = before[:20]
    later = range(i + 1, min(len(seen), i + 1 + ahead))
    names_me = named_at.get(me)
    named_me = int(np.searchsorted(names_me, i)) if names_me is not None else 0
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
        "my_line_count": min(past.count[me], 50),
        "named_me_lines": i - names_me[named_me - 1] if named_me and names_me is not None else FAR,
        "addressee_last_lines": i - theirs if theirs is not None else FAR,
        "i_address_next_ago": next(
            (j - i for j in later if seen.speaker[j] == me and seen.addressee[j] != NOBODY), FAR
        ),
        "i_am_addressed_next_ago": next((j - i for j in later if seen.addressee[j] == me), FAR),
        "my_next_lines": next((j - i for j in later if seen.speaker[j] == me), FAR),
        "addressee_count": min(past.count[to], 50) if to != NOBODY else -1,
        "pause": min(now - seen.minutes[i - 1], FAR) if i else FAR,
    }
    start = len(PAIR)
    figures[:, start : start + len(OWN)] = [own[name] for name in OWN]
    figures[:, start + len(OWN) : start + len(OWN) + len(CUES)] = seen.cues[i]


def _fill_pairs(
    figures: Floats,
    i: int,
    before: Ints,
    seen: View,
    alike: Likeness,
    past: _Past,
    named_at: dict[int, Ints],
    ordinal: Ints,
    addressed_then: Ints,
    ahead: int,
) -> None:
    """What is true of the line and each line before it."""
    me, to = int(seen.speaker[i]), int(seen.addressee[i])
    who = seen.speaker[before]
    whom = seen.addressee[before]
    people = who.tolist()
    named = seen.named[i]
    gap = i - before
    back = np.array([past.count[p] for p in people]) - 1 - ordinal[before]
    mine = past.last.get(me, NOBODY)
    is_last = (back == 0).astype(np.float32)
    i_turned = past.turned.get(me, {})
    my_latest = max(i_turned.values(), default=NOBODY)
    they_turned = np.array([past.turned.get(p, {}).get(me, NOBODY) for p in people])
    names_me = _within(named_at.get(me), before)
    my_lines = np.cumsum(who == me) - (who == me)
    cosine = alike.cosine[i, : len(before)]
    put = _Columns(figures)
    put["lines"] = gap
    put["minutes"] = np.minimum(seen.minutes[i] - seen.minutes[before], FAR)
    put["same_minute"] = seen.minutes[i] == seen.minutes[before]
    put["same_speaker"] = who == me
    put["i_address_them"] = who == to
    put["i_name_them"] = np.array([p in named for p in people])
    put["they_address_me"] = whom == me
    put["they_name_me"] = names_me
    put["same_addressee"] = (whom == to) & (to != NOBODY)
    put["names_my_addressee"] = _within(named_at.get(to), before) if to != NOBODY else 0
    put["their_line_back"] = np.minimum(back, 50)
    put["after_my_last"] = np.clip(before - mine, -50, 50) if mine != NOBODY else 99
    put["is_my_last"] = before == mine
    put["my_lines_between"] = my_lines
    put["people_between"] = np.cumsum(is_last) - is_last
    put["they_answered"] = np.array([past.addressed[p] for p in people]) - addressed_then[before]
    put["addressed_since"] = np.cumsum(whom != NOBODY) - (whom != NOBODY)
    put["cosine"] = cosine
    put["shared"] = alike.shared[i, : len(before)]
    put["meaning"] = alike.meaning[i, : len(before)]
    put["cosine_rank"] = np.argsort(np.argsort(-cosine, kind="stable"), kind="stable")
    put["shared_best"] = alike.shared[i, : len(before)] >= max(alike.shared[i].max(initial=0), 1e-6)
    put["meaning_best"] = alike.meaning[i, : len(before)] >= max(alike.meaning[i].max(initial=0), 1e-6)
    put["they_address_other"] = (whom != NOBODY) & (whom != me) & (who != me)
    put["last_addressed_by_me"] = np.array([i_turned.get(p, NOBODY) == my_latest != NOBODY for p in people])
    put["last_to_address_me"] = (np.cumsum(whom == me) == 1) & (whom == me)
    put["is_last_naming_me"] = (np.cumsum(names_me) == 1) & names_me
    put["i_last_addressed_ago"] = np.array([i - i_turned[p] if p in i_turned else FAR for p in people])
    put["they_last_addressed_ago"] = np.where(they_turned != NOBODY, i - they_turned, FAR)
    put["talked_before"] = np.array([p in i_turned for p in people]) + (they_turned != NOBODY)
    put["their_first_line"] = ordinal[before] == 0
    put["their_since_joined"] = np.where(seen.joined[before] != NOBODY, before - seen.joined[before], FAR)
    put["their_robot"] = seen.robot[before]
    put["their_words"] = np.array([len(seen.words[j]) for j in before.tolist()])
    _fill_ahead(put, i, people, seen, ahead)
    figures[:, -len(CUES) :] = seen.cues[before]


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

    def __setitem__(self, name: str, values: object) -> None:
        self._figures[:, _P[name]] = values
