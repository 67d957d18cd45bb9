"""Files appear complete or not at all, and are read back whatever they are compressed with."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from tertulia.artefacts.files import (
    atomic_write,
    exclusive_lock,
    fingerprint,
    open_text,
    read_json,
    remove_unfinished,
    save_config,
    sha256_of,
    write_json,
)
from tertulia.core.config import Config, load_toml
from tertulia.core.errors import DataError


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("old")
    writing = atomic_write(path)
    writing.__enter__().write_text("new")
    assert not writing.__exit__(RuntimeError, RuntimeError(), None)
    assert path.read_text() == "old"
    with atomic_write(path, durable=True) as file:
        file.write_text("new")
        assert path.read_text() == "old"
    assert (path.read_text(), list(tmp_path.iterdir())) == ("new", [path])


class Pan(Config):
    """A config."""

    size: int = 28


def test_a_config_replaces_the_old_file_and_does_not_write_into_it(tmp_path: Path) -> None:
    path, old = tmp_path / "config.toml", tmp_path / "old.toml"
    path.write_text("size = 20\n")
    old.hardlink_to(path)
    save_config(Pan(), path)
    assert (load_toml(path), load_toml(old)) == ({"size": 28}, {"size": 20})
    assert sorted(tmp_path.iterdir()) == [path, old]


def test_what_a_killed_writer_leaves_can_be_removed(tmp_path: Path) -> None:
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom tertulia.artefacts.files import atomic_write\n"
        "with atomic_write(Path(sys.argv[1])) as file:\n    file.write_text('half')\n    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "x.txt")], check=False)
    assert not (tmp_path / "x.txt").exists()
    assert (remove_unfinished(tmp_path), list(tmp_path.iterdir())) == (1, [])


def test_only_one_process_holds_a_lock(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom tertulia.artefacts.files import exclusive_lock\n"
        "with exclusive_lock(Path(sys.argv[1])):\n    pass\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "lock")]
    with exclusive_lock(tmp_path / "lock"):
        refused = subprocess.run(command, check=False, capture_output=True, text=True)
        assert "Another process is working" in refused.stderr
    assert subprocess.run(command, check=False).returncode == 0


def test_json_is_the_same_bytes_for_the_same_value(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_json(tmp_path / name, {"x": [1, "é"], "y": None})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert read_json(tmp_path / "a") == {"x": [1, "é"], "y": None}
    assert sha256_of(tmp_path / "a") == sha256_of(tmp_path / "b")
    (tmp_path / "a").write_text('{"x": ')
    with pytest.raises(DataError, match="not valid JSON"):
        read_json(tmp_path / "a")


def test_compressed_text_is_read_on_the_fly(tmp_path: Path) -> None:
    text = "one\nzwei é\n"
    (tmp_path / "x").write_text(text, encoding="utf-8")
    (tmp_path / "x.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "x.zst").write_bytes(zstandard.compress(text.encode()))
    for name in ("x", "x.gz", "x.zst"):
        with open_text(tmp_path / name) as lines:
            assert list(lines) == ["one\n", "zwei é\n"]


def test_a_fingerprint_knows_where_one_text_ends(tmp_path: Path) -> None:
    assert fingerprint(["a", "bc"]) != fingerprint(["ab", "c"])
    assert fingerprint(["a", "bc"]) == fingerprint(iter(["a", "bc"]))
    assert len(fingerprint(["\ud800"])) == 16  # a lone surrogate is no reason to fail
