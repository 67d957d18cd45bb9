"""`judge perplexity` and `judge samples` as they are called, on an untrained model."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tertulia import sample
from tertulia.models.checkpoint import seal
from tertulia.models.seq2seq import Seq2Seq, Seq2SeqConfig
from tertulia.models.tokenizer import WordTokenizer

Tertulia = Callable[..., Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run as training would leave it, had it not begun."""
    folder = tmp_path_factory.mktemp("runs") / "fresh"
    torch.manual_seed(1)
    words = WordTokenizer.learn((t.text for d in sample.dialogues("valid") for t in d.turns), size=200)
    model = Seq2Seq.untrained(Seq2SeqConfig(dim=8, hidden=8, encoder=False), words)
    seal(folder, bot="seq2seq", model="seq2seq", files=[*model.save(folder), words.save(folder)], training={})
    return folder


def test_perplexity_for_people_and_as_json(tertulia: Tertulia, run: Path, tmp_path: Path) -> None:
    asked = ("judge", "perplexity", run, "--persona", "none", "--persona", "own", "--wording", "revised", "--limit", 3)
    told = tertulia(*asked, "--out", tmp_path / "report")
    assert told.code == 0
    people = " ".join(told.out.split())
    for text in ("fresh", "none", "own, revised", "perplexity per token", "turns with", "words it does not know"):
        assert text in people
    verdict = json.loads(tertulia(*asked, "--json").out)
    assert [(row["persona"], row["wording"]) for row in verdict["runs"]] == [("none", "original"), ("own", "revised")]
    assert verdict == json.loads((tmp_path / "report" / "figures.json").read_text()) | {"settings": verdict["settings"]}
    for row in verdict["runs"]:
        assert row["perplexity"]["low"] < row["perplexity"]["value"] < row["perplexity"]["high"]


def test_the_table_of_persona_chat(tertulia: Tertulia, run: Path) -> None:
    more = ("--limit", 2, "--replies", 2, "--ranked", 2, "--persona", "own", "--table", "personachat")
    people = " ".join(tertulia("judge", "perplexity", run, *more).out.split())
    for text in ("table 3", "layout of table 5", "40.65", ".082", "F1: 2 replies", "fresh: written by greedy"):
        assert text in people


def test_samples_for_people_and_as_json(tertulia: Tertulia, run: Path, tmp_path: Path) -> None:
    asked = ("judge", "samples", run, "--prompt", "do you like tea?", "--samples", 5, "--beams", 3)
    told = tertulia(*asked, "--sweep", "--sizes", "1,4", "--out", tmp_path / "report")
    assert told.code == 0
    for text in ("do you like tea?", "sample-and-rank", "beam search", "How many samples", "log P a token"):
        assert text in told.out
    assert (tmp_path / "report" / "sweep.svg").is_file()
    found = json.loads(tertulia(*asked, "--json").out)
    assert sum(one["drawn"] for one in found["prompts"][0]["samples"]) == 5
    assert found["sweep"] == []


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("perplexity",), "runs"),
        (("perplexity", "nowhere"), "not the folder of a finished training run"),
        (("perplexity", "nowhere", "--persona", "nobody"), "persona"),
        (("samples", "nowhere"), "no prompt to answer"),
        (("samples", "nowhere", "--prompt", "hi"), "not the folder of a finished training run"),
    ],
)
def test_what_cannot_be_is_a_clear_error(tertulia: Tertulia, given: tuple[str, ...], told: str) -> None:
    result = tertulia("judge", *given)
    assert result.code == 2
    assert told in result.told


def test_the_other_judges_do_without_torch() -> None:
    code = "import sys, tertulia.cli.judge; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
