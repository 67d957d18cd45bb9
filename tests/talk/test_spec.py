import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.artefacts.manifest import MANIFEST
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.errors import ConfigError, DataError, UnknownName, UsageError
from tertulia.core.reply import Ask
from tertulia.talk.bot import Bot, RankingBot, StreamingBot
from tertulia.talk.spec import BotSpec, make_bot, parse_spec
from tertulia.talk.tfidf_index import TfidfIndex


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("generic", BotSpec("generic")),
        ("tfidf:data/talks.jsonl", BotSpec("tfidf", "data/talks.jsonl")),
        ("hf:owner/model?temperature=0", BotSpec("hf", "owner/model", {"temperature": "0"})),
        ("openai:m?base_url=http://localhost:1/v1", BotSpec("openai", "m", {"base_url": "http://localhost:1/v1"})),
        ("openai:llama3:8b", BotSpec("openai", "llama3:8b")),
        ("hf:a%3Fb", BotSpec("hf", "a?b")),
        ("generic?to_statements=", BotSpec("generic", "", {"to_statements": ""})),
        ("generic?to_statements=so+be%20it%26", BotSpec("generic", "", {"to_statements": "so be it&"})),
        (" generic ", BotSpec("generic")),
        ("x" * 5000, BotSpec("x" * 5000)),
    ],
)
def test_specifications_are_parsed(text: str, spec: BotSpec) -> None:
    assert parse_spec(text) == spec


@settings(max_examples=150, deadline=None)
@given(
    st.builds(
        BotSpec,
        st.text("abcxyz-", min_size=1),
        st.lists(st.sampled_from(["a", "%", "20", "3F", "?", "/", ":", "&", "=", "+", " ", "é", "🙂"])).map("".join),
        st.dictionaries(st.text("abc_", min_size=1), st.text(st.characters(exclude_categories=("Cs",)))),
    )
)
def test_formatting_and_parsing_are_inverse(spec: BotSpec) -> None:
    assert parse_spec(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "does not name a bot"),
        (":data", "does not name a bot"),
        ("?a=1", "does not name a bot"),
        ("  ", "does not name a bot"),
        ("generic?&", "expected options after '\\?'"),
        ("generic?a=1&a=2", "'a' is given twice"),
    ],
)
def test_malformed_specifications_are_errors(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_spec(text)


def test_a_bot_from_its_specification() -> None:
    bot = make_bot("generic?to_statements=fine")
    assert isinstance(bot, Bot)
    assert isinstance(bot, RankingBot)
    assert not isinstance(bot, StreamingBot)
    (reply,) = bot.reply([Ask(Dialogue("d", (Turn("ana", "It rains."),)))])
    assert reply.text == "fine"
    assert make_bot(BotSpec("generic")).spec == "generic"


def test_unknown_bots_and_options_suggest_similar_ones() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'generic'"):
        make_bot("genric")
    with pytest.raises(ConfigError, match=r"bot 'generic': unknown option 'to_question' .did you mean 'to_questions'"):
        make_bot("generic?to_question=x")
    with pytest.raises(ConfigError, match="candidates: must be an integer, got 'many'"):
        make_bot("tfidf?candidates=many")
    with pytest.raises(ConfigError, match="persona_weight: must be at least 0, got '-1'"):
        make_bot("tfidf?persona_weight=-1")


def test_an_interrupted_run_says_how_to_resume(tmp_path: Path) -> None:
    (tmp_path / "run" / "partial").mkdir(parents=True)
    with pytest.raises(UsageError, match="does not contain a complete bot") as caught:
        make_bot(str(tmp_path / "run"))
    assert caught.value.hint.startswith("Resume an interrupted run with `tertulia train")
    assert "--resume" in caught.value.hint


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"Folder not found: {tmp_path / 'gone'}"):
        make_bot(str(tmp_path / "gone"))


def test_a_target_for_a_bot_that_takes_none_is_an_error() -> None:
    with pytest.raises(UsageError, match="'generic' takes nothing after the colon, got 'x'"):
        make_bot("generic:x")


@pytest.mark.parametrize("name", ["index", "with 100%25 of it", "with: colon", "über"])
def test_a_folder_with_a_manifest_is_a_bot(tmp_path: Path, name: str) -> None:
    dialogue = Dialogue("d", (Turn("a", "do you sail"), Turn("b", "every week")))
    TfidfIndex.from_dialogues([dialogue]).save(tmp_path / name)
    assert parse_spec(f"{tmp_path / name}?candidates=3") == BotSpec("tfidf", str(tmp_path / name), {"candidates": "3"})
    (reply,) = make_bot(str(tmp_path / name)).reply([Ask(Dialogue("e", (Turn("a", "do you sail?"),)))])
    assert reply.text == "every week"


@pytest.mark.parametrize("content", ["", "{", "[]", '"tfidf"', "null"])
def test_a_damaged_manifest_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / MANIFEST).write_text(content)
    with pytest.raises(DataError, match="is damaged"):
        parse_spec(str(tmp_path))


def test_a_manifest_that_names_no_bot_is_an_error(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text("{}")
    with pytest.raises(UsageError, match="does not contain a bot"):
        parse_spec(str(tmp_path))


def test_a_manifest_that_names_an_unknown_bot_is_an_error(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(json.dumps({"bot": "robot9000"}))
    with pytest.raises(UnknownName, match="no bot called 'robot9000'"):
        make_bot(str(tmp_path))
