import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.study.conftest import BOTS, MakeStudy

from tertulia.study.assignment import side_order
from tertulia.study.blinding import attention_view, plain, sides_of, task_view, training_view
from tertulia.study.config import StudyConfig
from tertulia.study.presets import load_preset
from tertulia.study.units import Unit

SECRETS = (*BOTS, "generic", "tfidf", 'human"', "items.jsonl")


def views(config: StudyConfig, units: list[Unit]) -> list[str]:
    return [
        json.dumps(task_view(config, unit, side_order(unit.id, f"p{i}", sides_of(config, unit)), "en", ended=ended))
        for unit in units
        for i in range(4)
        for ended in (False, True)
    ]


def test_a_view_has_no_name_specification_or_id(preset: str, make_study: MakeStudy) -> None:
    config, units = make_study(preset)
    bare = config.model_copy(update={"questions": tuple(q for q in config.questions if q.id == "nothing")})
    for unit in units:
        source = unit.payload.get("source", [])
        ids = [source] if isinstance(source, str) else source
        secrets = [*SECRETS, unit.id, *(f'"{name}"' for name in ids)]
        for view in views(bare, [unit]):
            text = view.replace(json.dumps(config.instructions.get("en")), "").replace(config.title.get("en"), "")
            assert [secret for secret in secrets if secret in text] == []
    for view in views(config, units):  # with questions, whose ids and texts are the researcher's
        assert [mark for mark in ("**", "`") if mark in view] == []
        assert [name for name in (*(f'"{bot}"' for bot in BOTS), '"spec"', '"bots"', '"source"') if name in view] == []


def test_a_view_is_in_the_language_of_the_participant(preset: str, make_study: MakeStudy) -> None:
    _, units = make_study(preset)
    config = load_preset(preset)
    shown = [task_view(config, units[0], (0, 1)[: sides_of(config, units[0])], lang) for lang in ("en", "de", "es")]
    assert len({view["instructions"] for view in shown}) == 3
    assert all(len({view["questions"][i]["text"] for view in shown}) == 3 for i in range(len(config.questions)))


def test_the_order_decides_the_sides(make_study: MakeStudy) -> None:
    config, units = make_study("pairwise-static")
    for order, sides in (((0, 1), ("From Spain. I see.", "From Chile, by train.")), ((1, 0), None)):
        view = task_view(config, units[0], order, "en")
        texts = tuple(response["text"] for response in view["responses"])
        assert texts == (sides or ("From Chile, by train.", "From Spain. I see."))
        assert [response["side"] for response in view["responses"]] == ["A", "B"]
    assert [choice["value"] for choice in view["questions"][0]["choices"]] == ["A", "B", "tie"]


def test_the_speaker_to_judge_is_always_number_two(make_study: MakeStudy) -> None:
    config, units = make_study("pairwise-chat")
    a, b = task_view(config, units[0], (0, 1), "en")["conversations"]
    assert [turn["speaker"] for turn in a["turns"]] == ["1", "2", "1"]
    assert [turn["speaker"] for turn in b["turns"]] == ["2", "1", "2"]
    static, contexts = make_study("ssa-static")
    speakers = {
        len(view["context"]): [turn["speaker"] for turn in view["context"]]
        for view in (task_view(static, unit, (0,), "en") for unit in contexts)
    }
    assert speakers == {1: ["1"], 2: ["2", "1"], 3: ["1", "2", "1"]}


def test_responses_are_split_into_sentences_where_sentences_are_judged(make_study: MakeStudy) -> None:
    config, units = make_study("begin")
    (response,) = task_view(config, units[0], (0,), "en")["responses"]
    assert response["sentences"] == ["From Spain.", "I see."]
    assert task_view(config, units[0], (0,), "en")["evidence"] == "Chile is long."


def test_personas_to_choose_from_are_shown_after_the_chat_only(make_study: MakeStudy) -> None:
    config, units = make_study("persona-chat")
    unit = units[0]
    assert "number" not in json.dumps(task_view(config, unit, (1, 0), "en")["questions"])
    assert not {"persona", "personas", "decoy_persona"} & task_view(config, unit, (1, 0), "en").keys()
    shown = task_view(config, unit, (1, 0), "en", ended=True)["personas"]
    assert [side["sentences"] for side in shown] == [unit.payload["decoy_persona"], unit.payload["persona"]]


def test_each_of_two_people_sees_their_own_persona_only(make_study: MakeStudy) -> None:
    config, units = make_study("collect-dialogues")
    first, second = (task_view(config, units[0], order, "en") for order in ((0, 1), (1, 0)))
    assert [first["own_persona"], second["own_persona"]] == units[0].payload["personas"]
    assert units[0].payload["personas"][1][0] not in json.dumps(first)
    assert first["min_turns"] == units[0].payload["min_turns"]


def test_checks_are_shown_without_their_answers() -> None:
    config = load_preset("pairwise-static")
    shown = json.dumps([training_view(config, "en"), attention_view(config, 0, "en")])
    assert '"answer"' not in shown
    assert config.training[0].explanation.get("en") not in shown
    assert config.training[0].text.get("en") in shown


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("**bold** and *italic* and ***both***", "bold and italic and both"),
        ("__bold__ and _italic_ words", "bold and italic words"),
        ("# Title\ntext", "Title\ntext"),
        ("> quoted\n> > twice", "quoted\ntwice"),
        ("* a\n+ b\n- c\n1. d", "a\nb\nc\n1. d"),
        ("```python\nx = 1\n```\nend", "x = 1\nend"),
        ("a\n\n---\n\nb", "a\n\nb"),
        ("![a cat](cat.png) and [home](http://x.y/z)", "a cat and home"),
        ("~~old~~ new `code`", "old new code"),
        ("<b>loud</b> <br/>x", "loud x"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "a  b\n1  2"),
        ("I <3 it, 2*3 = 6, a * b, x_y_z, e-mail - dash, C# #1, 5 > 3", None),
        ("Well... (yes) [no] - ok! ¿Qué? 🙂", None),
    ],
)
def test_markdown_marks_are_stripped(markdown: str, text: str | None) -> None:
    assert plain(markdown) == (markdown if text is None else text)


@settings(deadline=None)
@given(st.text(alphabet="ab *_`#>-[]()|~\n<!", max_size=40))
def test_nothing_but_marks_is_lost(text: str) -> None:
    kept = plain("x " + text + " y")
    assert kept.startswith("x")
    assert kept.endswith("y")
