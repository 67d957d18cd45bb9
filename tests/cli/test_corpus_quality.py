import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tertulia.core.dialogue import Dialogue, Turn
from tertulia.corpus.load import load_dialogues
from tertulia.corpus.write import save_dialogues

Tertulia = Callable[..., Any]
TEXTS = ("Please write to ana@example.org when you find the time.", "I would like a cup of tea, please, and thank you.")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    dialogues = [Dialogue(str(i), (Turn("a", TEXTS[i % 2]), Turn("b", "ok " * (i + 1)))) for i in range(4)]
    save_dialogues([*dialogues, Dialogue("same", dialogues[0].turns)], tmp_path / "in.jsonl")
    return tmp_path / "in.jsonl"


def test_a_corpus_is_deduplicated_tagged_filtered_and_pushed(tertulia: Tertulia, corpus: Path, tmp_path: Path) -> None:
    unique, tagged, good, hub = (tmp_path / name for name in ("unique", "tagged", "good", "hub"))
    result = json.loads(tertulia("corpus", "dedup", corpus, "--out", unique, "--threshold", 1, "--json").out)
    assert (result["read"], result["removed"]["duplicate"]) == (5, 1)
    assert tertulia("corpus", "tag", unique, "--out", tagged, "--tagger", "length", "--tagger", "pii").code == 0
    printed = tertulia("corpus", "filter", tagged, "--out", good, "--where", "last_turn > 1", "--scrub")
    assert printed.code == 0
    assert "removed: not last_turn > 1" in printed.out
    assert "replaced: email" in printed.out
    assert "ana@example.org" not in repr(list(load_dialogues(good)))
    pushed = tertulia("corpus", "push", good, "--out", hub, "--licence", "mit")
    assert "datasets.load_dataset" in pushed.out
    assert "license: mit" in (hub / "README.md").read_text(encoding="utf-8")
    assert tertulia("corpus", "card", good).code == 0
    (good / "README.md").write_text("my own words", encoding="utf-8")
    changed = tertulia("corpus", "card", good)
    assert (changed.code, "changed by hand" in changed.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--where", "__import__('os')"), "cannot contain"),
        (("--where", "tast > 3"), "no tag called 'tast'"),
        (("--rule", "nope"), "no rule called 'nope'"),
        ((), "nothing to filter by"),
        (("--kind", "name"), "--kind"),
    ],
)
def test_mistakes_are_explained_and_leave_nothing(
    tertulia: Tertulia, corpus: Path, tmp_path: Path, arguments: tuple[str, ...], why: str
) -> None:
    result = tertulia("corpus", "filter", corpus, "--out", tmp_path / "out", *arguments)
    assert (result.code, why in result.stderr) == (2, True)
    assert not (tmp_path / "out").exists()


def test_convert_replaces_personal_data(tertulia: Tertulia, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert json.loads(tertulia("corpus", "convert", corpus, out, "--scrub", "--json").out)["replaced"] == {"email": 3}
    assert "[EMAIL]" in out.read_text(encoding="utf-8")
