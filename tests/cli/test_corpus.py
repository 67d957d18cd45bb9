import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tertulia import sample
from tertulia.core.codec import message_to_json
from tertulia.core.config import resolve
from tertulia.corpus.load import load_dialogues, load_exchanges
from tertulia.corpus.mine import MineConfig

Tertulia = Callable[..., Any]
GOOD = {"id": "d1", "turns": [{"speaker": "ana", "text": "hi [bold]there[/bold]"}, {"speaker": "ben", "text": "ho 🙂"}]}


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    file = tmp_path / "talks.jsonl"
    lines = [json.dumps(GOOD), "{oops", json.dumps(GOOD | {"id": "d2"}), json.dumps({"id": "d3"})]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def test_list_names_all_formats_and_the_sample(tertulia: Tertulia) -> None:
    listed = json.loads(tertulia("corpus", "list", "--json").out)
    formats = {row["name"] for row in listed["formats"]}
    assert {"tertulia", "personachat", "messages", "parquet"} <= formats
    assert "sample" in {row["name"] for row in listed["corpora"]}
    printed = tertulia("corpus", "list").out
    assert [name for name in formats if name not in printed] == []


def test_show_prints_dialogues_as_text(tertulia: Tertulia, damaged: Path) -> None:
    result = tertulia("corpus", "show", damaged)
    assert result.code == 0
    assert "ana: hi [bold]there[/bold]" in result.out
    assert "ben: ho 🙂" in result.out
    assert "Skipped 2 damaged lines" in result.stderr
    assert "line 2" in result.stderr


def test_show_prints_dialogues_as_json(tertulia: Tertulia, damaged: Path) -> None:
    assert json.loads(tertulia("corpus", "show", damaged, "--json").out) == [GOOD, GOOD | {"id": "d2"}]
    assert json.loads(tertulia("corpus", "show", damaged, "--json", "--skip", 1, "-n", 1).out) == [GOOD | {"id": "d2"}]


def test_show_prints_a_split_of_the_sample(tertulia: Tertulia) -> None:
    shown = json.loads(tertulia("corpus", "show", "sample", "--split", "test", "-n", 2, "--json").out)
    assert [d["id"] for d in shown] == [d.id for d in sample.dialogues("test")[:2]]
    assert tertulia("corpus", "show").code == 0
    printed = tertulia("corpus", "show", "sample", "--split", "test", "-n", 1).out
    assert sample.dialogues("test")[0].turns[0].text in " ".join(printed.split())


def test_show_reads_its_options_from_a_file(tertulia: Tertulia, tmp_path: Path) -> None:
    config = tmp_path / "show.toml"
    config.write_text('target = "sample"\nsplit = "valid"\nlimit = 1\n')
    shown = json.loads(tertulia("corpus", "show", "--config", config, "--json").out)
    assert [d["id"] for d in shown] == [sample.dialogues("valid")[0].id]
    first = sample.dialogues("valid")[0]
    assert first.id in tertulia("corpus", "show", "--config", config).out
    config.write_text("limti = 1\n")
    wrong = tertulia("corpus", "show", "--config", config)
    assert wrong.code == 2
    assert "did you mean 'limit'?" in wrong.stderr


@pytest.mark.parametrize("command", [("show",), ("stats",), ("convert",)])
def test_strict_rejects_damaged_lines(tertulia: Tertulia, damaged: Path, tmp_path: Path, command: tuple[str]) -> None:
    target = [tmp_path / "out.jsonl"] if command == ("convert",) else []
    result = tertulia("corpus", *command, damaged, *target, "--strict", "--json")
    assert result.code == 1
    assert "talks.jsonl, line 2: not valid JSON" in result.stderr
    assert "without --strict" in result.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_stats_of_dialogues(tertulia: Tertulia, damaged: Path) -> None:
    result = tertulia("corpus", "stats", damaged, "--json")
    figures = json.loads(result.out)
    assert (figures["dialogues"], figures["turns"], figures["damaged_lines"]) == (2, 4, 2)
    assert figures["words_per_turn"] == 2.5
    assert "Skipped 2 damaged lines" in result.stderr
    printed = tertulia("corpus", "stats", damaged).out
    assert "words per turn" in printed
    assert "2.50" in printed


def test_stats_of_the_sample(tertulia: Tertulia) -> None:
    assert json.loads(tertulia("corpus", "stats", "--json", "--split", "valid").out)["dialogues"] == len(
        sample.dialogues("valid")
    )
    assert json.loads(tertulia("corpus", "stats", "--json").out)["dialogues"]["dialogues"] == len(sample.dialogues())


@pytest.mark.parametrize("ending", [".parquet", ".jsonl", ".jsonl.gz"])
def test_converting_back_and_forth_changes_nothing(tertulia: Tertulia, tmp_path: Path, ending: str) -> None:
    converted, again = tmp_path / f"sample{ending}", tmp_path / "again.jsonl"
    report = json.loads(tertulia("corpus", "convert", "sample", converted, "--json").out)
    assert report == {"out": str(converted), "dialogues": len(sample.dialogues()), "damaged_lines": 0}
    assert tertulia("corpus", "convert", converted, again).code == 0
    assert list(load_dialogues(again)) == sample.dialogues()


def test_convert_writes_other_formats(tertulia: Tertulia, tmp_path: Path) -> None:
    for name, field in (("messages", "messages"), ("personachat", "utterances")):
        file = tmp_path / f"{name}.jsonl"
        assert tertulia("corpus", "convert", "sample", file, "--to", name, "--split", "test").code == 0
        record = json.loads(file.read_text(encoding="utf-8").splitlines()[0])
        assert len(record[field]) >= 8
        shown = json.loads(tertulia("corpus", "show", file, "--json", "-n", 1).out)
        assert [t["text"] for t in shown[0]["turns"]] == [t.text for t in sample.dialogues("test")[0].turns]


def test_convert_skips_damaged_lines_and_reports_them(tertulia: Tertulia, damaged: Path, tmp_path: Path) -> None:
    result = tertulia("corpus", "convert", damaged, tmp_path / "out.parquet")
    assert result.code == 0
    assert "Wrote 2 dialogues to" in result.out
    assert "Skipped 2 damaged lines" in result.stderr


@pytest.mark.parametrize(
    ("out", "options", "error"),
    [
        ("out.docx", (), "Unrecognised file type: out.docx"),
        ("out.jsonl", ("--to", "personchat"), "Did you mean 'personachat'"),
        ("out.parquet", ("--to", "messages"), "Parquet files contain"),
    ],
)
def test_convert_to_an_unsuitable_format_is_an_error(
    tertulia: Tertulia, tmp_path: Path, out: str, options: tuple[str, ...], error: str
) -> None:
    result = tertulia("corpus", "convert", "sample", tmp_path / out, *options)
    assert result.code == 2
    assert error in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_dialogues_that_a_format_cannot_represent_are_an_error(tertulia: Tertulia, tmp_path: Path) -> None:
    file = tmp_path / "talks.jsonl"
    file.write_text(json.dumps({"id": "d", "turns": [{"speaker": "a", "text": "x"}] * 2}) + "\n")
    result = tertulia("corpus", "convert", file, tmp_path / "out.jsonl", "--to", "personachat")
    assert result.code == 1
    assert "alternate" in result.stderr
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("command", ["show", "stats"])
@pytest.mark.parametrize(
    "content",
    [b"", b"hello\n", b"\x00\x01\x02", gzip.compress(b"x")[:-4], b'{"id": "\\ud800", "turns": []}\n', b"[" * 50_000],
    ids=["empty", "words", "bytes", "truncated gz", "lone surrogate", "deep"],
)
def test_invalid_files_are_rejected_without_a_traceback(
    tertulia: Tertulia, tmp_path: Path, command: str, content: bytes
) -> None:
    for ending in (".jsonl", ".jsonl.gz", ".parquet"):
        file = tmp_path / f"x{ending}"
        file.write_bytes(content)
        result = tertulia("corpus", command, file, "--json")
        assert result.code in (0, 1)
        if result.code:
            assert json.loads(result.err)["error"]["message"]
        else:
            assert "Skipped 1 damaged line" in result.stderr


def test_lone_surrogates_are_damage_and_not_printed(process: Tertulia, tmp_path: Path) -> None:
    """Standard output could not encode them."""
    file = tmp_path / "x.jsonl"
    file.write_text('{"id": "d", "turns": [{"speaker": "a", "text": "\\ud83d"}]}\n' + json.dumps(GOOD) + "\n")
    result = process("corpus", "show", file)
    assert result.code == 0
    assert "ana: hi" in result.out
    assert "Skipped 1 damaged line" in result.stderr


def test_mine_writes_the_funnel_and_the_pairs_of_the_sample(tertulia: Tertulia, tmp_path: Path) -> None:
    out, config = tmp_path / "mined", tmp_path / "mine.toml"
    config.write_text("dialogues = true\nmax_repeats = 3\n")
    funnel = json.loads(tertulia("corpus", "mine", "--out", out, "--json", "--max-repeats", 10, "--config", config).out)
    assert funnel["messages"] == len(sample.messages()) == sum(funnel["removed"].values()) + funnel["kept"]
    assert funnel["out"] == str(out)
    assert resolve(MineConfig, out / "config.toml").max_repeats == 10
    for corpus in (out / "pairs.parquet", out):
        assert json.loads(tertulia("corpus", "stats", corpus, "--json").out)["dialogues"] == funnel["pairs"]


def test_mine_takes_options_and_reports_damaged_lines(tertulia: Tertulia, tmp_path: Path) -> None:
    file = tmp_path / "forum.jsonl"
    lines = [json.dumps(message_to_json(m)) for m in sample.messages()[:300]]
    file.write_text("\n".join([*lines, "oops"]) + "\n", encoding="utf-8")
    plain = tertulia("corpus", "mine", file, "--out", tmp_path / "a", "--vocabulary", 500)
    assert plain.code == 0
    assert "messages" in plain.out
    assert "Skipped 1 damaged line" in plain.stderr
    short = json.loads(
        tertulia(
            "corpus", "mine", file, "--out", tmp_path / "b", "--vocabulary", 500, "--max-subwords", 5, "--json"
        ).out
    )
    assert short["removed"]["length"] > 100
    rejected = tertulia("corpus", "mine", file, "--out", tmp_path / "c", "--strict")
    assert rejected.code == 1
    assert "line 301" in rejected.stderr
    wrong = tertulia("corpus", "mine", file, "--out", tmp_path / "c", "--min-letters", 7)
    assert wrong.code == 2
    assert "--min-letters" in wrong.stderr


MESSAGES = [
    {"number": "a", "by": "ana", "body": "good morning everybody"},
    {"number": "b", "by": "ben", "body": "good morning to you too", "re": "a"},
]


def test_mine_maps_field_names(tertulia: Tertulia, tmp_path: Path) -> None:
    file = tmp_path / "forum.jsonl"
    file.write_text("".join(json.dumps(message) + "\n" for message in MESSAGES))
    names = ("id=number", "author=by", "text=body", "parent=re")
    options = [option for name in names for option in ("--field", name)]
    mine = ("corpus", "mine", file, "--vocabulary", 300, "--json", "--out")
    assert json.loads(tertulia(*mine, tmp_path / "out", *options).out)["pairs"] == 1
    wrong = tertulia(*mine, tmp_path / "wrong", "--field", "text")
    assert (wrong.code, "--field: must be KEY=VALUE, got 'text'" in wrong.stderr) == (2, True)
    unknown = tertulia(*mine, tmp_path / "unknown", "--field", "words=body")
    assert (unknown.code, "Messages have no field 'words'" in unknown.stderr) == (2, True)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--threads", "rules", "--min-letters", 0.5), "--min-letters cannot be used with --threads"),
        (("--threads", "rules", "--field", "text=body"), "--field cannot be used with --threads"),
        (("--model", "folder"), "--model requires --threads"),
        (("a.txt", "b.txt", "--threads", "rules"), "--threads takes one log or one folder of logs"),
    ],
)
def test_mine_rejects_options_of_the_other_kind_of_source(
    tertulia: Tertulia, tmp_path: Path, options: tuple[object, ...], error: str
) -> None:
    result = tertulia("corpus", "mine", *options, "--out", tmp_path / "out")
    assert (result.code, error in result.stderr) == (2, True)
    assert not (tmp_path / "out").exists()


def test_mine_extracts_dialogues_from_chat_logs(tertulia: Tertulia, tmp_path: Path) -> None:
    report = json.loads(tertulia("corpus", "mine", "sample", "--threads", "rules", "--out", tmp_path, "--json").out)
    assert report["dialogues"] > 10
    assert len(list(load_dialogues(tmp_path / "dialogues.parquet"))) == report["dialogues"]
    assert (tmp_path / "turns.svg").is_file()


def test_erase_removes_an_author_and_verifies_it(tertulia: Tertulia, tmp_path: Path) -> None:
    tertulia("corpus", "mine", "--out", tmp_path / "mined")
    author, other = sample.messages()[1].author, sample.messages()[2].id
    undecided = tertulia("corpus", "erase", tmp_path / "mined", "--author", author, "--id", other)
    assert (undecided.code, "To be decided on: " in undecided.stderr) == (1, True)
    assert "shared words" in undecided.out
    assert "Not searched:\n  the source (sample.jsonl): erase there, too" in undecided.out
    decided = tertulia("corpus", "erase", tmp_path / "mined", "--near", "mask", "--json")
    report = json.loads(decided.out)
    assert decided.code == 0
    assert (report["messages"] > 0, report["masked"] > 0) == (True, True)
    assert (report["verification"]["clean"], report["verification"]["traces"]) == (True, [])
    nobody = tertulia("corpus", "erase", tmp_path / "mined")
    assert (nobody.code, "Nothing to erase" in nobody.stderr) == (2, True)


def test_split_takes_its_three_shares_together(tertulia: Tertulia, tmp_path: Path) -> None:
    report = json.loads(tertulia("corpus", "split", "--out", tmp_path, "--shares", 0.5, 0.3, 0.2, "--json").out)
    total = len(sample.dialogues())
    goal = {"train": 0.5 * total, "valid": 0.3 * total, "test": 0.2 * total}
    assert report["dialogues"] == pytest.approx(goal, abs=1)
    assert len(list(load_dialogues(tmp_path / "valid.jsonl"))) == report["dialogues"]["valid"]


@pytest.mark.parametrize("name", ["triples.csv", "triples.jsonl"])
def test_testset_writes_training_triples_that_can_be_read(tertulia: Tertulia, tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    options = ("--split", "valid", "--triples", "--out", out, "--json")
    count = json.loads(tertulia("corpus", "testset", "sample", *options).out)["triples"]
    exchanges = list(load_exchanges(out))
    assert len(exchanges) == count > 0
    assert [e.label for e in exchanges] == ["1", "0"] * (count // 2)


@pytest.mark.parametrize("name", ["set.jsonl", "set.csv"])
def test_testset_takes_its_version_as_a_number(tertulia: Tertulia, tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    options = ("--version", 2, "--distractors", 3, "--out", out, "--json")
    report = json.loads(tertulia("corpus", "testset", "sample", "--split", "test", *options).out)
    assert report["items"] == len(sample.dialogues("test"))
    assert len(out.read_text(encoding="utf-8").splitlines()) >= report["items"]
    assert tertulia("corpus", "testset", "--version", 3, "--out", out).code == 2


def test_silver_writes_labelled_examples_and_replaces_nothing(tertulia: Tertulia, tmp_path: Path) -> None:
    out = tmp_path / "silver.jsonl"
    report = json.loads(tertulia("corpus", "silver", "--per-label", 20, "--out", out, "--json").out)
    assert sum(row["examples"] for row in report["made"]) == 100
    made = list(load_exchanges(out))
    assert {exchange.label for exchange in made} == {row["label"] for row in report["made"]}
    again = tertulia("corpus", "silver", "--per-label", 20, "--out", out)
    assert again.code == 2
    assert "exists" in again.stderr
    assert "Wrote 100 examples" in tertulia("corpus", "silver", "--per-label", 20, "--out", out, "--force").out
    without = tertulia("corpus", "silver", without_evidence(tmp_path), "--out", tmp_path / "no.jsonl")
    assert without.code != 0
    assert "No dialogue has evidence" in without.stderr
    assert not (tmp_path / "no.jsonl").exists()


def without_evidence(folder: Path) -> Path:
    """A file of dialogues without evidence."""
    file = folder / "plain.jsonl"
    file.write_text(json.dumps(GOOD) + "\n", encoding="utf-8")
    return file


def test_personas_writes_labelled_pairs(tertulia: Tertulia, tmp_path: Path) -> None:
    out = tmp_path / "pairs.jsonl"
    command = ("corpus", "personas", "--split", "valid", "--per-label", 10, "--out", out)
    report = json.loads(tertulia(*command, "--json").out)
    assert sum(row["examples"] for row in report["made"]) == 30
    assert {row["label"] for row in report["made"]} == {"contradiction", "neutral", "entailment"}
    again = tertulia(*command)
    assert (again.code, "exists" in again.stderr) == (2, True)
    assert "Wrote 30 examples" in tertulia(*command, "--force").out
