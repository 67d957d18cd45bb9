import json
from collections import Counter
from pathlib import Path

import pytest

from tertulia.core.dialogue import Dialogue, Turn, exchanges
from tertulia.core.errors import UsageError
from tertulia.core.text import words
from tertulia.corpus import near
from tertulia.corpus.dedup import DedupConfig, remove_duplicates
from tertulia.corpus.load import load_dialogues, load_exchanges
from tertulia.corpus.shingles import jaccard_sorted, joined_shingle_sets
from tertulia.corpus.write import save_dialogues, save_exchanges

from .conftest import make_dialogues


def brute_force(dialogues: list[Dialogue], threshold: float, *, reply: bool = False) -> list[Dialogue]:
    """What stays if every dialogue is compared with every earlier one."""
    texts = [[t.text for t in (d.turns[-1:] if reply else d.turns)] for d in dialogues]
    sets = joined_shingle_sets(texts, min_words=4)
    return [
        d
        for j, d in enumerate(dialogues)
        if not any(jaccard_sorted(sets.of(i), sets.of(j)) >= threshold for i in range(j))
    ]


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(("on", "workers"), [("dialogue", 2), ("reply", None)])
def test_removes_what_comparing_all_pairs_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: str, workers: int | None
) -> None:
    monkeypatch.setattr(near, "RANGE_TEXTS", 50)
    dialogues = make_dialogues(250)
    save_dialogues(dialogues, tmp_path / "in.jsonl")
    config = DedupConfig(target=str(tmp_path / "in.jsonl"), out=tmp_path / "out", on=on, workers=workers)
    counts = remove_duplicates(config)
    kept = list(load_dialogues(tmp_path / "out"))
    assert kept == brute_force(dialogues, 0.7, reply=on == "reply")
    assert counts.read - counts.kept == sum(counts.removed.values()) == 250 - len(kept) > 10
    history = json.loads((tmp_path / "out" / "history.json").read_text())["steps"][0]
    assert (history["command"], history["removed"]) == ("dedup", dict(counts.removed))


def test_real_text_agrees_with_comparing_all_pairs(tmp_path: Path) -> None:
    dialogues = [
        Dialogue(f"{d.id}-{i}", (t,)) for d in load_dialogues("sample", split="train") for i, t in enumerate(d.turns)
    ][:600]
    save_dialogues(dialogues, tmp_path / "in.jsonl")
    remove_duplicates(DedupConfig(target=str(tmp_path / "in.jsonl"), out=tmp_path / "out", threshold=0.5))
    assert list(load_dialogues(tmp_path / "out")) == brute_force(dialogues, 0.5)


def test_short_and_empty_texts_stay_and_splits_keep_their_names(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    short = [
        Dialogue(str(i), (Turn("a", text),)) for i, text in enumerate(["Thanks a lot!", "thanks a lot", "", "..."])
    ]
    long = [Dialogue(f"l{i}", (Turn("a", "I came here to say just this."),)) for i in range(3)]
    save_dialogues(short, tmp_path / "in" / "train.jsonl")
    save_dialogues(long, tmp_path / "in" / "valid.jsonl")
    config = DedupConfig(target=str(tmp_path / "in"), out=tmp_path / "out", ending=".jsonl")
    assert remove_duplicates(config).removed == Counter({"duplicate": 2})
    assert list(load_dialogues(tmp_path / "out", split="train")) == short
    assert list(load_dialogues(tmp_path / "out", split="valid")) == long[:1]
    with pytest.raises(UsageError, match="not empty"):
        remove_duplicates(config)
    remove_duplicates(config.model_copy(update={"force": True, "min_words": 1, "ending": ".jsonl.gz"}))
    assert sorted(f.name for f in (tmp_path / "out").glob("*.jsonl*")) == [
        "train-00000.jsonl.gz",
        "valid-00001.jsonl.gz",
    ]
    (tmp_path / "out" / "notes.txt").touch()
    with pytest.raises(UsageError, match=r"contains notes.txt"):
        remove_duplicates(config.model_copy(update={"force": True}))


def test_exchanges_are_deduplicated_too(tmp_path: Path) -> None:
    replies = [e for d in make_dialogues(60) for e in exchanges(d)]
    save_exchanges(replies, tmp_path / "in.jsonl")
    remove_duplicates(DedupConfig(target=str(tmp_path / "in.jsonl"), out=tmp_path / "out", on="reply", threshold=1.0))
    kept = list(load_exchanges(tmp_path / "out"))
    long = [" ".join(words(e.response.text)) for e in kept if len(words(e.response.text)) >= 4]
    assert len(long) == len(set(long)) < len(replies)
