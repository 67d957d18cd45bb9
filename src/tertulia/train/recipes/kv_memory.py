"""The recipe of KV Profile Memory: a Profile Memory is trained, then its training pairs become its memory.

The second hop has no trained parameters. Its settings are chosen from a small grid by hits@1 on the validation tasks;
"no second hop" is part of the grid.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Literal

import torch
from pydantic import Field
from torch import nn

from tertulia.core.dialogue import Json
from tertulia.core.progress import Progress
from tertulia.corpus.candidates import RankTask
from tertulia.models.rankers.kv_memory import Hop, KVProfileMemory
from tertulia.models.rankers.profile_memory import ProfileMemoryConfig
from tertulia.train.recipe import Recipe
from tertulia.train.recipes.rankers import WordVectorRecipe, build_word_vectors
from tertulia.train.tasks.ranking import RankingData, query_of, train_ranker

TASKS_AT_ONCE = 64
"""Validation tasks scored together."""


class KVMemoryRecipe(WordVectorRecipe):
    """How KV Profile Memory is trained, and the grid of settings for its second hop."""

    recipe: Literal["kv-memory"] = "kv-memory"
    """The recipe's name, so that the config saved with a run can be trained again."""
    model: ProfileMemoryConfig = ProfileMemoryConfig()
    """Sizes and shape of the model."""
    breadths: tuple[int, ...] = Field(default=(30, 100, 300), min_length=1)
    """Numbers of nearest memories to try."""
    sharpnesses: tuple[float, ...] = Field(default=(5.0, 10.0, 20.0), min_length=1)
    """Factors of the cosines in the softmax to try."""
    weights: tuple[float, ...] = Field(default=(0.1, 0.2, 0.4, 0.8), min_length=1)
    """Weights of the second hop to try."""


def add_memory(config: KVMemoryRecipe, model: nn.Module, data: RankingData, progress: Progress) -> dict[str, Json]:
    """Store the training pairs and choose the second hop; returns its figures."""
    assert isinstance(model, KVProfileMemory)
    progress.step(f"Storing {len(data.pairs):,} pairs")
    model.store(data.pairs)
    hits = measure_hops(model, data.tasks, config, progress)
    model.hop = max(hits, key=lambda hop: hits[hop])
    return {"hop": model.hop._asdict() | {"hits@1": hits[model.hop], "hits@1 without": hits[Hop(weight=0.0)]}}


def measure_hops(
    model: KVProfileMemory, tasks: Sequence[RankTask], config: KVMemoryRecipe, progress: Progress
) -> dict[Hop, float]:
    """hits@1 of every setting in the grid, and without a second hop."""
    hops = [Hop(*setting) for setting in product(config.breadths, config.sharpnesses, config.weights)]
    right = dict.fromkeys([Hop(weight=0.0), *hops], 0)
    progress.step("Choosing the settings of the second hop", total=len(tasks))
    for start in range(0, len(tasks), TASKS_AT_ONCE):
        part = tasks[start : start + TASKS_AT_ONCE]
        truth = torch.tensor([task.truth for task in part], device=model.device)
        for hop, scores in _scores(model, part, hops, config):
            right[hop] += int((scores.argmax(1) == truth).sum())
        progress.advance(len(part))
    return {hop: count / len(tasks) for hop, count in right.items()}


def _scores(
    model: KVProfileMemory, tasks: Sequence[RankTask], hops: Sequence[Hop], config: KVMemoryRecipe
) -> Iterator[tuple[Hop, torch.Tensor]]:
    """Scores of the candidates (n, m) with each setting.

    Queries are not normalised again, which changes no order: a score is then a sum over memories, and each memory's
    product with the replies is computed once for all settings.
    """
    assert model.memory is not None, "the pairs have been stored"
    queries = model.first_hop([query_of(task.exchange, config.persona, max_turns=config.max_turns) for task in tasks])
    texts = [text for task in tasks for text in task.candidates]
    replies = torch.from_numpy(model.replies(texts)).to(model.device).view(len(tasks), -1, model.config.dim)
    nearest = model.memory.nearest(queries, max(hop.breadth for hop in hops))
    first = torch.einsum("nd,nmd->nm", queries, replies)
    memories = torch.einsum("nkd,nmd->nkm", model.memory.values[nearest.indices].float(), replies)
    yield Hop(weight=0.0), first
    for hop in hops:
        attention = hop.attention(nearest)  # (n, k)
        yield hop, first + hop.weight * torch.einsum("nk,nkm->nm", attention, memories[:, : attention.shape[1]])


RECIPE = Recipe("kv-memory", KVMemoryRecipe, partial(train_ranker, build=build_word_vectors, finish=add_memory))
