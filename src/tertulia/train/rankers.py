"""How every ranker is trained: pairs out of dialogues, batches that set replies against each other, hits@1 to stop by.

A recipe brings its config and a function that builds the untrained model; the rest is here. What comes out is a folder
with the model, its record, and the training utterances as a pool of replies, encoded: a bot by itself.
"""

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from pydantic import Field
from torch import nn

from tertulia.core.config import save
from tertulia.core.dialogue import Dialogue, Exchange, Json, Whose, exchanges
from tertulia.core.errors import DataError
from tertulia.core.progress import Progress
from tertulia.corpus.candidates import RankTask, rank_tasks, shown
from tertulia.corpus.load import load_dialogues
from tertulia.metrics.ranking import ranks_of_truth
from tertulia.models.checkpoint import count_parameters, seal
from tertulia.models.ranker import Game, Pair, Query, Ranker, TrainableRanker
from tertulia.models.threads import use_threads
from tertulia.talk.pool import ReplyPool
from tertulia.train.data import some
from tertulia.train.loop import LoopConfig, Loss, Outcome, fit, settings
from tertulia.train.recipe import RecipeConfig
from tertulia.train.record import PICTURE, RECORD, draw_record

CONFIG = "config.toml"
PARTIAL = "partial"


class RankerConfig(LoopConfig, RecipeConfig):
    """What every ranker's recipe has."""

    split: str = "train"
    """The split to learn from."""
    valid_split: str = "valid"
    """The split that decides when to stop."""
    speaker: str | None = None
    """Learn from the replies of this speaker only; of all by default."""
    valid_speaker: str | None = None
    """Validate on the replies of this speaker only."""
    persona: Whose = "own"
    """Whose persona is shown: none, own, their or both."""
    persona_share: float = Field(1.0, ge=0, le=1)
    """Share of training pairs that see it: a model that has seen both can do without."""
    max_turns: int = Field(20, ge=1)
    """Turns of context kept, the last ones."""
    batch: int = Field(256, ge=2)
    """Pairs in a batch: each reply is set against all others of its batch."""
    per_dialogue: int = Field(1, ge=1)
    """Neighbouring pairs of one dialogue that go into the same batch; they are not set against each other."""
    candidates: int = Field(20, ge=2)
    """Replies to choose among in validation."""
    valid_dialogues: int | None = Field(None, ge=2)
    """Validate on so many dialogues, drawn by the seed; on all by default. Distractors come from the same ones."""
    max_dialogues: int | None = Field(None, ge=2)
    """Learn from so many dialogues only, drawn by the seed: for learning curves and quick tries."""
    pool: bool = True
    """Encode the training utterances at the end, so that the run is a bot that can talk."""
    threads: int = Field(1, ge=1)
    """Threads to compute with; on a busy machine one is fastest."""


class SavedRanker(TrainableRanker, Protocol):
    """What the builder of a recipe returns: a trainable ranker that is a torch module and knows how to be saved."""

    def save(self, folder: Path, /) -> Sequence[str]:
        """Write the model; the names of the files beside weights and config that belong to it."""
        ...


class Data(NamedTuple):
    """What a ranker learns from."""

    pairs: list[Pair]
    tasks: list[RankTask]
    dialogues: list[Dialogue]


Build = Callable[[Sequence[Pair]], nn.Module]
"""Makes the untrained model, a `SavedRanker`, from the pairs it will learn from (words, weights of words)."""
Finish = Callable[[nn.Module, Sequence[Pair], Sequence[RankTask], Progress], Mapping[str, Json]]
"""What some models do once their weights are learned (remember the pairs, choose a setting); figures for the record."""


@dataclass(frozen=True, slots=True)
class TrainedRanker:
    """What came of it."""

    folder: Path
    record: Mapping[str, Json]

    def figures(self) -> Mapping[str, Json]:
        """What was measured, and what it took."""
        return self.record


def train_ranker(
    config: RankerConfig,
    progress: Progress,
    *,
    name: str,
    build: Build,
    finish: Finish | None = None,
    trainee: "type[PairBatches] | None" = None,
) -> TrainedRanker:
    """Train a ranker and leave it in `config.out`, a bot of that name."""
    use_threads(config.threads)
    torch.manual_seed(config.seed)
    progress.step("Reading dialogues")
    data = read_data(config)
    model = build(data.pairs)
    learner = (trainee or RankerTrainee)(model, data, config)
    outcome = fit(
        learner, config, config.out / PARTIAL, progress, resume=config.resume, same=_same(name, config, data.pairs)
    )
    model.eval()
    more = finish(model, data.pairs, data.tasks, progress) if finish else {}
    training = _training(outcome, model, data) | dict(more)
    if outcome.first:
        _leave(model, name, config, data, training, progress)
    return TrainedRanker(config.out, training)


def read_data(config: RankerConfig) -> Data:
    """The pairs to learn from and the tasks to validate with."""
    dialogues = some(load_dialogues(config.data, split=config.split), config.max_dialogues, config.seed)
    pairs = list(pairs_of(dialogues, config))
    if len(pairs) < config.batch:
        raise DataError(
            f"{len(pairs)} pairs in the split {config.split!r} of {config.data} are less than a batch of"
            f" {config.batch}.",
            hint="Give more dialogues, or a smaller batch.",
        )
    valid = some(load_dialogues(config.data, split=config.valid_split), config.valid_dialogues, config.seed)
    tasks = rank_tasks(valid, candidates=config.candidates, speaker=config.valid_speaker, seed=config.seed)
    return Data(pairs, tasks, dialogues)


def pairs_of(dialogues: Sequence[Dialogue], config: RankerConfig) -> Iterator[Pair]:
    """Every reply with what the ranker may see of its context."""
    for number, dialogue in enumerate(dialogues):
        for exchange in exchanges(dialogue, speaker=config.speaker):
            yield Pair(query_of(exchange, config.persona, max_turns=config.max_turns), exchange.response.text, number)


def query_of(exchange: Exchange, whose: Whose, *, revised: bool = False, max_turns: int = 20) -> Query:
    """What a ranker sees of an exchange."""
    seen = shown(exchange, whose, revised=revised)
    persona = tuple(s for one in (seen.persona, seen.partner) if one for s in one.sentences)
    return Query(tuple(turn.text for turn in exchange.context[-max_turns:]), persona)


class PairBatches:
    """What is trained on pairs, as the loop sees it, but for its validation."""

    goal = "hits@1"
    unit = "pairs"

    def __init__(self, model: nn.Module, data: Data, config: RankerConfig) -> None:
        self.module, self.data, self.config = model, data, config
        if hasattr(model, "groups"):
            self.groups = model.groups

    def batches(self, epoch: int) -> Sequence[list[Pair]]:
        """All pairs in a new order; neighbours of a dialogue stay together where the config says so."""
        config, rng = self.config, random.Random(f"{self.config.seed} {epoch}")
        runs: dict[int, list[int]] = {}
        for place, pair in enumerate(self.data.pairs):
            runs.setdefault(pair.group, []).append(place)
        chunks = []
        for places in runs.values():
            rng.shuffle(places)
            chunks += [places[i : i + config.per_dialogue] for i in range(0, len(places), config.per_dialogue)]
        rng.shuffle(chunks)
        order = [place for chunk in chunks for place in chunk]
        lots = [rng.random() >= config.persona_share for _ in chunks]
        bare = [lot for lot, chunk in zip(lots, chunks, strict=True) for _ in chunk]
        return _Batches(self.data.pairs, order, bare, config.batch)

    def loss(self, batch: list[Pair]) -> Loss:
        """As the model has it."""
        value: torch.Tensor = self.module.loss(batch)  # type: ignore[operator]
        return Loss(value, len(batch))

    def validate(self) -> Mapping[str, float]:
        """Figures on data it does not learn from."""
        raise NotImplementedError


class RankerTrainee(PairBatches):
    """A ranker as the loop sees it."""

    def validate(self) -> Mapping[str, float]:
        """hits@1 of the shown persona, and without any where the model learns to do without."""
        config, ranker, tasks = self.config, self.module, self.data.tasks
        assert isinstance(ranker, Ranker)
        game = Game([task.candidates for task in tasks])
        replies = ranker.replies(game.texts)
        wanted: list[Whose] = [config.persona]
        if config.persona_share < 1 and config.persona != "none":
            wanted.append("none")
        found = {}
        for whose in wanted:
            queries = ranker.queries([query_of(task.exchange, whose, max_turns=config.max_turns) for task in tasks])
            ranks = ranks_of_truth(game.scores(ranker, queries, replies), [task.truth for task in tasks])
            found["hits@1" if whose == config.persona else "hits@1 without persona"] = float((ranks == 1).mean())
        return found


class _Batches(Sequence[list[Pair]]):
    """Batches made when they are asked for; the last, incomplete one is left out."""

    def __init__(self, pairs: Sequence[Pair], order: Sequence[int], bare: Sequence[bool], size: int) -> None:
        self._pairs, self._order, self._bare, self._size = pairs, order, bare, size

    def __len__(self) -> int:
        return len(self._order) // self._size

    def __getitem__(self, number: Any) -> Any:
        if number >= len(self):
            raise IndexError(number)
        part = range(number * self._size, (number + 1) * self._size)
        return [_bare(self._pairs[self._order[i]]) if self._bare[i] else self._pairs[self._order[i]] for i in part]


def _bare(pair: Pair) -> Pair:
    return Pair(Query(pair.query.turns), pair.reply, pair.group)


def _training(outcome: Outcome, model: nn.Module, data: Data) -> dict[str, Json]:
    return {
        "pairs": len(data.pairs),
        "dialogues": len(data.dialogues),
        "valid_exchanges": len(data.tasks),
        "parameters": count_parameters(model),
        **outcome.as_json(),
    }


def _leave(
    model: nn.Module, name: str, config: RankerConfig, data: Data, training: Mapping[str, Json], progress: Progress
) -> None:
    """Write the folder, the manifest last."""
    folder = config.out
    files = [CONFIG, RECORD, PICTURE, *model.save(folder)]  # type: ignore[operator]
    save(config.model_copy(update={"resume": False}), folder / CONFIG)
    (folder / RECORD).write_bytes((folder / PARTIAL / RECORD).read_bytes())
    draw_record(folder, goal=RankerTrainee.goal)
    if config.pool:
        assert isinstance(model, Ranker)
        files += ReplyPool.of(data.dialogues, model, progress).save(folder)
    seal(folder, bot=name, model=name, files=files, training=training)


def _same(name: str, config: RankerConfig, pairs: Sequence[Pair]) -> str:
    """What tells one training from another: the settings and the data, not where it goes."""
    known = settings(config, without={"out", "resume", "pool", "keep_seconds", "threads", "data"})
    digest = hashlib.sha256(json.dumps([name, known], sort_keys=True).encode())
    for pair in pairs:
        digest.update(repr(pair).encode())
    return digest.hexdigest()
