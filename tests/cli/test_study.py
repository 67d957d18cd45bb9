"""`tertulia study ...` from the template to the report, on real databases and a real server."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Tertulia
from tests.study.conftest import item_lines
from tests.study.test_importers import entries

from tertulia.store import Database
from tertulia.study.presets import PRESETS


@pytest.fixture
def study(tertulia: Tertulia, tmp_path: Path) -> Path:
    """A small study of responses to contexts, by two bots."""
    file = tmp_path / "pilot.toml"
    text = tertulia("study", "new", "ssa-static").out
    file.write_text(text.replace("ratings_per_unit = 5", "ratings_per_unit = 3"))
    items = [
        {
            "id": f"c{i}",
            "turns": [{"speaker": "a", "text": f"What is {i} plus {i}?"}],
            "responses": {"first": f"It is {2 * i}.", "second": "ok"},
        }
        for i in range(12)
    ]
    (tmp_path / "items.jsonl").write_text("\n".join(json.dumps(item) for item in items))
    return file


@pytest.fixture
def db(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'studies.db'}"


def test_presets_are_listed_and_printed(tertulia: Tertulia) -> None:
    assert list(json.loads(tertulia("study", "presets", "--json").out)) == list(PRESETS)
    assert "ssa-static" in tertulia("study", "presets").out
    assert 'preset = "arena"' in tertulia("study", "new", "arena").out
    assert "better_partner" in tertulia("study", "new", "arena", "--full").out
    wrong = tertulia("study", "new", "arenas")
    assert (wrong.code, "arena" in wrong.stderr) == (2, True)


def test_check_says_what_a_study_asks_of_people(tertulia: Tertulia, study: Path) -> None:
    values: Any = json.loads(tertulia("study", "check", study, "--json").out)
    assert (values["units"], values["ratings"]) == (24, 72)
    assert values["currency"] == "EUR"
    assert "without the platform's fees" in tertulia("study", "check", study).out


def test_mistakes_in_a_study_are_named_with_their_line(tertulia: Tertulia, study: Path) -> None:
    study.write_text(study.read_text().replace("ratings_per_unit", "rating_per_unit"))
    wrong = tertulia("study", "check", study)
    assert wrong.code == 2
    assert "line 6" in wrong.stderr
    assert "did you mean 'ratings_per_unit'" in wrong.stderr
    missing = tertulia("study", "check", study.parent / "none.toml")
    assert (missing.code, "File not found" in missing.stderr) == (2, True)


def test_responses_that_nobody_can_generate_are_an_error(tertulia: Tertulia, study: Path) -> None:
    (study.parent / "items.jsonl").write_text('{"id": "c", "turns": [{"speaker": "a", "text": "Hi"}]}')
    wrong = tertulia("study", "check", study)
    assert (wrong.code, "has no 'spec'" in wrong.stderr) == (1, True)
    study.write_text(study.read_text().replace('name = "first"', 'name = "first"\nspec = "generic"'))
    study.write_text(study.read_text().replace('name = "second"', 'name = "second"\nspec = "generic"'))
    assert "2 responses will be generated" in tertulia("study", "check", study).out


def test_a_study_is_opened_shown_closed_and_opened_again(tertulia: Tertulia, study: Path, db: str) -> None:
    missing = tertulia("study", "status", "--db", db)
    assert (missing.code, "File not found" in missing.stderr) == (2, True)
    Database.open(db).close()
    assert "There are no studies" in tertulia("study", "status", "--db", db).out
    opened: Any = json.loads(tertulia("study", "open", study, "--db", db, "--url", "https://x.org/", "--json").out)
    assert opened["link"] == f"https://x.org/study/{opened['id']}"
    assert opened["codes"]["done"]
    twice = tertulia("study", "open", study, "--db", db)
    assert (twice.code, "is open already" in twice.stderr) == (2, True)
    (shown,) = json.loads(tertulia("study", "status", "--db", db, "--json").out)
    assert (shown["state"], shown["units"], shown["ratings"]["wanted"]) == ("open", 24, 72)
    assert "0 of 72" in tertulia("study", "status", "pilot", "--db", db).out
    assert "Closed pilot" in tertulia("study", "close", opened["id"], "--db", db).out
    again = tertulia("study", "open", study, "--db", db)
    assert (again.code, "Completion code" in again.out) == (0, True)
    empty = tertulia("study", "report", "pilot", "--db", db)
    assert (empty.code, "no answers yet" in empty.stderr) == (1, True)


def test_invitations_are_signed_and_one_per_person(tertulia: Tertulia, study: Path, db: str) -> None:
    tertulia("study", "open", study, "--db", db)
    links: Any = json.loads(tertulia("study", "invite", "pilot", "--db", db, "-n", "ada", "-n", "bob", "--json").out)
    assert list(links) == ["ada", "bob"]
    assert "?invite=ada." in links["ada"]
    assert links["ada"].rpartition(".")[2] != links["bob"].rpartition(".")[2]
    assert len(tertulia("study", "invite", "pilot", "--db", db, "--count", 3).out.split()) == 3
    wrong = tertulia("study", "invite", "pilot", "--db", db, "-n", "a b")
    assert (wrong.code, "Nobody can be invited" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("command", [["report"], ["close"], ["status"], ["invite"], ["export", "--out", "x.csv"]])
def test_unknown_studies_are_errors_that_list_the_known_ones(tertulia: Tertulia, db: str, command: list[str]) -> None:
    Database.open(db).close()
    result = tertulia("study", command[0], "nothing", *command[1:], "--db", db)
    assert (result.code, "no study called 'nothing'" in result.stderr) == (2, True)


def test_simulated_raters_walk_a_study_and_the_order_of_bots_is_recovered(
    tertulia: Tertulia, study: Path, db: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    options = ("--raters", 3, "--seed", 1, "--quality", "first=0.3", "--quality", "second=0.9", "--bias", "noise=0.1")
    result: Any = json.loads(tertulia("study", "simulate", study, *options, "--db", db, "--out", run, "--json").out)
    figures = {(f["subject"], f["metric"]): f for f in result["figures"]}
    assert figures["second", "SSA"]["value"] > figures["first", "SSA"]["value"] + 0.2
    assert figures["first", "sensibleness"]["n"] == 36
    assert result["simulation"]["ends"] == {"done": 3}
    assert (result["simulation"]["currency"], result["simulation"]["cost"] > 0) == ("EUR", True)
    assert "<svg" in (run / "report.html").read_text()
    assert (run / "ssa.svg").exists()

    name = "pilot-simulated-1"
    printed = tertulia("study", "report", name, "--db", db).out
    assert "SSA in per cent" in printed
    assert "Simulated raters, no people" in printed
    assert "paper: Meena full" in tertulia("report", run).out
    for ending in ("csv", "jsonl", "parquet"):
        file = tmp_path / f"labels.{ending}"
        # Three answers about each response; one that another answer implies is stored too.
        exported: Any = json.loads(tertulia("study", "export", name, "--out", file, "--db", db, "--json").out)
        assert exported["rows"] == 72 * 3
        assert file.stat().st_size > 1000
    planned: Any = json.loads(tertulia("study", "plan", name, "--effect", 0.2, "--db", db, "--json").out)
    assert planned["question"] == "ssa"
    assert planned["source"] == f"pilot {name}"
    assert planned["plans"][0]["cost"] > 0


def test_raters_who_pay_no_attention_are_screened_out(tertulia: Tertulia, study: Path, db: str) -> None:
    options = ("--raters", 2, "--bias", "failed_attention=1", "--db", db)
    result = tertulia("study", "simulate", study, *options)
    assert (result.code, "no answers yet" in result.stderr) == (1, True)
    (shown,) = json.loads(tertulia("study", "status", "--db", db, "--json").out)
    assert shown["participants"] == {"screened_out": 2}


@pytest.mark.parametrize("preset", ["ssa-interactive", "persona-chat", "arena", "begin", "rewrite-personas"])
def test_simulated_raters_walk_other_presets(tertulia: Tertulia, tmp_path: Path, preset: str) -> None:
    text = tertulia("study", "new", preset).out.replace('spec = "tfidf"', 'spec = "generic"')
    for number in (100, 50, 30):
        text = text.replace(f"conversations_per_bot = {number}", "conversations_per_bot = 1")
    (tmp_path / "items.jsonl").write_text("\n".join(item_lines(preset)[:2]))
    file = tmp_path / "study.toml"
    file.write_text(text)
    result: Any = json.loads(tertulia("study", "simulate", file, "--raters", 3, "--json").out)
    titles = {table["title"] for table in result["tables"]}
    expected = {
        "ssa-interactive": "SSA in per cent (published: Adiwardana et al. 2020)",
        "persona-chat": "Persona detection (Zhang et al. 2018)",
        "arena": "Bradley-Terry strengths",
        "begin": "BEGIN labels in per cent of responses",
        "rewrite-personas": "Written answers",
    }
    assert expected[preset] in titles


def test_people_who_talk_to_each_other_are_not_simulated(tertulia: Tertulia, tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(tertulia("study", "new", "collect-dialogues").out)
    (tmp_path / "items.jsonl").write_text("\n".join(item_lines("collect-dialogues")))
    result = tertulia("study", "simulate", file)
    assert (result.code, "do not talk to each other" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--bias", "leniency=high"], "must be a number"),
        (["--bias", "kindness=1"], "kindness"),
        (["--bias", "laziness=2"], "laziness"),
        (["--quality", "third=0.5"], "no bot called 'third'"),
        (["--raters", "0"], "--raters"),
    ],
)
def test_wrong_options_of_a_simulation_are_named(
    tertulia: Tertulia, study: Path, options: list[str], reason: str
) -> None:
    result = tertulia("study", "simulate", study, *options)
    assert (result.code, reason in result.stderr) == (2, True)


def test_a_plan_needs_a_goal_and_shows_costs(tertulia: Tertulia, study: Path) -> None:
    plan: Any = json.loads(tertulia("study", "plan", study, "--half-width", 0.1, "--raters", 20, "--json").out)
    assert plan["source"] == "assumed"
    by_k = {p["ratings_per_conversation"]: p["conversations_per_bot"] for p in plan["plans"]}
    assert by_k[1] > by_k[3] > by_k[5]
    assert all(p["half_width"] <= 0.1 for p in plan["plans"])
    assert "conversations per bot" in tertulia("study", "plan", study, "--effect", 0.1).out
    assert tertulia("study", "plan", study).code == 2
    hopeless = tertulia("study", "plan", study, "--half-width", 0.01, "--raters", 5, "--ratings", 1)
    assert "no number of conversations is enough" in hopeless.out


def test_fed_is_imported_as_a_closed_study_and_reported_by_system(tertulia: Tertulia, db: str, tmp_path: Path) -> None:
    file = tmp_path / "fed.json"
    file.write_text(json.dumps(entries()))
    imported = tertulia("study", "import", file, "--db", db, "--format", "fed")
    assert imported.code == 0
    assert "no public release holds SSA labels" in imported.out
    (shown,) = json.loads(tertulia("study", "status", "--db", db, "--json").out)
    assert (shown["state"], shown["ratings"]["done"]) == ("closed", 12)
    report: Any = json.loads(tertulia("study", "report", "fed", "--db", db, "--json").out)
    means = {(f["subject"], f["setting"]): f["value"] for f in report["figures"]}
    assert means["Human", "dialogue_overall"] == 3.0
    assert means["Meena", "dialogue_overall"] == pytest.approx(7 / 3)
    assert any("not SSA" in note for note in report["notes"])
    twice = tertulia("study", "import", file, "--db", db)
    assert (twice.code, "already" in twice.stderr) == (2, True)
    assert tertulia("study", "import", tmp_path / "none.json", "--db", db).code == 2
    assert tertulia("study", "import", file, "--db", db, "--format", "usr").code == 2


def test_exports_need_a_known_ending(tertulia: Tertulia, study: Path, db: str, tmp_path: Path) -> None:
    tertulia("study", "open", study, "--db", db)
    result = tertulia("study", "export", "pilot", "--out", tmp_path / "x.xlsx", "--db", db)
    assert (result.code, ".csv, .jsonl, .parquet" in result.stderr) == (2, True)
    assert not (tmp_path / "x.xlsx").exists()
