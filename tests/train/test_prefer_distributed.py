"""Two processes started by torchrun learn preferences as one process does that accumulates the same batches."""

import json
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
recipe = "prefer"
start = "{base}"
data = "{data}"
out = "{out}"
max_steps = 3
accumulate = {accumulate}
batch_tokens = 300
validate_every = 3
warmup = 0
learning_rate = 0.01
precision = "float32"
perplexity_dialogues = 0
kl_samples = 0
[model]
rank = 2
max_length = 128
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_processes_make_the_same_updates_as_one(tiny_models: Any, tmp_path: Path) -> None:
    base, data = tiny_models.make("chat"), tmp_path / "pairs.jsonl"
    pairs = [{"prompt": f"tea {n} ?", "chosen": "yes", "rejected": f"xx {n}"} for n in range(20)]
    data.write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    files = {name: tmp_path / f"{name}.toml" for name in ("one", "two")}
    for name, file in files.items():
        accumulate = 2 if name == "one" else 1
        file.write_text(RECIPE.format(base=base, data=data, out=tmp_path / name, accumulate=accumulate))
    recipe, config = read_recipe(files["one"])
    recipe.train(config, Silent())
    launcher = ("torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m")
    command = [sys.executable, "-m", *launcher, "tertulia", "train", str(files["two"])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in files)
    learned = [key for key in one if "lora_B" in key]  # these start at zero: their size is what was learned
    size = sum(float(one[key].square().sum()) for key in learned) ** 0.5
    assert size > 0
    assert sum(float((one[key] - two[key]).square().sum()) for key in learned) ** 0.5 < 0.05 * size
    figures = json.loads((tmp_path / "two" / "manifest.json").read_text())["training"]
    assert figures["held_out"]["accuracy"]["n"] == 4
