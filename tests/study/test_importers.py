"""FED as a study: a tiny file always, the published one where it is at hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from tertulia.core.errors import DataError
from tertulia.study.importers import import_study

DIALOGUE = "User: Hi!\nSystem: Hello.\nUser: How are you?\nSystem: Fine,\nand you?"


def entries() -> list[dict[str, Any]]:
    return [
        {
            "context": "User: Hi!\nSystem: Hello.\nUser: How are you?",
            "response": "System: Fine,\nand you?",
            "system": "Meena",
            "annotations": {"Interesting": [0, 1, 2], "Semantically appropriate": [2, 2, "N/A (odd)"]},
        },
        {"context": DIALOGUE, "system": "Meena", "annotations": {"Overall": [4, 3, 0], "Consistent": [1, 0, 1]}},
        {"context": "User: Yo.\nSystem: Yo.", "system": "Human", "annotations": {"Overall": [2, 3, 4]}},
        {
            "context": "User: Hi!\nSystem: Hello.\nUser: How are you?\nSystem: Fine,\nand you?\nUser: Good.",
            "response": "System: Great.",
            "system": "Meena",
            "annotations": {"Interesting": [1, 1, 1]},
        },
    ]


def test_systems_are_bots_aspects_are_questions_and_rating_sets_are_raters() -> None:
    study = import_study(json.dumps(entries()), "fed")
    assert [bot.name for bot in study.config.bots] == ["Meena", "Human"]
    scales = {question.id: (question.low, question.high) for question in study.config.questions}
    assert scales == {
        "dialogue_overall": (0, 4),
        "dialogue_consistent": (0, 1),
        "turn_interesting": (0, 2),
        "turn_semantically_appropriate": (0, 2),
    }
    assert study.skipped == 1
    assert len({rating.rater for rating in study.ratings}) == len(study.ratings) == 12
    third = next(rating for rating in study.ratings if rating.rater == "fed-0000-3")
    assert third.labels == (("unit", "turn_interesting", 2),)
    assert any("no public release holds SSA labels" in note for note in study.notes)


def test_responses_belong_to_the_conversation_of_their_dialogue() -> None:
    first, dialogue, other, later = import_study(json.dumps(entries()), "fed").units
    assert first.payload["source"] == dialogue.payload["source"] == later.payload["source"]
    assert other.payload["source"] != dialogue.payload["source"]
    assert first.payload["responses"] == ["Fine,\nand you?"]
    assert dialogue.payload["conversations"][0]["turns"][-1] == {"speaker": "System", "text": "Fine,\nand you?"}
    assert (first.bots, other.bots) == (("Meena",), ("Human",))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no json", "is not JSON"),
        ("{}", "is not a list"),
        ("[]", "is not a list"),
        ('[{"context": "User: a"}]', "entry 1 is damaged"),
        ('[{"context": "User: a", "system": "x", "annotations": {"Overall": 3}}]', "entry 1 is damaged"),
    ],
)
def test_files_that_are_not_fed_are_refused(text: str, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        import_study(text, "fed", source="file.json")


def test_unknown_formats_are_refused() -> None:
    with pytest.raises(DataError, match="Unknown format 'usr'"):
        import_study("[]", "usr")


def test_the_published_file_has_its_published_size(shared_data: Path) -> None:
    study = import_study((shared_data / "human_eval" / "fed_data.json").read_text(encoding="utf-8"), "fed")
    assert (len(study.units), len(study.ratings)) == (500, 2500)
    assert len({unit.payload["source"] for unit in study.units}) == 125
    assert sum("responses" in unit.payload for unit in study.units) == 375
    assert {bot.name for bot in study.config.bots} == {"Meena", "Mitsuku", "Human"}
    assert study.skipped == 167
