"""`--dry-run`: everything is checked, what would be done is said, and nothing is written."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Tertulia = Callable[..., Any]


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_mining_and_erasing(tertulia: Tertulia, tmp_path: Path) -> None:
    preview = json.loads(tertulia("corpus", "mine", "sample", "--out", "mined", "--dry-run", "--json").out)
    assert (preview["state"], len(preview["sources"])) == ("new", 1)
    assert "Would extract dialogues from 5 logs" in tertulia("corpus", "mine", "--threads", "rules", "--dry-run").out
    assert tertulia("corpus", "mine", "no/such", "--dry-run").code == 2
    assert list(tmp_path.iterdir()) == []

    assert tertulia("corpus", "mine", "sample", "--out", "mined").code == 0
    before = snapshot(tmp_path)
    assert "finished" in tertulia("corpus", "mine", "sample", "--out", "mined", "--dry-run").out
    other = tertulia("corpus", "mine", "sample", "--out", "mined", "--context", "3", "--dry-run")
    assert (other.code, "different inputs or settings" in other.stderr) == (2, True)

    from tertulia import sample

    author = sample.messages()[3].author
    erasure = json.loads(tertulia("corpus", "erase", "mined", "--author", author, "--dry-run", "--json").out)
    assert erasure["traces"]
    assert snapshot(tmp_path) == before
    erased = json.loads(tertulia("corpus", "erase", "mined", "--author", author, "--json", "--near", "keep").out)
    assert len([trace for trace in erasure["traces"] if trace.startswith("pairs/")]) == erased["pairs"]


def test_opening_a_study(tertulia: Tertulia, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(tertulia("study", "new", "ssa-interactive").out, encoding="utf-8")
    before = snapshot(tmp_path)
    result = tertulia("study", "open", "study.toml", "--dry-run")
    assert result.code == 0, result.err
    assert "Would open study in sqlite:///tertulia.db, which would be made. Nothing was written." in result.out
    assert snapshot(tmp_path) == before
