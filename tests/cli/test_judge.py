import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tertulia import sample
from tertulia.core.registry import Row
from tertulia.corpus.load import save_dialogues
from tertulia.train.table import RECIPES

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
        assert set(bot) == {"bot", "persona", "wording", "hits@1", "mrr", "by_length"}
        assert bot["hits@1"]["low"] < bot["hits@1"]["value"] < bot["hits@1"]["high"]
        assert bot["hits@1"]["n"] == replies
    assert tfidf["hits@1"]["low"] > generic["hits@1"]["high"]
    (ahead,) = verdict["differences"]
    assert (ahead["bot"], ahead["than"]) == ("tfidf:sample", "generic")
    assert ahead["hits@1"]["low"] > 0
    assert sum(part["mrr"]["n"] for part in tfidf["by_length"].values()) == replies


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


def test_a_grid_of_settings(tertulia: Tertulia, tmp_path: Path) -> None:
    grid = ("--persona", "none", "--persona", "own", "--wording", "original", "--wording", "revised")
    files = ("--out", tmp_path / "in" / "verdict.json", "--report", tmp_path / "report.html")
    result = tertulia("judge", "rank", "generic", "--limit", 30, "--by-length", "--metric", "recall@2", *grid, *files)
    assert result.code == 0
    for text in ("own, original", "own, revised", "recall@2", "By turns of context", "9-16", "30 replies among 20"):
        assert text in result.out
    written = json.loads((tmp_path / "in" / "verdict.json").read_text())
    assert [(row["persona"], row["wording"]) for row in written["bots"]] == [
        ("none", "original"),
        ("own", "original"),
        ("own", "revised"),
    ]
    assert "How it was measured" in (tmp_path / "report.html").read_text()


def test_the_tables_of_the_papers(tertulia: Tertulia) -> None:
    chat = tertulia("judge", "rank", "tfidf", "--table", "personachat", "--limit", 30, "--persona", "own")
    assert chat.code == 0
    for text in ("paper: IR", ".410", ".207", "30 replies", "seed 0"):
        assert text in " ".join(chat.out.split())
    ubuntu = json.loads(tertulia("judge", "rank", "generic", "--table", "ubuntu", "--limit", 30, "--json").out)
    assert ubuntu["settings"]["candidates"] == 10
    assert [row[0] for row in ubuntu["table"]["rows"]] == ["1 in 2 R@1", "1 in 10 R@1", "1 in 10 R@2", "1 in 10 R@5"]


def test_personas_the_data_does_not_have_are_said_plainly(tertulia: Tertulia, tmp_path: Path) -> None:
    file = tmp_path / "talks.jsonl"
    save_dialogues([replace(d, personas={}) for d in sample.dialogues("test")], file)
    result = tertulia("judge", "rank", "generic", "--data", file, "--persona", "own")
    assert result.code == 0
    assert "nan (n = 0)" in result.out
    assert "the data has no such personas, n = 0" in " ".join(result.out.split())


def test_a_test_set_is_judged_as_it_is(tertulia: Tertulia, tmp_path: Path) -> None:
    for name in ("set.jsonl", "set.csv"):
        made = tertulia("corpus", "testset", "sample", "--split", "valid", "--distractors", 4, "--out", tmp_path / name)
        assert made.code == 0
        result = tertulia("judge", "rank", "generic", "--data", tmp_path / name, "--json", "--metric", "1in2")
        assert result.code == 0
        verdict = json.loads(result.out)
        assert verdict["tasks"] == verdict["bots"][0]["1in2"]["n"] == len(sample.dialogues("valid"))
        assert verdict["chance"] == pytest.approx(0.2)


def test_hard_distractors(tertulia: Tertulia) -> None:
    easy, hard = (json.loads(tertulia("judge", "rank", "generic", "--json", *more).out) for more in ((), ("--hard",)))
    assert "of the same set, random" in easy["notes"][0]
    assert "of the same set, similar" in hard["notes"][0]
    assert hard["bots"] != easy["bots"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--metric", "1in30"), "1in30 cannot be told of replies among 20"),
        (("--persona", "mine"), "persona"),
        (("--table", "meena"), "table"),
        (("--limit", 0), "limit"),
    ],
)
def test_what_does_not_fit_is_a_clear_error(tertulia: Tertulia, given: tuple[object, ...], told: str) -> None:
    result = tertulia("judge", "rank", "generic", *given)
    assert result.code == 2
    assert told in result.told


def test_profiles(tertulia: Tertulia) -> None:
    result = tertulia("judge", "profiles", "--json", "--utterances", 2)
    assert result.code == 0
    told = json.loads(result.out)
    assert told["candidates"] == told["profiles"] == 10
    assert told["paper"]["sentence"] == 0.173
    by_cell = {(e["level"], e["speaker"], e["profile"], e["utterances"]): e["error"] for e in told["errors"]}
    assert len(by_cell) == 8 + 8
    assert by_cell["profile", 0, 0, None]["high"] < by_cell["profile", 0, 1, None]["low"]
    people = " ".join(tertulia("judge", "profiles", "--utterances", 2).out.split())
    for text in ("table 13", "table 14", "among 10 (101 were asked for", "sentence 0.173", "8 utterances 0.17"):
        assert text in people


RECIPE = """
import dataclasses
from pathlib import Path
from tertulia.corpus.load import load_dialogues
from tertulia.talk.lexical import TfidfIndex
from tertulia.train.recipe import Recipe, RecipeConfig

class Config(RecipeConfig):
    split: str = "train"
    max_dialogues: int | None = None
    max_ngram: int = 1

@dataclasses.dataclass
class Outcome:
    folder: Path
    def figures(self):
        return {}

def train(config, progress):
    progress.step("Indexing")
    with (config.out.parent / "trained.txt").open("a") as log:
        log.write(f"{config.max_dialogues} ")
    dialogues = list(load_dialogues(config.data, split=config.split))[: config.max_dialogues]
    TfidfIndex.from_dialogues(dialogues, max_ngram=config.max_ngram).save(config.out)
    return Outcome(config.out)

RECIPE = Recipe("index", Config, train)
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe as a plugin would bring it: training is indexing, which takes no time."""
    (tmp_path / "index_recipe.py").write_text(RECIPE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(RECIPES._rows, "index", Row("index", "index_recipe:RECIPE", "an index of messages"))
    file = tmp_path / "index.toml"
    file.write_text('recipe = "index"\n')
    return file


def test_a_learning_curve(tertulia: Tertulia, tmp_path: Path, recipe: Path) -> None:
    given = ("judge", "curve", recipe, "--out", tmp_path / "curve", "--limit", 60, "--metric", "hits@1")
    first = tertulia(*given, "--sizes", "20,5", "--json")
    assert first.code == 0
    points = json.loads(first.out)["points"]
    assert [(p["size"], p["hits@1"]["n"]) for p in points] == [(5, 60), (20, 60)]
    again = tertulia(*given, "--sizes", "5,20,40")
    assert again.code == 0
    assert "60 replies among 20" in again.out
    assert (tmp_path / "curve" / "trained.txt").read_text().split() == ["5", "20", "40"]
    lines = [json.loads(line) for line in (tmp_path / "curve" / "curve.jsonl").read_text().splitlines()]
    assert lines[:2] == points
    assert "<svg" in (tmp_path / "curve" / "curve.svg").read_text()


def test_a_model_that_is_there_is_not_trained_again(tertulia: Tertulia, tmp_path: Path, recipe: Path) -> None:
    given = ("judge", "curve", recipe, "--out", tmp_path / "curve", "--limit", 60, "--sizes", "5", "--json")
    first = json.loads(tertulia(*given).out)["points"]
    (tmp_path / "curve" / "curve.jsonl").unlink()
    again = json.loads(tertulia(*given).out)["points"]
    assert again[0]["hits@1"] == first[0]["hits@1"]
    assert (tmp_path / "curve" / "trained.txt").read_text().split() == ["5"]


def test_curves_that_cannot_be(tertulia: Tertulia, tmp_path: Path, recipe: Path) -> None:
    many = tertulia("judge", "curve", recipe, "--out", tmp_path / "curve", "--sizes", "5,100000")
    assert many.code == 2
    assert "only 304 dialogues to learn from in sample, not 100000" in many.told
    fixed = tmp_path / "fixed.toml"
    fixed.write_text('recipe = "disentangler"\n')
    other = tertulia("judge", "curve", fixed, "--sizes", "5")
    assert other.code == 2
    assert "cannot be told how many dialogues" in other.told


@pytest.mark.parametrize("command", [("judge",), ("judge", "rank", "--help")])
def test_help(tertulia: Tertulia, command: tuple[str, ...]) -> None:
    result = tertulia(*command)
    assert "rank" in result.out + result.err
