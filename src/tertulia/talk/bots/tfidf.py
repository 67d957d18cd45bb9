"""The IR baseline of Persona-Chat (arXiv 1801.07243): retrieve the most similar message, and reply with its reply.

The personas that the bot is shown are part of the query, with a weight of their own. Differences from the paper: term
frequencies are sublinear, bigrams are terms too, a message is indexed by its last sentence as well as in full, and
replies that were already given are skipped. With `context=all` the query is the full conversation, as in the TF-IDF
baseline of the Ubuntu Dialogue Corpus (arXiv 1506.08909).
"""

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tertulia import __version__
from tertulia.artefacts.manifest import is_complete
from tertulia.core.config import Config
from tertulia.core.errors import UsageError
from tertulia.core.reply import Ask, Candidate, Provenance, Reply
from tertulia.corpus.load import SAMPLE, load_dialogues
from tertulia.talk.bot import BotTraits
from tertulia.talk.filters.base import NONE, make_filters
from tertulia.talk.filters.retrieval import CONSIDERED, MAX_CONSIDERED, choose_filtered
from tertulia.talk.repetition import SAID, SaidTexts, evidence_candidates, persona_sentences, text_key
from tertulia.talk.tfidf_index import Query, TfidfIndex, mixed

HEAD = 100
"""How many of the most similar rows are sorted first."""
TRAIN, ALL = "train", "all"
DRAWS = 20
"""How often a random reply is drawn before all are looked through for one that was not used."""
INSTANT_ROWS = 10_000
"""How large an index may be that is searched on a thread that others wait for."""
MAX_DROPPED = 5
"""How many candidates that were used before a reply's record lists: in a long conversation there are ever more."""


class TfidfOptions(Config):
    """Options of the search."""

    context: Literal["last", "all"] = "last"
    """The query: the last message, or all messages."""
    persona_weight: float = Field(default=0.5, ge=0)
    """Weight of the persona in the query when the bot replies, where the messages weigh 1; 0 ignores the persona."""
    rank_persona_weight: float = Field(default=1.5, ge=0)
    """Weight of the persona in the query when the bot ranks given replies."""
    filters: str = NONE
    """Which filters reject candidates, such as `consistent`: names separated by commas, parameters after colons. They
    see the best 50 at least, and up to 200 if none of these is good enough."""
    candidates: int = Field(default=10, ge=1, le=1000)
    """How many of the best replies to consider."""
    max_ngram: int = Field(default=2, ge=1, le=3)
    """Longest n-gram of words that is a term."""
    split: str = ""
    """Which split of a folder to index; by default `train` if the folder has files of that name, so that a bot never
    knows the dialogues it is judged on; `all` for everything in the folder."""
    evidence: bool = False
    """Whether the sentences of the evidence are candidates, too: each by its own similarity to the query."""


class TfidfBot:
    """Replies with what followed the most similar message of its data."""

    Options: ClassVar[type[Config]] = TfidfOptions
    target_help: ClassVar[str] = (
        "a file or folder of dialogues (its train split), a saved index, or `sample` (the default)"
    )
    summary = "Replies with what followed the most similar message of its data."

    def __init__(self, index: TfidfIndex, options: TfidfOptions | None = None, *, spec: str = "tfidf") -> None:
        self.index = index
        self.options = options or TfidfOptions()
        self.filters = make_filters(self.options.filters)
        self._keys = [text_key(pair.reply) for pair in index.pairs]
        self._said = SaidTexts(self._rows_by_key())
        self._settings = self.options.model_dump()
        self.spec = spec
        self.traits = BotTraits(reads_evidence=self.options.evidence, instant=self._is_instant())

    @property
    def fingerprint(self) -> str:
        """Of its index."""
        return self.index.fingerprint

    def _is_instant(self) -> bool:
        """Whether a search of this index for a short text takes less than a millisecond, whatever the text."""
        asks_more = self.options.context == "all" or self.options.evidence or bool(self.filters)
        return not asks_more and len(self.index.pair_of) <= INSTANT_ROWS

    def _rows_by_key(self) -> dict[str, list[int]]:
        """The rows of the index that lead to each reply."""
        rows: dict[str, list[int]] = {}
        for row, pair in enumerate(self.index.pair_of):
            rows.setdefault(self._keys[pair], []).append(row)
        return rows

    @classmethod
    def build(cls, target: str, options: TfidfOptions, /) -> Self:
        """From a saved index, or from dialogues that are indexed now."""
        target = target or "sample"
        if is_complete(Path(target)):
            index = TfidfIndex.load(Path(target))
        else:
            dialogues = load_dialogues(target, split=indexed_split(target, options.split))
            index = TfidfIndex.from_dialogues(dialogues, max_ngram=options.max_ngram)
        if not index.pairs:
            raise UsageError(f"{target} contains no dialogues.")
        return cls(index, options, spec=f"tfidf:{target}")

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        """The reply to the most similar message, unless it was already given in the conversation."""
        start = time.perf_counter()
        choices = [self._choose(ask, self._query(ask, self.options.persona_weight)) for ask in asks]
        seconds = time.perf_counter() - start
        return [
            Reply(
                choice.text,
                Provenance(self.spec, self.fingerprint, dict(self._settings), ask.seed, __version__),
                score=choice.score,
                candidates=choice.candidates,
                seconds=seconds,
                note=choice.note,
                redraws=choice.redraws,
            )
            for choice, ask in zip(choices, asks, strict=True)
        ]

    def score(self, asks: Sequence[Ask], candidates: Sequence[Sequence[str]], /) -> list[list[float]]:
        """Cosine of the query (messages and persona) with each candidate itself, which is how both papers rank."""
        queries = (self._query(ask, self.options.rank_persona_weight) for ask in asks)
        return [self.index.products(query, texts) for query, texts in zip(queries, candidates, strict=True)]

    def _query(self, ask: Ask, persona_weight: float) -> Query:
        query = self.index.query(self._query_text(ask))
        if not ask.dialogue.personas:
            return query
        return mixed(query, self.index.query(" ".join(persona_sentences(ask))), persona_weight)

    def _query_text(self, ask: Ask) -> str:
        return ask.last if self.options.context == "last" else "\n".join(turn.text for turn in ask.dialogue.turns)

    def _choose(self, ask: Ask, query: Query) -> "_Choice":
        """The reply to one ask."""
        said = self._said.of(ask.dialogue)
        used = said.keys
        if not ask.dialogue.turns and self.index.openers:
            return self._draw(ask.seed, self.index.openers, used, note="opened the conversation")
        from_evidence = self._from_evidence(ask, query, used) if self.options.evidence else []
        scores = self.index.search(query)
        used_rows = said.rows  # once: another message to the same conversation may add to it
        used_scores = scores.take(used_rows)
        scores[used_rows] = 0.0  # so that the best of the others are found at once, however many were used
        wanted = max(self.options.candidates, CONSIDERED) if self.filters else self.options.candidates
        unused = self._distinct(_best_first(scores, ask.seed), wanted)
        least = (unused[-1].score or 0.0) if len(unused) == wanted else 0.0
        both = [*from_evidence, *unused, *self._dropped(used_rows, used_scores, least)]
        if not both:
            every, note = range(len(self.index.pairs)), "none of the words are in its data: drew a random reply"
            return self._draw(ask.seed, every, used, note=note)
        candidates = tuple(sorted(both, key=lambda candidate: -(candidate.score or 0.0)))
        fresh = [candidate for candidate in candidates if candidate.dropped is None]
        if self.filters:
            rounds = self._rounds(candidates, scores, ask.seed)
            choice, listed, redraws = choose_filtered(self.filters, ask, rounds, listed=self.options.candidates)
            return _Choice(choice.text, choice.score, listed, choice.note, redraws)
        if not fresh:
            first = candidates[0]
            return _Choice(first.text, first.score, candidates, "every similar reply was used already: repeated one")
        chosen = fresh[(ask.attempt - 1) % len(fresh)]
        return _Choice(chosen.text, chosen.score, candidates, None)

    def _rounds(
        self, best: tuple[Candidate, ...], scores: NDArray[np.float64], seed: int
    ) -> Iterator[tuple[Candidate, ...]]:
        """What filters see: the best candidates, and then those that come after them."""
        yield best
        seen = {candidate.text for candidate in best}
        more = self._distinct(_best_first(scores, seed), MAX_CONSIDERED)
        yield tuple(one for one in more if one.text not in seen)

    def _dropped(self, rows: NDArray[np.int64], scores: NDArray[np.float64], least: float) -> list[Candidate]:
        """Some of the best replies that the conversation contains already and that score `least` or more; of equal ones
        those that were used first."""
        order = (-scores).argsort(kind="stable")[: 4 * MAX_DROPPED]  # a reply may have several rows
        best = zip(rows.take(order).tolist(), scores.take(order).tolist(), strict=True)
        return self._distinct(((row, score) for row, score in best if score and score >= least), MAX_DROPPED, SAID)

    def _distinct(self, rows: Iterable[tuple[int, float]], count: int, dropped: str | None = None) -> list[Candidate]:
        """The replies of the first rows, without duplicates."""
        pair_of, key_of = self.index.pair_of, self._keys
        candidates: list[Candidate] = []
        seen: set[str] = set()
        for row, score in rows:
            number = pair_of[row]
            key = key_of[number]
            if key not in seen:
                seen.add(key)
                candidates.append(self._candidate(number, score, dropped))
                if len(candidates) == count:
                    break
        return candidates

    def _candidate(self, pair: int, score: float, dropped: str | None) -> Candidate:
        _, reply, source = self.index.pairs[pair]
        return Candidate(reply, score, dropped, source)

    def _from_evidence(self, ask: Ask, query: Query, used: AbstractSet[str]) -> list[Candidate]:
        """The sentences of the evidence that share a word with the query."""
        sentences = evidence_candidates(ask)
        scores = self.index.products(query, [one.text for one in sentences])
        return [
            replace(one, score=score, dropped=SAID if text_key(one.text) in used else None)
            for one, score in zip(sentences, scores, strict=True)
            if score > 0
        ]

    def _draw(self, seed: int, indices: Sequence[int], used: AbstractSet[str], *, note: str) -> "_Choice":
        pair = self.index.pairs[self._draw_unused(random.Random(seed), indices, used)]
        return _Choice(pair.reply, 0.0, (Candidate(pair.reply, 0.0, None, pair.source),), note)

    def _draw_unused(self, rng: random.Random, indices: Sequence[int], used: AbstractSet[str]) -> int:
        """A random index whose reply was not used, or any if all were.

        Few replies were used, so drawing again is far cheaper than looking at all of them first.
        """
        for _ in range(DRAWS):
            index = rng.choice(indices)
            if text_key(self.index.pairs[index].reply) not in used:
                return index
        return rng.choice([i for i in indices if text_key(self.index.pairs[i].reply) not in used] or indices)


def indexed_split(target: str, split: str = "") -> str | None:
    """The split of a corpus that a bot indexes, given its option `split`; None for everything."""
    if split:
        return None if split == ALL else split
    if target == SAMPLE:
        return TRAIN
    folder = Path(target)
    return TRAIN if folder.is_dir() and any(file.name.startswith(TRAIN) for file in folder.iterdir()) else None


def _best_first(scores: NDArray[np.float64], seed: int) -> Iterator[tuple[int, float]]:
    """Indices of the scores above 0 and these scores, descending; ties are in a random order by the seed, never in that
    of the data.

    Callers rarely need more than the first few, so the rest is split and sorted only when it is reached.
    """
    rows, size = (scores > 0).nonzero()[0], HEAD
    while len(rows):
        values = scores.take(rows)
        is_best = _is_best(values, size)
        yield from _descending(rows.compress(is_best), values.compress(is_best), seed)
        rows, size = rows.compress(~is_best), 4 * size


def _is_best(values: NDArray[np.float64], count: int) -> NDArray[np.bool_]:
    """Which values are the largest ones: `count` of them, more if others are as large as the last one."""
    if len(values) <= count:
        return np.ones(len(values), np.bool_)
    parted = values.copy()
    parted.partition(-count)
    least: float = parted[-count]
    return values >= least


def _descending(rows: NDArray[np.int64], scores: NDArray[np.float64], seed: int) -> Iterator[tuple[int, float]]:
    """Rows and their scores, the best first, ties in the order of random numbers, one for each row.

    They are drawn only when a tie is reached: to seed a generator takes as long as to search.
    """
    order = scores.argsort()[::-1]
    sorted_rows, sorted_scores = rows.take(order).tolist(), scores.take(order).tolist()
    ties: NDArray[np.float64] | None = None
    start, count = 0, len(sorted_rows)
    while start < count:
        score, end = sorted_scores[start], start + 1
        while end < count and sorted_scores[end] == score:
            end += 1
        equal = sorted_rows[start:end]
        if end - start > 1:
            ties = np.random.default_rng(seed).random(count) if ties is None else ties
            equal = rows.take(sorted(order[start:end].tolist(), key=ties.__getitem__)).tolist()
        for row in equal:
            yield row, score
        start = end


class _Choice(NamedTuple):
    text: str
    score: float | None
    candidates: tuple[Candidate, ...]
    note: str | None
    redraws: int = 0
