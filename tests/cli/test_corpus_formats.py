"""`corpus list | get | show | stats | convert` on formats other than Tertulia's own."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tertulia.core.codec import Problems
from tertulia.core.dialogue import Dialogue, Evidence, Turn
from tertulia.corpus.catalog import CATALOG, Dataset, Download
from tertulia.corpus.load import load_dialogues, load_exchanges, save_dialogues
from tertulia.corpus.registry import READERS

Tertulia = Callable[..., Any]
BEGIN = (
    "evidence\tprevious turn\tresponse\tgold label\tcoarse label\tfull label set\n"
    "Otters swim.\tdo they?\tthey do [bold]\tentailment\tentailment\tfaithful\n"
    "Otters swim.\tand sleep?\tno idea\tgeneric\tneutral\tgeneric\n"
    "too\tshort\n"
)
TALK = Dialogue(
    "d", (Turn("first", "hi"), Turn("second", "hello"), Turn("first", "bye")), evidence=(Evidence("a fact"),)
)


@pytest.fixture
def begin(tmp_path: Path) -> Path:
    file = tmp_path / "dev.tsv"
    file.write_text(BEGIN)
    return file


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    file = tmp_path / "talk.jsonl"
    save_dialogues([TALK], file)
    return file


@pytest.fixture
def served_folder(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder served over HTTP, and its URL."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_list_shows_formats_and_licences(tertulia: Tertulia) -> None:
    listed = json.loads(tertulia("corpus", "list", "--json").out)
    formats = {row["name"]: row for row in listed["formats"]}
    assert set(formats) == {*READERS, "parquet"}
    assert formats["begin-v2"]["holds"] == "exchanges"
    assert formats["convokit"]["written"] == ["a folder"]
    licences = {row["name"]: row["licence"] for row in listed["corpora"]}
    assert licences == {"sample": "CC0-1.0"} | {dataset.name: dataset.licence for dataset in CATALOG.values()}
    printed = tertulia("corpus", "list").out
    words = {word for pair in licences.items() for text in pair for word in text.split()}
    assert [word for word in words if word not in printed] == []


def test_show_prints_exchanges(tertulia: Tertulia, begin: Path) -> None:
    result = tertulia("corpus", "show", begin)
    assert "entailment" in result.out
    assert "evidence: Otters swim." in result.out
    assert "user: do they?\nbot: they do [bold]" in result.out
    assert "Skipped 1 damaged line" in result.stderr
    assert "line 4: expected 6 columns, got 2" in result.stderr
    shown = json.loads(tertulia("corpus", "show", begin, "--json", "--skip", 1).out)
    assert [(e["label"], e["response"]["text"]) for e in shown] == [("generic", "no idea")]


def test_stats_of_exchanges(tertulia: Tertulia, begin: Path) -> None:
    figures = json.loads(tertulia("corpus", "stats", begin, "--json").out)
    assert figures == {
        "exchanges": 2,
        "context_turns": 1.0,
        "words_per_response": 2.5,
        "evidence": 2,
        "words_per_evidence": 2.0,
        "duplicate_responses": 0,
        "labels": {"entailment": 1, "generic": 1},
        "damaged_lines": 1,
    }
    assert "labels: generic" in tertulia("corpus", "stats", begin).out


def test_stats_of_an_empty_corpus(tertulia: Tertulia, tmp_path: Path) -> None:
    file = tmp_path / "dev.tsv"
    file.write_text(BEGIN.partition("\n")[0])
    figures = json.loads(tertulia("corpus", "stats", file, "--json").out)
    assert (figures["exchanges"], figures["words_per_response"]) == (0, None)


@pytest.mark.parametrize("name", [n for n in READERS if READERS.get(n).holds == "dialogues"])
def test_convert_dialogues_to_every_format(tertulia: Tertulia, talk: Path, tmp_path: Path, name: str) -> None:
    ending = (READERS.get(name).endings or ("",))[0]
    out = tmp_path / f"converted{ending}"
    report = tertulia("corpus", "convert", talk, out, "--to", name, "--json")
    assert json.loads(report.out) == {"out": str(out), "dialogues": 1, "damaged_lines": 0}
    (dialogue,) = load_dialogues(out)
    assert [t.text for t in dialogue.turns] == ["hi", "hello", "bye"]


@pytest.mark.parametrize(
    "name", [n for n in READERS if READERS.get(n).holds == "exchanges" and not n.startswith("ubuntu-")]
)
def test_convert_to_exchanges(tertulia: Tertulia, talk: Path, begin: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / f"converted{READERS.get(name).endings[0]}"
    assert "Wrote 2 exchanges to" in tertulia("corpus", "convert", begin, out, "--to", name).out
    assert [e.response.text for e in load_exchanges(out)] == ["they do [bold]", "no idea"]
    tertulia("corpus", "convert", talk, tmp_path / "replies.jsonl", "--to", "exchanges")
    assert [e.response.text for e in load_exchanges(tmp_path / "replies.jsonl")] == ["hello", "bye"]


@pytest.mark.parametrize(
    ("name", "why"), [("ubuntu-pairs", "expected label 0 or 1"), ("ubuntu-ranking", "must be one of its candidates")]
)
def test_converting_to_a_format_without_labels_is_an_error(
    tertulia: Tertulia, talk: Path, begin: Path, tmp_path: Path, name: str, why: str
) -> None:
    result = tertulia("corpus", "convert", begin, tmp_path / "x.csv", "--to", name)
    assert (result.code, why in result.err, (tmp_path / "x.csv").exists()) == (1, True, False)


def test_replies_are_converted_to_true_pairs(tertulia: Tertulia, talk: Path, tmp_path: Path) -> None:
    assert "Wrote 2 exchanges to" in tertulia("corpus", "convert", talk, tmp_path / "x.csv", "--to", "ubuntu-pairs").out
    assert [(e.response.text, e.label) for e in load_exchanges(tmp_path / "x.csv")] == [("hello", "1"), ("bye", "1")]


def test_exchanges_are_converted_to_the_native_format_by_default(
    tertulia: Tertulia, begin: Path, tmp_path: Path
) -> None:
    assert tertulia("corpus", "convert", begin, tmp_path / "x.jsonl").code == 0
    assert list(load_exchanges(tmp_path / "x.jsonl")) == list(load_exchanges(begin, problems=Problems()))


@pytest.mark.parametrize(
    ("out", "options", "error"),
    [
        ("x.jsonl", ("--to", "messages"), "contains exchanges"),
        ("x.jsonl", ("--to", "begin-v1"), "Use one of these endings: .tsv"),
        ("x.parquet", (), "Cannot write 'exchanges' to x.parquet"),
        ("x.tsv", ("--format", "begn-v1"), "Did you mean 'begin-v1'"),
    ],
)
def test_convert_reports_what_cannot_be_converted(
    tertulia: Tertulia, begin: Path, tmp_path: Path, out: str, options: tuple[str, ...], error: str
) -> None:
    result = tertulia("corpus", "convert", begin, tmp_path / out, *options)
    assert result.code == 2
    assert error in result.stderr
    assert not (tmp_path / out).exists()


def test_an_unwritable_path_is_an_error(tertulia: Tertulia, talk: Path, tmp_path: Path) -> None:
    for out, to in ((talk / "x.jsonl", "tertulia"), (talk / "x.parquet", "tertulia"), (talk / "x", "convokit")):
        result = tertulia("corpus", "convert", talk, out, "--to", to)
        assert result.code == 2
        assert "cannot be written" in result.stderr
    assert "neither a file nor a folder" in tertulia("corpus", "show", "/dev/null").stderr


def test_get_downloads_and_verifies(
    tertulia: Tertulia, served_folder: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, url = served_folder
    (folder / "dev.tsv").write_text(BEGIN)
    digest = hashlib.sha256(BEGIN.encode()).hexdigest()
    for name, sha256 in (("sure", digest), ("new", None), ("forged", "0" * 64)):
        dataset = Dataset(name, "a test", "CC0-1.0", (Download("dev.tsv", (f"{url}/dev.tsv",), sha256),), "begin-v1")
        monkeypatch.setitem(CATALOG, name, dataset)
    monkeypatch.chdir(tmp_path)
    sure = tertulia("corpus", "get", "sure")
    assert sure.code == 0
    assert "Licence: CC0-1.0" in sure.stderr
    assert "tertulia corpus show corpora/sure --format begin-v1" in sure.out
    assert tertulia("corpus", "show", "corpora/sure", "--format", "begin-v1").code == 0
    new = tertulia("corpus", "get", "new", "--out", tmp_path / "here")
    assert "No hash is published for dev.tsv. It is recorded in sources.json" in new.out
    again = json.loads(tertulia("corpus", "get", "new", "--out", tmp_path / "here", "--json").out)
    assert (again["downloaded"], again["hash_recorded_on_first_use"]) == (False, [])
    assert again["corpus_folder"] == str(tmp_path / "here")
    forged = tertulia("corpus", "get", "forged")
    assert (forged.code, "has the wrong content" in forged.stderr) == (1, True)


def test_get_suggests_close_names(tertulia: Tertulia, tmp_path: Path) -> None:
    result = tertulia("corpus", "get", "dailydialogue", "--out", tmp_path)
    assert (result.code, "Did you mean 'dailydialog'" in result.stderr) == (2, True)


def test_get_reports_an_unreachable_server(tertulia: Tertulia, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    download = Download("x.zip", ("http://127.0.0.1:9/x.zip",))
    monkeypatch.setitem(CATALOG, "far", Dataset("far", "a test", "none stated", (download,)))
    result = tertulia("corpus", "get", "far", "--out", tmp_path / "far")
    assert result.code == 1
    assert "Cannot reach" in result.stderr
    assert "download it with another program to" in result.stderr


_OPEN = """
import json, sys
import datasets

rows = {}
for name in ("messages", "sharegpt"):
    file = f"{sys.argv[1]}/{name}.jsonl"
    rows[name] = datasets.load_dataset("json", data_files=file, split="train", cache_dir=sys.argv[1]).to_list()
print(json.dumps(rows))
"""


def test_the_loader_of_trainers_opens_exports_whose_roles_alternate(tertulia: Tertulia, tmp_path: Path) -> None:
    """`datasets` is what TRL, Axolotl and others load such files with."""
    turns = [("ana", "hi"), ("ana", "anyone?"), ("ben", "yes"), ("eva", "me too"), ("ben", "good"), ("ben", "so?")]
    two = [turn for turn in turns if turn[0] != "eva"]
    save_dialogues(
        [Dialogue(name, tuple(Turn(*turn) for turn in all_)) for name, all_ in (("three", turns), ("two", two))],
        tmp_path / "room.jsonl",
    )
    refused = tertulia("corpus", "convert", tmp_path / "room.jsonl", tmp_path / "x.jsonl", "--to", "messages")
    assert (refused.code, "'three' does not fit" in refused.stderr, "--merge-turns" in refused.stderr) == (
        1,
        True,
        True,
    )
    assert not (tmp_path / "x.jsonl").exists()
    save_dialogues(list(load_dialogues(tmp_path / "room.jsonl"))[1:], tmp_path / "two.jsonl")
    warned = tertulia("corpus", "convert", tmp_path / "two.jsonl", tmp_path / "x.jsonl", "--to", "sharegpt")
    assert "In 1 dialogue one role has two turns in a row" in warned.stderr
    for name in ("messages", "sharegpt"):
        options = ("--to", name, "--merge-turns", "--json")
        report = tertulia("corpus", "convert", tmp_path / "room.jsonl", tmp_path / f"{name}.jsonl", *options)
        assert json.loads(report.out) == {"out": str(tmp_path / f"{name}.jsonl"), "dialogues": 2, "damaged_lines": 0}
    opened = subprocess.run(
        [sys.executable, "-c", _OPEN, tmp_path],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")},
    )
    assert opened.returncode == 0, opened.stderr
    rows = json.loads(opened.stdout)
    texts = ["ana: hi\nana: anyone?", "yes", "eva: me too", "good\nso?"]
    assert rows["messages"][0] == {
        "id": "three",
        "messages": [{"role": r, "content": t} for r, t in zip(("user", "assistant") * 2, texts, strict=True)],
    }
    assert [m["from"] for m in rows["sharegpt"][1]["conversations"]] == ["human", "gpt"]
