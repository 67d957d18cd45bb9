"""Recipes of classifiers: what they learn, that an interrupted run continues exactly, and what they refuse."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.metrics import f1_score, roc_auc_score

from tertulia import sample
from tertulia.core.codec import Problems
from tertulia.core.errors import DataError
from tertulia.core.grounding import LABELS, parse_label
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.load import load_exchanges
from tertulia.corpus.write import save_exchanges
from tertulia.models.classifiers.entailment import EntailmentClassifier
from tertulia.models.classifiers.grounding import load_grounding
from tertulia.models.classifiers.grounding_features import overlap
from tertulia.models.classifiers.grounding_models import FeatureClassifier, load_run, packaged
from tertulia.models.classifiers.pair_classifier import PairExample, TextPair
from tertulia.train.recipe import read_recipe
from tertulia.train.recipes.entailment import EntailmentRecipe, read_data
from tertulia.train.recipes.entailment import train as train_entailment
from tertulia.train.recipes.grounding import GroundingRecipe, grounding_input
from tertulia.train.recipes.grounding import train as train_grounding
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


def grounding(tmp_path: Path, tiny_models: Any, **model: Any) -> GroundingRecipe:
    encoder = str(tiny_models.make_classifier("pairs", ["entailment", "neutral", "contradiction"]))
    shape = {"encoder": encoder, "max_length": 32, "frozen": -1, "language_model": str(tiny_models.make("chat"))}
    settings = {"per_label": 60, "epochs": 1, "precision": "float32", "out": tmp_path / "run", "batch": 8}
    return GroundingRecipe.model_validate({**settings, "model": {**shape, "max_scored": 60, **model}})


def test_the_packaged_model_is_what_its_command_makes(tmp_path: Path) -> None:
    recipe, config = read_recipe(Path(__file__).parents[2] / "configs" / "grounding.toml", {"out": tmp_path / "run"})
    trained = recipe.train(config, Silent())
    assert trained.figures()["valid"]["macro-F1"] > 0.7
    made = load_run(tmp_path / "run")
    assert made.settings == packaged().settings
    inputs = [grounding_input(exchange) for exchange in sample.grounded()]
    rows, expected = (np.array(model.probabilities(inputs)) for model in (made, packaged()))
    assert np.abs(rows - expected).mean() < 0.01


@pytest.mark.parametrize("release", ["v1_dev", "v2_dev_wow", "v2_dev_cmu", "v2_dev_tc"])
def test_the_packaged_model_tells_support_better_than_plain_overlap(release: str, shared_data: Path) -> None:
    exchanges = list(load_exchanges(shared_data / "begin" / f"{release}.tsv"))
    inputs = [grounding_input(exchange) for exchange in exchanges]
    plain = np.array([overlap(one) for one in inputs])
    rows = np.array(packaged().probabilities(inputs))
    supported = np.array([str(e.label).lower() in ("entailment", "fully attributable") for e in exchanges])
    middling = (plain >= 0.4) & (plain <= 0.85)
    for part in (slice(None), middling):
        assert roc_auc_score(supported[part], rows[part, 0]) > roc_auc_score(supported[part], plain[part]) + 0.01
    if release == "v1_dev":
        gold = np.array([LABELS.index(parse_label(str(e.label))) for e in exchanges])  # type: ignore[arg-type]
        assert (rows.argmax(1) == gold).mean() >= 0.55
        assert f1_score(gold, rows.argmax(1), average="macro") >= 0.39


@pytest.mark.parametrize("kind", ["encoder", "likelihood", "combined", "combined without encoder"])
def test_every_kind_of_grounding_model_is_trained_saved_and_loaded(
    kind: str, tmp_path: Path, tiny_models: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERTULIA_CACHE", str(tmp_path / "cache"))
    kind, without, _ = kind.partition(" without encoder")
    config = grounding(tmp_path, tiny_models, kind=kind, with_encoder=not without, priors={"contradiction": 0.1})
    train_grounding(config, Silent())
    classifier = load_grounding(str(tmp_path / "run"))
    inputs = [grounding_input(exchange) for exchange in sample.grounded()[:6]]
    rows = classifier.probabilities(inputs)
    assert all(sum(row) == pytest.approx(1) for row in rows)
    assert rows[2] == pytest.approx(classifier.probabilities([inputs[2]])[0], abs=1e-3)
    assert classifier.name.startswith(str(tmp_path / "run"))
    if kind == "combined":
        assert isinstance(classifier, FeatureClassifier)
        features = {name for source in classifier.sources for name in source.names}
        assert {"content overlap", "likelihood gain"} <= features
        assert ("encoder: entailment" in features) == (not without)
        assert (tmp_path / "run" / "encoder").exists() == (not without)
        used = dict(zip(classifier.heads.support.features, classifier.heads.support.knots, strict=True))
        assert used["content overlap"]
        assert used["likelihood gain"]
    written = tmp_path / "run" / "grounding.json"
    written.write_text(written.read_text(encoding="utf-8").replace("0", "1", 1), encoding="utf-8")
    with pytest.raises(DataError, match="run"):
        load_grounding(str(tmp_path / "run"))


def test_labels_that_are_not_begins_are_named(tmp_path: Path, tiny_models: Any) -> None:
    wrong = replace(sample.grounded()[0], label="Fully attributable")
    save_exchanges([*sample.grounded()[1:50], wrong], tmp_path / "silver.jsonl")
    config = grounding(tmp_path, tiny_models).model_copy(update={"data": str(tmp_path / "silver.jsonl")})
    with pytest.raises(DataError, match="'g001' has the label 'Fully attributable'") as error:
        train_grounding(config, Silent())
    assert "off-topic" in error.value.hint
    save_exchanges(sample.grounded()[:3], tmp_path / "few.jsonl")
    with pytest.raises(DataError, match="too few passages"):
        train_grounding(config.model_copy(update={"data": str(tmp_path / "few.jsonl")}), Silent())
