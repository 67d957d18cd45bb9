"""Recipes of classifiers: what they learn, that an interrupted run continues exactly, and what they refuse."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tertulia.core.codec import Problems
from tertulia.core.errors import DataError
from tertulia.core.progress import Progress, Silent
from tertulia.models.classifiers.entailment import EntailmentClassifier
from tertulia.models.classifiers.pair_classifier import PairExample, TextPair
from tertulia.train.recipes.entailment import EntailmentRecipe, read_data
from tertulia.train.recipes.entailment import train as train_entailment
from tertulia.train.tasks.classification import label_figures


def write_pairs(file: Path, count: int = 240) -> None:
    """Love after love is entailed, hate after love is a contradiction, anything about another animal is neutral."""
    lines = []
    for i in range(count):
        verbs, animals = (("love", "hate")[i % 2], "love"), (("cats", "dogs")[i // 2 % 2], "cats")
        label = "neutral" if animals[0] != animals[1] else "entailment" if verbs[0] == verbs[1] else "contradiction"
        said = " ".join("ix"[int(bit)] for bit in f"{i // 4:06b}")  # premises of the same meaning, each another text
        premise, hypothesis = f"{said} {verbs[1]} {animals[1]}", f"i {verbs[0]} {animals[0]}"
        lines.append(json.dumps({"premise": premise, "hypothesis": hypothesis, "label": label}) + "\n")
    file.write_text("".join(lines), encoding="utf-8")


@pytest.fixture
def recipe(tiny_models: Any, tmp_path: Path) -> Callable[..., EntailmentRecipe]:
    write_pairs(tmp_path / "pairs.jsonl")

    def make(**settings: Any) -> EntailmentRecipe:
        encoder = str(tiny_models.make_classifier("pairs", ["entailment", "neutral", "contradiction"]))
        model = {"encoder": encoder, "max_length": 64, "frozen": -1, "dropout": 0.0}
        shared = {"data": str(tmp_path / "pairs.jsonl"), "precision": "float32", "learning_rate": 3e-3, "warmup": 5}
        return EntailmentRecipe.model_validate({"model": model, "batch": 16, "epochs": 12, **shared, **settings})

    return make


def test_inference_is_learned_and_the_run_is_a_classifier(recipe: Any, tmp_path: Path) -> None:
    trained = train_entailment(recipe(out=tmp_path / "run", patience=12), Silent())
    assert trained.record["valid"]["accuracy"] > 0.9
    model = EntailmentClassifier.load(str(tmp_path / "run"))
    rows = model.probabilities(["i love cats"] * 3, ["i love cats", "i love dogs", "i hate cats"])
    assert [max(row._asdict(), key=row._asdict().__getitem__) for row in rows] == [
        "entailment",
        "neutral",
        "contradiction",
    ]


def test_an_interrupted_run_continues_exactly(recipe: Any, tmp_path: Path, stops: Callable[[int], Progress]) -> None:
    settings: dict[str, Any] = {"epochs": 2, "save_seconds": 0.0}
    train_entailment(recipe(out=tmp_path / "whole", **settings), Silent())
    with pytest.raises(KeyboardInterrupt):
        train_entailment(recipe(out=tmp_path / "parts", **settings), stops(9))
    train_entailment(recipe(out=tmp_path / "parts", resume=True, **settings), Silent())
    whole, parts = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert [name for name in whole if not torch.equal(whole[name], parts[name])] == []


def test_files_of_a_folder_are_told_apart_by_their_names(recipe: Any, tmp_path: Path) -> None:
    folder = tmp_path / "nli"
    (folder / "rte").mkdir(parents=True)
    write_pairs(folder / "x-train.jsonl", 40)
    write_pairs(folder / "x-dev.jsonl", 12)
    (folder / "rte" / "train.tsv").write_text(
        "index\tlabel\tsentence1\tsentence2\n0\t1\ta\tb\n1\t0\ta\tc\n", encoding="utf-8"
    )
    data = read_data(recipe(data=str(folder)), Problems())
    assert (len(data.train), len(data.valid)) == (42, 12)
    assert {e.allowed for e in data.train} == {(0,), (1,), (2,), (1, 2)}
    with pytest.raises(DataError, match=r"No file of .* matches \*\.csv"):
        read_data(recipe(data=str(folder), train=("*.csv",)), Problems())
    single = read_data(recipe(), Problems())
    assert {e.pair.first for e in single.train} & {e.pair.first for e in single.valid} == set()


def test_any_allowed_label_is_right() -> None:
    pair = TextPair(("a",), "b")
    examples = [PairExample(pair, allowed) for allowed in ((0,), (1,), (1, 2), (1, 2))]
    rows = [(0.9, 0.1, 0.0), (0.9, 0.1, 0.0), (0.1, 0.2, 0.7), (0.8, 0.1, 0.1)]
    assert label_figures(rows, examples) == pytest.approx({"accuracy": 0.5, "macro-F1": (2 / 3 + 0) / 2})
