import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tertulia.core.config import validate
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.errors import ConfigError, DataError
from tertulia.corpus.load import load_dialogues
from tertulia.corpus.split import SplitConfig, author_overlap, dialogue_time, split_dialogues
from tertulia.corpus.split_files import split_corpus
from tertulia.corpus.write import save_dialogues

from .conftest import make_dialogues


def corpus(n: int = 200, *, authors: int = 400, threads: int | None = None) -> list[Dialogue]:
    rng = random.Random(n)
    return [
        Dialogue(
            f"d{i}",
            tuple(Turn(f"u{rng.randrange(authors)}", " ".join(str(rng.random()) for _ in range(6))) for _ in range(4)),
            meta={"time": float((i * 7919) % n)} | ({"thread": f"t{i % threads}"} if threads else {}),
        )
        for i in range(n)
    ]


@pytest.mark.parametrize("by", ["random", "time", "author"])
def test_no_dialogue_is_lost_or_duplicated(by):
    dialogues = corpus()
    outcome = split_dialogues(dialogues, SplitConfig(by=by))
    assert Counter(d.id for part in outcome.parts.values() for d in part) == Counter(d.id for d in dialogues)


def test_splits_have_the_requested_shares():
    outcome = split_dialogues(corpus(1000), SplitConfig(shares=(0.6, 0.3, 0.1)))
    assert outcome.counts == {"train": 600, "valid": 300, "test": 100}
    assert split_dialogues(corpus(100), SplitConfig(shares=(1, 0, 0))).counts == {"train": 100, "valid": 0, "test": 0}


def test_one_conversation_stays_in_one_split():
    outcome = split_dialogues(corpus(600, threads=40), SplitConfig(seed=3))
    split_of = {}
    for name, part in outcome.parts.items():
        for dialogue in part:
            assert split_of.setdefault(dialogue.meta["thread"], name) == name
    assert len(set(split_of.values())) == 3
    assert outcome.largest_group == 15


def test_by_time_the_earliest_dialogues_are_for_training():
    parts = split_dialogues(corpus(), SplitConfig(by="time")).parts
    latest = max(d.meta["time"] for d in parts["train"])
    assert latest < min(d.meta["time"] for d in parts["valid"])
    assert max(d.meta["time"] for d in parts["valid"]) < min(d.meta["time"] for d in parts["test"])


def test_splitting_by_time_needs_times():
    with pytest.raises(DataError, match="1 dialogues have no time"):
        split_dialogues([*corpus(5), Dialogue("x", ())], SplitConfig(by="time"))


def test_by_author_no_speaker_is_in_two_splits():
    dialogues = corpus(120, authors=3000)
    assert author_overlap(split_dialogues(dialogues, SplitConfig(by="author")).parts) == 0
    assert author_overlap(split_dialogues(dialogues, SplitConfig(by="random")).parts) > 0


def test_the_split_depends_on_the_seed():
    dialogues = corpus()
    first, again, other = (split_dialogues(dialogues, SplitConfig(seed=s)).parts["test"] for s in (1, 1, 2))
    assert first == again != other
    assert split_dialogues(dialogues[::-1], SplitConfig(seed=1)).counts == {"train": 160, "valid": 20, "test": 20}


def test_near_duplicates_are_counted_or_dropped():
    dialogues = corpus(300)
    copies = [Dialogue(f"copy{i}", dialogues[i].turns) for i in range(300)]
    outcome = split_dialogues(dialogues + copies, SplitConfig())
    assert outcome.near_duplicates["valid"] > 10
    clean = split_dialogues(dialogues + copies, SplitConfig(drop_near=True))
    texts = [d.turns for d in clean.parts["train"]]
    assert not any(d.turns in texts for name in ("valid", "test") for d in clean.parts[name])


def test_no_dialogues_and_bad_shares_are_errors():
    with pytest.raises(DataError):
        split_dialogues([], SplitConfig())
    with pytest.raises(ConfigError, match="add up to 1"):
        validate(SplitConfig, {"shares": (0.5, 0.1, 0.1)}, where="here")


def test_dated_turns_date_their_dialogue():
    turns = (
        Turn("a", "hi"),
        Turn("b", "yo", meta={"date": "2008-04-11T04:24:30.500Z"}),
        Turn("a", "?", meta={"time": 7}),
    )
    assert dialogue_time(Dialogue("d", turns)) == 7.0
    assert dialogue_time(Dialogue("d", turns[:2])) == 1207887870.5
    assert dialogue_time(Dialogue("d", turns, meta={"time": True, "date": "1970-01-02"})) == 86400.0
    assert dialogue_time(Dialogue("d", turns[:1], meta={"time": "noon"})) is None
    parts = split_dialogues(make_dialogues(100), SplitConfig(by="time")).parts
    latest = max(t for d in parts["train"] if (t := dialogue_time(d)) is not None)
    assert all(latest < (dialogue_time(d) or 0) for d in parts["test"])


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(
    ("by", "ending", "workers"),
    [("random", ".jsonl", 2), ("author", ".jsonl", None), ("time", ".parquet", None), ("random", ".jsonl.gz", None)],
)
def test_files_are_the_splits_of_dialogues_in_memory(tmp_path: Path, by: str, ending: str, workers: int | None):
    dialogues = make_dialogues(300, threads=None if by == "author" else 90)
    dialogues = [Dialogue(d.id, tuple(Turn(t.speaker + str(i // 3 if by == "author" else ""), t.text, meta=t.meta)
                 for t in d.turns), meta=d.meta) for i, d in enumerate(dialogues)]  # fmt: skip
    save_dialogues(dialogues, tmp_path / "in.jsonl")
    for drop in (False, True):
        config = SplitConfig(target=str(tmp_path / "in.jsonl"), out=tmp_path / f"out{drop}", by=by, ending=ending,
                             seed=3, workers=workers, drop_near=drop)  # fmt: skip
        files, memory = split_corpus(config), split_dialogues(dialogues, config)
        assert (files.counts, files.near_duplicates) == (memory.counts, memory.near_duplicates)
        assert (files.largest_group, files.shared_authors) == (memory.largest_group, author_overlap(memory.parts))
        assert sum(files.near_duplicates.values()) > 0 or by == "author"
        for name, part in memory.parts.items():
            written = config.out / f"{name}{ending}"
            assert list(load_dialogues(written)) == part
            if ending != ".jsonl.gz":
                save_dialogues(part, tmp_path / f"expected{ending}")
                assert written.read_bytes() == (tmp_path / f"expected{ending}").read_bytes()


def test_a_killed_split_leaves_nothing_that_looks_finished_and_can_be_repeated(tmp_path: Path):
    save_dialogues(make_dialogues(3000), tmp_path / "in.jsonl")
    command = [sys.executable, "-m", "tertulia", "corpus", "split", str(tmp_path / "in.jsonl"), "--out",
               str(tmp_path / "out")]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list((tmp_path / "out").glob("_work/spool-*.jsonl")):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not list((tmp_path / "out").glob("*.jsonl"))
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert len(list(load_dialogues(tmp_path / "out"))) == 3000
    assert not (tmp_path / "out" / "_work").exists()


def test_a_corpus_without_dialogues_leaves_no_folder(tmp_path: Path):
    (tmp_path / "in.jsonl").write_text("{}\n", encoding="utf-8")
    with pytest.raises(DataError, match="no dialogues"):
        split_corpus(SplitConfig(target=str(tmp_path / "in.jsonl"), format="tertulia", out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()
