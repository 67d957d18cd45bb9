"""Second thoughts: what the conversations guessed so far say about which of the likeliest candidates a line answers.

The first pass scores pairs of lines one by one. Its guesses make conversations, and these tell more: whether I take
part in one, how long it has been silent, how much of my probability lies in it, and where my next line will go.
"""

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
_P = {name: k for k, name in enumerate(NAMES)}


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


def guessed(guesses: Sequence[Guess], lines: int) -> Guessed:
    """Gather what was guessed; a line without a guess stands alone."""
    links, roots = np.arange(lines, dtype=np.int32), np.arange(lines, dtype=np.int32)
    starts, sure = np.zeros(lines, np.float32), np.zeros(lines, np.float32)
    replies: dict[int, list[int]] = {}
    for guess in guesses:
        i, link = guess.place, guess.link
        links[i], starts[i], sure[i] = link, guess.chances[-1], guess.chances.max()
        roots[i] = i if link == i else roots[link]
        if link != i:
            replies.setdefault(link, []).append(i)
    return Guessed(links, roots, starts, sure, replies)


def thread_figures(guess: Guess, known: Guessed, seen: View, alike: Likeness, *, ahead: int) -> Floats:
    """Further columns for the candidates that are kept."""
    i = guess.place
    kept = guess.candidates[guess.kept]
    chances = guess.chances[guess.kept]
    figures = np.zeros((len(kept), len(NAMES)), np.float32)
    shares: dict[int, float] = {}
    for root, chance in zip(known.roots[guess.candidates[:-1]].tolist(), guess.chances[:-1].tolist(), strict=True):
        shares[root] = shares.get(root, 0.0) + chance
    order = np.argsort(np.argsort(-chances, kind="stable"), kind="stable")
    best = max(shares.values(), default=0.0)
    talks = _talks(i, guess, known)
    future = _future(i, known, seen, ahead)
    mine = next((int(j) for j in guess.candidates[:-1] if seen.speaker[j] == seen.speaker[i]), NOBODY)
    for row, j in enumerate(kept.tolist()):
        root = int(known.roots[j])
        own = {
            "chance": chances[row],
            "log_chance": np.log(max(float(chances[row]), 1e-6)),
            "chance_rank": order[row],
            "share_of_self": guess.chances[-1],
        }
        if j != i:
            own |= _of_talk(i, j, talks[root], known, seen, alike, mine)
            own |= _of_future(j, root, future, seen)
            own |= {"share": shares[root], "share_is_best": shares[root] >= best}
        else:
            own |= {"share": best, "replies_to_me_next": len(future.replies), "talk_silent_lines": FAR}
        for name, value in own.items():
            figures[row, _P[name]] = value
    return figures


def _talks(i: int, guess: Guess, known: Guessed) -> dict[int, list[int]]:
    """The conversations within reach, their lines from the latest back."""
    talks: dict[int, list[int]] = {}
    for j in guess.candidates[:-1].tolist():
        talks.setdefault(int(known.roots[j]), []).append(j)
    return talks


def _of_talk(
    i: int, j: int, talk: list[int], known: Guessed, seen: View, alike: Likeness, mine: int
) -> dict[str, float]:
    """The conversation of candidate j, as it stands when line i comes in."""
    speakers = seen.speaker[talk].tolist()
    me, to = int(seen.speaker[i]), int(seen.addressee[i])
    earlier = [k for k in known.replies.get(j, ()) if k < i]
    gaps = np.array([i - k - 1 for k in talk])
    return {
        "talk_lines": len(talk),
        "talk_people": len(set(speakers)),
        "talk_of_me": speakers.count(me),
        "talk_of_addressee": speakers.count(to),
        "talk_silent_lines": i - talk[0],
        "talk_silent_minutes": min(float(seen.minutes[i] - seen.minutes[talk[0]]), FAR),
        "talk_after": talk.index(j),
        "talk_is_my_last": mine != NOBODY and known.roots[mine] == known.roots[j],
        "talk_is_their_last": next(k for k in talk if seen.speaker[k] == seen.speaker[j]) == j,
        "talk_is_latest": known.roots[i - 1] == known.roots[j],
        "replies": len(earlier),
        "my_replies": sum(int(seen.speaker[k]) == me for k in earlier),
        "same_people_replied": sum(int(seen.speaker[k]) == int(seen.speaker[j]) for k in earlier),
        "their_start": float(known.starts[j]),
        "their_sure": float(known.sure[j]),
        "talk_cosine": float(alike.cosine[i, gaps].max()),
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
