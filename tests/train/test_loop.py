"""The training loop on the smallest thing that can be trained: a line through points."""

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

from tertulia.core.errors import DataError
from tertulia.core.progress import Silent
from tertulia.train.loop import BEST, LoopConfig, Loss, fit, schedule, settings
from tertulia.train.record import PICTURE, RECORD, draw_record, read_record


class Line:
    """Learns y = 2 x + 1, with noise from dropout so that the random state matters."""

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


class Breaks(Silent):
    """Interrupts a run at an update."""

    def __init__(self, at: int) -> None:
        self.left = at

    def advance(self, n: int = 1) -> None:
        self.left -= n
        if self.left == 0:
            raise InterruptedRunError


CONFIG = LoopConfig(epochs=9, rate=0.05, warmup=3, accumulate=2, validate_every=7, patience=50, keep_seconds=0)


def run(folder: Path, config: LoopConfig = CONFIG, *, resume: bool = False, progress: Any = None) -> tuple[Any, Line]:
    trainee = Line()
    return fit(trainee, config, folder, progress or Silent(), resume=resume, same="one"), trainee


def weights(trainee: Line) -> list[float]:
    return torch.cat([p.detach().flatten() for p in trainee.module.parameters()]).tolist()


def losses(folder: Path) -> list[tuple[int, float]]:
    return [(line["step"], line["loss"]) for line in read_record(folder / RECORD) if "loss" in line]


def test_it_learns_and_ends_with_its_best_weights(tmp_path: Path) -> None:
    outcome, trainee = run(tmp_path, CONFIG.model_copy(update={"epochs": 40}))
    found = [line["valid"]["error"] for line in read_record(tmp_path / RECORD) if "valid" in line]
    trainee.module.eval()
    assert outcome.figures["error"] == pytest.approx(min(found))
    assert trainee.validate()["error"] == pytest.approx(min(found))
    assert min(found) < found[0] / 10
    assert outcome.steps == 200


@pytest.mark.parametrize("at", [1, 6, 7, 12, 24])
def test_an_interrupted_run_goes_on_as_if_nothing_had_been(tmp_path: Path, at: int) -> None:
    whole, first = run(tmp_path / "whole")
    with pytest.raises(InterruptedRunError):
        run(tmp_path / "broken", progress=Breaks(at))
    again, second = run(tmp_path / "broken", resume=True)
    assert weights(first) == weights(second)
    assert (again.steps, again.best_step, again.figures) == (whole.steps, whole.best_step, whole.figures)
    valid = [
        [(line["step"], line["valid"]) for line in read_record(tmp_path / name / RECORD) if "valid" in line]
        for name in ("whole", "broken")
    ]
    assert valid[0] == valid[1]


def test_losses_after_a_kill_are_those_of_an_uninterrupted_run(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); from test_loop import *; "
        "fit(Line(slow=0.02), CONFIG, Path(sys.argv[2]), Silent(), resume=False, same='one')"
    )
    here = str(Path(__file__).parent)
    process = subprocess.Popen([sys.executable, "-c", script, here, str(tmp_path / "killed")])
    state = tmp_path / "killed" / "state.pt"
    end = time.monotonic() + 60
    while not state.is_file() and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    run(tmp_path / "whole")
    run(tmp_path / "killed", resume=True)
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    first, _ = run(tmp_path)
    best = (tmp_path / BEST).stat().st_mtime_ns
    again, _ = run(tmp_path, resume=True)
    assert again.figures == first.figures
    assert (tmp_path / BEST).stat().st_mtime_ns == best


def test_other_data_or_settings_are_not_gone_on_with(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(DataError, match="other data or settings"):
        fit(Line(), CONFIG, tmp_path, Silent(), resume=True, same="other")


def test_it_stops_when_nothing_gets_better(tmp_path: Path) -> None:
    outcome, _ = run(tmp_path, LoopConfig(epochs=100, rate=1e-12, decay="none", patience=2, validate_every=1))
    assert outcome.ended.startswith("no better")
    assert outcome.steps < 1000


def test_a_loss_that_is_no_number_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="loss at update") as caught:
        run(tmp_path, LoopConfig(rate=1e30, clip=1e30, epochs=50))
    assert "rate" in str(caught.value.hint)


def test_accumulating_is_the_mean_of_gradients(tmp_path: Path) -> None:
    class Twice(Line):
        def __init__(self, joined: bool) -> None:
            super().__init__()
            self.module[0] = nn.Identity()
            self.joined = joined

        def batches(self, epoch: int) -> Sequence[torch.Tensor]:
            found = super().batches(epoch)
            return [torch.cat([a, b]) for a, b in zip(found[::2], found[1::2], strict=True)] if self.joined else found

    made = []
    for joined, accumulate in ((True, 1), (False, 2)):
        trainee = Twice(joined)
        config = LoopConfig(epochs=1, rate=0.01, accumulate=accumulate)
        fit(trainee, config, tmp_path / str(joined), Silent(), resume=False, same="")
        made.append(weights(trainee))
    assert made[0] == pytest.approx(made[1], abs=1e-6)


def test_adafactor_learns_too(tmp_path: Path) -> None:
    outcome, _ = run(tmp_path, LoopConfig(optimizer="adafactor", rate=0.05, decay="rsqrt", warmup=5, epochs=40))
    first = next(line for line in read_record(tmp_path / RECORD) if "valid" in line)
    assert outcome.figures["error"] < first["valid"]["error"]


def test_schedules() -> None:
    rsqrt = LoopConfig(warmup=100, decay="rsqrt")
    assert schedule(rsqrt, 49, 10**6) == pytest.approx(0.5)
    assert schedule(rsqrt, 400, 10**6) == pytest.approx(0.5)
    assert schedule(LoopConfig(decay="none"), 999, 1000) == 1.0
    assert schedule(LoopConfig(decay="linear"), 999, 1000) == pytest.approx(0.03)


def test_a_rate_is_held_before_it_falls() -> None:
    held = LoopConfig(warmup=2, hold=3, decay="linear")
    assert [schedule(held, step, 15) for step in range(6)] == [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert schedule(held, 10, 15) == pytest.approx(0.5)


class One:
    """A weight whose gradient never changes, so that an update shows the rate."""

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
    """A rate for so many updates, then the inverse square root of the update; here 0.25 for 16 instead of 0.01."""
    trainee = One()
    config = LoopConfig(optimizer="adafactor", rate=0.25, hold=16, decay="rsqrt", epochs=1, precision="float32")
    fit(trainee, config, tmp_path, Silent(), resume=False, same="")
    rates = [after / before - 1 for before, after in pairwise(trainee.seen)]  # relative to the weight's size
    wanted = [1 / math.sqrt(max(step, 16)) for step in range(1, 100)]
    assert rates == pytest.approx(wanted, rel=1e-3)


class Hears(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_speed_loss_and_the_last_validation_are_told(tmp_path: Path) -> None:
    class Counts(Line):
        unit = "points"

    heard = Hears()
    fit(Counts(), CONFIG, tmp_path, heard, resume=False, same="")
    before, after = heard.notes[0], heard.notes[-2]
    assert re.fullmatch(r"[\d,]+ points/s, loss [\d.]+", before)
    assert re.fullmatch(r"[\d,]+ points/s, loss [\d.]+, error [\d.e-]+", after)
    assert heard.notes[-1].startswith("error ")


@pytest.mark.parametrize("kind", ["adam", "adafactor"])
def test_later_settings_count_only_when_they_are_not_at_their_defaults(kind: Any) -> None:
    first = settings(LoopConfig(optimizer=kind), without={"seed"})
    assert set(first) == set(LoopConfig.model_fields) - LoopConfig.later - {"seed"}
    for more in ({"hold": 2}, {"precision": "float32"}, {"compile": True}, {"tensorboard": True}):
        assert settings(LoopConfig(optimizer=kind, **more), without={"seed"}) == first | more


def test_the_record_is_read_past_a_torn_line_and_drawn(tmp_path: Path) -> None:
    run(tmp_path)
    with (tmp_path / RECORD).open("a") as out:
        out.write('{"step": 1, "lo')
    assert all(json.dumps(line) for line in read_record(tmp_path / RECORD))
    draw_record(tmp_path, goal="-error")
    assert "<svg" in (tmp_path / PICTURE).read_text()
