"""Second thoughts: what the conversations guessed so far say about which of the likeliest candidates a line answers.

The first pass scores pairs of lines one by one. Its guesses make conversations, and these tell more: whether I take
part in one, how long it has been silent, how much of my probability lies in it, and where my next line will go.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tertulia.corpus.rooms.likeness import Likeness
from tertulia.corpus.rooms.pairs import FAR
from tertulia.corpus.rooms.view import NOBODY, Floats, Ints, View

NAMES = (
    "chance log_chance chance_rank share share_is_best share_of_self talk_lines talk_people talk_of_me "
    "talk_of_addressee talk_silent_lines talk_silent_minutes talk_after talk_is_my_last talk_is_their_last replies "
    "my_replies their_start their_sure talk_cosine my_next_goes_here answered_next_from_here replies_to_me_next "
    "they_reply_to_me_next same_people_replied talk_is_latest"
).split()


@dataclass(frozen=True, slots=True)
class Guess:
    """The first pass about one line: all candidates (itself last) with their chances, and the likeliest of them."""

    place: int
    candidates: Ints
    chances: Floats
    kept: Ints
    """Which candidates (indices) are looked at again; the line itself always is."""
    figures: Floats
    """The figures of the kept ones."""

    @property
    def link(self) -> int:
        """The likeliest candidate."""
        return int(self.candidates[int(np.argmax(self.chances))])


@dataclass(frozen=True, slots=True)
class Guessed:
    """The first pass over a log: for each place its link, its first line, and who answers it."""

    links: Ints
    roots: Ints
    starts: Floats
    """The chance that a line begins a conversation."""
    sure: Floats
    """The chance of the likeliest candidate."""
    replies: Mapping[int, Sequence[int]]
    my_last: Ints
    """For each line the last one of the same speaker, or NOBODY."""


def guessed(guesses: Sequence[Guess], seen: View) -> Guessed:
    """Gather what was guessed; a line without a guess stands alone."""
    lines = len(seen)
    links, roots = np.arange(lines, dtype=np.int32), np.arange(lines, dtype=np.int32)
    starts, sure = np.zeros(lines, np.float32), np.zeros(lines, np.float32)
    replies: dict[int, list[int]] = {}
    for guess in guesses:
        i, link = guess.place, guess.link
        links[i], starts[i], sure[i] = link, guess.chances[-1], guess.chances.max()
        roots[i] = i if link == i else roots[link]
        if link != i:
            replies.setdefault(link, []).append(i)
    latest: dict[int, int] = {}
    my_last = np.full(lines, NOBODY, np.int32)
    for i, who in enumerate(seen.speaker.tolist()):
        my_last[i] = latest.get(who, NOBODY)
        latest[who] = i
    return Guessed(links, roots, starts, sure, replies, my_last)


def thread_figures(guess: Guess, known: Guessed, seen: View, alike: Likeness, *, window: int, ahead: int) -> Floats:
    """Further columns for the candidates that are kept."""
    i, itself = guess.place, float(guess.chances[-1])
    chances = guess.chances[guess.kept]
    shares: dict[int, float] = {}
    for root, chance in zip(known.roots[guess.candidates[:-1]].tolist(), guess.chances[:-1].tolist(), strict=True):
        shares[root] = shares.get(root, 0.0) + chance
    best = max(shares.values(), default=0.0)
    talks = _talks(i, known, window)
    future = _future(i, known, seen, ahead)
    about = {root: _of_talk(i, talks[root], known, seen, alike) for root in shares}
    rows = []
    order = np.argsort(np.argsort(-chances, kind="stable"), kind="stable").tolist()
    for j, chance, rank in zip(guess.candidates[guess.kept].tolist(), chances.tolist(), order, strict=True):
        own = {
            "chance": chance,
            "log_chance": math.log(max(chance, 1e-6)),
            "chance_rank": rank,
            "share_of_self": itself,
        }
        if j != i:
            root = int(known.roots[j])
            own |= {"share": shares[root], "share_is_best": shares[root] >= best, "share_of_self": itself}
            own |= about[root] | _of_line(i, j, talks[root], known, seen) | _of_future(j, root, future, seen)
        else:
            own |= {"share": best, "share_of_self": itself}
            own |= {"replies_to_me_next": len(future.replies), "talk_silent_lines": FAR}
        rows.append([own.get(name, 0.0) for name in NAMES])
    return np.array(rows, np.float32)


def _talks(i: int, known: Guessed, window: int) -> dict[int, list[int]]:
    """The conversations within reach, their lines from the latest back."""
    talks: dict[int, list[int]] = {}
    first = max(0, i - window)
    for j, root in zip(range(i - 1, first - 1, -1), known.roots[first:i][::-1].tolist(), strict=True):
        talks.setdefault(root, []).append(j)
    return talks


def _of_talk(i: int, talk: list[int], known: Guessed, seen: View, alike: Likeness) -> dict[str, float]:
    """A conversation as it stands when line i comes in."""
    speakers = seen.speaker[talk].tolist()
    return {
        "talk_lines": len(talk),
        "talk_people": len(set(speakers)),
        "talk_of_me": speakers.count(int(seen.speaker[i])),
        "talk_of_addressee": speakers.count(int(seen.addressee[i])),
        "talk_silent_lines": i - talk[0],
        "talk_silent_minutes": min(float(seen.minutes[i] - seen.minutes[talk[0]]), FAR),
        "talk_is_my_last": known.my_last[i] != NOBODY and known.roots[known.my_last[i]] == known.roots[talk[0]],
        "talk_is_latest": talk[0] == i - 1,
        "talk_cosine": float(alike.cosine[i, [i - k - 1 for k in talk]].max()),
    }


def _of_line(i: int, j: int, talk: list[int], known: Guessed, seen: View) -> dict[str, float]:
    """Candidate j within its conversation."""
    me, they = int(seen.speaker[i]), int(seen.speaker[j])
    repliers = [int(seen.speaker[k]) for k in known.replies.get(j, ()) if k < i]
    return {
        "talk_after": talk.index(j),
        "talk_is_their_last": next(k for k in talk if seen.speaker[k] == they) == j,
        "replies": len(repliers),
        "my_replies": repliers.count(me),
        "same_people_replied": repliers.count(they),
        "their_start": float(known.starts[j]),
        "their_sure": float(known.sure[j]),
    }


@dataclass(frozen=True, slots=True)
class _Future:
    """What the lines to come were guessed to answer."""

    my_next: int
    """Conversation of my next line, where that does not hang on this one."""
    to_me_next: frozenset[int]
    """Conversations of the next lines that address me, likewise."""
    replies: Sequence[int]
    """Lines that were guessed to answer this one."""


def _future(i: int, known: Guessed, seen: View, ahead: int) -> _Future:
    me = int(seen.speaker[i])
    my_next, to_me = NOBODY, set()
    for k in range(i + 1, min(len(seen), i + 1 + ahead)):
        link = int(known.links[k])
        if link >= i:
            continue
        if seen.speaker[k] == me and my_next == NOBODY:
            my_next = int(known.roots[link])
        if me in seen.named[k]:
            to_me.add(int(known.roots[link]))
    return _Future(my_next, frozenset(to_me), [k for k in known.replies.get(i, ()) if k <= i + ahead])


def _of_future(j: int, root: int, future: _Future, seen: View) -> dict[str, float]:
    return {
        "my_next_goes_here": future.my_next == root,
        "answered_next_from_here": root in future.to_me_next,
        "replies_to_me_next": len(future.replies),
        "they_reply_to_me_next": sum(int(seen.speaker[k]) == int(seen.speaker[j]) for k in future.replies),
    }
