"""From a model that writes to a reply, the same for every bot that has one: candidates drawn, filtered, chosen from.

A bot says what its model reads of an ask and how it writes (`Task`, `DecodingConfig`), and what must not be said
(`Sieve`). With filters a reply is whole before anything of it is shown, as nothing shown can be taken back; without
any, what is drawn or taken token by token can be streamed (`flow`).
"""

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from tertulia.core.reply import Ask, Candidate, Finish, Piece, Provenance, Reply, Usage
from tertulia.models.decoding import DecodingConfig, decode, steps
from tertulia.models.generator import Generator, Talk
from tertulia.models.tokenizer import END
from tertulia.talk.filters.base import Filter
from tertulia.talk.filters.sift import Choice, Sifted, choose, sift

CUT = "cut off before its end"
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Sieve:
    """What must not be said, and what is said instead."""

    filters: tuple[Filter, ...]
    fallback: str
    """Said where no candidate may be."""
    listed: int
    """How many of the candidates are listed with a reply."""


class Task(NamedTuple):
    """An ask as a model gets it."""

    ask: Ask
    talk: Talk
    read: int
    """Tokens of the prompt."""
    provenance: Provenance


class Draft(NamedTuple):
    """A reply that a model wrote."""

    text: str
    score: float | None
    ended: bool
    """Whether it ended by itself, or was cut."""
    tokens: int
    """How many were written."""


class Group(NamedTuple, Generic[K]):
    """Asks that are written in the same way."""

    manner: K
    places: list[int]


def grouped(manners: Sequence[K]) -> list[Group[K]]:
    """Which of the asks are written in the same way.

    >>> grouped(["greedy", "beam", "greedy"])
    [Group(manner='greedy', places=[0, 2]), Group(manner='beam', places=[1])]
    """
    groups: dict[K, list[int]] = {}
    for place, manner in enumerate(manners):
        groups.setdefault(manner, []).append(place)
    return [Group(manner, places) for manner, places in groups.items()]


def whole(
    model: Generator, tasks: Sequence[Task], config: DecodingConfig, sieve: Sieve, alive: Callable[[int], bool]
) -> Iterator[Piece]:
    """The best candidate of each that no filter dropped."""
    start = time.perf_counter()
    talks, seeds = [task.talk for task in tasks], [seed_of(task.ask, config.method == "sample") for task in tasks]
    found = decode(model, talks, config, seeds, alive=alive)
    seconds = time.perf_counter() - start
    for place, (task, written) in enumerate(zip(tasks, found, strict=True)):
        drafts = [Draft(one.text, one.score, one.finished, one.count) for one in written]
        reply = settled(task, drafts, sieve, seconds)
        yield Piece(place, reply.text, reply)


def settled(task: Task, drafts: Sequence[Draft], sieve: Sieve, seconds: float) -> Reply:
    """The reply to one ask, from what the model wrote, best first; nothing was written where nobody waits for it."""
    ask = task.ask
    if not drafts:
        return Reply("", task.provenance, seconds=seconds, finish="cancelled")
    stopped = [until(draft.text, stops_of(ask)) for draft in drafts]
    ended = [draft.ended or text != draft.text for draft, text in zip(drafts, stopped, strict=True)]
    sifted = sift(
        sieve.filters,
        ask,
        [
            Candidate(text, draft.score, CUT if sieve.filters and not complete else None)
            for text, draft, complete in zip(stopped, drafts, ended, strict=True)
        ],
    )
    choice = choose(sifted, fallback=sieve.fallback, attempt=ask.attempt)
    said = choice.place
    return Reply(
        choice.text,
        task.provenance,
        choice.score,
        _listed(sifted, choice, sieve.listed),
        seconds=seconds,
        finish="stop" if said is None or ended[said] else "length",
        usage=Usage(task.read, 0 if said is None else drafts[said].tokens),
        note=choice.note,
    )


def flow(
    model: Generator, tasks: Sequence[Task], config: DecodingConfig, alive: Callable[[int], bool]
) -> Iterator[Piece]:
    """Each token as it comes."""
    start = time.perf_counter()
    rows = [_Row(model, stops_of(task.ask)) for task in tasks]
    talks, seeds = [task.talk for task in tasks], [seed_of(task.ask, config.method == "sample") for task in tasks]
    left = list(range(len(tasks)))

    def over(places: list[int]) -> Iterator[Piece]:
        for place in places:
            left.remove(place)
            row, task = rows[place], tasks[place]
            rest, finish = row.rest(), row.finish(config.max_tokens) or "cancelled"
            usage, seconds = Usage(task.read, row.count), time.perf_counter() - start
            yield Piece(place, rest, Reply(row.sent, task.provenance, seconds=seconds, finish=finish, usage=usage))

    for step in steps(model, talks, config, seeds, alive=lambda i: not rows[i].stopped and alive(i)):
        for row, token in zip(step.rows.tolist(), step.tokens.tolist(), strict=True):
            if new := rows[row].add(token):
                yield Piece(row, new)
        yield from over([row for row in left if rows[row].finish(config.max_tokens)])
    yield from over(list(left))  # nobody waits for these


class _Row:
    """A reply on its way."""

    def __init__(self, model: Generator, stops: Sequence[str]) -> None:
        self.model, self.stops = model, stops
        self.tokens: list[int] = []
        self.sent = ""
        self.count = 0
        self.ended = self.stopped = False

    def add(self, token: int) -> str:
        """Take a token; the new text that is safe to show: no half character or stop, no blank at its end."""
        self.count += 1
        if token == END:
            self.ended = True
            return ""
        self.tokens.append(token)
        text = self._text()
        if not self.stopped and (text.endswith("\ufffd") or begins_to_stop(text, self.stops)):
            return ""
        return self._unsent(text)

    def rest(self) -> str:
        """What was held back."""
        return self._unsent(self._text())

    def finish(self, most: int) -> Finish | None:
        """Why it is over, if it is."""
        if self.ended or self.stopped:
            return "stop"
        return "length" if self.count >= most else None

    def _text(self) -> str:
        complete = self.model.tokenizer.decode(self.tokens).strip()
        text = until(complete, self.stops)
        self.stopped = self.stopped or text != complete
        return text

    def _unsent(self, text: str) -> str:
        new = text[len(self.sent) :]
        self.sent += new
        return new


def _listed(sifted: Sequence[Sifted], choice: Choice, most: int) -> tuple[Candidate, ...]:
    """The best ones, and in any case the one that was said."""
    places = list(range(min(most, len(sifted))))
    if choice.place is not None and choice.place not in places:
        places[-1] = choice.place
    return tuple(sifted[place].candidate for place in places)


def seed_of(ask: Ask, drawn_once: bool) -> int:
    """A single draw has no next best to offer: another attempt is another draw."""
    return ask.seed + 1_000_003 * (ask.attempt - 1) if drawn_once else ask.seed


def at(alive: Callable[[int], bool], places: Sequence[int]) -> Callable[[int], bool]:
    """Who waits, for some of the asks."""
    return lambda i: alive(places[i])


def stops_of(ask: Ask) -> list[str]:
    """What ends a reply as soon as it is written."""
    value = ask.options.get("stop") or []
    return [s for s in ([value] if isinstance(value, str) else map(str, value)) if s]


def until(text: str, stops: Sequence[str]) -> str:
    """What comes before the first stop.

    >>> until("yes. no. maybe", ["no", "may"])
    'yes.'
    """
    ends = [place for stop in stops if (place := text.find(stop)) >= 0]
    return text[: min(ends)].strip() if ends else text


def begins_to_stop(text: str, stops: Sequence[str]) -> bool:
    """Whether a text ends in the beginning of a stop.

    >>> begins_to_stop("yes\\nBe", ["\\nBen:"]), begins_to_stop("yes", ["\\nBen:"])
    (True, False)
    """
    return any(text.endswith(stop[:n]) for stop in stops for n in range(1, len(stop)))
