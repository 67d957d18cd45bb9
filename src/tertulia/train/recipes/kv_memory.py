"""The recipe of KV Profile Memory: a Profile Memory is trained, then it remembers what it was trained on.

The second hop has nothing to learn. How it is read is chosen among a few settings by hits@1 on the validation tasks;
no hop at all is among them.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Literal

import torch
from pydantic import Field
from torch import nn

from tertulia.core.dialogue import Json
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.candidates import RankTask
from tertulia.models.kv_memory import Hop, KVProfileMemory
from tertulia.models.profile_memory import ProfileMemoryConfig
from tertulia.models.ranker import Pair
from tertulia.train.rankers import TrainedRanker, query_of, train_ranker
from tertulia.train.recipe import Recipe
from tertulia.train.recipes.starspace import WordVectorRecipe, build

NAME = "kv-memory"
AT_ONCE = 64
"""Tasks that are measured in one go."""


class KVMemoryRecipe(WordVectorRecipe):
    """What is learned from, how, and which settings of the second hop are tried."""

    recipe: Literal["kv-memory"] = "kv-memory"
    """The recipe's name, so that a run's own config can be trained again."""
    model: ProfileMemoryConfig = ProfileMemoryConfig()
    """What it is made of."""
    breadths: tuple[int, ...] = Field((30, 100, 300), min_length=1)
    """Numbers of nearest memories that are tried."""
    sharpnesses: tuple[float, ...] = Field((5.0, 10.0, 20.0), min_length=1)
    """Factors of their cosines in the softmax."""
    weights: tuple[float, ...] = Field((0.1, 0.2, 0.4, 0.8), min_length=1)
    """Weights of what was read."""


def train(config: KVMemoryRecipe, progress: Progress | None = None) -> TrainedRanker:
    """Train a KV Profile Memory and leave it in `config.out`."""

    def remember(
        model: nn.Module, pairs: Sequence[Pair], tasks: Sequence[RankTask], heard: Progress
    ) -> dict[str, Json]:
        assert isinstance(model, KVProfileMemory)
        heard.step(f"Remembering {len(pairs):,} pairs")
        model.remember(pairs)
        figures = measure_hops(model, tasks, config, heard)
        model.hop = max(figures, key=lambda hop: figures[hop])
        return {"hop": model.hop._asdict() | {"hits@1": figures[model.hop], "hits@1 without": figures[Hop(weight=0.0)]}}

    return train_ranker(
        config,
        progress or Silent(),
        name=NAME,
        build=lambda pairs: build(KVProfileMemory, pairs, config),
        finish=remember,
    )


def measure_hops(
    model: KVProfileMemory, tasks: Sequence[RankTask], config: KVMemoryRecipe, progress: Progress
) -> dict[Hop, float]:
    """hits@1 of every setting that is to be tried, and without a second hop."""
    plain = Hop(weight=0.0)
    hops = [Hop(*choice) for choice in product(config.breadths, config.sharpnesses, config.weights)]
    right = dict.fromkeys([plain, *hops], 0)
    progress.step("Choosing how memories are read", total=len(tasks))
    for start in range(0, len(tasks), AT_ONCE):
        part = tasks[start : start + AT_ONCE]
        truth = torch.tensor([task.truth for task in part])
        for hop, scores in _scores(model, part, hops, config):
            right[hop] += int((scores.argmax(1) == truth).sum())
        progress.advance(len(part))
    return {hop: count / len(tasks) for hop, count in right.items()}


def _scores(
    model: KVProfileMemory, tasks: Sequence[RankTask], hops: Sequence[Hop], config: KVMemoryRecipe
) -> Iterator[tuple[Hop, torch.Tensor]]:
    """Scores of the candidates (n, m) by each hop. Lengths of queries, which change no order, are left as they are.

    So a score is a sum, and each memory's share in it is worked out once for all hops.
    """
    assert model.memory is not None, "there is something to choose about"
    queries = model.first_hop([query_of(task.exchange, config.persona, max_turns=config.max_turns) for task in tasks])
    texts = [text for task in tasks for text in task.candidates]
    replies = torch.from_numpy(model.replies(texts)).view(len(tasks), -1, model.config.dim)
    found = model.memory.nearest(queries, max(hop.breadth for hop in hops))
    first = torch.einsum("nd,nmd->nm", queries, replies)
    memories = torch.einsum("nkd,nmd->nkm", model.memory.values[found.places].float(), replies)
    yield Hop(weight=0.0), first
    for hop in hops:
        shares = hop.shares(found)  # (n, k)
        yield hop, first + hop.weight * torch.einsum("nk,nkm->nm", shares, memories[:, : shares.shape[1]])


RECIPE = Recipe(NAME, KVMemoryRecipe, train)
