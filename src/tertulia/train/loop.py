"""One training loop for all: batches in, a module with its best weights out, and nothing lost on the way.

A `Trainee` says what a batch is, how wrong the module is about one, and how good it is on data it does not learn from;
the loop owns the rest: optimizer and schedule, accumulation, clipping, validation, early stopping, the record, and a
state on disk from which an interrupted run goes on exactly as if it had not been. Batches of an epoch depend on the
seed and the epoch alone, so the place in the data is two numbers. Several processes share the batches of an update; the
gradient is the mean over all that an update saw, however it was cut into batches and spread over processes.

What a run is told apart by are its settings and data. Settings that came after the first runs were begun count only
where they are not at their defaults, so that those runs can still be gone on with.
"""

import json
import math
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from pydantic import Field
from torch import nn

from tertulia.core.config import Config
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError
from tertulia.core.progress import Progress
from tertulia.train.compiling import compile_blocks
from tertulia.train.peers import Peers
from tertulia.train.precision import Computing, Precision, choose
from tertulia.train.record import Record

STATE = "state.pt"
BEST = "best.pt"


class LoopConfig(Config):
    """How a module is trained."""

    epochs: int = Field(10, ge=1)
    """Times through the data, at most."""
    max_steps: int | None = Field(None, ge=1)
    """Updates at most; the epochs decide where this is not given."""
    optimizer: Literal["adam", "adafactor"] = "adam"
    """Adam, or Adafactor (Shazeer and Stern 2018), which needs far less memory.

    Adafactor's rate is relative to the size of the weights, and never above the inverse square root of the update.
    """
    rate: float = Field(1e-3, gt=0)
    """Learning rate, at its highest."""
    warmup: int = Field(0, ge=0)
    """Updates until the rate is reached."""
    hold: int = Field(0, ge=0)
    """Updates after the warm-up in which the rate stays as it is."""
    decay: Literal["none", "linear", "rsqrt"] = "linear"
    """After that: stay, fall to 3 % at the end, or fall with the inverse square root of the update.

    Meena's schedule is a rate of 0.01, no warm-up, a hold of 10000 and rsqrt, with Adafactor.
    """
    weight_decay: float = Field(0.0, ge=0)
    """Pull of the weights towards zero."""
    clip: float = Field(1.0, gt=0)
    """Longest gradient."""
    accumulate: int = Field(1, ge=1)
    """Batches to an update."""
    validate_every: int | None = Field(None, ge=1)
    """Updates between validations; by default once an epoch."""
    patience: int = Field(3, ge=1)
    """Validations without a better one after which training ends."""
    keep_seconds: float = Field(120.0, ge=0)
    """Seconds between states that an interrupted run can go on from."""
    seed: int = 0
    """Of everything that is drawn."""
    precision: Precision = "auto"
    """Compute in float32, in bfloat16, or in what the machine is faster in, which is measured when a run begins."""
    compile: bool = False
    """Compile the model's blocks (torch.compile); it takes a while, and not every machine gains by it."""
    tensorboard: bool = False
    """Write event files for TensorBoard too, in the run's folder."""

    later: ClassVar[frozenset[str]] = frozenset({"hold", "precision", "compile", "tensorboard"})
    """Settings that did not exist when the first runs were begun."""


def settings(config: LoopConfig, *, without: Set[str]) -> dict[str, Json]:
    """What tells one training from another; settings that came later are left out while at their defaults.

    >>> "hold" in settings(LoopConfig(), without=set()), "hold" in settings(LoopConfig(hold=5), without=set())
    (False, True)
    """
    known = config.model_dump(mode="json", exclude=set(without))
    fields = type(config).model_fields
    later = type(config).later
    return {name: value for name, value in known.items() if name not in later or value != fields[name].default}


@dataclass(frozen=True, slots=True)
class Loss:
    """What a batch gave."""

    value: torch.Tensor
    """To be made smaller: a mean over the batch."""
    count: int
    """Over how much it is the mean (pairs, tokens): the weight of the batch in the record, and the unit of speed."""


class Trainee(Protocol):
    """What is trained."""

    module: nn.Module
    goal: str
    """The validation figure that counts, with a minus in front where less is better."""

    def batches(self, epoch: int) -> Sequence[Any]:
        """The batches of an epoch, drawn by the seed and the epoch alone."""
        ...

    def loss(self, batch: Any) -> Loss:
        """How wrong the module is about a batch."""
        ...

    def validate(self) -> Mapping[str, float]:
        """Figures on data it does not learn from; `goal` is among them."""
        ...


@runtime_checkable
class HasGroups(Protocol):
    """A trainee that chooses its own groups of parameters."""

    def groups(self, rate: float, /) -> list[dict[str, Any]]:
        """Groups as torch.optim takes them; each has its `lr`."""
        ...


@runtime_checkable
class HasPhases(Protocol):
    """A trainee that changes as it learns (annealing, say)."""

    def begin(self, step: int, /) -> None:
        """An update is about to be made; the first is 0."""
        ...


@runtime_checkable
class HasUnit(Protocol):
    """A trainee that knows what its losses are means over."""

    unit: str
    """In the plural: pairs, tokens."""


@dataclass(slots=True)
class _Place:
    """How far a run has come."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    best: float = -math.inf
    best_step: int = 0
    stale: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    ended: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of the loop; the module holds its best weights."""

    steps: int
    best_step: int
    seconds: float
    """Wall time, all parts of an interrupted run together."""
    cpu_seconds: float
    ended: str
    """Why it ended."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """The validation figures of the best weights."""
    computing: Computing = field(default_factory=Computing)
    """What it was computed in."""
    first: bool = True
    """Whether this process is the one that writes the results."""

    def as_json(self) -> dict[str, Json]:
        """For the manifest."""
        return {
            "steps": self.steps,
            "best_step": self.best_step,
            "seconds": round(self.seconds, 1),
            "cpu_seconds": round(self.cpu_seconds, 1),
            "ended": self.ended,
            "precision": dict(self.computing.as_json()),
            "valid": {name: round(value, 5) for name, value in self.figures.items()},
        }


def fit(trainee: Trainee, config: LoopConfig, folder: Path, progress: Progress, *, resume: bool, same: str) -> Outcome:
    """Train. `folder` takes state and record; `same` tells runs apart: only a state of the same run is gone on with."""
    folder.mkdir(parents=True, exist_ok=True)
    if not resume:
        (folder / STATE).unlink(missing_ok=True)
    return _Loop(trainee, config, folder, progress, same).run()


class _Loop:
    def __init__(self, trainee: Trainee, config: LoopConfig, folder: Path, progress: Progress, same: str) -> None:
        self.trainee, self.config, self.folder, self.progress, self.same = trainee, config, folder, progress, same
        torch.manual_seed(config.seed)
        self.place, self.peers = _Place(), Peers()
        self.optimizer = optimizer_of(trainee, config)
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.together = config.accumulate * self.peers.size
        self.per_epoch = max(1, len(trainee.batches(0)) // self.together)
        self.total = min(config.max_steps or 10**12, config.epochs * self.per_epoch)
        self.every = config.validate_every or self.per_epoch
        self.record = Record(folder, tensorboard=config.tensorboard and self.peers.first)
        self.device = next(trainee.module.parameters()).device.type
        self.unit = trainee.unit if isinstance(trainee, HasUnit) else "examples"
        self.figures: Mapping[str, float] = {}
        self.latest: deque[tuple[float, float, int]] = deque(maxlen=50)
        if (folder / STATE).is_file():
            self._take_up()
        else:
            self._begin()
        if config.compile:
            progress.step("Compiling")
            compile_blocks(trainee.module)
        self.began, self.cpu_began = time.perf_counter() - self.place.seconds, time.process_time() - self.place.cpu
        self.kept = time.perf_counter()

    def run(self) -> Outcome:
        self.progress.step("Training", total=self.total)
        self.progress.advance(self.place.step)
        while not self.place.ended:
            for update in self._updates():
                self._update(update)
                self.progress.advance()
                if self.place.step % self.every == 0 or self.place.step >= self.total:
                    self._validate()
                if self.place.ended:
                    break
                if time.perf_counter() - self.kept >= self.config.keep_seconds:
                    self._keep()
            else:
                self.place.epoch, self.place.batch = self.place.epoch + 1, 0
        self.peers.share(None)  # so that nobody reads before the first process has written
        best = torch.load(self.folder / BEST, weights_only=True)
        self.trainee.module.load_state_dict(best["module"])
        place = self.place
        return Outcome(
            steps=place.step,
            best_step=place.best_step,
            seconds=place.seconds,
            cpu_seconds=place.cpu,
            ended=place.ended,
            figures=best["figures"],
            computing=self.computing,
            first=self.peers.first,
        )

    def _begin(self) -> None:
        """A new run: what it computes in is decided, once and for all processes."""
        self.computing: Computing = self.peers.share(
            choose(self.trainee.module, self.config.precision) if self.peers.first else None
        )
        if self.peers.first:
            self.record.clear()
            self.record.begin(self.computing.as_json())

    def _updates(self) -> Iterator[list[Any]]:
        """What is left of the epoch's batches, so many to an update; a last part of an update is left out."""
        batches = self.trainee.batches(self.place.epoch)
        for start in range(self.place.batch, len(batches) - self.together + 1, self.together):
            yield [batches[place] for place in range(start + self.peers.rank, start + self.together, self.peers.size)]

    def _update(self, batches: list[Any]) -> None:
        place, config, module = self.place, self.config, self.trainee.module
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * schedule(config, place.step, self.total)
        if isinstance(self.trainee, HasPhases):
            self.trainee.begin(place.step)
        if self.peers.size > 1:  # every process draws its own, and the same after an interruption
            torch.manual_seed((config.seed * 1_000_003 + place.step) * self.peers.size + self.peers.rank)
        module.train()
        self.optimizer.zero_grad(set_to_none=True)
        total, count = 0.0, 0
        for batch in batches:
            with self.computing.context(self.device):
                loss = self.trainee.loss(batch)
            (loss.value * loss.count).backward()  # type: ignore[no-untyped-call]
            total, count = total + float(loss.value.detach()) * loss.count, count + loss.count
        learning = [p for p in module.parameters() if p.requires_grad]
        seen = self.peers.sum_gradients(learning, count)
        for parameter in learning:
            if parameter.grad is not None:
                parameter.grad /= seen
        norm = float(nn.utils.clip_grad_norm_(learning, config.clip))
        mean = total / max(1, count)
        if not (math.isfinite(mean) and math.isfinite(norm)):
            raise DataError(
                f"The loss at update {place.step + 1} is {mean}, its gradient {norm}.",
                hint="Lower the learning rate (rate), or give it a longer warm-up.",
            )
        self.optimizer.step()
        place.step, place.batch = place.step + 1, place.batch + self.together
        self._time()
        self.record.step(place.step, loss=mean, count=count, seconds=place.seconds)
        self._tell(mean, count)

    def _validate(self) -> None:
        place, trainee = self.place, self.trainee
        trainee.module.eval()
        with torch.no_grad():
            figures = self.peers.share(dict(trainee.validate()) if self.peers.first else None)
        self._time()
        name = trainee.goal.removeprefix("-")
        value = -figures[name] if trainee.goal.startswith("-") else figures[name]
        self.record.validation(place.step, figures, epoch=place.epoch, seconds=place.seconds, cpu=place.cpu)
        self.figures = figures
        self.progress.note(_shown(figures))
        if value > place.best:
            place.best, place.best_step, place.stale = value, place.step, 0
            if self.peers.first:
                _write({"module": trainee.module.state_dict(), "figures": figures}, self.folder / BEST)
        else:
            place.stale += 1
        if place.step >= self.total:
            place.ended = "all updates done"
        elif place.stale >= self.config.patience:
            place.ended = f"no better for {place.stale} validations"
        self._keep()

    def _tell(self, loss: float, count: int) -> None:
        """Speed and loss of the latest updates, and what the last validation found."""
        now = time.perf_counter()
        self.latest.append((now, loss, count))
        seconds, counts = now - self.latest[0][0], sum(n for _, _, n in self.latest)
        if len(self.latest) > 1 and counts:
            speed = (counts - self.latest[0][2]) * self.peers.size / max(seconds, 1e-9)
            mean = sum(value * n for _, value, n in self.latest) / counts
            told = [f"{speed:,.0f} {self.unit}/s", f"loss {mean:.3f}", _shown(self.figures)]
            self.progress.note(", ".join(part for part in told if part))

    def _time(self) -> None:
        self.place.seconds = time.perf_counter() - self.began
        self.place.cpu = time.process_time() - self.cpu_began

    def _keep(self) -> None:
        self._time()
        self.kept = time.perf_counter()
        if not self.peers.first:
            return
        self.record.flush()
        state = {
            "same": self.same,
            "module": self.trainee.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "place": json.dumps({name: getattr(self.place, name) for name in _Place.__slots__}),
            "random": torch.get_rng_state(),
            "losses": self.record.unwritten,
            "computing": self.computing.as_text(),
        }
        _write(state, self.folder / STATE)

    def _take_up(self) -> None:
        state = torch.load(self.folder / STATE, weights_only=True)
        if state["same"] != self.same:
            raise DataError(
                f"The run in {self.folder} was begun with other data or settings.",
                hint="Give the same ones to go on with it, another --out, or leave --resume away to begin anew.",
            )
        self.place = _Place(**json.loads(state["place"]))
        self.trainee.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        self.computing = Computing(**json.loads(state.get("computing", "{}")))  # states without one are of float32
        self.record.take_up(self.place.step, state["losses"])


def schedule(config: LoopConfig, step: int, total: int) -> float:
    """The share of the rate at an update (the first is 0).

    >>> [round(schedule(LoopConfig(warmup=2, decay="linear"), s, 10), 2) for s in (0, 1, 2, 6, 9)]
    [0.5, 1.0, 1.0, 0.5, 0.12]
    >>> meena = LoopConfig(hold=10_000, decay="rsqrt")
    >>> [schedule(meena, s, 738_000) for s in (0, 10_000, 40_000)]
    [1.0, 1.0, 0.5]
    """
    falls = config.warmup + config.hold
    if step < config.warmup:
        return (step + 1) / config.warmup
    if step < falls or config.decay == "none":
        return 1.0
    if config.decay == "linear":
        return max(0.03, 1 - (step - falls) / max(1, total - falls))
    return math.sqrt(max(1, falls) / max(1, falls, step))


def optimizer_of(trainee: Trainee, config: LoopConfig) -> torch.optim.Optimizer:
    """What makes the updates."""
    wanted = [p for p in trainee.module.parameters() if p.requires_grad]
    params = [{"params": wanted, "lr": config.rate}]
    if isinstance(trainee, HasGroups):
        params = trainee.groups(config.rate)
    if config.optimizer == "adafactor":
        return torch.optim.Adafactor(params, lr=config.rate, weight_decay=config.weight_decay)
    return torch.optim.AdamW(params, lr=config.rate, weight_decay=config.weight_decay, fused=True)


def _shown(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {figure:.4g}" for name, figure in figures.items())


def _write(value: dict[str, Any], file: Path) -> None:
    partial = file.with_name(file.name + ".part")
    torch.save(value, partial)
    partial.replace(file)
