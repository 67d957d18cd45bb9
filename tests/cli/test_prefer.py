"""From a study to a better bot on the command line: the export, what is left out of it, and the run it teaches."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("peft")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tertulia.artefacts.files import fingerprint, sha256_of  # noqa: E402
from tertulia.models.hf.finetuned import FinetunedGenerator  # noqa: E402
from tertulia.store import Database  # noqa: E402
from tertulia.store.studies import StudyStore  # noqa: E402
from tertulia.study.presets import study_from_toml  # noqa: E402
from tertulia.study.units import make_units, read_items  # noqa: E402

Tertulia = Callable[..., Any]
STUDY = 'preset = "pairwise-static"\nitems = "items.jsonl"\n[[bots]]\nname = "ann"\n[[bots]]\nname = "bob"\n'
RECIPE = """
recipe = "prefer"
start = "{base}"
questions = ["quality"]
max_steps = 6
epochs = 9
learning_rate = 0.01
batch_tokens = 400
precision = "float32"
perplexity_dialogues = 1
kl_samples = 2
kl_tokens = 4
[model]
rank = 2
max_length = 128
"""


def hold_study(database: Path) -> list[str]:
    """Three people prefer ann's replies, but the last one always bob's; returns their pseudonyms."""
    config = study_from_toml(STUDY, "study.toml")
    items = [
        {
            "id": f"i{n}",
            "turns": [{"speaker": "x", "text": f"tea {n} ?"}],
            "responses": {"ann": "yes", "bob": f"xx {n}"},
        }
        for n in range(10)
    ]
    units = make_units(config, read_items([json.dumps(item) for item in items]), {}, random.Random(0))
    people = []
    with Database.open(f"sqlite:///{database}") as opened:
        store = StudyStore(opened)
        record = store.create("tea", config.model_dump(mode="json"), "tea", by="test")
        store.add_units(record.id, [(unit.id, unit.bots, unit.payload, 3) for unit in units])
        store.set_state(record.id, "open", "test")
        for number in range(3):
            participant, _ = store.enroll(record.id, "test", f"person {number}", first_step="done")
            people.append(participant.id)
            for unit in units:
                order = (number % 2, 1 - number % 2)
                assignment = store.lease_unit(
                    record.id, participant.id, lambda _, name=unit.id: name, 3600, side_order=lambda _, o=order: o
                )
                assert assignment is not None
                liked = unit.bots.index("bob" if number == 2 else "ann")
                answer = "AB"[assignment.side_order.index(liked)]
                store.add_labels(assignment.id, participant.id, [("unit", "quality", answer)], "k")
                store.submit(assignment.id, participant.id)
    return people


def test_from_a_study_to_a_better_bot(tertulia: Tertulia, tiny_models: Any, tmp_path: Path) -> None:
    people, export = hold_study(tmp_path / "studies.db"), tmp_path / "choices.csv"
    database = f"sqlite:///{tmp_path / 'studies.db'}"
    recipe, run = tmp_path / "recipe.toml", tmp_path / "better"
    recipe.write_text(RECIPE.format(base=tiny_models.make("chat")))
    with Database.open(database) as opened:
        StudyStore(opened).withdraw(people[2])
    assert tertulia("study", "export", "tea", "--out", export, "--db", database).code == 0
    assert people[0] in export.read_text()
    assert people[2] not in export.read_text(), "who withdrew is in no export"
    trained = tertulia("train", recipe, "--data", export, "--out", run)
    assert trained.code == 0, trained.err
    assert "held out: accuracy: value" in trained.out
    assert "perplexity: ratio" in trained.out
    manifest = json.loads((run / "manifest.json").read_text())
    figures = manifest["training"]
    assert figures["preferences"] == {"read": 20, "used": 10}
    assert figures["held_out"]["accuracy"]["n"] == figures["valid_examples"] == 2
    sources = json.loads((run / "preferences.json").read_text())
    assert sources["files"] == {"choices.csv": sha256_of(export)}
    assert sources["raters"] == sorted(fingerprint([person]) for person in people[:2])
    assert manifest["files"]["preferences.json"] == sha256_of(run / "preferences.json")
    assert figures["perplexity"]["before"] > 1
    talked = tertulia("selfplay", f"{run}?max_tokens=4", "-n", 1, "--turns", 2, "--out", tmp_path / "talk")
    assert talked.code == 0, talked.err
    exported = tertulia("export", run, "--merged", tmp_path / "merged")
    assert exported.code == 0, exported.err
    plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    own = FinetunedGenerator.load(run).model
    for name, weight in own.named_parameters():
        torch.testing.assert_close(plain.get_parameter(name), weight)


def test_bad_input_exits_with_2_and_leaves_nothing(tertulia: Tertulia, tiny_models: Any, tmp_path: Path) -> None:
    recipe, data, out = tmp_path / "recipe.toml", tmp_path / "votes.jsonl", tmp_path / "out"
    for base, record, message in (
        (tiny_models.make("chat"), {"prompt": "hi", "completion": "yes", "label": True}, "all 1 votes are up"),
        (tiny_models.make("chat"), {"question": "hi"}, "is unknown"),
        (tiny_models.make_seq2seq("blenderbot"), {"prompt": "hi", "chosen": "a", "rejected": "b"}, "not a causal"),
    ):
        recipe.write_text(RECIPE.format(base=base).replace('questions = ["quality"]', ""))
        data.write_text(json.dumps(record))
        result = tertulia("train", recipe, "--data", data, "--out", out)
        assert (result.code, out.exists()) == (2, False)
        assert message in result.stderr
