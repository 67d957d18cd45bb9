"""Public corpora, where available, have as many dialogues and turns as their publishers state."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tertulia.core.codec import Problems
from tertulia.core.errors import DataError
from tertulia.corpus.load import holds, load_dialogues, load_exchanges, recognise, save_dialogues, save_exchanges

SIZES: dict[str, tuple[str, int, int | None]] = {
    "personachat/train.jsonl.gz": ("personachat", 8939, 131_214),
    "personachat/valid.jsonl.gz": ("personachat", 1000, 15_602),
    "dailydialog/dialogues.json.gz": ("dailydialog", 13_118, 102_979),
    "empathetic_dialogues/valid.json.gz": ("empathetic", 2769, None),
    "blended_skill_talk/valid.json.gz": ("blended-skill-talk", 1009, None),
    "cmu_dog/train.jsonl.gz": ("cmu-dog", 3373, None),
    "cmu_dog/valid.jsonl.gz": ("cmu-dog", 229, None),
    "topical_chat/valid_freq.json.gz": ("topical-chat", 539, None),
    "topical_chat/valid_rare.json.gz": ("topical-chat", 539, None),
    "udc_sample/dialogueText.csv": ("ubuntu", 3333, 9999),
}


@pytest.mark.parametrize("name", SIZES)
def test_dialogue_counts(shared_data: Path, name: str) -> None:
    file = shared_data / name
    expected, dialogues, turns = SIZES[name]
    assert recognise(file).name == expected
    problems = Problems()
    lengths = [len(d.turns) for d in load_dialogues(file, problems=problems)]
    assert (len(lengths), problems.count) == (dialogues, 0)
    assert turns is None or sum(lengths) == turns


@pytest.mark.parametrize(
    ("name", "expected", "labels"),
    [
        (
            "v1_dev.tsv",
            "begin-v1",
            {"entailment": 282, "hallucination": 267, "generic": 231, "off-topic": 51, "contradiction": 5},
        ),
        ("v2_dev_wow.tsv", "begin-v2", None),
        ("v2_dev_cmu.tsv", "begin-v2", None),
        ("v2_dev_tc.tsv", "begin-v2", None),
    ],
)
def test_exchange_counts(shared_data: Path, name: str, expected: str, labels: dict[str, int] | None) -> None:
    file = shared_data / "begin" / name
    assert (recognise(file).name, holds(file)) == (expected, "exchanges")
    problems = Problems()
    loaded = list(load_exchanges(file, problems=problems))
    assert problems.count == 0
    assert len(loaded) == sum("\t" in line for line in file.read_text(encoding="utf-8").split("\n")) - 1
    label_counts = Counter(e.label for e in loaded)
    if labels:
        assert label_counts == labels
        assert len(loaded) == 836
    else:
        assert set(label_counts) <= {"Fully attributable", "Not fully attributable", "Generic"}
    assert all(e.evidence and e.response.text for e in loaded)
    assert sum(not e.context for e in loaded) <= 30  # replies that start a conversation


@pytest.mark.parametrize(
    ("name", "labels"),
    [("testing_same_structure_1000.csv", {"0": 503, "1": 497}), ("validation_1000.csv", {"0": 502, "1": 498})],
)
def test_ubuntu_pairs_round_trip(shared_data: Path, tmp_path: Path, name: str, labels: dict[str, int]) -> None:
    file = shared_data / "udc_sample" / name
    assert recognise(file).name == "ubuntu-pairs"
    problems = Problems()
    loaded = list(load_exchanges(file, problems=problems))
    assert (Counter(e.label for e in loaded), problems.count) == (labels, 0)
    text = file.read_text(encoding="utf-8")
    assert sum(len(e.context) for e in loaded) + sum(e.response.text.count("\n") + 1 for e in loaded) == text.count(
        "__eou__"
    )
    save_exchanges(loaded, tmp_path / "again.csv", format="ubuntu-pairs")
    again = list(load_exchanges(tmp_path / "again.csv"))
    assert [(e.context, e.response, e.label) for e in again] == [(e.context, e.response, e.label) for e in loaded]


def test_the_ubuntu_csv_is_written_back_byte_for_byte(shared_data: Path, tmp_path: Path) -> None:
    file = shared_data / "udc_sample" / "dialogueText.csv"
    save_dialogues(load_dialogues(file), tmp_path / "again.csv", format="ubuntu")
    assert (tmp_path / "again.csv").read_bytes() == file.read_bytes()


@pytest.mark.parametrize("target", ["ubuntu_irc/dev", "ubuntu_irc", "ubuntu_irc/dev/2004-11-15_03.raw.txt"])
def test_annotated_chat_logs_are_not_dialogues(shared_data: Path, target: str) -> None:
    with pytest.raises(
        DataError, match=r"ubuntu_irc/dev contains chat logs annotated .*\n.*corpus mine .*--threads rules"
    ):
        list(load_dialogues(shared_data / target))


@pytest.mark.parametrize(
    ("folder", "n"),
    [("topical_chat", 1078), ("cmu_dog", 3602), ("dailydialog", 13_118), ("empathetic_dialogues", 2769)],
)
def test_folder_counts(shared_data: Path, folder: str, n: int) -> None:
    assert sum(1 for _ in load_dialogues(shared_data / folder)) == n


def test_every_cmu_dog_chat_has_its_document(shared_data: Path) -> None:
    loaded = list(load_dialogues(shared_data / "cmu_dog" / "valid.jsonl.gz"))
    assert {len(d.evidence) for d in loaded} == {4}
    assert all(
        f"{d.meta['wikiDocumentIdx']}/{t.meta['docIdx']}" in {e.id for e in d.evidence} for d in loaded for t in d.turns
    )


def test_reading_sets_that_are_not_built_remain_references(shared_data: Path) -> None:
    loaded = list(load_dialogues(shared_data / "topical_chat" / "valid_rare.json.gz"))
    assert all(d.meta["reading_set"]["agent_1"] and not d.evidence for d in loaded)


def test_streaming_json_agrees_with_the_json_module(shared_data: Path) -> None:
    """The json module parses the complete document at once."""
    file = shared_data / "empathetic_dialogues" / "valid.json.gz"
    with gzip.open(file, "rt", encoding="utf-8") as text:
        records: list[dict[str, Any]] = json.load(text)
    for record, dialogue in zip(records, load_dialogues(file), strict=True):
        assert [t.text for t in dialogue.turns] == record["utterence"]
        assert (dialogue.id, dialogue.meta["emotion"]) == (record["conv_id"], record["label"])
