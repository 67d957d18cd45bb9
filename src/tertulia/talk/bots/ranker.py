"""The bot behind every trained ranker: search the pool for replies that fit the conversation, score them, say the best.

The pool holds the utterances of the training dialogues (or of others, by the option `pool`), so every reply has a
source. The search sees the conversation alone; the persona counts when the retrieved replies are scored. With a
cross-encoder, the best few are read again, each together with the conversation. One class serves all rankers: a run's
manifest says which one to load.
"""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import nn

from tertulia import __version__
from tertulia.artefacts.manifest import is_complete
from tertulia.core.config import Config, load_toml
from tertulia.core.errors import BotError, UsageError
from tertulia.core.registry import Registry
from tertulia.core.reply import Ask, Candidate, Provenance, Reply
from tertulia.corpus.load import load_dialogues
from tertulia.models.checkpoint import ModelManifest, read_manifest
from tertulia.models.device import resolve_device
from tertulia.models.rankers.base import CandidateSet, Floats, PairScorer, Queries, Query, Ranker
from tertulia.models.registry import RANKERS, RERANKERS
from tertulia.models.threads import use_threads
from tertulia.talk.bot import BotTraits
from tertulia.talk.chat import OPENING
from tertulia.talk.filters.base import NONE, make_filters
from tertulia.talk.filters.retrieval import CONSIDERED, MAX_CONSIDERED, choose_filtered
from tertulia.talk.pool import LINES, ReplyPool
from tertulia.talk.repetition import RepetitionCheck, evidence_candidates, persona_sentences

RERANKED = 20
"""How many of the best a re-ranker reads."""
ASKS_AT_ONCE = 256
"""Asks encoded together."""
FOLLOW_WEIGHT = 1.5
"""See `RankerOptions.follow`; chosen with benchmarks/rank_talk.py."""
CACHED_REPLIES = 50_000
"""Given replies whose vectors are cached."""
MAX_TURNS = 20
"""Turns of context, if the run does not say how many it was trained with."""
TRAIN = "Train one with `tertulia train RECIPE.toml --out RUN` (configs/ has recipes)."


class RankerOptions(Config):
    """What it chooses from, and how."""

    pool: str = ""
    """Dialogues whose utterances are its replies (a file, a folder, or `sample`); by default the training dialogues."""
    candidates: int = Field(default=10, ge=1, le=1000)
    """How many of the best replies to consider."""
    breadth: int = Field(default=200, ge=1, le=10_000)
    """How many replies the search retrieves for the ranker to score; the persona counts among these."""
    follow: float | None = Field(default=None, ge=0, le=10)
    """Weight of the similarity between the message and the turn that a reply originally followed. By default 1.5 for
    rankers that encode messages and replies alike (minilm), for which a question is most similar to another question;
    0 for others."""
    repeat_overlap: float = Field(default=0.75, gt=0, le=1)
    """Drop replies that share this many words with one of the bot's own earlier turns (twice the shared words over the
    words of both); 1 drops only those with exactly the same words. Verbatim repetitions of any turn are always
    dropped."""
    filters: str = NONE
    """Which filters reject candidates, such as `consistent`: names separated by commas, parameters after colons. They
    see the best 50 at least, and up to 200 if none of these is good enough."""
    echo: float = Field(default=0.7, gt=0, le=1)
    """Drop replies that repeat this share of the words of the message, if those are more than three: what is most
    similar to a message is often the message itself."""
    max_turns: int | None = Field(default=None, ge=1)
    """Turns of context, the last ones; by default as many as in training."""
    evidence: bool = False
    """Whether the sentences of the evidence are candidates, too."""
    rerank: str = ""
    """The run of a cross-encoder that reorders the best 20."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Device to compute on; auto takes CUDA or MPS if available."""
    threads: int = Field(default=0, ge=0)
    """CPU threads, for all models of the process; 0 takes half the cores."""


class RankerBot:
    """Says the reply of its pool that fits best."""

    Options: ClassVar[type[Config]] = RankerOptions
    target_help: ClassVar[str] = "the folder of a training run"
    summary = "Retrieves the best-fitting utterance of its training dialogues."
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
        self.traits = BotTraits(max_batch=self.max_batch, reads_evidence=self.options.evidence)
        self.spec, self.fingerprint = spec, fingerprint
        self.filters = make_filters(self.options.filters)  # here, so that a wrong name fails at once
        self.max_turns = self.options.max_turns or max_turns
        default_follow = FOLLOW_WEIGHT if ranker.symmetric else 0.0
        self.follow = self.options.follow if self.options.follow is not None else default_follow
        self._vectors: dict[str, Floats] = {}
        self._lock = threading.Lock()

    @classmethod
    def build(cls, target: str, options: RankerOptions, /) -> Self:
        """Load a training run; its manifest names the ranker and verifies the files."""
        if not target:
            raise UsageError("A ranking bot needs the folder of a training run after its name.", hint=TRAIN)
        use_threads(options.threads)
        folder = Path(target)
        manifest = _manifest(folder)
        if manifest.model in RERANKERS:
            raise UsageError(
                f"The {manifest.model} in {folder} reorders replies but cannot search for them.",
                hint=f"Use it with a ranking bot: RUN?rerank={folder}",
            )
        ranker: Ranker = _load(RANKERS, manifest, folder, options)
        second = _manifest(Path(options.rerank)) if options.rerank else None
        return cls(
            ranker,
            _pool(folder, options, ranker),
            options,
            spec=f"{manifest.bot}:{target}",
            fingerprint="+".join(one.fingerprint for one in (manifest, second) if one),
            reranker=_load(RERANKERS, second, Path(options.rerank), options) if second else None,
            max_turns=_trained_turns(folder),
        )

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        """The best reply of the pool that was not used before."""
        replies: list[Reply] = []
        for start in range(0, len(asks), ASKS_AT_ONCE):
            part, began = asks[start : start + ASKS_AT_ONCE], time.perf_counter()
            queries = [self._query(ask) for ask in part]
            encoded = self.ranker.queries(queries)
            messages = self.ranker.replies([query.turns[-1] for query in queries]) if self.follow else encoded.vectors
            choices = [self._choose(ask, queries[i], _unpadded(encoded, i), messages[i]) for i, ask in enumerate(part)]
            seconds = time.perf_counter() - began
            replies += [
                Reply(
                    c.text,
                    self._provenance(ask),
                    c.score,
                    c.candidates,
                    seconds=seconds,
                    note=c.note,
                    redraws=c.redraws,
                )
                for ask, c in zip(part, choices, strict=True)
            ]
        return replies

    def score(self, asks: Sequence[Ask], candidates: Sequence[Sequence[str]], /) -> list[list[float]]:
        """The ranker's score of each candidate.

        With a re-ranker, the best 20 by that score come first, in the re-ranker's order.
        """
        if not any(candidates):
            return [[] for _ in asks]
        queries = [self._query(ask) for ask in asks]
        candidate_set = CandidateSet(candidates)
        encoded = self._encode_replies(candidate_set.texts)
        scores = candidate_set.scores(self.ranker, self.ranker.queries(queries), encoded)
        if self.reranker is None:
            return scores
        return [self._rerank(*row) for row in zip(queries, candidates, scores, strict=True)]

    def _encode_replies(self, texts: Sequence[str]) -> Floats:
        """Vectors of given replies; those of earlier calls are cached, as distractors come again and again."""
        with self._lock:
            vectors = {text: self._vectors[text] for text in texts if text in self._vectors}
        new = [text for text in texts if text not in vectors]
        vectors |= dict(zip(new, self.ranker.replies(new), strict=True)) if new else {}
        with self._lock:
            if len(self._vectors) + len(new) > CACHED_REPLIES:
                self._vectors.clear()
            self._vectors.update((text, vectors[text]) for text in new[:CACHED_REPLIES])
        return np.stack([vectors[text] for text in texts])

    def _query(self, ask: Ask) -> Query:
        turns = ask.dialogue.turns[-self.max_turns :]
        own = tuple(turn.speaker == ask.speaker for turn in turns)
        return Query(tuple(turn.text for turn in turns) or (OPENING,), persona_sentences(ask), own)

    def _provenance(self, ask: Ask) -> Provenance:
        return Provenance(self.spec, self.fingerprint, self.options.model_dump(), ask.seed, __version__)

    def _choose(self, ask: Ask, query: Query, encoded: Queries, message: Floats) -> "_Choice":
        pool = self._required_pool()
        if not ask.dialogue.turns:
            return self._opening(ask, query, encoded, pool)
        note = None
        if encoded.vectors.any():
            indices = self._retrieve(pool, encoded, message)
        else:
            note = "has none of these words in its vocabulary: sampled replies at random"
            rng = np.random.default_rng(ask.seed)
            indices = rng.choice(len(pool), min(self.options.breadth, len(pool)), replace=False)
        evidence = evidence_candidates(ask) if self.options.evidence else ()
        ranked = self._ranked(encoded, indices, ask.seed, pool, message if self.follow else None, evidence)
        if self.filters:
            rounds = self._rounds(ask, query, ranked)
            chosen, listed, redraws = choose_filtered(self.filters, ask, rounds, listed=self.options.candidates)
            return _Choice(chosen.text, chosen.score, listed, chosen.note or note, redraws)
        considered = self._considered(ask, query, ranked)
        allowed = [c for c in considered if c.dropped is None]
        if not allowed:
            best = considered[0]
            return _Choice(best.text, best.score, considered, "every reply had been used before: repeated one")
        choice = allowed[(ask.attempt - 1) % len(allowed)]
        return _Choice(choice.text, choice.score, considered, note)

    def _retrieve(self, pool: ReplyPool, encoded: Queries, message: Floats) -> NDArray[np.int64]:
        """The replies nearest to the conversation, and those that followed the utterances nearest to the message."""
        nearest: NDArray[np.int64] = pool.nearest(encoded.vectors, self.options.breadth).indices[0]
        if not self.follow:
            return nearest
        followers = pool.after[pool.nearest(message[None], self.options.breadth).indices[0]]
        union: NDArray[np.int64] = np.unique(np.concatenate([nearest, followers[followers >= 0]]))
        return union

    def _ranked(
        self,
        encoded: Queries,
        indices: NDArray[np.int64],
        seed: int,
        pool: ReplyPool,
        message: Floats | None = None,
        evidence: Sequence[Candidate] = (),
    ) -> Iterator[Candidate]:
        """Candidates by falling score; ties (up to rounding errors) are broken at random, by the seed."""
        scores = self.ranker.scores(encoded, pool.rows(indices)[None])[0]
        if message is not None:
            scores = scores + self.follow * float(scores.std()) * _follow_scores(pool, indices, message)
        candidates = [Candidate(pool.texts[i], None, None, pool.sources[i]) for i in indices]
        if evidence:  # nothing is known of what these would follow, which is a z-score of 0
            rows = self._encode_replies([candidate.text for candidate in evidence])
            scores = np.concatenate([scores, self.ranker.scores(encoded, rows[None])[0]])
            candidates += evidence
        tie_breakers = np.random.default_rng(seed).random(len(scores))
        spread = float(np.ptp(scores)) or 1.0
        order = np.lexsort((tie_breakers, -np.round(scores / spread, 6)))
        for i in order:
            yield replace(candidates[i], score=float(scores[i]))

    def _rounds(self, ask: Ask, query: Query, ranked: Iterator[Candidate]) -> Iterator[tuple[Candidate, ...]]:
        """What filters see: the best candidates, and then those that come after them."""
        best = self._considered(ask, query, ranked)
        yield best
        yield tuple(self._allowed(ask, ranked, MAX_CONSIDERED - sum(c.dropped is None for c in best)))

    def _considered(self, ask: Ask, query: Query, ranked: Iterator[Candidate]) -> tuple[Candidate, ...]:
        """The best candidates in their final order; those that must not be used are marked as dropped.

        A re-ranker reads only those that may be used; the dropped ones then come last.
        """
        wanted = max(self.options.candidates, CONSIDERED) if self.filters else self.options.candidates
        considered = self._allowed(ask, ranked, max(wanted, RERANKED) if self.reranker else wanted)
        if self.reranker is None:
            return tuple(considered)
        allowed = [c for c in considered if c.dropped is None]
        scores = self._rerank(query, [c.text for c in allowed], [c.score or 0.0 for c in allowed])
        order = sorted(range(len(allowed)), key=lambda i: -scores[i])[:wanted]
        return (*(replace(allowed[i], score=scores[i]) for i in order), *(c for c in considered if c.dropped))

    def _allowed(self, ask: Ask, ranked: Iterator[Candidate], count: int) -> list[Candidate]:
        """The next candidates, so many of which may be used; the others are marked as dropped."""
        check = RepetitionCheck.of(ask)
        considered: list[Candidate] = []
        while count > 0 and (candidate := next(ranked, None)) is not None:
            why = check.reason(candidate.text, repeat_overlap=self.options.repeat_overlap, echo=self.options.echo)
            considered.append(replace(candidate, dropped=why))
            count -= why is None
        return considered

    def _rerank(self, query: Query, texts: Sequence[str], scores: Sequence[float]) -> list[float]:
        """Scores by which the best 20 precede all others, in the re-ranker's order."""
        assert self.reranker is not None
        top = sorted(range(len(scores)), key=lambda i: -scores[i])[:RERANKED]
        if not top:
            return []
        (second,) = self.reranker.score_pairs([query], [[texts[i] for i in top]])
        in_top = set(top)
        rest = [score for i, score in enumerate(scores) if i not in in_top]
        lift = max(rest) + 1 - min(second) if rest else 0.0
        final = list(scores)
        for i, score in zip(top, second, strict=True):
            final[i] = score + lift
        return final

    def _opening(self, ask: Ask, query: Query, encoded: Queries, pool: ReplyPool) -> "_Choice":
        """A turn that opened a dialogue: any of them, or one of those that fit the persona best."""
        rng = random.Random(ask.seed)
        count = self.options.candidates
        if query.persona and pool.openers:
            candidates = tuple(islice(self._ranked(encoded, np.array(pool.openers), ask.seed, pool), count))
            order = rng.sample(candidates, len(candidates))
        else:
            openers = pool.openers or range(len(pool))
            indices = rng.sample(openers, min(count, len(openers)))
            candidates = tuple(Candidate(pool.texts[i], None, None, pool.sources[i]) for i in indices)
            order = list(candidates)
        choice = order[(ask.attempt - 1) % len(order)]
        return _Choice(choice.text, choice.score, candidates, "opened the conversation")

    def _required_pool(self) -> ReplyPool:
        if self.pool is None:
            raise BotError(
                f"{self.spec} was trained without a pool of replies: it can rank given replies, but not talk.",
                hint="Give it dialogues to take replies from, with the option pool=DATA.",
            )
        return self.pool


class _Choice(NamedTuple):
    text: str
    score: float | None
    candidates: tuple[Candidate, ...]
    note: str | None
    redraws: int = 0


def _unpadded(encoded: Queries, row: int) -> Queries:
    """One query without the padding of its batch, so that its scores are the same in every batch."""
    query = encoded.rows(row, row + 1)
    if query.memory is None:
        return query
    sentences = np.flatnonzero(query.memory[0].any(axis=1))
    return Queries(query.vectors, query.memory[:, : sentences[-1] + 1] if len(sentences) else None)


def _follow_scores(pool: ReplyPool, indices: NDArray[np.int64], message: Floats) -> Floats:
    """Cosine similarity of the message and the turn that each reply originally followed, as z-scores.

    Replies whose preceding turn is not in the pool have 0.
    """
    preceding = pool.before[indices]
    has_preceding = preceding >= 0
    turns = pool.rows(preceding[has_preceding])
    similarity = turns @ message / np.maximum(np.linalg.norm(turns, axis=1) * np.linalg.norm(message), 1e-9)
    scores = np.zeros(len(indices), np.float32)
    if has_preceding.any():
        scores[has_preceding] = (similarity - similarity.mean()) / (float(similarity.std()) or 1.0)
    return scores


def _load(table: Registry, manifest: ModelManifest, folder: Path, options: RankerOptions) -> Any:
    """The model of a run, moved to its device."""
    model: nn.Module = table.get(manifest.model).load(folder)
    return model.to(resolve_device(options.device))


def _manifest(folder: Path) -> ModelManifest:
    if not is_complete(folder):
        raise UsageError(f"{folder} is not the folder of a finished training run.", hint=TRAIN)
    return read_manifest(folder)


def _trained_turns(folder: Path) -> int:
    config = folder / "config.toml"
    return int(load_toml(config).get("max_turns", MAX_TURNS)) if config.is_file() else MAX_TURNS


def _pool(folder: Path, options: RankerOptions, ranker: Ranker) -> ReplyPool | None:
    """The pool of the given dialogues, encoded now, or the run's own; None if it has none."""
    if options.pool:
        return ReplyPool.of(load_dialogues(options.pool, split="train" if options.pool == "sample" else None), ranker)
    return ReplyPool.load(folder) if (folder / LINES).is_file() else None
