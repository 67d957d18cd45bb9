"""Two processes that torchrun starts learn exactly what one process learns from the same batches."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch
from torch import nn

from tertulia.core.progress import Silent
from tertulia.train.loop import LoopConfig, Loss, fit


class Points:
    """Batches of different sizes, so that a mean of means would be another gradient than the mean over all."""

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
    """Train and leave the weights in a file for each process."""
    trainee = Points()
    config = LoopConfig(epochs=3, rate=0.05, accumulate=accumulate, validate_every=4, patience=9, keep_seconds=0)
    outcome = fit(trainee, config, folder, Silent(), resume=False, same="")
    weights = torch.cat([p.detach().flatten() for p in trainee.module.parameters()]).tolist()
    name = "first" if outcome.first else "second"
    (folder / f"{name}.json").write_text(json.dumps({"weights": weights, "figures": dict(outcome.figures)}))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_processes_learn_what_one_does(tmp_path: Path) -> None:
    script = tmp_path / "go.py"
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        f"from pathlib import Path\nfrom test_peers import learn\nlearn(Path({str(tmp_path / 'two')!r}), 1)\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (tmp_path / "one").mkdir()
    learn(tmp_path / "one", 2)
    one = json.loads((tmp_path / "one" / "first.json").read_text())
    for name in ("first", "second"):
        two = json.loads((tmp_path / "two" / f"{name}.json").read_text())
        assert two["weights"] == pytest.approx(one["weights"], abs=1e-6)
        assert two["figures"]["error"] == pytest.approx(one["figures"]["error"], rel=1e-4)
