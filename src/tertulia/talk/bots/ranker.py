"""The bot behind every trained ranker: search the pool for what fits the conversation, score the found, say the best.

What may be said is what people have said in the training dialogues (or in others, by the option `pool`), so every reply
has a source. The search looks at the conversation alone; the persona counts when the found replies are scored, in the
way the ranker has it. With a cross-encoder behind it, the best few are read once more, each together with the
conversation. One class serves all rankers: a run's manifest says which one to load.
"""

import random
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tertulia import __version__
from tertulia.core.config import Config, load_toml
from tertulia.core.errors import BotError, UsageError
from tertulia.core.registry import Registry
from tertulia.core.reply import Ask, Candidate, Provenance, Reply
from tertulia.corpus.load import load_dialogues
from tertulia.models.checkpoint import MANIFEST, Manifest, read_manifest
from tertulia.models.ranker import Floats, Game, Queries, Query, Ranker
from tertulia.models.table import RANKERS
from tertulia.models.threads import use_threads
from tertulia.talk.chat import OPENING
from tertulia.talk.choosing import Heard, known_sentences
from tertulia.talk.pool import LINES, ReplyPool

RERANKED = 20
"""How many of the best a re-ranker reads."""
AT_ONCE = 256
"""Asks encoded at once."""
FOLLOW = 1.5
"""See `RankerOptions.follow`; chosen with benchmarks/rank_talk.py."""
REMEMBERED = 50_000
"""Given replies whose vectors are remembered."""
MAX_TURNS = 20
"""Turns of context read where a run does not say what it was trained with."""
TRAIN = "Train one with `tertulia train RECIPE.toml --out RUN` (configs/ has recipes), then talk to RUN."

RERANKERS = Registry("re-ranker", "tertulia.rerankers")
RERANKERS.add("cross-encoder", "tertulia.models.cross_encoder:CrossEncoder", "reads query and reply together")


class PairScorer(Protocol):
    """What a re-ranker can do."""

    def score_pairs(self, queries: Sequence[Query], texts: Sequence[Sequence[str]], /) -> list[list[float]]:
        """For each query, the score of each of its texts."""
        ...


class RankerOptions(Config):
    """What it chooses from, and how."""

    pool: str = ""
    """Dialogues whose utterances it may say (a file, a folder, or `sample`); those it was trained on by default."""
    candidates: int = Field(10, ge=1, le=1000)
    """How many of the best replies to consider."""
    breadth: int = Field(200, ge=1, le=10_000)
    """How many replies the search finds for the ranker to score; the persona has its say among these."""
    follow: float | None = Field(None, ge=0, le=10)
    """Weight of how like the message is to the one that a reply answered where it was said. By default 1.5 for a ranker
    that reads messages and replies alike (minilm), to which a question is most like another question; 0 for others."""
    repeat_overlap: float = Field(0.75, gt=0, le=1)
    """A reply is dropped when it shares this many words with one of the bot's own earlier turns (twice the shared words
    over the words of both); 1 drops only those of the same words. What anybody has said already is always dropped."""
    echo: float = Field(0.7, gt=0, le=1)
    """A reply is dropped when it says this share of the words of the message again, if those are more than three: what
    is most like a message is often the message itself."""
    max_turns: int | None = Field(None, ge=1)
    """Turns of context that are read, the last ones; as many as in training by default."""
    rerank: str = ""
    """The run of a cross-encoder that puts the best 20 in their final order."""
    threads: int = Field(0, ge=0)
    """Threads to compute with, for all models of the process; 0 takes half the cores."""


class RankerBot:
    """Says the reply of its pool that fits best."""

    Options: ClassVar[type[Config]] = RankerOptions
    target_help: ClassVar[str] = "the folder of a training run"
    summary = "Says what fits best of all that was said in its training dialogues."
    max_batch = 64

    def __init__(
        self,
        ranker: Ranker,
        pool: ReplyPool | None,
        options: RankerOptions | None = None,
        *,
        spec: str = "ranker",
        fingerprint: str | None = None,
        reranker: PairScorer | None = None,
        max_turns: int = MAX_TURNS,
    ) -> None:
        self.ranker, self.pool, self.reranker = ranker, pool, reranker
        self.options = options or RankerOptions()
        self.spec, self.fingerprint = spec, fingerprint
        self.max_turns = self.options.max_turns or max_turns
        alike = bool(getattr(ranker, "reads_alike", False))
        self.follow = self.options.follow if self.options.follow is not None else FOLLOW * alike
        self._known: dict[str, Floats] = {}
        self._lock = threading.Lock()

    @classmethod
    def build(cls, target: str, options: RankerOptions, /) -> Self:
        """From a training run; its manifest says which ranker it is, and vouches for its files."""
        if not target:
            raise UsageError("A ranking bot needs the folder of a training run after its name.", hint=TRAIN)
        use_threads(options.threads)
        folder = Path(target)
        manifest = _manifest(folder)
        if manifest.model in RERANKERS:
            raise UsageError(
                f"The {manifest.model} in {folder} can put replies in order, but not search for them.",
                hint=f"Give it to a ranking bot: RUN?rerank={folder}",
            )
        ranker: Ranker = RANKERS.get(manifest.model).load(folder)
        second = _manifest(Path(options.rerank)) if options.rerank else None
        return cls(
            ranker,
            _pool(folder, options, ranker),
            options,
            spec=f"{manifest.bot}:{target}",
            fingerprint="+".join(one.fingerprint for one in (manifest, second) if one),
            reranker=RERANKERS.get(second.model).load(Path(options.rerank)) if second else None,
            max_turns=_trained_turns(folder),
        )

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        """The best reply of the pool that was not said before."""
        found: list[Reply] = []
        for at in range(0, len(asks), AT_ONCE):
            part, start = asks[at : at + AT_ONCE], time.perf_counter()
            queries = [self._query(ask) for ask in part]
            encoded = self.ranker.queries(queries)
            messages = self.ranker.replies([query.turns[-1] for query in queries]) if self.follow else encoded.vectors
            chosen = [self._choose(ask, queries[i], _one(encoded, i), messages[i]) for i, ask in enumerate(part)]
            seconds = time.perf_counter() - start
            found += [
                Reply(c.text, self._provenance(ask), c.score, c.candidates, seconds=seconds, note=c.note)
                for ask, c in zip(part, chosen, strict=True)
            ]
        return found

    def score(self, asks: Sequence[Ask], candidates: Sequence[Sequence[str]], /) -> list[list[float]]:
        """The ranker's score of each candidate.

        With a re-ranker, the best 20 by that score come first, in the order of the re-ranker's.
        """
        if not any(candidates):
            return [[] for _ in asks]
        queries = [self._query(ask) for ask in asks]
        game = Game(candidates)
        first = game.scores(self.ranker, self.ranker.queries(queries), self._encoded(game.texts))
        if self.reranker is None:
            return first
        return [self._reranked(*row) for row in zip(queries, candidates, first, strict=True)]

    def _encoded(self, texts: Sequence[str]) -> Floats:
        """Vectors of given replies; those of the last calls are remembered, as distractors come again and again."""
        with self._lock:
            known = {text: self._known[text] for text in texts if text in self._known}
        new = [text for text in texts if text not in known]
        known |= dict(zip(new, self.ranker.replies(new), strict=True)) if new else {}
        with self._lock:
            if len(self._known) + len(new) > REMEMBERED:
                self._known.clear()
            self._known.update((text, known[text]) for text in new[:REMEMBERED])
        return np.stack([known[text] for text in texts])

    def _query(self, ask: Ask) -> Query:
        turns = tuple(turn.text for turn in ask.dialogue.turns[-self.max_turns :])
        return Query(turns or (OPENING,), known_sentences(ask))

    def _provenance(self, ask: Ask) -> Provenance:
        return Provenance(self.spec, self.fingerprint, self.options.model_dump(), ask.seed, __version__)

    def _choose(self, ask: Ask, query: Query, encoded: Queries, message: Floats) -> "_Choice":
        pool = self._needed_pool()
        if not ask.dialogue.turns:
            return self._opening(ask, query, encoded, pool)
        note = None
        if encoded.vectors.any():
            places = self._found(pool, encoded, message)
        else:
            note = "knows none of these words: drew replies at random"
            rng = np.random.default_rng(ask.seed)
            places = rng.choice(len(pool), min(self.options.breadth, len(pool)), replace=False)
        ranked = self._ranked(encoded, places, ask.seed, pool, message if self.follow else None)
        considered = self._considered(ask, query, ranked)
        fresh = [c for c in considered if c.dropped is None]
        if not fresh:
            first = considered[0]
            return _Choice(first.text, first.score, considered, "had said all it could think of: repeated itself")
        chosen = fresh[(ask.attempt - 1) % len(fresh)]
        return _Choice(chosen.text, chosen.score, considered, note)

    def _found(self, pool: ReplyPool, encoded: Queries, message: Floats) -> NDArray[np.int64]:
        """What is nearest to the conversation, and what was said after that which is nearest to the message."""
        places: NDArray[np.int64] = pool.nearest(encoded.vectors, self.options.breadth).places[0]
        if not self.follow:
            return places
        answers = pool.after[pool.nearest(message[None], self.options.breadth).places[0]]
        found: NDArray[np.int64] = np.unique(np.concatenate([places, answers[answers >= 0]]))
        return found

    def _ranked(
        self, encoded: Queries, places: NDArray[np.int64], seed: int, pool: ReplyPool, message: Floats | None = None
    ) -> Iterator[Candidate]:
        """All that was found by falling score; equal scores (but for the noise of sums) in an order by the seed."""
        scores = self.ranker.scores(encoded, pool.rows(places)[None])[0]
        if message is not None:
            scores = scores + self.follow * float(scores.std()) * _followed(pool, places, message)
        draw = np.random.default_rng(seed).random(len(scores))
        spread = float(np.ptp(scores)) or 1.0
        order = np.lexsort((draw, -np.round(scores / spread, 6)))
        for i in order:
            yield Candidate(pool.texts[places[i]], float(scores[i]), None, pool.sources[places[i]])

    def _considered(self, ask: Ask, query: Query, ranked: Iterable[Candidate]) -> tuple[Candidate, ...]:
        """The best ones in their final order, with what must not be said marked as dropped.

        A re-ranker reads only what may be said; the dropped ones then stand at the end.
        """
        heard, wanted = Heard.by(ask), self.options.candidates
        room = max(wanted, RERANKED) if self.reranker else wanted
        found: list[Candidate] = []
        for candidate in ranked:
            why = heard.against(candidate.text, repeat_overlap=self.options.repeat_overlap, echo=self.options.echo)
            found.append(replace(candidate, dropped=why))
            room -= why is None
            if room == 0:
                break
        if self.reranker is None:
            return tuple(found)
        fresh = [c for c in found if c.dropped is None]
        scores = self._reranked(query, [c.text for c in fresh], [c.score or 0.0 for c in fresh])
        order = sorted(range(len(fresh)), key=lambda i: -scores[i])[:wanted]
        return (*(replace(fresh[i], score=scores[i]) for i in order), *(c for c in found if c.dropped))

    def _reranked(self, query: Query, texts: Sequence[str], scores: Sequence[float]) -> list[float]:
        """Scores by which the best 20 stand before all others, in the re-ranker's order."""
        assert self.reranker is not None
        top = sorted(range(len(scores)), key=lambda i: -scores[i])[:RERANKED]
        if not top:
            return []
        (second,) = self.reranker.score_pairs([query], [[texts[i] for i in top]])
        rest = [score for i, score in enumerate(scores) if i not in set(top)]
        lift = max(rest) + 1 - min(second) if rest else 0.0
        found = list(scores)
        for i, score in zip(top, second, strict=True):
            found[i] = score + lift
        return found

    def _opening(self, ask: Ask, query: Query, encoded: Queries, pool: ReplyPool) -> "_Choice":
        """One of the turns that opened dialogues: any of them, or one of those that fit the persona best."""
        rng = random.Random(ask.seed)
        count = self.options.candidates
        if query.persona and pool.openers:
            drawn = tuple(islice(self._ranked(encoded, np.array(pool.openers), ask.seed, pool), count))
            order = rng.sample(drawn, len(drawn))
        else:
            some = pool.openers or range(len(pool))
            places = rng.sample(some, min(count, len(some)))
            drawn = tuple(Candidate(pool.texts[place], None, None, pool.sources[place]) for place in places)
            order = list(drawn)
        chosen = order[(ask.attempt - 1) % len(order)]
        return _Choice(chosen.text, chosen.score, drawn, "opened the conversation")

    def _needed_pool(self) -> ReplyPool:
        if self.pool is None:
            raise BotError(
                f"{self.spec} was trained without a pool of replies: it can rank given replies, but not talk.",
                hint="Give it dialogues to talk from, with the option pool=DATA.",
            )
        return self.pool


class _Choice(NamedTuple):
    text: str
    score: float | None
    candidates: tuple[Candidate, ...]
    note: str | None


def _one(encoded: Queries, row: int) -> Queries:
    """One query without the padding its batch gave it, so that its scores are the same in every batch."""
    one = encoded.rows(row, row + 1)
    if one.memory is None:
        return one
    there = np.flatnonzero(one.memory[0].any(axis=1))
    return Queries(one.vectors, one.memory[:, : there[-1] + 1] if len(there) else None)


def _followed(pool: ReplyPool, places: NDArray[np.int64], message: Floats) -> Floats:
    """How like the message is to what each reply answered where it was said, in deviations from the mean of them all;
    0 where that is not known.
    """
    answered = pool.before[places]
    known = answered >= 0
    said = pool.rows(answered[known])
    likeness = said @ message / np.maximum(np.linalg.norm(said, axis=1) * np.linalg.norm(message), 1e-9)
    found = np.zeros(len(places), np.float32)
    if known.any():
        found[known] = (likeness - likeness.mean()) / (float(likeness.std()) or 1.0)
    return found


def _manifest(folder: Path) -> Manifest:
    if not (folder / MANIFEST).is_file():
        raise UsageError(f"{folder} is not the folder of a finished training run.", hint=TRAIN)
    return read_manifest(folder)


def _trained_turns(folder: Path) -> int:
    config = folder / "config.toml"
    return int(load_toml(config).get("max_turns", MAX_TURNS)) if config.is_file() else MAX_TURNS


def _pool(folder: Path, options: RankerOptions, ranker: Ranker) -> ReplyPool | None:
    """The dialogues asked for, encoded now, or what the run left; None where it left nothing."""
    if options.pool:
        return ReplyPool.of(load_dialogues(options.pool, split="train" if options.pool == "sample" else None), ranker)
    return ReplyPool.load(folder) if (folder / LINES).is_file() else None
