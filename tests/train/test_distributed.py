"""Two processes started by torchrun make the same updates as one process on the same batches."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch
from torch import nn

from tertulia.core.errors import DataError
from tertulia.core.progress import Silent
from tertulia.train.loop import LoopConfig, Loss, TrainingTask, fit
from tertulia.train.record import RECORD, read_record


class Points(TrainingTask):
    """Batches of different sizes: the mean of their means differs from the mean over all examples."""

    goal = "-error"

    def __init__(self) -> None:
        torch.manual_seed(4)
        self.module = nn.Linear(3, 1)

    def batches(self, epoch: int) -> Sequence[torch.Tensor]:
        made = torch.Generator().manual_seed(epoch)
        return [torch.rand(2 + 5 * (i % 2), 3, generator=made) for i in range(8)]

    def loss(self, batch: torch.Tensor) -> Loss:
        return Loss(((self.module(batch).squeeze(-1) - batch.sum(1)) ** 2).mean(), len(batch))

    def validate(self) -> Mapping[str, float]:
        return {"error": float(self.loss(torch.linspace(0, 1, 30).view(10, 3)).value.detach())}


def learn(folder: Path, accumulate: int) -> None:
    """Train, and write the weights of each process to a file."""
    task = Points()
    config = LoopConfig(
        epochs=3, learning_rate=0.05, accumulate=accumulate, validate_every=4, patience=9, save_seconds=0
    )
    outcome = fit(task, config, folder, Silent(), resume=False, run_id="")
    weights = torch.cat([p.detach().flatten() for p in task.module.parameters()]).tolist()
    name = "first" if outcome.is_main else "second"
    (folder / f"{name}.json").write_text(json.dumps({"weights": weights, "figures": dict(outcome.figures)}))


class Diverges(Points):
    def loss(self, batch: torch.Tensor) -> Loss:
        return Loss(super().loss(batch).value * float("nan"), len(batch))


def fail(folder: Path) -> None:
    """Train until the loss is not finite; the process group must be gone."""
    with pytest.raises(DataError, match="diverged"):
        fit(Diverges(), LoopConfig(epochs=1), folder / "failed", Silent(), resume=False, run_id="")
    assert not torch.distributed.is_initialized()


def torchrun(folder: Path, call: str) -> None:
    """Run a function of this file in two processes."""
    script = folder / "go.py"
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        f"from pathlib import Path\nimport test_distributed\ntest_distributed.{call}\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "destroy_process_group" not in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_process_group_is_destroyed_after_an_error(tmp_path: Path) -> None:
    torchrun(tmp_path, f"fail(Path({str(tmp_path / 'two')!r}))")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_processes_make_the_same_updates_as_one(tmp_path: Path) -> None:
    torchrun(tmp_path, f"learn(Path({str(tmp_path / 'two')!r}), 1)")
    (tmp_path / "one").mkdir()
    learn(tmp_path / "one", 2)
    one = json.loads((tmp_path / "one" / "first.json").read_text())
    for name in ("first", "second"):
        two = json.loads((tmp_path / "two" / f"{name}.json").read_text())
        assert two["weights"] == pytest.approx(one["weights"], abs=1e-6)
        assert two["figures"]["error"] == pytest.approx(one["figures"]["error"], rel=1e-4)
    records = [[line["step"] for line in read_record(tmp_path / n / RECORD) if "valid" in line] for n in ("one", "two")]
    assert records[0] == records[1], "the main process alone writes"
