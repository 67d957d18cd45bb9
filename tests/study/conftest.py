"""Small items and bots for every preset."""

import json
import random
from collections.abc import Callable

import pytest

from tertulia.core.dialogue import Json
from tertulia.study.config import StudyConfig
from tertulia.study.presets import PRESETS, study_from_toml, study_template
from tertulia.study.units import StudyItem, Unit, make_units, read_items

BOTS = ("first", "second")
"""Names in the templates of studies."""
MakeStudy = Callable[[str], tuple[StudyConfig, list[Unit]]]


def item_lines(preset: str) -> list[str]:
    """A small item file for a preset."""
    turns = [
        {"speaker": "second", "text": "Hello, who are you?"},
        {"speaker": "first", "text": "I am **new** here."},
        {"speaker": "second", "text": "Where from?"},
    ]
    items: list[dict[str, Json]]
    if preset in ("persona-chat", "collect-dialogues", "rewrite-personas"):
        items = [{"id": f"p{i}", "persona": [f"I am number {i}.", "I like to sail."]} for i in range(4)]
    elif preset == "pairwise-chat":
        items = [{"id": f"{bot}-{i}", "turns": turns, "bot": bot, "speaker": bot} for bot in BOTS for i in range(3)]
    else:
        replies = {"first": "From **Spain**. I see.", "second": "From Chile, by `train`."}
        items = [
            {"id": f"c{i}", "turns": turns[: i + 1], "responses": replies, "evidence": "Chile is long."}
            for i in range(3)
        ]
    return [json.dumps(item) for item in items]


def items_of(preset: str) -> list[StudyItem]:
    return read_items(item_lines(preset))


@pytest.fixture
def make_study() -> MakeStudy:
    def make(preset: str) -> tuple[StudyConfig, list[Unit]]:
        config = study_from_toml(study_template(preset), f"{preset}.toml")
        items = items_of(preset) if config.items else []
        return config, make_units(config, items, {}, random.Random(config.seed))

    return make


@pytest.fixture(params=PRESETS)
def preset(request: pytest.FixtureRequest) -> str:
    return str(request.param)
