"""`tertulia judge grounding` from the command line: what it prints, saves and refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Tertulia
from tests.judge.grounding_rules import rules as rules
from tests.study.conftest import item_lines

HEAD = "evidence\tprevious turn\tresponse\tgold label\tcoarse label\tfull label set"


@pytest.fixture
def begin(tmp_path: Path) -> Path:
    """Some rows in the format of BEGIN's first release."""
    said = {"entailment": "tea is hot", "generic": "do you like it?", "hallucination": "rockets fly to the moon"}
    rows = [f"tea is a hot drink {i}\thm\t{text}\t{label}\tx\tx" for i in range(6) for label, text in said.items()]
    file = tmp_path / "dev.tsv"
    file.write_text("\n".join((HEAD, *rows)) + "\n")
    return file


@pytest.mark.usefixtures("rules")
def test_labelled_responses_are_printed_saved_and_reported_again(
    tertulia: Tertulia, begin: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    printed = tertulia("judge", "grounding", begin, "--classifier", "questions", "--out", run)
    assert printed.code == 0
    for text in ("Five labels: how often each is right", "word overlap", "paper: BERT", "takes for what", "1.000"):
        assert text in printed.out
    assert "What questions gets wrong" not in printed.out  # only in the files: its texts are too long for a terminal
    again = tertulia("report", run)
    assert "Five labels: how often each is right" in again.out
    result: Any = json.loads(tertulia("judge", "grounding", begin, "--classifier", "questions", "--json").out)
    figures = {(f["subject"], f["setting"], f["metric"]): f for f in result["figures"]}
    best = figures["questions", "five labels", "label accuracy"]
    assert (best["value"], best["n"]) == (1.0, 18)
    assert 0.5 < best["low"] < best["high"] == 1.0
    manifest: Any = json.loads((run / "manifest.json").read_text())
    assert "questions" in json.dumps(manifest)
    assert "digest" in json.dumps(manifest)
    both = tertulia("report", run, "--baseline", "questions")
    assert (both.code, "word overlap" in both.out) == (0, True)


def test_the_sample_needs_no_file(tertulia: Tertulia) -> None:
    result: Any = json.loads(tertulia("judge", "grounding", "sample", "--threshold", 0.6, "--json").out)
    subjects = {figure["subject"] for figure in result["figures"]}
    assert {"word overlap from .60", "always the most frequent"} <= subjects
    aucs = [f["value"] for f in result["figures"] if f["metric"] == "ROC-AUC" and "overlap from" in f["subject"]]
    assert aucs[0] > 0.5


def test_mistakes_are_named(tertulia: Tertulia, begin: Path, tmp_path: Path) -> None:
    begin.write_text(begin.read_text().replace("\tgeneric\t", "\tboring\t", 1))
    wrong = tertulia("judge", "grounding", begin)
    assert (wrong.code, "dev.tsv, line 3: unknown grounding label 'boring'" in wrong.stderr) == (1, True)
    missing = tertulia("judge", "grounding", tmp_path / "none.tsv")
    assert (missing.code, "File not found" in missing.stderr) == (2, True)
    name = tertulia("judge", "grounding", "sample", "--classifier", "overlpa")
    assert (name.code, "Did you mean 'overlap'?" in name.stderr) == (2, True)


def test_a_simulated_study_is_compared_with_the_classifier(tertulia: Tertulia, tmp_path: Path) -> None:
    file, db, export = tmp_path / "study.toml", f"sqlite:///{tmp_path / 'studies.db'}", tmp_path / "labels.csv"
    file.write_text(tertulia("study", "new", "begin").out.replace('spec = "tfidf"', 'spec = "generic"'))
    (tmp_path / "items.jsonl").write_text("\n".join(item_lines("begin")))
    simulated = tertulia("study", "simulate", file, "--raters", 3, "--db", db, "--json")
    assert simulated.code == 0
    assert tertulia("study", "export", "study-simulated-0", "--out", export, "--db", db).code == 0
    printed = tertulia("judge", "grounding", export, "--json")  # the raters differ: so does where a table's words break
    assert printed.code == 0
    for text in ("Agreement with people", "people among themselves", "by 3 people"):
        assert text in printed.out
