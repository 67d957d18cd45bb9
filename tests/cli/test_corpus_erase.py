"""A person planted in every kind of place is gone from it, or the place is listed; also after a kill at any moment."""

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tertulia.corpus.erase import RECORD
from tertulia.corpus.load import load_dialogues, save_dialogues
from tertulia.corpus.mine import MineConfig, mine
from tertulia.corpus.mining.pairs import read_pairs
from tertulia.study.export import COLUMNS, EXPORT_WRITERS
from tertulia.talk.tfidf_index import TfidfIndex

from .conftest import Tertulia

NICK = "Dorotea_K"
SECRET = "my grandmother keeps seven green parrots in the attic of her bakery"
LETTER = "nobody in the village believed the lighthouse would ever glow again"
SHORT = "she moved to Zaragoza last winter"
WORDS = "river stone lamp boat cloud field horn bread tree coat wheel salt road bell glass hill".split()


def _sentence(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=9)) + "."


def _threads(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Threads of four messages by four of nine people; the planted person is in the first ones."""
    planted = {
        ("t0", 1): (NICK, SECRET),
        ("t0", 2): ("p1", f"> {SECRET}\nreally? all of them?"),
        ("t1", 0): (NICK, LETTER + ". yes."),
        ("t2", 1): ("p2", f"well @{NICK} would know about that"),
        ("t3", 2): ("p3", f"someone said that {SECRET} and i laughed"),
        ("t4", 1): ("p4", f"as they say, {LETTER}!"),
        ("t5", 0): (NICK, SHORT),
        ("t6", 1): ("p5", f"i heard {SHORT}, poor thing"),
        ("t7", 1): ("p6", f"> yes.\nor did {NICK.upper()} write something else?"),
    }
    messages = []
    for thread in (f"t{i}" for i in range(count)):
        for i in range(4):
            author, text = planted.get((thread, i), (f"p{rng.randrange(9)}", _sentence(rng)))
            parent = {"parent": f"{thread}m{i - 1}"} if i else {}
            messages.append({"id": f"{thread}m{i}", "thread": thread, "author": author, "text": text, **parent})
    return messages


def _mine(tmp_path: Path, threads: int, **options: Any) -> Path:
    """A mined corpus in a folder of its own, with room for what is derived beside it."""
    source = tmp_path / "source" / "forum.jsonl"
    source.parent.mkdir()
    source.write_text("\n".join(map(json.dumps, _threads(random.Random(0), threads))))
    out = tmp_path / "lab" / "mined"
    mine(MineConfig(source=str(source), out=out, vocabulary=300, dialogues=True, **options))
    return out


WRITTEN = ("seven green parrots", "lighthouse would ever glow")


def _holds(folder: Path, needles: Sequence[str] = (NICK.lower(), *WRITTEN, "zaragoza")) -> list[str]:
    """Files that hold anything of the planted person, by their bytes or the rows of Parquet."""
    holding = []
    for file in sorted(f for f in folder.rglob("*") if f.is_file()):
        is_table = file.suffix == ".parquet"
        text = repr(pq.read_table(file).to_pylist()) if is_table else file.read_bytes().decode("utf-8", "replace")
        if any(needle in text.lower() for needle in needles):
            holding.append(str(file.relative_to(folder)))
    return holding


def _study_export(path: Path) -> None:
    rows = [dict.fromkeys(COLUMNS) | {"text": text} for text in ("fine", f"i read that {SECRET}")]
    with path.open("wb") as file:
        EXPORT_WRITERS["csv"](iter(rows), file)


def _derive(tertulia: Tertulia, corpus: Path) -> Path:
    """Make one of everything from the corpus; returns the folder of what is no part of the folders beside it."""
    lab, loose = corpus.parent, corpus.parent / "loose"
    loose.mkdir()

    def must(*arguments: Any) -> None:
        result = tertulia(*arguments)
        assert result.code == 0, result.err

    must("corpus", "split", corpus, "--out", lab / "split", "--shares", 0.6, 0.2, 0.2)
    must("corpus", "testset", corpus, "--out", loose / "testset.jsonl", "--distractors", 3)
    must("corpus", "testset", corpus, "--out", loose / "testset.csv", "--distractors", 3)
    must("corpus", "convert", lab / "split" / "train.jsonl", loose / "train.json")
    must("corpus", "convert", corpus, loose / "convokit", "--to", "convokit")
    must("corpus", "convert", corpus, loose / "all.parquet")
    must("corpus", "convert", lab / "split" / "train.jsonl", loose / "train.jsonl.gz", "--to", "exchanges")
    TfidfIndex.from_dialogues(load_dialogues(lab / "split" / "train.jsonl")).save(loose / "index")
    recipe = lab / "recipe.toml"
    recipe.write_text(
        'recipe = "starspace"\npersona = "none"\nepochs = 1\nbatch = 16\n[model]\ndim = 8\n', encoding="utf-8"
    )
    must("train", recipe, "--data", lab / "split", "--out", lab / "run")
    must("judge", "rank", "generic", "--data", lab / "split", "--candidates", 4, "--out", lab / "judged")
    _study_export(loose / "study.csv")
    shutil.copy(loose / "testset.jsonl", loose / "copied.jsonl")
    (lab / "config.toml").write_text('data = "mined"\n')  # a project, not something made from the corpus
    return loose


def test_a_person_in_every_kind_of_place_is_gone_or_listed(tertulia: Tertulia, tmp_path: Path) -> None:
    corpus = _mine(tmp_path, 150, whole=True)
    loose = _derive(tertulia, corpus)
    lab = corpus.parent
    for place in (corpus, lab / "split", lab / "run", lab / "judged"):
        assert _holds(place), place
    held = _holds(loose)
    assert {name.split("/")[0] for name in held} == {
        *("testset.jsonl", "testset.csv", "train.json", "convokit", "all.parquet", "index", "study.csv", "copied.jsonl")
    }
    before = len(list(read_pairs(corpus)))

    first = json.loads(tertulia("corpus", "erase", corpus, "--author", NICK.lower(), "--json").out)
    # What has no record of its origin is said not to have been searched.
    unknown = [line for line in first["verification"]["unsearched"] if ": no record" in line]
    assert [Path(line.partition(":")[0]).name for line in unknown] == ["copied.jsonl", "study.csv"]
    # Test sets and conversions have one, those made from the split, too: only what waits for a decision is left there.
    assert {name.split("/")[0] for name in _holds(loose, WRITTEN)} == {"copied.jsonl", "index", "study.csv"}
    # The split was found by its record, and so were the run and the judged run that were made from it.
    assert {Path(d["path"]).name for d in first["verification"]["derived"]} == {"run", "judged"}
    assert not first["verification"]["traces"]
    assert not first["verification"]["clean"]
    near = {(n["kind"], n["text"].lower().count(NICK.lower())) for n in first["verification"]["near"]}
    assert near == {("name", 1), ("shared words", 0)}
    assert before - len(list(read_pairs(corpus))) == first["pairs"] > 0

    masked = tertulia("corpus", "erase", corpus, "--near", "mask", "--derived", loose, "--json")
    report = json.loads(masked.out)
    assert masked.code == 1
    assert "Made from erased data: 3 folders" in masked.stderr
    assert {Path(d["path"]).name for d in report["verification"]["derived"]} == {"run", "judged", "index"}
    assert (report["verification"]["traces"], report["verification"]["near"]) == ([], [])
    assert report["records"] > 0
    assert report["masked"] > 0
    assert _holds(corpus) == _holds(lab / "split") == []
    assert {name.split("/")[0] for name in _holds(loose)} == {"index"}
    kept = " ".join(turn.text for pair in read_pairs(corpus) for turn in pair.turns)
    assert "well [erased] would know about that" in kept
    assert "i heard [erased], poor thing" in kept
    assert list(load_dialogues(corpus / "pairs.parquet")) == list(read_pairs(corpus))
    assert len(list(load_dialogues(loose / "convokit"))) > 0

    removed = tertulia("corpus", "erase", corpus, "--author", NICK, "--derived", loose, "--remove-derived", "--json")
    assert removed.code == 0
    report = json.loads(removed.out)["verification"]
    assert report["clean"]
    assert any("source (forum.jsonl)" in line for line in report["unsearched"])
    assert _holds(lab) == []
    record = (corpus / RECORD).read_text()
    assert NICK.lower() not in record.lower()
    assert [len(erasure["hashes"]) for erasure in json.loads(record)["erasures"]] == [1, 1]
    assert not (corpus / "erasing.json").exists()


def test_a_person_is_erased_from_chat_rooms_and_again_when_they_are_mined_again(
    tertulia: Tertulia, tmp_path: Path
) -> None:
    log = tmp_path / "room.log"
    rng = random.Random(1)
    lines = []
    for i in range(40):
        one, other = (NICK, "ana") if i == 7 else ("ben", "eva") if i % 2 else ("leo", "mia")
        texts = [SECRET if i == 7 else _sentence(rng) for _ in range(4)]
        texts[2] = f"did {NICK} say that {SECRET}?" if i == 20 else texts[2]
        texts[1] = f"ask {NICK.lower()}, ok" if i == 31 else texts[1]
        for j, text in enumerate(texts):
            sender, receiver = (one, other) if j % 2 == 0 else (other, one)
            lines.append(f"[{i % 24:02d}:{10 + j}] <{sender}> {receiver}: {text}")
    log.write_text("\n".join(lines) + "\n")
    mining = ("corpus", "mine", log, "--threads", "rules", "--out", tmp_path / "rooms")
    tertulia(*mining)
    before = list(load_dialogues(tmp_path / "rooms"))
    assert any(turn.speaker == NICK for dialogue in before for turn in dialogue.turns)
    assert tertulia("corpus", "erase", tmp_path / "rooms", "--author", NICK).code == 1
    assert tertulia("corpus", "erase", tmp_path / "rooms", "--near", "mask").code == 0
    after = list(load_dialogues(tmp_path / "rooms"))
    assert 0 < len(after) < len(before)
    assert _holds(tmp_path / "rooms") == []
    stats = json.loads((tmp_path / "rooms" / "stats.json").read_text())
    assert stats["dialogues"] == len(after)
    tertulia(*mining)
    assert list(load_dialogues(tmp_path / "rooms")) == after
    assert json.loads((tmp_path / "rooms" / "stats.json").read_text())["dialogues"] == len(after)
    assert _holds(tmp_path / "rooms") == []


_KILLER = """
import hashlib, importlib.util, json, os, re, shutil, signal, sys
from collections.abc import Sequence
from pathlib import Path
from tertulia.corpus.erase import RECORD, erase
from tertulia.corpus.registry import READERS

# Imported once, and not by every child: Arrow, too, imports pandas where it is installed.
for name in READERS:
    READERS.get(name)
if importlib.util.find_spec("pandas"):
    importlib.import_module("pandas")

source, copy = Path(sys.argv[1]), Path(sys.argv[2])
os.fsync = lambda file: None  # a kill loses nothing that was written, and a busy disk takes minutes
options = {"authors": ["Dorotea_K"], "near": "mask", "derived": [copy / "loose"], "remove_derived": True}

def run(kill_at):
    calls = 0

    def dying(method):
        def call(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls == kill_at:  # after one step is before the next
                os.kill(os.getpid(), signal.SIGKILL)
            return method(*arguments, **options)
        return call

    child = os.fork()  # safe: this process has not used Arrow's threads
    if not child:
        for name in ("replace", "unlink", "rmdir"):
            setattr(Path, name, dying(getattr(Path, name)))
            setattr(os, name, dying(getattr(os, name)))
        erase(copy / "mined", **options)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0

def state():
    files = (f for f in copy.rglob("*") if f.is_file() and f.name != RECORD)
    assert json.loads((copy / "mined" / RECORD).read_text())["erasures"]
    return {str(f.relative_to(copy)): hashlib.sha256(content(f)).hexdigest() for f in files}

def content(file):  # a kill after the end makes the next erasure the second one, and the card counts it
    text = file.read_bytes()
    return re.sub(rb"erased \\d+ times|<!-- written by .*", b"", text) if file.suffix == ".md" else text

at, states = 0, []
while True:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy)
    if run(at := at + 1):
        break
    assert run(0), at
    states.append(state())
expected = state()
print(json.dumps({"kills": at - 1, "wrong": [i for i, result in enumerate(states, 1) if result != expected]}))
"""


def test_an_erasure_killed_at_any_moment_is_finished_by_the_next(tmp_path: Path) -> None:
    corpus = _mine(tmp_path, 12, buckets=2)
    loose = corpus.parent / "loose"
    loose.mkdir()
    pairs = list(read_pairs(corpus))
    save_dialogues(pairs[:30], loose / "some.jsonl")
    save_dialogues(pairs[:30], loose / "some.parquet")
    TfidfIndex.from_dialogues(pairs[:30]).save(loose / "index")
    done = subprocess.run(
        [sys.executable, "-c", _KILLER, corpus.parent, tmp_path / "copy"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kills"] > 20
    assert report["wrong"] == []
    assert not _holds(tmp_path / "copy")
    assert not list((tmp_path / "copy").rglob("*.unfinished"))
