import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tertulia import sample
from tertulia.core.registry import Row
from tertulia.corpus.load import save_dialogues
from tertulia.judge.runs import load_run
from tertulia.train.registry import RECIPES

Tertulia = Callable[..., Any]


def figures(report: dict[str, Any], metric: str) -> list[dict[str, Any]]:
    return [figure for figure in report["figures"] if figure["metric"] == metric]


def test_rank_as_json(tertulia: Tertulia) -> None:
    result = tertulia(
        "judge", "rank", "tfidf", "generic", "--json", "--candidates", 10, "--metric", "hits@1", "--metric", "mrr"
    )
    assert result.code == 0
    report = json.loads(result.out)
    assert report["run"]["details"]["chance"] == pytest.approx(0.1)
    assert report["run"]["config"]["metrics"] == ["hits@1", "mrr"]
    tfidf, generic = figures(report, "hits@1")
    assert (tfidf["subject"], generic["subject"]) == ("tfidf:sample", "generic")
    replies = sum(len(d.turns) - 1 for d in sample.dialogues("valid"))
    for figure in (tfidf, generic):
        assert set(figure) == {"subject", "setting", "metric", "value", "low", "high", "n"}
        assert figure["low"] < figure["value"] < figure["high"]
        assert figure["n"] == replies
    assert tfidf["low"] > generic["high"]
    comparison = report["comparisons"][0]
    assert (comparison["subject"], comparison["baseline"], comparison["kind"]) == (
        "generic",
        "tfidf:sample",
        "difference",
    )
    assert comparison["high"] < 0
    by_length = [f for f in report["by_length"] if (f["subject"], f["metric"]) == ("generic", "mrr")]
    assert sum(f["n"] for f in by_length) == replies


def test_rank_for_people(tertulia: Tertulia) -> None:
    result = tertulia("judge", "rank", "generic")
    assert result.code == 0
    assert "hits@1" in result.out
    assert "generic" in result.out
    assert "chance hits@1 0.050" in " ".join(result.out.split())


def test_the_same_seed_gives_the_same_figures(tertulia: Tertulia) -> None:
    calls = (tertulia("judge", "rank", "generic", "--json", "--seed", seed) for seed in (1, 1, 2))
    one, same, other = (json.loads(result.out) for result in calls)
    for run in (one, same):
        del run["identity"]["created"], run["run"]["about"]["created"]
    assert one == same
    assert one["figures"] != other["figures"]


def test_own_data(tertulia: Tertulia, tmp_path: Path) -> None:
    file = tmp_path / "talks.jsonl"
    save_dialogues(sample.dialogues("test"), file)
    file.write_text(file.read_text(encoding="utf-8") + "oops\n", encoding="utf-8")
    result = tertulia("judge", "rank", "generic", "--data", file, "--json")
    assert result.code == 0
    assert json.loads(result.out)["figures"][0]["n"] == sum(len(d.turns) - 1 for d in sample.dialogues("test"))
    assert "Skipped 1 damaged line" in result.stderr


def test_a_split_of_own_data(tertulia: Tertulia, tmp_path: Path) -> None:
    save_dialogues(sample.dialogues("test"), tmp_path / "test.jsonl")
    save_dialogues(sample.dialogues("valid"), tmp_path / "valid.jsonl")
    counts = [
        json.loads(tertulia("judge", "rank", "generic", "--data", tmp_path, "--json", *more).out)["figures"][0]["n"]
        for more in ((), ("--split", "test"), ("--split", ""))
    ]
    valid, test = (sum(len(d.turns) - 1 for d in sample.dialogues(s)) for s in ("valid", "test"))  # type: ignore[arg-type]
    assert counts == [valid, test, valid + test]


def test_too_little_data_is_a_clear_error(tertulia: Tertulia, tmp_path: Path) -> None:
    file = tmp_path / "talks.jsonl"
    save_dialogues(sample.dialogues("test")[:2], file)
    result = tertulia("judge", "rank", "generic", "--data", file)
    assert result.code == 1
    assert "too few to rank among 20 candidates" in result.stderr
    assert "--candidates" in result.stderr


def test_bots_that_cannot_rank_are_a_clear_error(tertulia: Tertulia) -> None:
    result = tertulia("judge", "rank", "human")
    assert result.code == 1
    assert "cannot rank" in result.stderr


def test_a_grid_of_settings(tertulia: Tertulia, tmp_path: Path) -> None:
    grid = ("--persona", "none", "--persona", "own", "--wording", "original", "--wording", "revised")
    files = ("--out", tmp_path / "in" / "run", "--report", tmp_path / "report.html")
    result = tertulia("judge", "rank", "generic", "--limit", 30, "--by-length", "--metric", "recall@2", *grid, *files)
    assert result.code == 0
    text = " ".join(result.out.split())
    for part in ("own, original", "own, revised", "recall@2", "By turns of context", "9-16", "30 replies among 20"):
        assert part in text
    report = json.loads((tmp_path / "in" / "run" / "report.json").read_text())
    assert [figure["setting"] for figure in report["figures"]] == ["none", "own, original", "own, revised"]
    assert load_run(tmp_path / "in" / "run").settings == ("none", "own, original", "own, revised")
    assert "How it was measured" in (tmp_path / "report.html").read_text()


def test_report_compares_two_runs_on_shared_units(tertulia: Tertulia, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    given = ("judge", "rank", "--metric", "mrr", "--persona", "none")
    assert tertulia(*given, "tfidf", "generic", "--limit", 80, "--out", one).code == 0
    assert tertulia(*given, "generic", "--limit", 60, "--seed", 1, "--out", two).code == 0
    shared = len(set(load_run(one).scores[0].units) & set(load_run(two).scores[0].units))
    assert 0 < shared < 60
    result = tertulia("report", one, two, "--out", tmp_path / "both")
    text = " ".join(result.out.split())
    assert result.code == 0
    for part in ("Compared with tfidf:sample", "generic [one]", "generic [two]", f"share {shared} units"):
        assert part in text
    report = json.loads(tertulia("report", one, two, "--json", "--baseline", "generic").out)
    assert report["baseline"] == "generic [one]"
    by_subject = {c["subject"]: c for c in report["comparisons"]}
    assert by_subject["tfidf:sample"]["n"] == 80
    assert by_subject["generic [two]"]["n"] == shared
    assert "<table" in (tmp_path / "both" / "report.html").read_text()
    assert len(json.loads((tmp_path / "both" / "report.json").read_text())["figures"]) == 3
    alone = json.loads(tertulia("report", two, "--json").out)
    assert alone == json.loads((two / "report.json").read_text())


def test_report_says_what_cannot_be_compared(tertulia: Tertulia, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    given = ("judge", "rank", "generic", "--metric", "mrr", "--limit", 30)
    tertulia(*given, "--out", one)
    tertulia(*given, "--split", "test", "--out", other)
    result = tertulia("report", one, other)
    assert result.code == 0
    text = " ".join(result.out.split())
    assert "cannot be compared paired: they have no units in common" in text
    assert "was judged on other data than" in text
    unknown = tertulia("report", one, "--baseline", "genric")
    assert unknown.code == 2
    assert "'generic'" in unknown.stderr
    missing = tertulia("report", tmp_path / "nowhere")
    assert missing.code == 2
    assert "Folder not found" in missing.stderr


def test_the_tables_of_the_papers(tertulia: Tertulia) -> None:
    chat = tertulia("judge", "rank", "tfidf", "--table", "personachat", "--limit", 30, "--persona", "own")
    assert chat.code == 0
    for text in ("paper: IR", ".410", ".207", "30 replies", "seed 0"):
        assert text in " ".join(chat.out.split())
    ubuntu = json.loads(tertulia("judge", "rank", "generic", "--table", "ubuntu", "--limit", 30, "--json").out)
    assert ubuntu["run"]["config"]["candidates"] == 10
    assert [row[0] for row in ubuntu["tables"][0]["rows"]] == [
        "1 in 2 R@1",
        "1 in 10 R@1",
        "1 in 10 R@2",
        "1 in 10 R@5",
    ]


def test_personas_the_data_does_not_have_are_reported(tertulia: Tertulia, tmp_path: Path) -> None:
    file = tmp_path / "talks.jsonl"
    save_dialogues([replace(d, personas={}) for d in sample.dialogues("test")], file)
    result = tertulia("judge", "rank", "generic", "--data", file, "--persona", "own")
    assert result.code == 0
    assert "n/a" in result.out
    assert "(n = 0)" in result.out
    assert "the data has no such personas, n = 0" in " ".join(result.out.split())


def test_a_test_set_keeps_its_candidates(tertulia: Tertulia, tmp_path: Path) -> None:
    for name in ("set.jsonl", "set.csv"):
        made = tertulia("corpus", "testset", "sample", "--split", "valid", "--distractors", 4, "--out", tmp_path / name)
        assert made.code == 0
        result = tertulia("judge", "rank", "generic", "--data", tmp_path / name, "--json", "--metric", "1in2")
        assert result.code == 0
        report = json.loads(result.out)
        assert report["run"]["details"]["tasks"] == report["figures"][0]["n"] == len(sample.dialogues("valid"))
        assert report["run"]["details"]["chance"] == pytest.approx(0.2)


def test_hard_distractors(tertulia: Tertulia) -> None:
    easy, hard = (json.loads(tertulia("judge", "rank", "generic", "--json", *more).out) for more in ((), ("--hard",)))
    assert "from the same set, random" in easy["notes"][0]
    assert "from the same set, similar" in hard["notes"][0]
    assert hard["figures"] != easy["figures"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--metric", "1in30"), "1in30 needs 30 candidates, but there are only 20"),
        (("--metric", "f1"), "f1' is a metric of replies"),
        (("--persona", "mine"), "persona"),
        (("--table", "meena"), "table"),
        (("--limit", 0), "limit"),
        (("--out", __file__), "is a file, not a folder"),
    ],
)
def test_invalid_options_are_clear_errors(tertulia: Tertulia, given: tuple[object, ...], message: str) -> None:
    result = tertulia("judge", "rank", "generic", *given)
    assert result.code == 2
    assert message in result.stderr


def test_profiles(tertulia: Tertulia, tmp_path: Path) -> None:
    result = tertulia("judge", "profiles", "--json", "--utterances", 2, "--out", tmp_path / "run")
    assert result.code == 0
    report = json.loads(result.out)
    assert report["run"]["details"]["candidates"] == report["run"]["details"]["profiles"] == 10
    errors = {figure["setting"]: figure for figure in report["figures"]}
    assert len(errors) == 8 + 2 * 8
    own, other = (errors[f"profile level, speaker 0, profile {profile}"] for profile in (0, 1))
    assert own["high"] < other["low"]
    assert load_run(tmp_path / "run").verb == "profiles"
    text = " ".join(tertulia("judge", "profiles", "--utterances", 2).out.split())
    for part in ("table 13", "table 14", "among 10 (101 requested", "sentence 0.173", "8 utterances 0.17"):
        assert part in text


RECIPE = """
import dataclasses
from pathlib import Path
from tertulia.corpus.load import load_dialogues
from tertulia.talk.tfidf_index import TfidfIndex
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
    """A recipe of a plugin whose training is indexing, which takes no time."""
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
    points = json.loads(first.out)["figures"]
    assert [(p["subject"], p["setting"], p["n"]) for p in points] == [
        ("index", "5 dialogues", 60),
        ("index", "20 dialogues", 60),
    ]
    again = tertulia(*given, "--sizes", "5,20,40")
    assert again.code == 0
    assert "60 replies among 20" in again.out
    assert (tmp_path / "curve" / "trained.txt").read_text().split() == ["5", "20", "40"]
    assert json.loads((tmp_path / "curve" / "report.json").read_text())["figures"][:2] == points
    assert "<svg" in (tmp_path / "curve" / "curve.svg").read_text()
    assert load_run(tmp_path / "curve").settings == ("5 dialogues", "20 dialogues", "40 dialogues")


def test_a_finished_model_is_not_trained_again(tertulia: Tertulia, tmp_path: Path, recipe: Path) -> None:
    given = ("judge", "curve", recipe, "--out", tmp_path / "curve", "--limit", 60, "--sizes", "5", "--json")
    first = json.loads(tertulia(*given).out)["figures"]
    shutil.rmtree(tmp_path / "curve" / "points")
    assert json.loads(tertulia(*given).out)["figures"] == first
    assert (tmp_path / "curve" / "trained.txt").read_text().split() == ["5"]


def test_impossible_curves_are_clear_errors(tertulia: Tertulia, tmp_path: Path, recipe: Path) -> None:
    many = tertulia("judge", "curve", recipe, "--out", tmp_path / "curve", "--sizes", "5,100000")
    assert many.code == 2
    assert "only 304 training dialogues in sample, not 100000" in many.stderr
    fixed = tmp_path / "fixed.toml"
    fixed.write_text('recipe = "disentangler"\n')
    other = tertulia("judge", "curve", fixed, "--sizes", "5")
    assert other.code == 2
    assert "has no option max_dialogues" in other.stderr
    without = tertulia("judge", "curve")
    assert without.code == 2
    assert "Missing argument RECIPE" in without.stderr


@pytest.mark.parametrize("command", [("judge",), ("judge", "rank", "--help")])
def test_help(tertulia: Tertulia, command: tuple[str, ...]) -> None:
    result = tertulia(*command)
    assert "rank" in result.out + result.err
