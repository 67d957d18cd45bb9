import json
from importlib.resources import files

import pytest
from tests.study.conftest import MakeStudy

from tertulia.core.errors import ConfigError, UnknownName
from tertulia.study.config import StudyConfig, with_codes
from tertulia.study.presets import PRESETS, load_preset, preset_text, study_from_toml, study_template


def test_every_file_is_a_preset() -> None:
    names = {entry.name for entry in files("tertulia.study.presets").iterdir() if entry.name.endswith(".toml")}
    assert names == {f"{name}.toml" for name in PRESETS} | {"defaults.toml"}
    assert len(PRESETS) == 10


def test_a_preset_is_complete_in_three_languages(preset: str) -> None:
    config = load_preset(preset)
    assert config.languages == ("en", "de", "es")
    assert config.preset == preset
    texts = [config.title, config.instructions, config.consent.text, *config.tutorial]
    texts += [question.text for question in config.questions]
    for text in texts:
        assert len({text.get(language) for language in config.languages}) == 3, text
    assert config.tutorial
    assert all(len(config.instructions.get(language)) > 150 for language in config.languages)


def test_a_preset_survives_being_stored_as_json(preset: str) -> None:
    config = load_preset(preset)
    assert StudyConfig.model_validate(json.loads(json.dumps(config.model_dump(mode="json")))) == config


def test_the_template_of_a_preset_is_a_study_with_units(preset: str, make_study: MakeStudy) -> None:
    config, units = make_study(preset)
    assert config.languages == ("en",)
    assert units
    assert len({unit.id for unit in units}) == len(units)


@pytest.mark.parametrize(
    ("language", "words"),
    {
        "en": ("voluntary", "withdraw", "deleted", "pseudonym", "kept apart", "any time"),
        "de": ("freiwillig", "zurückziehen", "gelöscht", "Pseudonym", "getrennt", "jederzeit"),
        "es": ("voluntaria", "retira", "borran", "seudónimo", "separado", "cualquier momento"),
    }.items(),
)
def test_the_consent_text_states_the_retention_rule(language: str, words: tuple[str, ...]) -> None:
    consent = load_preset("arena").consent.text.get(language)
    assert [word for word in words if word not in consent] == []


def test_presets_keep_the_facts_of_the_papers() -> None:
    presets = {name: load_preset(name) for name in PRESETS}
    assert presets["ssa-static"].ratings_per_unit == 5
    interactive = presets["ssa-interactive"]
    assert (interactive.opener and interactive.opener.get("de"), interactive.min_turns, interactive.max_turns) == (
        "Hi!",
        14,
        28,
    )
    assert {question.scope for question in interactive.questions} == {"turn"}
    likert = presets["interactive-likert"].questions_of("unit")
    assert [q.id for q in likert] == ["quality", "fluency", "diversity", "contingency", "empathy"]
    assert {(q.low, q.high) for q in likert} == {(1, 7)}
    assert [q.id for q in presets["pairwise-static"].questions] == ["quality", "fluency", "relatedness", "empathy"]
    persona_chat = presets["persona-chat"]
    assert [q.id for q in persona_chat.questions] == ["fluency", "engagingness", "consistency", "persona"]
    assert persona_chat.asks_persona
    collect = presets["collect-dialogues"]
    assert (collect.max_words, collect.min_turns, collect.min_turns_up_to) == (15, 12, 16)
    assert [bot.spec for bot in collect.bots] == ["human"]


def test_a_study_overrides_tables_by_key_and_texts_as_a_whole() -> None:
    study = study_from_toml(
        'preset = "ssa-static"\nlanguages = ["de"]\nitems = "x.jsonl"\n[title]\nde = "Neu"\n[pay]\nper_hour = 20\n',
        "s.toml",
    )
    assert study.title.get("de") == "Neu"
    assert not study.title.has("es")
    assert (study.pay.per_hour, study.pay.minutes_per_unit) == (20, 0.5)
    one = study_from_toml(
        'preset = "ssa-static"\nitems = "x"\ntraining = []\n[[questions]]\nid = "ok"\nkind = "yes-no"\ntext = "OK?"',
        "s.toml",
    )
    assert [question.id for question in one.questions] == ["ok"]


def test_a_study_in_another_language_brings_its_own_texts() -> None:
    own = (
        'title = "ع"\nprotocol = "judge"\nlanguages = ["ar"]\nitems = "x.jsonl"\ninstructions = "ع"\nattention = []\n'
        '[[questions]]\nid = "ok"\nkind = "yes-no"\ntext = { ar = "ع؟" }\n'
    )
    with pytest.raises(ConfigError, match=r"line 3: languages: no text in 'ar' for consent\.text"):
        study_from_toml(own, "s.toml")
    study = study_from_toml(own + '[consent]\ntext.ar = "ع"\n', "s.toml")
    assert (study.preset, study.questions[0].text.get("ar")) == ("", "ع؟")


def test_empty_codes_are_generated_and_given_ones_kept() -> None:
    study = study_from_toml(study_template("arena") + '[completion]\ndone = "C0DE"\n', "s.toml")
    first, second = with_codes(study).completion, with_codes(study).completion
    assert first.done == second.done == "C0DE"
    codes = [first.screened_out, first.partner_left, first.timed_out, second.timed_out]
    assert len({*codes}) == 4
    assert all(len(code) >= 8 for code in codes)


def test_unknown_presets_suggest_similar_names() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'arena'"):
        preset_text("arenna")


HEAD = 'preset = "ssa-static"\nlanguages = ["en"]\nitems = "x.jsonl"\n'
"""Three lines."""
QUESTION = '[[questions]]\nid = "fun"\nkind = "scale"\ntext = "Fun?"\n'

MISTAKES = {
    "syntax": (HEAD + "seed = \n", 4, "not valid TOML"),
    "unknown preset": ('\npreset = "ssa"', 2, "no preset called 'ssa'"),
    "unknown key": (HEAD + "\nseeed = 3", 5, "unknown option 'seeed' (did you mean 'seed'?)"),
    "unknown nested key": (HEAD + "[pay]\nper_hours = 3", 5, "'pay.per_hours' (did you mean 'per_hour'?)"),
    "wrong type": (HEAD + "\n\nratings_per_unit = 'five'", 6, "must be an integer, got 'five'"),
    "out of range": (HEAD + "ratings_per_unit = 0", 4, "must be at least 1, got 0"),
    "unknown language": (HEAD.replace('["en"]', '["fr"]'), 2, "must be 'en', 'de', 'es' or 'ar', got 'fr'"),
    "missing translation": (
        HEAD.replace('["en"]', '["en",\n  "de"]') + '[title]\nen = "T"',
        5,
        "title: no text in 'de' for title",
    ),
    "kind of a question": (HEAD + QUESTION.replace("scale", "scala"), 6, "questions[0].kind: must be 'yes-no'"),
    "missing text": (HEAD + QUESTION + "[[questions]]\nid = 'x'\nkind = 'text'", 8, "'questions[1].text' is required"),
    "two questions of one id": ("training = []\n" + HEAD + QUESTION * 2, 10, "two questions called 'fun'"),
    "empty scale": ("training = []\n" + HEAD + QUESTION + "low = 5", 9, "the lowest number of a scale"),
    "when without question": (
        "training = []\n" + HEAD + QUESTION + "when = { fnu = [1] }",
        9,
        "no earlier question of the same scope is called 'fnu'",
    ),
    "when with a wrong value": (
        "training = []\n" + HEAD + QUESTION + QUESTION.replace('"fun"', '"joy"') + "[questions.when]\nfun = [1,\n 9]",
        14,
        "9 is no answer to 'fun'",
    ),
    "otherwise without when": ("training = []\n" + HEAD + QUESTION + "otherwise = 1", 9, "is of no use without 'when'"),
    "choice without choices": (
        "training = []\n" + HEAD + QUESTION.replace("scale", "choice"),
        5,
        "needs at least two choices",
    ),
    "scope of another protocol": (
        "training = []\n" + HEAD + QUESTION + 'scope = "turn"',
        9,
        "questions about turns are asked in chats only",
    ),
    "turns of a chat": (
        'preset = "ssa-interactive"\nmax_turns = 3\n',
        2,
        "min_turns (14) must not exceed max_turns (3)",
    ),
    "wrong training answer": (
        HEAD + '[[training]]\nquestion = "sensible"\ntext = "T"\nexplanation = "E"\nanswer = "yes"',
        8,
        "'yes' is no answer to 'sensible'",
    ),
    "training of no question": (HEAD + QUESTION, 4, "training asks 'specific', which is not among"),
    "two bots of one name": (
        HEAD + '[[bots]]\nname = "a"\n[[bots]]\nname = "a"',
        7,
        "bots[1].name: there are two bots called 'a'",
    ),
    "a person to judge": (HEAD + '[[bots]]\nname = "a"\nspec = "human"', 6, "people can be partners in chats only"),
    "a chat without bots": ('title = "T"\npreset = "arena"', 1, "needs [[bots]] with name and spec"),
    "a bot without spec": (
        'preset = "arena"\n\n[[bots]]\nname = "a"\n[[bots]]\nname = "b"\nspec = "x"',
        3,
        "needs a 'spec'",
    ),
    "no items": ('preset = "begin"', 1, "needs 'items'"),
    "end without time zone": (HEAD + "ends = 2030-01-01T00:00:00", 4, "ends: must be valid"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_its_file_and_line(mistake: str) -> None:
    text, line, message = MISTAKES[mistake]
    with pytest.raises(ConfigError) as caught:
        study_from_toml(text, "my study.toml")
    assert "my study.toml" in caught.value.message
    assert f"line {line}" in caught.value.message
    assert message in caught.value.message
