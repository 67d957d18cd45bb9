"""The learned disentangler: links every line of a log to the one it answers, or to itself where it begins something.

Two passes of gradient-boosted trees. The first scores each candidate by itself (`pairs`); the second looks again at the
likeliest few, knowing the conversations that the first one's guesses make (`threads`), and both have half a vote.
System lines link to themselves, and where the source says what is answered, it is believed.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from pydantic import Field

from tertulia.core.config import Config
from tertulia.corpus.rooms import pairs, threads
from tertulia.corpus.rooms.boost import Doubles, Trees, softmax
from tertulia.corpus.rooms.likeness import Lexicon, Likeness, likeness
from tertulia.corpus.rooms.line import RoomLine
from tertulia.corpus.rooms.threads import Guess, guessed, thread_figures
from tertulia.corpus.rooms.view import Floats, Ints, View, view

FIRST, SECOND = pairs.NAMES, (*pairs.NAMES, *threads.NAMES)
"""The columns of the two passes."""


class Reach(Config):
    """How far the disentangler looks."""

    window: int = Field(100, ge=1, le=1000)
    """Spoken lines back that a line may answer."""
    ahead: int = Field(20, ge=0)
    """Spoken lines ahead that are looked at."""
    keep: int = Field(12, ge=1)
    """Candidates that the second pass looks at again."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A log prepared for scoring."""

    view: View
    alike: Likeness


@dataclass(frozen=True, slots=True)
class Choice:
    """The candidates of one line, by line numbers, the line itself last, with their scores."""

    line: int
    candidates: tuple[int, ...]
    scores: Doubles
    told: int | None = None
    """What the source itself says is answered."""

    def link(self, start_bias: float) -> int:
        """The one it answers."""
        if self.told is not None:
            return self.told
        scores = self.scores.copy()
        scores[-1] += start_bias
        return self.candidates[int(np.argmax(scores))]


@dataclass(frozen=True, slots=True)
class Disentangler:
    """A learned model; `folder` writes it to disk and reads it back."""

    reach: Reach
    lexicon: Lexicon
    first: tuple[Trees, ...]
    """Several give the mean of their scores."""
    second: tuple[Trees, ...] = ()
    """None: the first pass has the last word."""
    start_bias: float = 0.0
    """Added to the score of a line itself: above zero begins more conversations."""

    def links(self, lines: Sequence[RoomLine], wanted: Collection[int] | None = None) -> dict[int, frozenset[int]]:
        """What each line answers, by line numbers; `wanted` names the lines that are needed, if not all are."""
        return links_of(self.score(lines, wanted), lines, wanted, start_bias=self.start_bias)

    def score(self, lines: Sequence[RoomLine], wanted: Collection[int] | None = None) -> list[Choice]:
        """The candidates of every spoken line with their scores."""
        seen = look(lines, self.lexicon, self.reach)
        places = None if wanted is None else needed(seen.view, wanted, self.reach)
        guesses = list(first_pass(seen, self.reach, self.first, places))
        if self.second:
            return list(self._second_pass(seen, guesses))
        return [_choice(seen.view, g, g.candidates, np.log(np.maximum(g.chances, 1e-9))) for g in guesses]

    def _second_pass(self, seen: Seen, guesses: Sequence[Guess]) -> Iterator[Choice]:
        known = guessed(guesses, seen.view)
        ready = iter(guesses)
        while some := list(islice(ready, 500)):
            tables = [second_figures(guess, known, seen, self.reach) for guess in some]
            scores = mean_scores(self.second, np.concatenate(tables))
            for guess, own in zip(some, _cut(scores, tables), strict=True):
                # Each pass errs in its own way: the mean of both is better than either.
                first = np.log(np.maximum(guess.chances[guess.kept], 1e-9))
                second = own - np.logaddexp.reduce(own)
                yield _choice(seen.view, guess, guess.candidates[guess.kept], (first + second) / 2)


def links_of(
    choices: Sequence[Choice],
    lines: Sequence[RoomLine],
    wanted: Collection[int] | None = None,
    *,
    start_bias: float = 0.0,
) -> dict[int, frozenset[int]]:
    """The best candidate of each line; a system line stands alone."""
    found = {line.number: frozenset({line.number}) for line in lines}
    found |= {choice.line: frozenset({choice.link(start_bias)}) for choice in choices}
    return found if wanted is None else {number: found[number] for number in wanted}


def _choice(seen: View, guess: Guess, candidates: Ints, scores: Floats | Doubles) -> Choice:
    told = seen.answers[guess.place]
    return Choice(
        int(seen.numbers[guess.place]),
        tuple(seen.numbers[candidates].tolist()),
        scores.astype(np.float64),
        None if told is None else int(seen.numbers[told]),
    )


def look(lines: Sequence[RoomLine], lexicon: Lexicon, reach: Reach) -> Seen:
    """Prepare a log."""
    seen = view(lines)
    return Seen(seen, likeness(seen.words, lexicon, window=reach.window))


def needed(seen: View, wanted: Collection[int], reach: Reach) -> range:
    """The places to score so that the wanted lines have their conversations before and after them."""
    inside = np.flatnonzero(np.isin(seen.numbers, list(wanted)))
    if not len(inside):
        return range(0)
    return range(max(0, int(inside[0]) - reach.window), min(len(seen), int(inside[-1]) + 1 + reach.ahead))


def first_pass(seen: Seen, reach: Reach, trees: Sequence[Trees], places: Collection[int] | None) -> Iterator[Guess]:
    """Score every candidate by itself; keep the likeliest."""
    ready = pairs.rows(seen.view, seen.alike, window=reach.window, ahead=reach.ahead, wanted=places)
    while some := list(islice(ready, 200)):
        scores = mean_scores(trees, np.concatenate([row.figures for row in some]))
        for row, own in zip(some, _cut(scores, [row.figures for row in some]), strict=True):
            chances = softmax(own, np.array([len(own)])).astype(np.float32)
            top = np.argsort(-chances[:-1], kind="stable")[: reach.keep]
            kept = np.append(np.sort(top), len(own) - 1).astype(np.int32)
            yield Guess(row.place, row.candidates, chances, kept, row.figures[kept])


def second_figures(guess: Guess, known: threads.Guessed, seen: Seen, reach: Reach) -> Floats:
    """The columns of the second pass for the candidates that were kept."""
    further = thread_figures(guess, known, seen.view, seen.alike, window=reach.window, ahead=reach.ahead)
    return np.concatenate((guess.figures, further), axis=1)


def mean_scores(trees: Sequence[Trees], figures: Floats) -> Doubles:
    """The mean of several models' scores."""
    total: Doubles = np.mean([model.scores(figures) for model in trees], axis=0)
    return total


def _cut(scores: Doubles, tables: Sequence[Floats]) -> list[Doubles]:
    return np.split(scores, np.cumsum([len(table) for table in tables])[:-1])
