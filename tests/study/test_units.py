import json
import random
from collections import Counter
from typing import Any

import pytest
from tests.study.conftest import MakeStudy, items_of

from tertulia.core.errors import DamagedLine, DataError
from tertulia.study.config import StudyConfig
from tertulia.study.presets import load_preset
from tertulia.study.units import StudyItem, make_units, missing_responses, ratings_wanted, read_items


def study(preset: str, **changes: Any) -> StudyConfig:
    return StudyConfig.model_validate(load_preset(preset).model_dump(mode="json") | changes)


def three_bots(spec: str = "") -> list[dict[str, str]]:
    return [{"name": name, "spec": spec} for name in ("a", "b", "c")]


def test_static_units_are_contexts_times_bots(make_study: MakeStudy) -> None:
    _, units = make_study("ssa-static")
    assert Counter(unit.bots for unit in units) == {("first",): 3, ("second",): 3}
    unit = next(unit for unit in units if unit.payload["source"] == "c1" and unit.bots == ("second",))
    assert unit.payload["responses"] == ["From Chile, by `train`."]
    assert [turn["text"] for turn in unit.payload["context"]] == ["Hello, who are you?", "I am **new** here."]


def test_pairs_of_three_bots_are_compared_on_every_context() -> None:
    config = study("pairwise-static", bots=three_bots())
    texts = {item.id: {"a": "A!", "b": "B!", "c": "C!"} for item in items_of("pairwise-static")}
    units = make_units(config, items_of("pairwise-static"), texts, random.Random(0))
    assert Counter(unit.bots for unit in units) == {("a", "b"): 3, ("a", "c"): 3, ("b", "c"): 3}
    assert all(unit.payload["responses"] == [f"{bot.upper()}!" for bot in unit.bots] for unit in units)


def test_missing_responses_are_named() -> None:
    config = study("ssa-static", bots=[*three_bots(), {"name": "first"}])
    items = items_of("ssa-static")
    assert missing_responses(config, items, {"c0": {"a": "x", "b": " "}})[:3] == [("c0", "b"), ("c0", "c"), ("c1", "a")]
    with pytest.raises(DataError, match=r"Missing: 9 responses \(item 'c0', bot 'a';"):
        make_units(config, items, {}, random.Random(0))


def test_conversations_are_paired_across_bots_and_used_once(make_study: MakeStudy) -> None:
    _, units = make_study("pairwise-chat")
    assert [unit.bots for unit in units] == [("first", "second")] * 3
    used = [source for unit in units for source in unit.payload["source"]]
    assert sorted(used) == sorted(item.id for item in items_of("pairwise-chat"))
    assert [c["judged"] for c in units[0].payload["conversations"]] == ["first", "second"]


def test_chat_units_are_conversations_per_bot_or_pair() -> None:
    likert = make_units(study("interactive-likert", bots=three_bots("x")), [], {}, random.Random(0))
    assert Counter(unit.bots for unit in likert) == {("a",): 50, ("b",): 50, ("c",): 50}
    arena = make_units(study("arena", bots=three_bots("x")), [], {}, random.Random(0))
    assert Counter(unit.bots for unit in arena) == {("a", "b"): 30, ("a", "c"): 30, ("b", "c"): 30}


def test_the_decoy_persona_is_another_one(make_study: MakeStudy) -> None:
    _, units = make_study("persona-chat")
    assert len(units) == 8
    assert all(unit.payload["persona"] != unit.payload["decoy_persona"] for unit in units)
    same = [StudyItem(f"p{i}", persona=("I sail.",)) for i in range(3)]
    with pytest.raises(DataError, match="All items have the same persona"):
        make_units(study("persona-chat", bots=three_bots("x")), same, {}, random.Random(0))


def test_two_people_get_a_persona_each_and_a_drawn_minimum_of_turns() -> None:
    config = study("collect-dialogues", conversations_per_bot=40)
    units = make_units(config, items_of("collect-dialogues"), {}, random.Random(0))
    assert len(units) == 80
    assert all(a != b for a, b in (unit.payload["personas"] for unit in units))
    assert {unit.payload["min_turns"] for unit in units} == {12, 14, 16}
    assert {ratings_wanted(config, unit) for unit in units} == {2}


def test_people_and_bots_can_be_partners_in_one_study() -> None:
    bots = [{"name": "bot", "spec": "generic"}, {"name": "person", "spec": "human"}]
    config = study("ssa-interactive", bots=bots, conversations_per_bot=2)
    units = make_units(config, [], {}, random.Random(0))
    assert [(unit.bots, ratings_wanted(config, unit)) for unit in units] == [
        (("bot",), 1),
        (("bot",), 1),
        (("person",), 2),
        (("person",), 2),
    ]


def test_units_are_the_same_each_time_and_their_ids_say_nothing(preset: str, make_study: MakeStudy) -> None:
    assert make_study(preset) == make_study(preset)
    _, units = make_study(preset)
    assert all(not any(bot in unit.id for bot in unit.bots) and unit.id.isalnum() for unit in units)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("[]", "an item must be an object"),
        ('{"id": "x"}', "an item needs 'turns' or a 'persona'"),
        ('{"id": "x", "persona": ["a"], "respones": {}}', "no field 'respones'"),
        ('{"id": "x", "turns": [], "persona": ["a"], "responses": {"b": 1}}', "'responses' must be"),
        ('{"id": "x", "turns": [{"speaker": "a", "text": "t"}], "bot": "b"}', "say with 'speaker' who is the bot 'b'"),
        ('{"id": "x", "turns": [{"speaker": "a", "text": "t"}], "bot": "b", "speaker": "c"}', "nobody speaks as 'c'"),
        ("{", "not valid JSON"),
    ],
)
def test_a_damaged_item_is_named_with_its_line(line: str, why: str) -> None:
    with pytest.raises(DamagedLine, match=r"items\.jsonl, line 2: ") as caught:
        read_items([json.dumps({"id": "p", "persona": ["a"]}), line], source="items.jsonl")
    assert why in caught.value.message


def test_item_files_are_not_empty_and_ids_are_unique() -> None:
    with pytest.raises(DataError, match="has no items"):
        read_items([])
    with pytest.raises(DataError, match="two items have the id 'p'"):
        read_items(['{"id": "p", "persona": ["a"]}'] * 2)


@pytest.mark.parametrize(
    ("preset", "items", "why"),
    [
        ("rewrite-personas", [StudyItem("x", bot="")], "The item 'x' has no persona"),
        ("persona-chat", [StudyItem("x", persona=("I sail.",))], "at least two items"),
        ("begin", items_of("persona-chat"), "no responses"),
        ("ssa-static", [], "The study has no items"),
        ("begin", [StudyItem("x", responses={"a": "Hi."})], "The item 'x' has no evidence"),
        ("pairwise-static", [StudyItem("x", responses={"a": "Hi."})], "at least two bots"),
    ],
)
def test_items_that_do_not_fit_the_preset_are_errors(preset: str, items: list[StudyItem], why: str) -> None:
    with pytest.raises(DataError, match=why):
        make_units(load_preset(preset), items, {}, random.Random(0))


def test_a_conversation_of_an_unknown_bot_is_an_error() -> None:
    with pytest.raises(DataError, match="which is not among the bots"):
        make_units(study("pairwise-chat", bots=three_bots()), items_of("pairwise-chat"), {}, random.Random(0))


def test_conversations_of_one_pair_are_compared_with_each_other() -> None:
    lines = [
        {"id": f"{name}-{i}", "turns": [{"speaker": "s", "text": "x"}], "bot": name, "speaker": "s", "pair": f"p{i}"}
        for name in ("ann", "bob")
        for i in range(8)
    ]
    alone = {"id": "ann-9", "turns": [{"speaker": "s", "text": "x"}], "bot": "ann", "speaker": "s", "pair": "p9"}
    items = read_items([json.dumps(line) for line in [*lines, alone]])
    units = make_units(study("pairwise-chat"), items, {}, random.Random(1))
    assert [unit.payload["source"] for unit in units] == [[f"ann-{i}", f"bob-{i}"] for i in range(8)]
