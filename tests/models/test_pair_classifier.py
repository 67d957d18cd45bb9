"""A classifier of text pairs: a batch is its rows, long texts fit, a saved model is the same when it is loaded."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tertulia.core.errors import BotError, UsageError
from tertulia.models.checkpoint import seal
from tertulia.models.classifiers.entailment import EntailmentClassifier
from tertulia.models.classifiers.pair_classifier import (
    PairClassifier,
    PairClassifierConfig,
    PairExample,
    TextPair,
    allowed_logprobs,
    calibrate,
)

LABELS = ("entailment", "neutral", "contradiction")
PAIRS = [
    TextPair(("i love cats",), "i hate dogs"),
    TextPair(("i love cats i love dogs", "i hate cats"), "cats"),
    TextPair(("", ""), ""),
    TextPair(("cats " * 500, "dogs " * 500), "love " * 500),
]


@pytest.fixture
def model(tiny_models: Any) -> PairClassifier:
    torch.manual_seed(1)
    config = PairClassifierConfig(encoder=str(tiny_models.make_classifier("pairs", LABELS)), max_length=32, frozen=-1)
    made = PairClassifier.untrained(config, LABELS).eval()
    torch.nn.init.normal_(made.head.weight)
    return made


def test_a_batch_is_its_rows_and_the_order_of_texts_matters(model: PairClassifier) -> None:
    together = model.label_probabilities(PAIRS)
    for pair, row in zip(PAIRS, together, strict=True):
        assert row == pytest.approx(model.label_probabilities([pair])[0], abs=1e-4)
        assert sum(row) == pytest.approx(1, abs=1e-5)
    [swapped] = model.label_probabilities([TextPair(("i hate dogs",), "i love cats")])
    assert swapped != pytest.approx(together[0], abs=1e-3)
    assert model.label_probabilities([]) == []


def test_long_texts_keep_a_part_of_everything(model: PairClassifier) -> None:
    ids, first = model._ids(PAIRS[3])
    counts = {word: ids.count(model.encoder.ids(word)[0]) for word in ("cats", "dogs", "love")}
    assert len(ids) == 32
    assert min(counts.values()) >= 2
    assert ids[first:].count(model.encoder.ids("love")[0]) == counts["love"]


def test_several_allowed_labels_are_as_likely_as_their_sum(model: PairClassifier) -> None:
    [row] = model.label_probabilities(PAIRS[:1])
    loss = model.loss([PairExample(PAIRS[0], (1, 2))]).detach()
    assert float(loss.exp()) == pytest.approx(1 / (row[1] + row[2]), rel=1e-4)
    logprobs = torch.log(torch.tensor([[0.2, 0.3, 0.5], [0.2, 0.3, 0.5]]))
    assert allowed_logprobs(logprobs, [(0,), (0, 2)]).exp().tolist() == pytest.approx([0.2, 0.7])


def test_calibration_softens_what_is_wrong_with_confidence(model: PairClassifier) -> None:
    with torch.no_grad():
        model.head.weight.mul_(3)
    rows = model.label_probabilities(PAIRS)
    best = [max(range(3), key=row.__getitem__) for row in rows]
    wrong = [PairExample(pair, ((label + 1) % 3,)) for pair, label in zip(PAIRS, best, strict=True)]
    assert calibrate(model, [PairExample(pair, (label,)) for pair, label in zip(PAIRS, best, strict=True)]) <= 1
    assert calibrate(model, wrong) == 16
    soft = model.label_probabilities(PAIRS)
    assert sum(map(max, soft)) < sum(map(max, rows)) - 0.1


def test_a_run_folder_is_an_entailment_classifier(model: PairClassifier, tmp_path: Path) -> None:
    model.temperature.fill_(2.0)
    files = model.save(tmp_path / "run")
    seal(tmp_path / "run", bot="entailment", model="entailment", files=files, training={})
    assert [f.name for f in (tmp_path / "run").iterdir() if f.suffix in (".pt", ".pkl", ".bin")] == []
    loaded = PairClassifier.load(tmp_path / "run")
    for row, expected in zip(loaded.label_probabilities(PAIRS), model.label_probabilities(PAIRS), strict=True):
        assert row == pytest.approx(expected)
    entailment = EntailmentClassifier.load(str(tmp_path / "run"))
    [row] = entailment.probabilities(["i love cats"], ["i hate dogs"])
    assert tuple(row) == pytest.approx(model.label_probabilities(PAIRS[:1])[0])
    again = PairClassifier.untrained(PairClassifierConfig(encoder=str(tmp_path / "run")), LABELS)
    assert torch.equal(again.head.weight, loaded.head.weight)


def test_what_does_not_fit_is_refused(model: PairClassifier, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="pairs of texts"):
        model.probabilities(["i love cats"])
    with pytest.raises(BotError, match="no/such-model"):
        PairClassifier.untrained(PairClassifierConfig(encoder="no/such-model"), LABELS)
