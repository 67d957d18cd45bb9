"""From a corpus to a language model of one's own on the command line: train, judge, self-play, export."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("peft")

Tertulia = Callable[..., Any]
RECIPE = """
recipe = "finetune"
base = "{base}"
data = "sample"
max_steps = 2
accumulate = 1
batch_tokens = 500
max_dialogues = 8
valid_dialogues = 2
validate_every = 2
precision = "float32"
[model]
rank = 2
max_length = 400
"""


@pytest.mark.slow
def test_a_model_of_ones_own(tertulia: Tertulia, tiny_models: Any, tmp_path: Path) -> None:
    recipe, run, merged = tmp_path / "recipe.toml", tmp_path / "mine", tmp_path / "merged"
    recipe.write_text(RECIPE.format(base=tiny_models.make("wide", window=4096)))
    trained = tertulia("train", recipe, "--out", run, "--json")
    assert trained.code == 0, trained.err
    assert json.loads(trained.out)["steps"] == 2
    assert tertulia("selfplay", f"{run}?max_tokens=8", "-n", 1, "--turns", 4, "--out", tmp_path / "talk").code == 0
    exported = tertulia("export", run, "--merged", merged, "--json")
    assert "model.safetensors" in json.loads(exported.out)["files"]
    judged = tertulia("judge", "perplexity", run, f"hf:{merged}", "--limit", 1, "--persona", "own", "--json")
    figures = [f["value"] for f in json.loads(judged.out)["figures"] if f["metric"] == "perplexity"]
    assert figures[0] == pytest.approx(figures[1], rel=1e-3), "the merged model is the same model"
    again = tertulia("export", run, "--merged", merged)
    assert (again.code, "not empty" in again.stderr) == (2, True)


def test_bad_input_exits_with_2_and_leaves_nothing(tertulia: Tertulia, tiny_models: Any, tmp_path: Path) -> None:
    recipe, out = tmp_path / "recipe.toml", tmp_path / "out"
    for base, message in (
        (tiny_models.make_seq2seq("blenderbot"), "not a causal model"),
        (tmp_path / "nowhere", "No chat model could be loaded"),
    ):
        recipe.write_text(RECIPE.format(base=base))
        result = tertulia("train", recipe, "--out", out)
        assert result.code == 2
        assert message in result.stderr
        assert not out.exists()
    result = tertulia("export", tmp_path, "--merged", out)
    assert (result.code, "not the folder of a finished" in result.stderr) == (2, True)
    for folders in ((), ("--merged", out, "--adapter", out)):
        result = tertulia("export", tmp_path, *folders)
        assert (result.code, "either --merged FOLDER or --adapter FOLDER" in result.stderr) == (2, True)


@pytest.mark.slow
def test_without_the_extra_it_says_how_to_install_it(tmp_path: Path) -> None:
    recipes = [tmp_path / "finetune.toml", tmp_path / "prefer.toml"]
    recipes[0].write_text(RECIPE.format(base="smollm2"))
    recipes[1].write_text('recipe = "prefer"')
    code = """
import sys
sys.modules["peft"] = None
from tertulia.cli.main import run
for recipe in sys.argv[2:]:
    try:
        run(["train", recipe, "--out", sys.argv[1]])
    except SystemExit as end:
        print("code", end.code)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "out"), *map(str, recipes)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout.split() == ["code", "2"] * 2
    assert " ".join(done.stderr.split()).count("needs the package 'peft', which is not installed") == 2
    assert done.stderr.count("pip install 'tertulia[models]'") == 2
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
