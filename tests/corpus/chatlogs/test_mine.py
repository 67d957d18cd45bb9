"""Mining chat logs by rules and by a learned model: the folder it writes."""

import json
import tomllib
from pathlib import Path

import pytest

from tertulia.core.config import resolve
from tertulia.core.errors import DataError, UsageError
from tertulia.corpus.chatlogs.dialogues import KeepRules, dialogues_from_links
from tertulia.corpus.chatlogs.gold import clusters_of, read_gold
from tertulia.corpus.chatlogs.log import Log, LogLine
from tertulia.corpus.chatlogs.lowe import extract_dialogues
from tertulia.corpus.chatlogs.mine import ChatlogConfig, mine_chatlogs
from tertulia.corpus.chatlogs.stats import chatlog_stats
from tertulia.corpus.shards import read_parquet


def test_rules_on_the_sample(tmp_path: Path) -> None:
    outcome = mine_chatlogs(ChatlogConfig(out=tmp_path / "r"))
    dialogues = list(read_parquet(outcome.dialogues))
    assert len(dialogues) == outcome.stats.dialogues > 20
    assert chatlog_stats(dialogues) == outcome.stats
    record = json.loads((tmp_path / "r" / "stats.json").read_text())
    assert (record["lines"], record["logs"], record["threads"]) == (1983, 5, "rules")
    assert sum(turns * n for turns, n in record["by_turns"]) == record["utterances"]
    assert record["min_turns"] >= 3
    again = resolve(ChatlogConfig, tmp_path / "r" / "config.toml")
    assert again == ChatlogConfig(out=tmp_path / "r")


def test_a_learned_model_on_a_folder(tmp_path: Path, sample_model: Path) -> None:
    (tmp_path / "logs").mkdir()
    gold = read_gold("sample")[-1]
    raw = [f"[10:{n % 60:02}] <{line.nick}> {line.text}" for n, line in enumerate(gold.log.lines) if line.is_utterance]
    (tmp_path / "logs" / "2026-03-06.log").write_text("\n".join(raw[:200]), encoding="utf-8")
    config = ChatlogConfig(source=str(tmp_path / "logs"), out=tmp_path / "r", threads="learned", model=sample_model)
    outcome = mine_chatlogs(config)
    dialogues = list(read_parquet(outcome.dialogues))
    assert len(dialogues) == outcome.stats.dialogues > 3
    assert outcome.lines == 200
    assert json.loads((tmp_path / "r" / "stats.json").read_text())["model"]
    sources = [source for dialogue in dialogues for turn in dialogue.turns for source in turn.source]
    assert len(sources) == len(set(sources)), "a line belongs to one conversation"


def test_learned_threads_need_a_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs a model"):
        mine_chatlogs(ChatlogConfig(out=tmp_path, threads="learned"))
    with pytest.raises(DataError, match=r"manifest\.json is missing"):
        mine_chatlogs(ChatlogConfig(out=tmp_path, threads="learned", model=tmp_path))


def test_other_text_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("once upon a time")
    with pytest.raises(DataError):
        mine_chatlogs(ChatlogConfig(source=str(tmp_path / "x.log"), out=tmp_path / "r"))
    assert not (tmp_path / "r").exists()


def test_gold_links_form_dialogues_of_several_people() -> None:
    gold = read_gold("sample")[0]
    extracted = dialogues_from_links(gold.log, gold.links)
    several = [c for c in clusters_of(gold.links) if len(c) > 1]
    assert 0 < len(extracted.dialogues) <= len(several)
    assert max(len(d.speakers) for d in extracted.dialogues) > 2
    assert extracted.dropped["too short"] > 0


def test_addresses_stay_among_more_than_two_and_bots_can_be_ignored() -> None:
    messages = [
        ("ann", "hm?"),
        ("bob", "ann: yes"),
        ("ann", "bob: ok"),
        ("cyd", "ann: no"),
        ("helpbot", "ann: see !faq"),
    ]
    log = Log("l", "r", tuple(LogLine(i, 60.0 * i, nick, text) for i, (nick, text) in enumerate(messages)))
    links = {i: frozenset({max(0, i - 1)}) for i in range(len(messages))}
    (many,) = dialogues_from_links(log, links, KeepRules(ignore=("HelpBot",))).dialogues
    assert [turn.text for turn in many.turns] == ["hm?", "ann: yes", "bob: ok", "ann: no"]
    (two,) = dialogues_from_links(log, links, KeepRules(ignore=("helpbot", "cyd"))).dialogues
    assert [turn.text for turn in two.turns] == ["hm?", "yes", "ok"]
    assert two.meta == {"room": "r", "log": "l", "time": 0.0, "minutes": 2.0}


def test_statistics_of_an_empty_corpus() -> None:
    stats = chatlog_stats([])
    assert (stats.dialogues, stats.min_turns) == (0, 0)
    assert stats.as_json()["mean_turns"] is None
    assert stats.log_log() == []


def test_statistics_are_consistent() -> None:
    gold = read_gold("sample")[0]
    stats = chatlog_stats(extract_dialogues(gold.log).dialogues)
    assert stats.utterances == pytest.approx(stats.mean_turns * stats.dialogues)
    assert stats.words == pytest.approx(stats.words_per_utterance * stats.utterances)
    assert [round(10**x) for x, _ in stats.log_log()] == list(stats.by_turns)


def test_the_config_is_saved_as_toml(tmp_path: Path) -> None:
    mine_chatlogs(ChatlogConfig(out=tmp_path, question_minutes=5))
    assert tomllib.loads((tmp_path / "config.toml").read_text())["question_minutes"] == 5
