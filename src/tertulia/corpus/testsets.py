"""Test sets for next-reply ranking, as in the Ubuntu papers (Lowe et al. 2015 and its version 2).

Each dialogue yields one context of random length and its true reply, together with distractors drawn at random or, for
hard sets, from the replies most similar to the true one. Version 1 draws short contexts more often; version 2 draws
lengths uniformly, up to 18 turns. Training data for the same task are triples of context, reply and flag.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Annotated, Literal

import numpy as np
from pydantic import Field

from tertulia.artefacts.outputs import Force, Output, write_output
from tertulia.core.codec import dump_line, persona_to_json
from tertulia.core.dialogue import Dialogue, Exchange, Json, Turn, exchanges
from tertulia.core.errors import DataError
from tertulia.core.text import squash, words
from tertulia.corpus.config import ReadConfig
from tertulia.corpus.readers.ubuntu_pairs import join_ranking
from tertulia.corpus.write import save_exchanges


class TestSetConfig(ReadConfig):
    """What a test set contains."""

    __test__ = False  # not a test, although pytest would collect the name

    out: Annotated[Path, Output("file")] = Path("testset.jsonl")
    """File to write: .jsonl, or .csv in the layout of the Ubuntu corpus."""
    triples: bool = False
    """Write training data instead: context, reply and flag, for every utterance from the third on once with the true
    reply and once with a false one. The options below, other than the seed, then do not matter."""
    version: Literal[1, 2] = 1
    """Version of the Ubuntu corpus whose rule for context lengths to use."""
    max_context: int = Field(default=20, ge=4)
    """Version 1: the parameter C, the target for the longest context. Version 2: contexts have at most this minus two
    turns, as in the authors' script."""
    distractors: int = Field(default=9, ge=1, le=999)
    """Number of false replies per true reply."""
    hard: bool = False
    """Draw distractors from the replies most similar to the true one instead of from all replies."""
    pool: int = Field(default=50, ge=1)
    """With --hard: how many of the most similar replies to draw from."""
    seed: int = 0
    """Random seed."""
    force: Force = False


@dataclass(frozen=True, slots=True)
class TestItem:
    """A context and its candidates, one of which is the true reply."""

    __test__ = False

    exchange: Exchange
    candidates: tuple[str, ...]
    truth: int
    """Index of the true reply."""


def context_length(turns: int, rng: random.Random, config: TestSetConfig) -> int:
    """How many of a dialogue's turns become the context; at least one, and one is left as the reply.

    Version 1: c = min(t - 1, n - 1) with n = 10 C / eta + 2 and eta uniform in [C / 2, 10 C]. Version 2: uniform.
    """
    if config.version == 2:
        return rng.randint(min(2, turns - 1), min(turns - 1, config.max_context - 2))
    eta = rng.uniform(config.max_context / 2, 10 * config.max_context)
    return min(turns - 1, int(10 * config.max_context / eta + 2) - 1)


def make_test_set(dialogues: Sequence[Dialogue], config: TestSetConfig) -> list[TestItem]:
    """One item per dialogue of two turns or more."""
    rng = random.Random(config.seed)
    cuts = [_cut(d, context_length(len(d.turns), rng, config)) for d in dialogues if len(d.turns) >= 2]
    replies = [e.response.text for e in cuts]
    if len({_key(r) for r in replies}) <= config.distractors:
        raise DataError(
            f"{len(replies)} dialogues are too few for {config.distractors} distractors each.",
            hint="Use fewer --distractors.",
        )
    near = _nearest(replies, config.pool) if config.hard else None
    return [_item(i, cuts, replies, near, rng, config) for i in range(len(cuts))]


def item_to_json(item: TestItem) -> dict[str, Json]:
    """For .jsonl files; with speaker and personas, so that bots with a persona can be evaluated."""
    exchange = item.exchange
    record: dict[str, Json] = {
        "id": exchange.id,
        "context": [{"speaker": t.speaker, "text": t.text} for t in exchange.context],
        "speaker": exchange.response.speaker,
        "candidates": list(item.candidates),
        "truth": item.truth,
    }
    personas = {"persona": exchange.persona, "partner": exchange.partner}
    return record | {name: persona_to_json(persona) for name, persona in personas.items() if persona}


def save_test_set(items: Sequence[TestItem], path: Path) -> None:
    """Write a test set as .csv in the layout of the Ubuntu corpus, or else as JSON lines."""
    with write_output(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as out:
        if path.suffix == ".csv":
            write_ubuntu_csv(items, out)
        else:
            out.writelines(dump_line(item_to_json(item)) + "\n" for item in items)


def write_ubuntu_csv(items: Sequence[TestItem], out: IO[str]) -> None:
    """The layout of the Ubuntu corpus' test files: context, true reply, distractors; tags end utterances and turns."""
    out.writelines(join_ranking(with_candidates(item) for item in items))


def with_candidates(item: TestItem) -> Exchange:
    """The exchange with the candidates in its reply's `meta`, the true reply first."""
    others = (text for i, text in enumerate(item.candidates) if i != item.truth)
    meta = dict(item.exchange.response.meta) | {"candidates": [item.exchange.response.text, *others]}
    return replace(item.exchange, response=replace(item.exchange.response, meta=meta))


def training_triples(dialogues: Sequence[Dialogue], *, seed: int = 0) -> Iterator[Exchange]:
    """Every utterance from the third on, once as the true reply (label 1) and once replaced by a false one (0)."""
    rng = random.Random(seed)
    utterances = [turn.text for d in dialogues for turn in d.turns]
    for dialogue in dialogues:
        for i in range(2, len(dialogue.turns)):
            true = replace(_cut(dialogue, i), label="1")
            yield true
            false = Turn(true.response.speaker, _other(rng, utterances, true.response.text))
            yield replace(true, id=f"{true.id}/false", response=false, label="0")


def save_triples(dialogues: Sequence[Dialogue], path: Path, *, seed: int = 0) -> int:
    """Write training triples as .csv in the layout of the Ubuntu corpus, or else as exchanges; returns how many."""
    layout = "ubuntu-pairs" if path.suffix == ".csv" else "exchanges"
    return save_exchanges(training_triples(dialogues, seed=seed), path, format=layout)


def _cut(dialogue: Dialogue, length: int) -> Exchange:
    return next(exchanges(dialogue, min_context=length))


def _item(
    i: int,
    cuts: Sequence[Exchange],
    replies: Sequence[str],
    near: np.ndarray | None,
    rng: random.Random,
    config: TestSetConfig,
) -> TestItem:
    taken = {_key(replies[i])}
    others: list[str] = []
    similar = list(near[i]) if near is not None else []
    rng.shuffle(similar)
    while len(others) < config.distractors:
        text = replies[similar.pop() if similar else rng.randrange(len(replies))]
        if _key(text) not in taken:
            taken.add(_key(text))
            others.append(text)
    truth = rng.randrange(config.distractors + 1)
    return TestItem(cuts[i], (*others[:truth], replies[i], *others[truth:]), truth)


def _nearest(replies: Sequence[str], pool: int, *, block: int = 512) -> np.ndarray:
    """For each reply the indices of the most similar others by tf-idf: (replies, pool), computed block by block."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # a second to import

    vectors = TfidfVectorizer(analyzer=words, sublinear_tf=True, dtype=np.float32).fit_transform(replies)
    pool = min(pool, len(replies) - 1)
    nearest = np.empty((len(replies), pool), dtype=np.int64)
    for start in range(0, len(replies), block):
        scores = np.asarray((vectors[start : start + block] @ vectors.T).todense())  # (block, replies)
        scores[np.arange(len(scores)), np.arange(start, start + len(scores))] = -1.0
        nearest[start : start + len(scores)] = np.argsort(-scores, axis=1, kind="stable")[:, :pool]
    return nearest


def _other(rng: random.Random, texts: Sequence[str], truth: str) -> str:
    for _ in range(1000):
        text = texts[rng.randrange(len(texts))]
        if _key(text) != _key(truth):
            return text
    raise DataError("All utterances are the same, so there are no false replies.")


def _key(text: str) -> str:
    return squash(text).lower()
