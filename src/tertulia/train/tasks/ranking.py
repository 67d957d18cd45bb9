"""Training of rankers: pairs of query and reply, in batches whose replies are each other's distractors.

A recipe has a config and a function that builds the untrained model; the rest is here. The run's folder also holds the
training utterances, encoded, as a pool of replies, which makes it a bot by itself.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field
from torch import nn

from tertulia.core.config import Config
from tertulia.core.dialogue import Dialogue, Exchange, Json, PersonaScope, exchanges
from tertulia.core.errors import DataError
from tertulia.core.progress import Progress
from tertulia.corpus.candidates import RankTask, rank_tasks, shown
from tertulia.metrics.ranking import ranks_of_truth
from tertulia.models.rankers.base import CandidateSet, Query, Ranker, TrainablePairModel, TrainingPair
from tertulia.talk.pool import ReplyPool
from tertulia.train.loop import Loss, TrainingTask, fit
from tertulia.train.runs import (
    PARTIAL,
    RunConfig,
    TrainedModel,
    read_split,
    run_id,
    save_run,
    start_run,
    with_revised_personas,
)


class RankerConfig(RunConfig):
    """What every ranker's recipe has."""

    model: Config = Config()
    """Sizes and shape of the model: the config of its architecture."""
    persona_share: float = Field(default=1.0, ge=0, le=1)
    """Share of the training pairs that keep their persona: a model that has seen both works without one, too."""
    max_turns: int = Field(default=20, ge=1)
    """Turns of context, the last ones."""
    batch: int = Field(default=256, ge=2)
    """Pairs per batch: each reply's distractors are the other replies of its batch."""
    per_dialogue: int = Field(default=1, ge=1)
    """Pairs of one dialogue per batch; they are not each other's distractors."""
    candidates: int = Field(default=20, ge=2)
    """Candidate replies in validation."""
    valid_dialogues: int | None = Field(default=None, ge=2)
    """Validate on this many dialogues, drawn by the seed; by default on all. Distractors come from the same ones."""
    max_dialogues: int | None = Field(default=None, ge=2)
    """Train on this many dialogues only, drawn by the seed: for learning curves and quick experiments."""
    pool: bool = True
    """Encode the training utterances at the end, so that the run is a bot that can talk."""


class RankingData(NamedTuple):
    """What a ranker is trained and validated on."""

    pairs: list[TrainingPair]
    tasks: list[RankTask]
    dialogues: list[Dialogue]


Build = Callable[[Any, Sequence[TrainingPair]], nn.Module]
"""Builds the untrained `TrainablePairModel` from the config and the training pairs (vocabulary, word weights)."""
Finish = Callable[[Any, nn.Module, RankingData, Progress], Mapping[str, Json]]
"""What some models do once their weights are trained (store the pairs, choose settings); returns figures."""


def train_ranker(
    config: RankerConfig,
    progress: Progress,
    *,
    build: Build,
    finish: Finish | None = None,
    task: "type[PairTask] | None" = None,
) -> TrainedModel:
    """Train a ranker and save it in `config.out`, as the bot that `config.recipe` names."""
    start_run(config, progress)
    data = read_data(config)
    model = build(config, data.pairs)
    training = (task or RankingTask)(model, data, config)
    identity = run_id(config, data.pairs)
    outcome = fit(training, config, config.out / PARTIAL, progress, resume=config.resume, run_id=identity)
    model.eval()
    about = {"pairs": len(data.pairs), "dialogues": len(data.dialogues), "valid_exchanges": len(data.tasks)}
    figures = finish(config, model, data, progress) if finish else {}

    def save_pool(folder: Path) -> list[str]:
        if not config.pool:
            return []
        assert isinstance(model, Ranker)
        return ReplyPool.of(data.dialogues, model, progress).save(folder)

    return save_run(training, config, outcome, about={**about, **figures}, save_more=save_pool)


def read_data(config: RankerConfig) -> RankingData:
    """The pairs to train on and the tasks to validate on."""
    dialogues = read_split(config, config.split, config.max_dialogues)
    pairs = list(pairs_of(with_revised_personas(dialogues, config), config))
    if len(pairs) < config.batch:
        raise DataError(
            f"The split {config.split!r} of {config.data} has {len(pairs)} pairs, fewer than one batch of"
            f" {config.batch}.",
            hint="Give more dialogues, or a smaller batch.",
        )
    valid = read_split(config, config.valid_split, config.valid_dialogues)
    tasks = rank_tasks(valid, candidates=config.candidates, speaker=config.valid_speaker, seed=config.seed)
    return RankingData(pairs, tasks, dialogues)


def pairs_of(dialogues: Sequence[Dialogue], config: RankerConfig) -> Iterator[TrainingPair]:
    """Every reply with the part of its context that the ranker may see."""
    for number, dialogue in enumerate(dialogues):
        for exchange in exchanges(dialogue, speaker=config.speaker):
            yield TrainingPair(
                query_of(exchange, config.persona, max_turns=config.max_turns), exchange.response.text, number
            )


def query_of(exchange: Exchange, scope: PersonaScope, *, revised: bool = False, max_turns: int = 20) -> Query:
    """What a ranker sees of an exchange."""
    visible = shown(exchange, scope, revised=revised)
    persona = tuple(s for one in (visible.persona, visible.partner) if one for s in one.sentences)
    turns = exchange.context[-max_turns:]
    return Query(
        tuple(turn.text for turn in turns), persona, tuple(turn.speaker == exchange.response.speaker for turn in turns)
    )


class PairTask(TrainingTask):
    """Training on pairs; subclasses validate."""

    goal = "hits@1"
    unit = "pairs"

    def __init__(self, model: nn.Module, data: RankingData, config: RankerConfig) -> None:
        self.module, self.data, self.config = model, data, config
        assert isinstance(model, TrainablePairModel)
        self.model: TrainablePairModel = model

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """The model's own groups."""
        return self.model.parameter_groups(learning_rate)

    def batches(self, epoch: int) -> Sequence[list[TrainingPair]]:
        """All pairs in a new order; pairs of one dialogue stay together in chunks of `per_dialogue`."""
        config, rng = self.config, random.Random(f"{self.config.seed} {epoch}")
        by_dialogue: dict[int, list[int]] = {}
        for i, pair in enumerate(self.data.pairs):
            by_dialogue.setdefault(pair.group, []).append(i)
        chunks = []
        for indices in by_dialogue.values():
            rng.shuffle(indices)
            chunks += [indices[i : i + config.per_dialogue] for i in range(0, len(indices), config.per_dialogue)]
        rng.shuffle(chunks)
        order = [i for chunk in chunks for i in chunk]
        # Pairs of one chunk keep or lose their persona together, so that it is encoded once for all of them.
        drops = [rng.random() >= config.persona_share for _ in chunks]
        without_persona = [drop for drop, chunk in zip(drops, chunks, strict=True) for _ in chunk]
        return _Batches(self.data.pairs, order, without_persona, config.batch)

    def loss(self, batch: list[TrainingPair]) -> Loss:
        """The model's own loss."""
        return Loss(self.model.loss(batch), len(batch))


class RankingTask(PairTask):
    """Training of a ranker."""

    def validate(self) -> Mapping[str, float]:
        """hits@1 with the persona, and without it if some training pairs have none."""
        config, ranker, tasks = self.config, self.module, self.data.tasks
        assert isinstance(ranker, Ranker)
        candidates = CandidateSet([task.candidates for task in tasks])
        replies = ranker.replies(candidates.texts)
        scopes: list[PersonaScope] = [config.persona]
        if config.persona_share < 1 and config.persona != "none":
            scopes.append("none")
        figures = {}
        for scope in scopes:
            queries = ranker.queries([query_of(task.exchange, scope, max_turns=config.max_turns) for task in tasks])
            ranks = ranks_of_truth(candidates.scores(ranker, queries, replies), [task.truth for task in tasks])
            figures["hits@1" if scope == config.persona else "hits@1 without persona"] = float((ranks == 1).mean())
        return figures


class _Batches(Sequence[list[TrainingPair]]):
    """Batches made on demand; the last, incomplete one is left out."""

    def __init__(
        self, pairs: Sequence[TrainingPair], order: Sequence[int], without_persona: Sequence[bool], size: int
    ) -> None:
        self._pairs, self._order, self._without_persona, self._size = pairs, order, without_persona, size

    def __len__(self) -> int:
        return len(self._order) // self._size

    def __getitem__(self, number: Any) -> Any:
        if number >= len(self):
            raise IndexError(number)
        return [self._pair(i) for i in range(number * self._size, (number + 1) * self._size)]

    def _pair(self, position: int) -> TrainingPair:
        pair = self._pairs[self._order[position]]
        if self._without_persona[position]:
            return TrainingPair(replace(pair.query, persona=()), pair.reply, pair.group)
        return pair
