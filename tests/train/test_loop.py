"""The training loop on the smallest possible task: linear regression."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tertulia.core.config import validate
from tertulia.core.errors import ConfigError, DataError, UsageError
from tertulia.core.progress import Silent
from tertulia.train.loop import BEST, LoopConfig, Loss, TrainingTask, fit, schedule
from tertulia.train.record import PLOT, RECORD, plot_record, read_record


class Line(TrainingTask):
    """Fits y = 2 x + 1, with dropout, so that the state of the random generator matters."""

    goal = "-error"

    def __init__(self, *, slow: float = 0.0) -> None:
        torch.manual_seed(1)
        self.module = nn.Sequential(nn.Dropout(0.2), nn.Linear(3, 1))
        self.slow = slow

    def batches(self, epoch: int) -> Sequence[torch.Tensor]:
        made = torch.Generator().manual_seed(epoch)
        return [torch.rand(8, 3, generator=made) for _ in range(10)]

    def loss(self, batch: torch.Tensor) -> Loss:
        time.sleep(self.slow)
        return Loss(self._error(batch), len(batch))

    def validate(self) -> Mapping[str, float]:
        return {"error": float(self._error(torch.linspace(0, 1, 30).view(10, 3)).detach())}

    def _error(self, batch: torch.Tensor) -> torch.Tensor:
        return ((self.module(batch).squeeze(-1) - (2 * batch.sum(1) + 1)) ** 2).mean()


class InterruptedRunError(Exception):
    pass


class InterruptAt(Silent):
    """Interrupts a run at an update."""

    def __init__(self, at: int) -> None:
        self.left = at

    def advance(self, n: int = 1) -> None:
        self.left -= n
        if self.left == 0:
            raise InterruptedRunError


CONFIG = LoopConfig(epochs=9, learning_rate=0.05, warmup=3, accumulate=2, validate_every=7, patience=50, save_seconds=0)


def run(folder: Path, config: LoopConfig = CONFIG, *, resume: bool = False, progress: Any = None) -> tuple[Any, Line]:
    task = Line()
    return fit(task, config, folder, progress or Silent(), resume=resume, run_id="one"), task


def weights(task: Line) -> list[float]:
    return torch.cat([p.detach().flatten() for p in task.module.parameters()]).tolist()


def losses(folder: Path) -> list[tuple[int, float]]:
    return [(line["step"], line["loss"]) for line in read_record(folder / RECORD) if "loss" in line]


def test_training_ends_with_the_best_weights(tmp_path: Path) -> None:
    outcome, task = run(tmp_path, CONFIG.model_copy(update={"epochs": 40}))
    errors = [line["valid"]["error"] for line in read_record(tmp_path / RECORD) if "valid" in line]
    task.module.eval()
    assert outcome.figures["error"] == pytest.approx(min(errors))
    assert task.validate()["error"] == pytest.approx(min(errors))
    assert min(errors) < errors[0] / 10
    assert outcome.steps == 200


@pytest.mark.parametrize("at", [1, 6, 7, 12, 24])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, at: int) -> None:
    complete, first = run(tmp_path / "complete")
    with pytest.raises(InterruptedRunError):
        run(tmp_path / "interrupted", progress=InterruptAt(at))
    again, second = run(tmp_path / "interrupted", resume=True)
    assert weights(first) == weights(second)
    assert (again.steps, again.best_step, again.figures) == (complete.steps, complete.best_step, complete.figures)
    valid = [
        [(line["step"], line["valid"]) for line in read_record(tmp_path / name / RECORD) if "valid" in line]
        for name in ("complete", "interrupted")
    ]
    assert valid[0] == valid[1]


def test_a_killed_run_resumes_with_the_losses_of_an_uninterrupted_one(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); from test_loop import *; "
        "fit(Line(slow=0.02), CONFIG, Path(sys.argv[2]), Silent(), resume=False, run_id='one')"
    )
    here = str(Path(__file__).parent)
    process = subprocess.Popen([sys.executable, "-c", script, here, str(tmp_path / "killed")])
    state = tmp_path / "killed" / "state.pt"
    end = time.monotonic() + 60
    while not state.is_file() and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    run(tmp_path / "complete")
    run(tmp_path / "killed", resume=True)
    assert losses(tmp_path / "killed") == losses(tmp_path / "complete")


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    first, _ = run(tmp_path)
    best = (tmp_path / BEST).stat().st_mtime_ns
    again, _ = run(tmp_path, resume=True)
    assert again.figures == first.figures
    assert (tmp_path / BEST).stat().st_mtime_ns == best


def test_a_run_with_other_data_or_settings_is_not_resumed(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(DataError, match="other data or settings"):
        fit(Line(), CONFIG, tmp_path, Silent(), resume=True, run_id="other")


def test_training_stops_without_improvement(tmp_path: Path) -> None:
    outcome, _ = run(tmp_path, LoopConfig(epochs=100, learning_rate=1e-12, decay="none", patience=2, validate_every=1))
    assert outcome.ended.startswith("no improvement")
    assert outcome.steps < 1000


def test_a_loss_that_is_not_finite_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="diverged at update") as caught:
        run(tmp_path, LoopConfig(learning_rate=1e30, max_grad_norm=1e30, epochs=50))
    assert "learning_rate" in str(caught.value.hint)


def test_accumulated_batches_give_the_gradient_of_one_large_batch(tmp_path: Path) -> None:
    class Twice(Line):
        def __init__(self, joined: bool) -> None:
            super().__init__()
            self.module[0] = nn.Identity()
            self.joined = joined

        def batches(self, epoch: int) -> Sequence[torch.Tensor]:
            batches = super().batches(epoch)
            return (
                [torch.cat([a, b]) for a, b in zip(batches[::2], batches[1::2], strict=True)]
                if self.joined
                else batches
            )

    made = []
    for joined, accumulate in ((True, 1), (False, 2)):
        task = Twice(joined)
        config = LoopConfig(epochs=1, learning_rate=0.01, accumulate=accumulate)
        fit(task, config, tmp_path / str(joined), Silent(), resume=False, run_id="")
        made.append(weights(task))
    assert made[0] == pytest.approx(made[1], abs=1e-6)


def test_adafactor_reduces_the_error(tmp_path: Path) -> None:
    outcome, _ = run(
        tmp_path, LoopConfig(optimizer="adafactor", learning_rate=0.05, decay="rsqrt", warmup=5, epochs=40)
    )
    first = next(line for line in read_record(tmp_path / RECORD) if "valid" in line)
    assert outcome.figures["error"] < first["valid"]["error"]


def test_schedules() -> None:
    rsqrt = LoopConfig(warmup=100, decay="rsqrt")
    assert schedule(rsqrt, 49, 10**6) == pytest.approx(0.5)
    assert schedule(rsqrt, 400, 10**6) == pytest.approx(0.5)
    assert schedule(LoopConfig(decay="none"), 999, 1000) == 1.0
    assert schedule(LoopConfig(decay="linear"), 999, 1000) == pytest.approx(0.03)


def test_the_learning_rate_is_held_before_it_decays() -> None:
    held = LoopConfig(warmup=2, hold=3, decay="linear")
    assert [schedule(held, step, 15) for step in range(6)] == [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert schedule(held, 10, 15) == pytest.approx(0.5)


class One(TrainingTask):
    """A weight with a constant gradient: each update shows the learning rate."""

    goal = "weight"

    def __init__(self) -> None:
        self.module = nn.Linear(1, 1, bias=False)
        nn.init.ones_(self.module.weight)
        self.seen: list[float] = []

    def batches(self, epoch: int) -> Sequence[None]:
        return [None] * 100

    def loss(self, batch: None) -> Loss:
        self.seen.append(float(self.module.weight.detach()))
        return Loss(-self.module.weight.sum(), 1)

    def validate(self) -> Mapping[str, float]:
        return {"weight": float(self.module.weight.detach())}


def test_meenas_schedule_is_what_adafactor_does(tmp_path: Path) -> None:
    """Constant at first, then the inverse square root of the update; here 0.25 for 16 updates instead of 0.01."""
    task = One()
    config = LoopConfig(
        optimizer="adafactor", learning_rate=0.25, hold=16, decay="rsqrt", epochs=1, precision="float32"
    )
    fit(task, config, tmp_path, Silent(), resume=False, run_id="")
    rates = [after / before - 1 for before, after in pairwise(task.seen)]  # relative to the weight's size
    wanted = [1 / math.sqrt(max(step, 16)) for step in range(1, 100)]
    assert rates == pytest.approx(wanted, rel=1e-3)


class RecordNotes(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_progress_shows_speed_loss_and_the_last_validation(tmp_path: Path) -> None:
    class Counts(Line):
        unit = "points"

    progress_notes = RecordNotes()
    fit(Counts(), CONFIG, tmp_path, progress_notes, resume=False, run_id="")
    before, after = progress_notes.notes[0], progress_notes.notes[-2]
    assert re.fullmatch(r"[\d,]+ points/s, loss [\d.]+", before)
    assert re.fullmatch(r"[\d,]+ points/s, loss [\d.]+, error [\d.e-]+", after)
    assert progress_notes.notes[-1].startswith("error ")


@pytest.mark.parametrize(("old", "new"), list(LoopConfig.renamed.items()))
def test_old_keys_give_an_error_that_names_the_new_one(old: str, new: str) -> None:
    with pytest.raises(ConfigError, match=f"'{old}' is now called '{new}'"):
        validate(LoopConfig, {old: 1}, where="old.toml")


def test_a_device_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    missing = "mps" if not torch.backends.mps.is_available() else "cuda"
    with pytest.raises(UsageError, match="not available") as caught:
        run(tmp_path, LoopConfig(device=missing))  # type: ignore[arg-type]
    assert "cpu" in str(caught.value.hint)


def test_a_truncated_line_of_the_record_is_skipped(tmp_path: Path) -> None:
    run(tmp_path)
    with (tmp_path / RECORD).open("a") as out:
        out.write('{"step": 1, "lo')
    assert all(json.dumps(line) for line in read_record(tmp_path / RECORD))
    plot_record(tmp_path, goal="-error")
    assert "<svg" in (tmp_path / PLOT).read_text()
