import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tertulia import sample
from tertulia.corpus.load import save_dialogues

Tertulia = Callable[..., Any]


def test_rank_as_json(tertulia: Tertulia) -> None:
    result = tertulia(
        "judge", "rank", "tfidf", "generic", "--json", "--candidates", 10, "--metric", "hits@1", "--metric", "mrr"
    )
    assert result.code == 0
    verdict = json.loads(result.out)
    assert verdict["chance"] == 0.1
    assert verdict["settings"]["metrics"] == ["hits@1", "mrr"]
    tfidf, generic = verdict["bots"]
    assert (tfidf["bot"], generic["bot"]) == ("tfidf:sample", "generic")
    replies = sum(len(d.turns) - 1 for d in sample.dialogues("valid"))
    for bot in (tfidf, generic):
        assert set(bot) == {"bot", "hits@1", "mrr"}
        assert bot["hits@1"]["low"] < bot["hits@1"]["value"] < bot["hits@1"]["high"]
        assert bot["hits@1"]["n"] == replies
    assert tfidf["hits@1"]["low"] > generic["hits@1"]["high"]


def test_rank_for_people(tertulia: Tertulia) -> None:
    result = tertulia("judge", "rank", "generic")
    assert result.code == 0
    assert "hits@1" in result.out
    assert "generic" in result.out
    assert "chance hits@1 0.050" in " ".join(result.out.split())


def test_the_same_seed_gives_the_same_verdict(tertulia: Tertulia) -> None:
    one, same, other = (tertulia("judge", "rank", "generic", "--json", "--seed", s).out for s in (1, 1, 2))
    assert one == same
    assert json.loads(one)["bots"] != json.loads(other)["bots"]


def test_own_data(tertulia: Tertulia, tmp_path: Path) -> None:
    file = tmp_path / "talks.jsonl"
    save_dialogues(sample.dialogues("test"), file)
    file.write_text(file.read_text(encoding="utf-8") + "oops\n", encoding="utf-8")
    result = tertulia("judge", "rank", "generic", "--data", file, "--json")
    assert result.code == 0
    assert json.loads(result.out)["bots"][0]["hits@1"]["n"] == sum(len(d.turns) - 1 for d in sample.dialogues("test"))
    assert "Skipped 1 damaged lines" in result.told


def test_a_split_of_own_data(tertulia: Tertulia, tmp_path: Path) -> None:
    save_dialogues(sample.dialogues("test"), tmp_path / "test.jsonl")
    save_dialogues(sample.dialogues("valid"), tmp_path / "valid.jsonl")
    found = [
        json.loads(tertulia("judge", "rank", "generic", "--data", tmp_path, "--json", *more).out)["bots"][0]["mrr"]["n"]
        for more in ((), ("--split", "test"), ("--split", ""))
    ]
    valid, test = (sum(len(d.turns) - 1 for d in sample.dialogues(s)) for s in ("valid", "test"))  # type: ignore[arg-type]
    assert found == [valid, test, valid + test]


def test_too_little_data_is_a_clear_error(tertulia: Tertulia, tmp_path: Path) -> None:
    file = tmp_path / "talks.jsonl"
    save_dialogues(sample.dialogues("test")[:2], file)
    result = tertulia("judge", "rank", "generic", "--data", file)
    assert result.code == 1
    assert "too few to rank among 20" in result.told
    assert "--candidates" in result.told


def test_bots_that_cannot_rank(tertulia: Tertulia) -> None:
    result = tertulia("judge", "rank", "human")
    assert result.code == 1
    assert "cannot rank" in result.told


@pytest.mark.parametrize("command", [("judge",), ("judge", "rank", "--help")])
def test_help(tertulia: Tertulia, command: tuple[str, ...]) -> None:
    result = tertulia(*command)
    assert "rank" in result.out + result.err
