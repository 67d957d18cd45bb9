"""The training loop: batches in, a module with its best weights out, resumable at any update.

A `TrainingTask` says what a batch is, what its loss is, and how good the module is on held-out data; the loop owns the
rest: device, optimizer and schedule, gradient accumulation and clipping, validation, early stopping, the record, and a
state on disk from which an interrupted run continues exactly as if it had not been interrupted. The batches of an epoch
depend on the seed and the epoch alone, so the position in the data is two numbers. Several processes share the batches
of an update; the gradient is the mean over everything that an update saw, however it was cut into batches and
distributed over processes.

A run is identified by its settings and data (`run_id`): a state is resumed only by the same run.
"""

import json
import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import nn

from tertulia.artefacts.files import remove_unfinished
from tertulia.core.config import Config
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError, Interrupted, UsageError
from tertulia.core.progress import Progress
from tertulia.models.checkpoint import write_weights
from tertulia.models.device import resolve_device
from tertulia.train.compute import Computing, Precision, choose_precision, compile_blocks
from tertulia.train.distributed import Distributed
from tertulia.train.record import TrainingRecord

STATE = "state.pt"
BEST = "best.pt"


class LoopConfig(Config):
    """How a module is trained."""

    epochs: int = Field(default=10, ge=1)
    """Passes over the data, at most."""
    max_steps: int | None = Field(default=None, ge=1)
    """Updates, at most; by default the epochs decide."""
    optimizer: Literal["adam", "adafactor"] = "adam"
    """Adam (with decoupled weight decay), or Adafactor (Shazeer and Stern 2018), which needs far less memory.

    Adafactor's learning rate is relative to the size of the weights, and never above 1 / sqrt(update).
    """
    learning_rate: float = Field(default=1e-3, gt=0)
    """Peak learning rate."""
    warmup: int = Field(default=0, ge=0)
    """Updates of linear warm-up."""
    hold: int = Field(default=0, ge=0)
    """Updates after the warm-up at the peak learning rate."""
    decay: Literal["none", "linear", "rsqrt"] = "linear"
    """After that: constant, linear decay to 3 % at the end, or the inverse square root of the update.

    Meena's schedule is a learning rate of 0.01, no warm-up, a hold of 10000 and rsqrt, with Adafactor.
    """
    weight_decay: float = Field(default=0.0, ge=0)
    """Weight decay."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradients are clipped to this norm."""
    accumulate: int = Field(default=1, ge=1)
    """Batches per update, in each process."""
    validate_every: int | None = Field(default=None, ge=1)
    """Updates between validations; by default once per epoch."""
    patience: int = Field(default=3, ge=1)
    """Stop after this many validations without improvement."""
    save_seconds: float = Field(default=120.0, ge=0)
    """Seconds between saved states, from which an interrupted run can be resumed."""
    seed: int = 0
    """Seed of all random numbers."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Device to train on; auto takes CUDA or MPS if available."""
    precision: Precision = "auto"
    """Compute in float32 or bfloat16; auto measures which is faster on this machine when a run starts."""
    compile: bool = False
    """Compile the model's blocks (torch.compile); this takes a while, and not every machine gains by it."""
    tensorboard: bool = False
    """Also write event files for TensorBoard, into the run's folder."""

    renamed: ClassVar[Mapping[str, str]] = {
        "rate": "learning_rate",
        "clip": "max_grad_norm",
        "keep_seconds": "save_seconds",
    }


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of a batch."""

    value: torch.Tensor
    """To be minimised: a mean over the batch."""
    count: int
    """The number of units (pairs, tokens) it is the mean of: its weight in the update, and the unit of speed."""


class TrainingTask(ABC):
    """What is optimised and validated."""

    module: nn.Module
    goal: ClassVar[str]
    """The validation figure that decides, with a minus in front if lower is better."""
    unit: ClassVar[str] = "examples"
    """What losses are averaged over, in the plural: pairs, tokens."""

    @abstractmethod
    def batches(self, epoch: int) -> Sequence[Any]:
        """The batches of an epoch, drawn by the seed and the epoch alone."""

    @abstractmethod
    def loss(self, batch: Any) -> Loss:
        """The loss of a batch."""

    @abstractmethod
    def validate(self) -> Mapping[str, float]:
        """Figures on held-out data; `goal` is among them."""

    def to(self, device: torch.device) -> None:
        """Move everything that computes to a device; called once, before training."""
        self.module.to(device)

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """Groups of trainable parameters as torch.optim takes them, each with its `lr`."""
        return [{"params": [p for p in self.module.parameters() if p.requires_grad], "lr": learning_rate}]

    def begin(self, step: int) -> None:  # noqa: B027 - most tasks have nothing to do here
        """Prepare for an update, the first of which is 0: annealing, for example."""


@dataclass(slots=True)
class _Position:
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
class FitOutcome:
    """The result of the loop; the module has its best weights."""

    steps: int
    best_step: int
    seconds: float
    """Wall time, over all parts of an interrupted run."""
    cpu_seconds: float
    ended: str
    """Why it ended."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """The validation figures of the best weights."""
    computing: Computing = field(default_factory=Computing)
    """The precision it was computed in."""
    is_main: bool = True
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


def fit(
    task: TrainingTask, config: LoopConfig, folder: Path, progress: Progress, *, resume: bool, run_id: str
) -> FitOutcome:
    """Train. State and record go into `folder`; with `resume`, a state that has the same `run_id` is continued."""
    folder.mkdir(parents=True, exist_ok=True)
    if not resume:
        (folder / STATE).unlink(missing_ok=True)
    remove_unfinished(folder)
    with Distributed(resolve_device(config.device)) as distributed:
        task.to(distributed.device)
        loop = _Loop(task, config, folder, progress, run_id, distributed)
        progress.step("Training", total=loop.total)
        progress.advance(loop.at.step)
        try:
            while not loop.at.ended:
                for batches in loop.updates():
                    loop.update(batches)
                    progress.advance()
                    if loop.at.step % loop.validate_every == 0 or loop.at.step >= loop.total:
                        loop.validate()
                    if loop.at.ended:
                        break
                    if time.perf_counter() - loop.saved >= config.save_seconds:
                        loop.save_state()
                else:
                    loop.at.epoch, loop.at.batch = loop.at.epoch + 1, 0
        except KeyboardInterrupt:
            raise loop.interrupted() from None
        finally:
            loop.record.close()
        return loop.outcome()


class _Loop:
    """The state of a run: model, optimizer, position in the data, record."""

    def __init__(
        self,
        task: TrainingTask,
        config: LoopConfig,
        folder: Path,
        progress: Progress,
        run_id: str,
        distributed: Distributed,
    ) -> None:
        self.task, self.config, self.folder, self.progress, self.run_id = task, config, folder, progress, run_id
        self.distributed, self.at = distributed, _Position()
        torch.manual_seed(config.seed)
        self.optimizer = make_optimizer(task, config)
        self.learning_rates = [group["lr"] for group in self.optimizer.param_groups]
        self.batches_per_update = config.accumulate * distributed.size
        self.updates_per_epoch = check_updates(task, config, distributed.size) // self.batches_per_update
        self.total = min(config.max_steps or 10**12, config.epochs * self.updates_per_epoch)
        self.validate_every = config.validate_every or self.updates_per_epoch
        self.record = TrainingRecord(folder, tensorboard=config.tensorboard and distributed.is_main)
        self.figures: Mapping[str, float] = {}
        self.latest: deque[tuple[float, float, int]] = deque(maxlen=50)
        if (folder / STATE).is_file():
            self.load_state()
        else:
            self._start()
        if config.compile:
            progress.step("Compiling")
            compile_blocks(task.module)
        self.started = time.perf_counter() - self.at.seconds
        self.cpu_started = time.process_time() - self.at.cpu
        self.saved = time.perf_counter()

    def outcome(self) -> FitOutcome:
        """The best weights are back in the module; what they measured, and what it cost."""
        self.distributed.barrier()  # nobody reads before the main process has written
        best = torch.load(self.folder / BEST, weights_only=True, map_location="cpu")
        self.task.module.load_state_dict(best["module"])
        return FitOutcome(
            steps=self.at.step,
            best_step=self.at.best_step,
            seconds=self.at.seconds,
            cpu_seconds=self.at.cpu,
            ended=self.at.ended,
            figures=best["figures"],
            computing=self.computing,
            is_main=self.distributed.is_main,
        )

    def _start(self) -> None:
        """Start a new run: its precision is chosen once, for all processes."""
        is_main = self.distributed.is_main
        self.computing: Computing = self.distributed.broadcast(
            choose_precision(self.task.module, self.config.precision) if is_main else None
        )
        if is_main:
            self.record.start(self.computing.as_json())

    def updates(self) -> Iterator[list[Any]]:
        """This process's batches of each remaining update of the epoch; an incomplete last update is skipped."""
        batches = self.task.batches(self.at.epoch)
        for start in range(self.at.batch, len(batches) - self.batches_per_update + 1, self.batches_per_update):
            stop = start + self.batches_per_update
            yield [batches[i] for i in range(start + self.distributed.rank, stop, self.distributed.size)]

    def update(self, batches: list[Any]) -> None:
        """One step of the optimizer over some batches."""
        at, config, module = self.at, self.config, self.task.module
        for group, learning_rate in zip(self.optimizer.param_groups, self.learning_rates, strict=True):
            group["lr"] = learning_rate * schedule(config, at.step, self.total)
        self.task.begin(at.step)
        if self.distributed.size > 1:  # each process draws its own numbers, and the same ones after an interruption
            torch.manual_seed((config.seed * 1_000_003 + at.step) * self.distributed.size + self.distributed.rank)
        module.train()
        self.optimizer.zero_grad(set_to_none=True)
        total, count = 0.0, 0
        for batch in batches:
            with self.computing.context(self.distributed.device.type):
                loss = self.task.loss(batch)
            # Sums over units, divided below by the number of units in all batches of all processes.
            (loss.value * loss.count).backward()  # type: ignore[no-untyped-call]
            total, count = total + float(loss.value.detach()) * loss.count, count + loss.count
        trained = [p for p in module.parameters() if p.requires_grad]
        all_units = self.distributed.sum_gradients(trained, count)
        for parameter in trained:
            if parameter.grad is not None:
                parameter.grad /= all_units
        norm = float(nn.utils.clip_grad_norm_(trained, config.max_grad_norm))
        mean = total / max(1, count)
        if not (math.isfinite(mean) and math.isfinite(norm)):
            raise DataError(
                f"Training diverged at update {at.step + 1}: the loss is {mean}, the norm of its gradient {norm}.",
                hint="Lower learning_rate, or raise warmup.",
            )
        self.optimizer.step()
        at.step, at.batch = at.step + 1, at.batch + self.batches_per_update
        self._measure_time()
        if self.distributed.is_main:
            self.record.step(at.step, loss=mean, count=count, seconds=at.seconds)
        self._show(mean, count)

    def validate(self) -> None:
        """Measure on validation data, keep the best weights, and decide whether to stop."""
        at, task = self.at, self.task
        task.module.eval()
        with torch.no_grad():
            figures = self.distributed.broadcast(dict(task.validate()) if self.distributed.is_main else None)
        self._measure_time()
        name = task.goal.removeprefix("-")
        value = -figures[name] if task.goal.startswith("-") else figures[name]
        if self.distributed.is_main:
            self.record.validation(at.step, figures, epoch=at.epoch, seconds=at.seconds, cpu=at.cpu)
        self.figures = figures
        self.progress.note(_format_figures(figures))
        if value > at.best:
            at.best, at.best_step, at.stale = value, at.step, 0
            if self.distributed.is_main:
                _save({"module": task.module.state_dict(), "figures": figures}, self.folder / BEST)
        else:
            at.stale += 1
        if at.step >= self.total:
            at.ended = "all updates done"
        elif at.stale >= self.config.patience:
            at.ended = f"no improvement in {at.stale} validations"
        self.save_state()

    def _show(self, loss: float, count: int) -> None:
        """Show speed and loss of the latest updates, and the figures of the last validation."""
        now = time.perf_counter()
        self.latest.append((now, loss, count))
        seconds, counts = now - self.latest[0][0], sum(n for _, _, n in self.latest)
        if len(self.latest) > 1 and counts:
            speed = (counts - self.latest[0][2]) * self.distributed.size / max(seconds, 1e-9)
            mean = sum(value * n for _, value, n in self.latest) / counts
            parts = [f"{speed:,.0f} {self.task.unit}/s", f"loss {mean:.3f}", _format_figures(self.figures)]
            self.progress.note(", ".join(part for part in parts if part))

    def _measure_time(self) -> None:
        self.at.seconds = time.perf_counter() - self.started
        self.at.cpu = time.process_time() - self.cpu_started

    def save_state(self) -> None:
        """Save everything that an interrupted run needs to continue exactly."""
        self._measure_time()
        self.saved = time.perf_counter()
        if not self.distributed.is_main:
            return
        self.record.flush()
        state = {
            "run_id": self.run_id,
            "module": self.task.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "progress": json.dumps(asdict(self.at)),
            "rng": torch.get_rng_state(),
            "losses": self.record.unwritten,
            "computing": self.computing.as_text(),
        }
        if self.distributed.device.type == "cuda":
            state["cuda_rng"] = torch.cuda.get_rng_state(self.distributed.device)
        _save(state, self.folder / STATE)

    def interrupted(self) -> Interrupted:
        """What was kept, and how to go on; by the file itself, as it may have been replaced a moment ago."""
        file = self.folder / STATE
        if not file.is_file():
            return Interrupted(
                f"Update {self.at.step} was reached, and no state saved: that is done at each validation and every"
                f" {self.config.save_seconds:.0f} s.",
                hint="Run the same command with --force to start over.",
            )
        state = torch.load(file, weights_only=True, map_location="cpu", mmap=True)
        saved = _Position(**json.loads(state["progress"]))
        return Interrupted(
            f"Update {self.at.step} was reached; the state after update {saved.step} is in {self.folder}.",
            hint="Run the same command with --resume to continue from there.",
        )

    def load_state(self) -> None:
        """Continue from the saved state of the same run."""
        state = torch.load(self.folder / STATE, weights_only=True, map_location="cpu")
        if state.get("run_id") != self.run_id:
            raise DataError(
                f"The run in {self.folder} was started with other data or settings, or by an earlier version.",
                hint="Give the same data and settings, choose another --out, or start over with --force.",
            )
        self.at = _Position(**json.loads(state["progress"]))
        self.task.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"])
        if "cuda_rng" in state and self.distributed.device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda_rng"], self.distributed.device)
        self.computing = Computing(**json.loads(state["computing"]))
        if self.distributed.is_main:
            self.record.resume(self.at.step, state["losses"])


def check_updates(task: TrainingTask, config: LoopConfig, processes: int) -> int:
    """The number of batches of an epoch; too few for a single update are an error."""
    batches, needed = len(task.batches(0)), config.accumulate * processes
    if batches < needed:  # no epoch would ever have an update
        raise UsageError(
            f"The data has {batches} batches, fewer than the {needed} of one update.",
            hint="Lower accumulate or the size of a batch, start fewer processes, or train on more data.",
        )
    return batches


def schedule(config: LoopConfig, step: int, total: int) -> float:
    """The factor of the learning rate at an update (the first is 0).

    >>> [round(schedule(LoopConfig(warmup=2, decay="linear"), s, 10), 2) for s in (0, 1, 2, 6, 9)]
    [0.5, 1.0, 1.0, 0.5, 0.12]
    >>> meena = LoopConfig(hold=10_000, decay="rsqrt")
    >>> [schedule(meena, s, 738_000) for s in (0, 10_000, 40_000)]
    [1.0, 1.0, 0.5]
    """
    decay_start = config.warmup + config.hold
    if step < config.warmup:
        return (step + 1) / config.warmup
    if step < decay_start or config.decay == "none":
        return 1.0
    if config.decay == "linear":
        return max(0.03, 1 - (step - decay_start) / max(1, total - decay_start))
    return math.sqrt(max(1, decay_start) / max(1, decay_start, step))


def make_optimizer(task: TrainingTask, config: LoopConfig) -> torch.optim.Optimizer:
    """The optimizer of a task's parameters."""
    groups = task.parameter_groups(config.learning_rate)
    if config.optimizer == "adafactor":
        return torch.optim.Adafactor(groups, lr=config.learning_rate, weight_decay=config.weight_decay)
    return torch.optim.AdamW(groups, lr=config.learning_rate, weight_decay=config.weight_decay, fused=True)


def _format_figures(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {figure:.4g}" for name, figure in figures.items())


def _save(value: dict[str, Any], file: Path) -> None:
    with write_weights(file) as unfinished:
        torch.save(value, unfinished)
