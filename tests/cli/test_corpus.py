import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tertulia import sample
from tertulia.core.codec import message_to_json
from tertulia.core.config import resolve
from tertulia.corpus.load import load_dialogues
from tertulia.corpus.mine import MineConfig

Tertulia = Callable[..., Any]
GOOD = {"id": "d1", "turns": [{"speaker": "ana", "text": "hi [bold]there[/bold]"}, {"speaker": "ben", "text": "ho 🙂"}]}


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    file = tmp_path / "talks.jsonl"
    lines = [json.dumps(GOOD), "{oops", json.dumps(GOOD | {"id": "d2"}), json.dumps({"id": "d3"})]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def test_list(tertulia: Tertulia) -> None:
    listed = json.loads(tertulia("corpus", "list", "--json").out)
    formats = {row["name"] for row in listed["formats"]}
    assert {"tertulia", "personachat", "messages", "parquet"} <= formats
    assert "sample" in {row["name"] for row in listed["corpora"]}
    told = tertulia("corpus", "list").out
    assert [name for name in formats if name not in told] == []


def test_show_for_people(tertulia: Tertulia, damaged: Path) -> None:
    result = tertulia("corpus", "show", damaged)
    assert result.code == 0
    assert "ana: hi [bold]there[/bold]" in result.out
    assert "ben: ho 🙂" in result.out
    assert "Skipped 2 damaged lines" in result.told
    assert "line 2" in result.told


def test_show_as_json(tertulia: Tertulia, damaged: Path) -> None:
    assert json.loads(tertulia("corpus", "show", damaged, "--json").out) == [GOOD, GOOD | {"id": "d2"}]
    assert json.loads(tertulia("corpus", "show", damaged, "--json", "--skip", 1, "-n", 1).out) == [GOOD | {"id": "d2"}]


def test_show_the_sample(tertulia: Tertulia) -> None:
    shown = json.loads(tertulia("corpus", "show", "sample", "--split", "test", "-n", 2, "--json").out)
    assert [d["id"] for d in shown] == [d.id for d in sample.dialogues("test")[:2]]
    assert tertulia("corpus", "show").code == 0
    told = tertulia("corpus", "show", "sample", "--split", "test", "-n", 1).out
    assert sample.dialogues("test")[0].turns[0].text in " ".join(told.split())


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
    assert "did you mean 'limit'?" in wrong.told


@pytest.mark.parametrize("command", [("show",), ("stats",), ("convert",)])
def test_strict_refuses_damaged_lines(tertulia: Tertulia, damaged: Path, tmp_path: Path, command: tuple[str]) -> None:
    target = [tmp_path / "out.jsonl"] if command == ("convert",) else []
    result = tertulia("corpus", *command, damaged, *target, "--strict", "--json")
    assert result.code == 1
    assert "talks.jsonl, line 2: not valid JSON" in result.told
    assert "without --strict" in result.told
    assert not (tmp_path / "out.jsonl").exists()


def test_stats(tertulia: Tertulia, damaged: Path) -> None:
    result = tertulia("corpus", "stats", damaged, "--json")
    counted = json.loads(result.out)
    assert (counted["dialogues"], counted["turns"], counted["damaged_lines"]) == (2, 4, 2)
    assert counted["words_per_turn"] == 2.5
    assert "Skipped 2 damaged lines" in result.told
    told = tertulia("corpus", "stats", damaged).out
    assert "words per turn" in told
    assert "2.50" in told


def test_stats_of_the_sample(tertulia: Tertulia) -> None:
    assert json.loads(tertulia("corpus", "stats", "--json", "--split", "valid").out)["dialogues"] == len(
        sample.dialogues("valid")
    )
    assert json.loads(tertulia("corpus", "stats", "--json").out)["dialogues"]["dialogues"] == len(sample.dialogues())


@pytest.mark.parametrize("ending", [".parquet", ".jsonl", ".jsonl.gz"])
def test_convert_and_back(tertulia: Tertulia, tmp_path: Path, ending: str) -> None:
    packed, again = tmp_path / f"sample{ending}", tmp_path / "again.jsonl"
    told = json.loads(tertulia("corpus", "convert", "sample", packed, "--json").out)
    assert told == {"out": str(packed), "dialogues": len(sample.dialogues()), "damaged_lines": 0}
    assert tertulia("corpus", "convert", packed, again).code == 0
    assert list(load_dialogues(again)) == sample.dialogues()


def test_convert_to_other_formats(tertulia: Tertulia, tmp_path: Path) -> None:
    for name, field in (("messages", "messages"), ("personachat", "utterances")):
        file = tmp_path / f"{name}.jsonl"
        assert tertulia("corpus", "convert", "sample", file, "--to", name, "--split", "test").code == 0
        record = json.loads(file.read_text(encoding="utf-8").splitlines()[0])
        assert len(record[field]) >= 8
        shown = json.loads(tertulia("corpus", "show", file, "--json", "-n", 1).out)
        assert [t["text"] for t in shown[0]["turns"]] == [t.text for t in sample.dialogues("test")[0].turns]


def test_convert_skips_what_is_damaged_and_says_so(tertulia: Tertulia, damaged: Path, tmp_path: Path) -> None:
    result = tertulia("corpus", "convert", damaged, tmp_path / "out.parquet")
    assert result.code == 0
    assert "2 dialogues in" in result.out
    assert "Skipped 2 damaged lines" in result.told


@pytest.mark.parametrize(
    ("out", "options", "told"),
    [
        ("out.docx", (), "Cannot tell the format"),
        ("out.jsonl", ("--to", "personchat"), "Did you mean 'personachat'"),
        ("out.parquet", ("--to", "messages"), "Parquet holds"),
    ],
)
def test_convert_to_what_cannot_be(
    tertulia: Tertulia, tmp_path: Path, out: str, options: tuple[str, ...], told: str
) -> None:
    result = tertulia("corpus", "convert", "sample", tmp_path / out, *options)
    assert result.code == 2
    assert told in result.told
    assert list(tmp_path.iterdir()) == []


def test_dialogues_that_do_not_fit_a_format(tertulia: Tertulia, tmp_path: Path) -> None:
    file = tmp_path / "talks.jsonl"
    file.write_text(json.dumps({"id": "d", "turns": [{"speaker": "a", "text": "x"}] * 2}) + "\n")
    result = tertulia("corpus", "convert", file, tmp_path / "out.jsonl", "--to", "personachat")
    assert result.code == 1
    assert "alternate" in result.told
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("command", ["show", "stats"])
@pytest.mark.parametrize(
    "content",
    [b"", b"hello\n", b"\x00\x01\x02", gzip.compress(b"x")[:-4], b'{"id": "\\ud800", "turns": []}\n', b"[" * 50_000],
    ids=["empty", "words", "bytes", "half a gz", "half a character", "deep"],
)
def test_files_of_rubbish_are_refused_without_a_traceback(
    tertulia: Tertulia, tmp_path: Path, command: str, content: bytes
) -> None:
    for ending in (".jsonl", ".jsonl.gz", ".parquet"):
        file = tmp_path / f"x{ending}"
        file.write_bytes(content)
        result = tertulia("corpus", command, file, "--json")
        assert result.code in (0, 1)
        if result.code:
            assert result.err.startswith("Error: ")
        else:
            assert "Skipped 1 damaged lines" in result.told


def test_half_a_character_is_shown_to_nobody(process: Tertulia, tmp_path: Path) -> None:
    """It could not even be printed."""
    file = tmp_path / "x.jsonl"
    file.write_text('{"id": "d", "turns": [{"speaker": "a", "text": "\\ud83d"}]}\n' + json.dumps(GOOD) + "\n")
    result = process("corpus", "show", file)
    assert result.code == 0
    assert "ana: hi" in result.out
    assert "Skipped 1 damaged lines" in result.told


def test_mine_the_sample(tertulia: Tertulia, tmp_path: Path) -> None:
    out, config = tmp_path / "mined", tmp_path / "mine.toml"
    config.write_text("dialogues = true\nmax_repeats = 3\n")
    funnel = json.loads(tertulia("corpus", "mine", "--out", out, "--json", "--max-repeats", 10, "--config", config).out)
    assert funnel["messages"] == len(sample.messages()) == sum(funnel["removed"].values()) + funnel["kept"]
    assert funnel["out"] == str(out)
    assert resolve(MineConfig, out / "config.toml").max_repeats == 10
    assert json.loads(tertulia("corpus", "stats", out / "pairs.parquet", "--json").out)["dialogues"] == funnel["pairs"]


def test_mine_for_people_with_options_and_damage(tertulia: Tertulia, tmp_path: Path) -> None:
    file = tmp_path / "forum.jsonl"
    lines = [json.dumps(message_to_json(m)) for m in sample.messages()[:300]]
    file.write_text("\n".join([*lines, "oops"]) + "\n", encoding="utf-8")
    plain = tertulia("corpus", "mine", file, "--out", tmp_path / "a", "--vocabulary", 500)
    assert plain.code == 0
    assert "messages" in plain.out
    assert "Skipped 1 damaged lines" in plain.told
    short = json.loads(
        tertulia(
            "corpus", "mine", file, "--out", tmp_path / "b", "--vocabulary", 500, "--max-subwords", 5, "--json"
        ).out
    )
    assert short["removed"]["length"] > 100
    refused = tertulia("corpus", "mine", file, "--out", tmp_path / "c", "--strict")
    assert refused.code == 1
    assert "line 301" in refused.told
    wrong = tertulia("corpus", "mine", file, "--out", tmp_path / "c", "--min-letters", 7)
    assert wrong.code == 2
    assert "min_letters" in wrong.told
