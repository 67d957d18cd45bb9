"""The IR baseline of Persona-Chat (arXiv 1801.07243): find the most similar message ever read, answer with its reply.

The personas the bot is shown are part of the query, with a weight of their own. Differences from the paper: words are
weighed sublinearly, pairs of neighbouring words count too, a message is found by its last sentence as well as by all of
it, and a reply the bot has already given is passed over. With `context=all` the query is the whole conversation, as in
the TF-IDF baseline of the Ubuntu Dialogue Corpus (arXiv 1506.08909).
"""

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field
from scipy import sparse
from sklearn.preprocessing import normalize

from tertulia import __version__
from tertulia.core.config import Config
from tertulia.core.errors import UsageError
from tertulia.core.reply import Ask, Candidate, Provenance, Reply
from tertulia.corpus.load import load_dialogues
from tertulia.talk.choosing import SAID, known_sentences, text_key
from tertulia.talk.lexical import TfidfIndex
from tertulia.talk.spec import MANIFEST

HEAD = 100
"""How many of the nearest rows are put in order at once."""


class TfidfOptions(Config):
    """How it searches."""

    context: Literal["last", "all"] = "last"
    """What is looked for: the last message, or all that was said."""
    persona_weight: float = Field(0.5, ge=0)
    """Weight of the persona beside what was said in the query when the bot talks; 0 ignores it."""
    rank_persona_weight: float = Field(1.5, ge=0)
    """The same when given replies are ranked."""
    candidates: int = Field(10, ge=1, le=1000)
    """How many of the nearest replies to consider."""
    max_ngram: int = Field(2, ge=1, le=3)
    """Longest run of neighbouring words that counts as a term."""


class TfidfBot:
    """Answers with the reply to the most similar message it has read."""

    Options: ClassVar[type[Config]] = TfidfOptions
    target_help: ClassVar[str] = "a file or folder of dialogues, a saved index, or `sample` (the default)"
    summary = "Answers with the reply to the most similar message it has read."

    def __init__(self, index: TfidfIndex, options: TfidfOptions | None = None, *, spec: str = "tfidf") -> None:
        self.index = index
        self.options = options or TfidfOptions()
        self.spec = spec

    @classmethod
    def build(cls, target: str, options: TfidfOptions, /) -> Self:
        """From a saved index where the target is one, else from dialogues indexed now."""
        target = target or "sample"
        if (Path(target) / MANIFEST).is_file():
            index = TfidfIndex.load(Path(target))
        else:
            split = "train" if target == "sample" else None
            index = TfidfIndex.from_dialogues(load_dialogues(target, split=split), max_ngram=options.max_ngram)
        if not index.pairs:
            raise UsageError(f"There are no dialogues in {target}.")
        return cls(index, options, spec=f"tfidf:{target}")

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        """The reply to the nearest message that the bot has not given before."""
        if not asks:
            return []
        start = time.perf_counter()
        near = self.index.similarity(self._queries(asks, self.options.persona_weight))
        chosen = [self._choose(ask, near[[row], :]) for row, ask in enumerate(asks)]
        seconds = time.perf_counter() - start
        return [
            Reply(
                choice.text,
                Provenance(self.spec, self.index.fingerprint, self.options.model_dump(), ask.seed, __version__),
                score=choice.score,
                candidates=choice.candidates,
                seconds=seconds,
                note=choice.note,
            )
            for choice, ask in zip(chosen, asks, strict=True)
        ]

    def score(self, asks: Sequence[Ask], candidates: Sequence[Sequence[str]], /) -> list[list[float]]:
        """Cosine of the query (what was said, and the persona) with each candidate itself, as both papers rank."""
        if not asks:
            return []
        queries = self._queries(asks, self.options.rank_persona_weight)
        flat = self.index.vectors([text for texts in candidates for text in texts])
        owner = np.repeat(np.arange(len(asks)), [len(texts) for texts in candidates])
        scores = np.asarray(queries[owner].multiply(flat).sum(axis=1)).ravel()
        ends = np.cumsum([len(texts) for texts in candidates])
        return [part.tolist() for part in np.split(scores, ends[:-1])]

    def _queries(self, asks: Sequence[Ask], persona_weight: float) -> sparse.csr_array:
        said = self.index.vectors([self._said(ask) for ask in asks])
        persona = self.index.vectors([" ".join(known_sentences(ask)) for ask in asks])
        return sparse.csr_array(normalize(said + persona_weight * persona))

    def _said(self, ask: Ask) -> str:
        return ask.last if self.options.context == "last" else "\n".join(turn.text for turn in ask.dialogue.turns)

    def _choose(self, ask: Ask, near: sparse.csr_array) -> "_Choice":
        rng = random.Random(ask.seed)
        said = {text_key(turn.text) for turn in ask.dialogue.turns}
        if not ask.dialogue.turns and self.index.openers:
            return self._drawn(rng, self.index.openers, said, note="opened the conversation")
        if near.nnz == 0:
            return self._drawn(
                rng, range(len(self.index.pairs)), said, note="knows none of these words: drew a reply at random"
            )
        considered = self._considered(near, _best_first(near.data, ask.seed), said)
        fresh = [c for c in considered if c.dropped is None]
        if not fresh:
            first = considered[0]
            return _Choice(first.text, first.score, considered, "had said all it could think of: repeated itself")
        chosen = fresh[(ask.attempt - 1) % len(fresh)]
        return _Choice(chosen.text, chosen.score, considered, None)

    def _considered(self, near: sparse.csr_array, order: Iterable[int], said: set[str]) -> tuple[Candidate, ...]:
        """The nearest replies, no text twice, with those the conversation has heard already marked as dropped."""
        found: list[Candidate] = []
        texts: set[str] = set()
        kept = 0
        for place in order:
            pair = self.index.pairs[self.index.pair_of[near.indices[place]]]
            key = text_key(pair.reply)
            if key in texts:
                continue
            texts.add(key)
            dropped = SAID if key in said else None
            found.append(Candidate(pair.reply, float(near.data[place]), dropped, pair.source))
            kept += dropped is None
            if kept >= self.options.candidates:
                break
        return tuple(found)

    def _drawn(self, rng: random.Random, places: Sequence[int], said: set[str], *, note: str) -> "_Choice":
        fresh = [i for i in places if text_key(self.index.pairs[i].reply) not in said] or places
        pair = self.index.pairs[rng.choice(fresh)]
        return _Choice(pair.reply, 0.0, (Candidate(pair.reply, 0.0, None, pair.source),), note)


def _best_first(scores: np.ndarray, seed: int) -> Iterator[int]:
    """Places by falling score; equal scores in an order drawn from the seed, never in the order of the data.

    Hardly anybody asks for more than the first few, so the rest is only put in order when somebody does.
    """
    draw = np.random.default_rng(seed).random(len(scores))
    floor = np.partition(scores, -HEAD)[-HEAD] if len(scores) > HEAD else -np.inf
    for part in (np.flatnonzero(scores >= floor), np.flatnonzero(scores < floor)):
        yield from part[np.lexsort((draw[part], -scores[part]))].tolist()


class _Choice(NamedTuple):
    text: str
    score: float | None
    candidates: tuple[Candidate, ...]
    note: str | None
