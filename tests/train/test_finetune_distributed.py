"""Two processes started by torchrun fine-tune as one process does that accumulates the same batches."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from safetensors.torch import load_file  # noqa: E402

from tertulia.core.progress import Silent  # noqa: E402
from tertulia.train.recipe import read_recipe  # noqa: E402

RECIPE = """
recipe = "finetune"
base = "{base}"
data = "sample"
out = "{out}"
max_steps = 4
accumulate = {accumulate}
batch_tokens = 600
max_dialogues = 12
valid_dialogues = 2
validate_every = 4
warmup = 0
precision = "float32"
[model]
rank = 2
max_length = 300
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_processes_make_the_same_updates_as_one(tiny_models: Any, tmp_path: Path) -> None:
    base = tiny_models.make("wide", window=4096)
    files = {name: tmp_path / f"{name}.toml" for name in ("one", "two")}
    for name, file in files.items():
        file.write_text(RECIPE.format(base=base, out=tmp_path / name, accumulate=2 if name == "one" else 1))
    recipe, config = read_recipe(files["one"])
    recipe.train(config, Silent())
    launcher = ("torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m")
    command = [sys.executable, "-m", *launcher, "tertulia", "train", str(files["two"])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in files)
    assert one.keys() == two.keys()
    learned = [key for key in one if "lora_B" in key]  # these start at zero: their size is what was learned
    size = sum(float(one[key].square().sum()) for key in learned) ** 0.5
    assert size > 0
    assert sum(float((one[key] - two[key]).square().sum()) for key in learned) ** 0.5 < 0.05 * size
