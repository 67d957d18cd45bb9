import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tertulia.artefacts.files import write_json
from tertulia.core.dialogue import exchanges
from tertulia.core.errors import UsageError
from tertulia.corpus.card import write_card
from tertulia.corpus.dedup import DedupConfig, remove_duplicates
from tertulia.corpus.erase import erase
from tertulia.corpus.filter import FilterConfig, filter_corpus
from tertulia.corpus.load import load_dialogues
from tertulia.corpus.mine import MineConfig, mine
from tertulia.corpus.push import PushConfig, push_corpus
from tertulia.corpus.split import SplitConfig
from tertulia.corpus.split_files import split_corpus
from tertulia.corpus.tag import TagConfig, tag_corpus
from tertulia.corpus.write import save_dialogues, save_exchanges

from .conftest import make_dialogues

LOAD = """
import json, sys, datasets
loaded = datasets.load_dataset(sys.argv[1], cache_dir=sys.argv[2])
print(json.dumps({split: rows.num_rows for split, rows in loaded.items()}))
print(loaded["train"][0]["id"], loaded["train"].column_names)
"""


def head_of(folder: Path) -> dict:
    return yaml.safe_load((folder / "README.md").read_text(encoding="utf-8").split("---\n")[1])


def body_of(folder: Path) -> str:
    return (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)[2]


def test_the_card_tells_the_whole_way_from_the_messages(tmp_path: Path) -> None:
    mined = tmp_path / "mined"
    mine(MineConfig(out=mined))
    author = next(load_dialogues(mined)).turns[0].speaker
    erase(mined, authors=[author])
    remove_duplicates(DedupConfig(target=str(mined), out=tmp_path / "unique", on="reply"))
    tag_corpus(TagConfig(target=str(tmp_path / "unique"), out=tmp_path / "tagged"))
    where = ("language == 'en' and words > 12",)
    counts = filter_corpus(FilterConfig(target=str(tmp_path / "tagged"), out=tmp_path / "good", where=where))
    split = split_corpus(SplitConfig(target=str(tmp_path / "good"), out=tmp_path / "split"))
    body, head = body_of(tmp_path / "split"), head_of(tmp_path / "split")
    for command in ("1. `mine`", "2. `dedup`", "3. `tag`", "4. `filter`", "5. `split`"):
        assert command in body
    assert f"| removed: not words > 12 | {counts.removed['not words > 12']} |" in body
    assert "| removed: subtree |" in body
    assert f"| train | {split.counts['train']} |" in body
    assert "were erased 1 times" in body
    assert str(tmp_path) not in body + str(head)
    assert author not in body
    assert head["license"] == "unknown"
    assert [own["split"] for own in head["configs"][0]["data_files"]] == ["test", "train", "validation"]
    assert head_of(tmp_path / "tagged")["language"][0] == "en"
    write_card(mined)
    assert "1. `mine` of" in body_of(mined)


def test_licences_come_from_the_record_of_the_download(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    save_dialogues(make_dialogues(30), source / "train.jsonl")
    write_json(source / "sources.json", {"corpus": "x", "licence": "CC-BY-4.0"})
    tag_corpus(TagConfig(target=str(source), out=tmp_path / "tagged", taggers=("length",)))
    assert head_of(tmp_path / "tagged")["license"] == "cc-by-4.0"
    push_corpus(PushConfig(target=str(tmp_path / "tagged"), out=tmp_path / "hub"))
    assert head_of(tmp_path / "hub")["license"] == "cc-by-4.0"
    push_corpus(PushConfig(target=str(source), out=tmp_path / "other", licence='My "own" licence: v1'))
    head = head_of(tmp_path / "other")
    assert (head["license"], head["license_name"]) == ("other", 'My "own" licence: v1')
    split_corpus(SplitConfig(target="sample", out=tmp_path / "sample"))
    assert head_of(tmp_path / "sample")["license"] == "cc0-1.0"


def test_a_card_changed_by_hand_is_left_alone(tmp_path: Path) -> None:
    split_corpus(SplitConfig(target="sample", out=tmp_path / "out"))
    card = tmp_path / "out" / "README.md"
    assert write_card(tmp_path / "out")
    card.write_text(card.read_text().replace("# out", "# My corpus"), encoding="utf-8")
    split_corpus(SplitConfig(target="sample", out=tmp_path / "out", seed=1))
    assert "# My corpus" in card.read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("small_parts")
def test_datasets_opens_the_folder_offline(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    save_dialogues(make_dialogues(120), tmp_path / "in.jsonl")
    tag_corpus(TagConfig(target=str(tmp_path / "in.jsonl"), out=tmp_path / "tagged", taggers=("length", "safety")))
    split = split_corpus(SplitConfig(target=str(tmp_path / "tagged"), out=tmp_path / "split"))
    push_corpus(PushConfig(target=str(tmp_path / "split"), out=tmp_path / "hub"))
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", LOAD, str(tmp_path / "hub"), str(tmp_path / "cache")]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    counts = {"train": split.counts["train"], "validation": split.counts["valid"], "test": split.counts["test"]}
    assert json.loads(run.stdout.splitlines()[0]) == counts
    first = next(load_dialogues(tmp_path / "split" / "train.jsonl"))
    assert run.stdout.splitlines()[1].startswith(first.id + " ")
    assert "'tag_words'" in run.stdout
    assert list(load_dialogues(tmp_path / "hub" / "data", split="train")) == list(
        load_dialogues(tmp_path / "split", split="train")
    )


def test_exchanges_and_folders_that_are_not_empty(tmp_path: Path) -> None:
    save_exchanges([e for d in make_dialogues(20) for e in exchanges(d)], tmp_path / "in.jsonl")
    push_corpus(PushConfig(target=str(tmp_path / "in.jsonl"), out=tmp_path / "hub"))
    assert [f.name for f in (tmp_path / "hub" / "data").iterdir()] == ["train-00000-of-00001.jsonl"]
    with pytest.raises(UsageError, match="not an empty folder"):
        push_corpus(PushConfig(target="sample", out=tmp_path / "hub"))
