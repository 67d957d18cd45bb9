"""`corpus list | get | show | stats | convert` on formats other than our own."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tertulia.core.codec import Problems
from tertulia.core.dialogue import Dialogue, Evidence, Turn
from tertulia.corpus.homes import HOMES, Home, Remote
from tertulia.corpus.load import load_dialogues, load_exchanges, save_dialogues
from tertulia.corpus.table import READERS

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
def shelf(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder that is served, and its address."""
    folder = tmp_path / "shelf"
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


def test_list_tells_formats_and_licences(tertulia: Tertulia) -> None:
    listed = json.loads(tertulia("corpus", "list", "--json").out)
    formats = {row["name"]: row for row in listed["formats"]}
    assert set(formats) == {*READERS, "parquet"}
    assert formats["begin-v2"]["holds"] == "exchanges"
    assert formats["convokit"]["written"] == ["a folder"]
    licences = {row["name"]: row["licence"] for row in listed["corpora"]}
    assert licences == {"sample": "CC0-1.0"} | {home.name: home.licence for home in HOMES.values()}
    told = tertulia("corpus", "list").out
    assert all(name in told and licence in told for name, licence in licences.items())


def test_show_exchanges(tertulia: Tertulia, begin: Path) -> None:
    result = tertulia("corpus", "show", begin)
    assert "entailment" in result.out
    assert "evidence: Otters swim." in result.out
    assert "user: do they?\nbot: they do [bold]" in result.out
    assert "Skipped 1 damaged lines" in result.told
    assert "line 4: 2 columns, not 6" in result.told
    shown = json.loads(tertulia("corpus", "show", begin, "--json", "--skip", 1).out)
    assert [(e["label"], e["response"]["text"]) for e in shown] == [("generic", "no idea")]


def test_stats_of_exchanges(tertulia: Tertulia, begin: Path) -> None:
    counted = json.loads(tertulia("corpus", "stats", begin, "--json").out)
    assert counted == {
        "exchanges": 2,
        "context_turns": 1.0,
        "words_per_response": 2.5,
        "evidence": 2,
        "words_per_evidence": 2.0,
        "duplicate_responses": 0,
        "labels": {"entailment": 1, "generic": 1},
        "damaged_lines": 1,
    }
    told = tertulia("corpus", "stats", begin).out
    assert "labels: generic" in told


def test_stats_of_nothing(tertulia: Tertulia, tmp_path: Path) -> None:
    file = tmp_path / "dev.tsv"
    file.write_text(BEGIN.partition("\n")[0])
    counted = json.loads(tertulia("corpus", "stats", file, "--json").out)
    assert (counted["exchanges"], counted["words_per_response"]) == (0, None)


@pytest.mark.parametrize("name", [n for n in READERS if READERS.get(n).holds == "dialogues"])
def test_convert_dialogues_to_every_format(tertulia: Tertulia, talk: Path, tmp_path: Path, name: str) -> None:
    ending = (READERS.get(name).endings or ("",))[0]
    out = tmp_path / f"converted{ending}"
    told = tertulia("corpus", "convert", talk, out, "--to", name, "--json")
    assert json.loads(told.out) == {"out": str(out), "dialogues": 1, "damaged_lines": 0}
    (found,) = load_dialogues(out)
    assert [t.text for t in found.turns] == ["hi", "hello", "bye"]


@pytest.mark.parametrize(
    "name", [n for n in READERS if READERS.get(n).holds == "exchanges" and not n.startswith("ubuntu-")]
)
def test_convert_to_exchanges(tertulia: Tertulia, talk: Path, begin: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / f"converted{READERS.get(name).endings[0]}"
    told = tertulia("corpus", "convert", begin, out, "--to", name)
    assert "2 exchanges in" in told.out
    assert [e.response.text for e in load_exchanges(out)] == ["they do [bold]", "no idea"]
    tertulia("corpus", "convert", talk, tmp_path / "replies.jsonl", "--to", "exchanges")
    assert [e.response.text for e in load_exchanges(tmp_path / "replies.jsonl")] == ["hello", "bye"]


@pytest.mark.parametrize(
    ("name", "why"), [("ubuntu-pairs", "a label is 0 or 1"), ("ubuntu-ranking", "must stand among candidates")]
)
def test_labels_are_not_dropped_for_a_format_without_them(
    tertulia: Tertulia, talk: Path, begin: Path, tmp_path: Path, name: str, why: str
) -> None:
    told = tertulia("corpus", "convert", begin, tmp_path / "x.csv", "--to", name)
    assert (told.code, why in told.err, (tmp_path / "x.csv").exists()) == (1, True, False)


def test_replies_become_true_pairs(tertulia: Tertulia, talk: Path, tmp_path: Path) -> None:
    assert "2 exchanges in" in tertulia("corpus", "convert", talk, tmp_path / "x.csv", "--to", "ubuntu-pairs").out
    assert [(e.response.text, e.label) for e in load_exchanges(tmp_path / "x.csv")] == [("hello", "1"), ("bye", "1")]


def test_exchanges_become_our_own_by_default(tertulia: Tertulia, begin: Path, tmp_path: Path) -> None:
    assert tertulia("corpus", "convert", begin, tmp_path / "x.jsonl").code == 0
    assert list(load_exchanges(tmp_path / "x.jsonl")) == list(load_exchanges(begin, problems=Problems()))


@pytest.mark.parametrize(
    ("out", "options", "told"),
    [
        ("x.jsonl", ("--to", "messages"), "holds exchanges"),
        ("x.jsonl", ("--to", "begin-v1"), "It ends in .tsv"),
        ("x.parquet", (), "cannot hold 'exchanges'"),
        ("x.tsv", ("--format", "begn-v1"), "Did you mean 'begin-v1'"),
    ],
)
def test_what_cannot_be_converted(
    tertulia: Tertulia, begin: Path, tmp_path: Path, out: str, options: tuple[str, ...], told: str
) -> None:
    result = tertulia("corpus", "convert", begin, tmp_path / out, *options)
    assert result.code == 2
    assert told in result.told
    assert not (tmp_path / out).exists()


def test_a_place_that_cannot_be_written(tertulia: Tertulia, talk: Path, tmp_path: Path) -> None:
    for out, to in ((talk / "x.jsonl", "tertulia"), (talk / "x.parquet", "tertulia"), (talk / "x", "convokit")):
        result = tertulia("corpus", "convert", talk, out, "--to", to)
        assert result.code == 1
        assert "cannot be written" in result.told
    assert "neither a file nor a folder" in tertulia("corpus", "show", "/dev/null").told


def test_get(tertulia: Tertulia, shelf: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, url = shelf
    (folder / "dev.tsv").write_text(BEGIN)
    digest = hashlib.sha256(BEGIN.encode()).hexdigest()
    for name, sha256 in (("sure", digest), ("new", None), ("forged", "0" * 64)):
        home = Home(name, "a test", "CC0-1.0", (Remote("dev.tsv", (f"{url}/dev.tsv",), sha256),), "begin-v1")
        monkeypatch.setitem(HOMES, name, home)
    monkeypatch.chdir(tmp_path)
    sure = tertulia("corpus", "get", "sure")
    assert sure.code == 0
    assert "Licence: CC0-1.0" in sure.told
    assert "tertulia corpus show corpora/sure --format begin-v1" in sure.out
    assert tertulia("corpus", "show", "corpora/sure", "--format", "begin-v1").code == 0
    new = tertulia("corpus", "get", "new", "--out", tmp_path / "here")
    assert "No hash was published of dev.tsv: it is recorded in sources.json" in new.out
    again = json.loads(tertulia("corpus", "get", "new", "--out", tmp_path / "here", "--json").out)
    assert (again["downloaded"], again["hash_recorded_on_first_use"]) == (False, [])
    assert again["corpus_folder"] == str(tmp_path / "here")
    forged = tertulia("corpus", "get", "forged")
    assert (forged.code, "is not the file it should be" in forged.told) == (1, True)


def test_get_what_nobody_knows(tertulia: Tertulia, tmp_path: Path) -> None:
    result = tertulia("corpus", "get", "dailydialogue", "--out", tmp_path)
    assert (result.code, "Did you mean 'dailydialog'" in result.told) == (2, True)


def test_get_without_a_network(tertulia: Tertulia, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = Remote("x.zip", ("http://127.0.0.1:9/x.zip",))
    monkeypatch.setitem(HOMES, "far", Home("far", "a test", "none stated", (remote,)))
    result = tertulia("corpus", "get", "far", "--out", tmp_path / "far")
    assert result.code == 1
    assert "could not be reached" in result.told
    assert "put it at" in result.told
