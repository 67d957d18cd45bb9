"""Outputs are checked before the work, and written at once."""

import os
from pathlib import Path
from typing import Annotated, Any

import pytest

from tertulia.artefacts.files import atomic_write
from tertulia.artefacts.manifest import seal
from tertulia.artefacts.outputs import Force, Output, check_outputs, has_manifest_of, write_output
from tertulia.core.config import Config
from tertulia.core.errors import UsageError


class Writes(Config):
    file: Annotated[Path | None, Output("file", companion="{stem}-items.txt")] = None
    folder: Annotated[Path | None, Output("folder", same=lambda folder, _: (folder / "same").exists())] = None
    own: Annotated[Path | None, Output("folder", "own", known_by=("mark",))] = None
    url: Annotated[Path | str | None, Output("folder")] = None
    named: Annotated[Path | None, Output("file", endings=(".toml",))] = None
    force: Force = False


def refusal(**paths: Any) -> str:
    with pytest.raises(UsageError) as caught:
        check_outputs(Writes(**paths))
    return str(caught.value)


def test_what_exists_is_refused_unless_forced_empty_or_the_same(tmp_path: Path) -> None:
    full, file = tmp_path / "full", tmp_path / "file"
    full.mkdir()
    (full / "x").write_text("x")
    file.write_text("x")
    assert (
        refusal(file=file) == f"{file} exists.\nChoose another path with --file, or replace what is there with --force."
    )
    assert "contains x" in refusal(folder=full)
    assert "contains x" in refusal(own=full)
    check_outputs(Writes(file=file, folder=full, own=full, force=True))
    (full / "same").write_text("")
    (full / "mark").write_text("")
    check_outputs(Writes(folder=full, own=full, url="s3://bucket/x"))
    file.write_text("")
    check_outputs(Writes(file=file))
    (tmp_path / "file-items.txt").write_text("x")
    assert "file-items.txt exists" in refusal(file=file)


def test_what_killed_commands_left_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "out/_work").mkdir(parents=True)
    (tmp_path / "out/x.123-abc.unfinished").write_text("half")
    check_outputs(Writes(folder=tmp_path / "out"))


def test_paths_that_cannot_be_written_are_refused_even_with_force_and_nothing_is_made(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    for paths in (
        {"file": tmp_path},
        {"folder": file},
        {"file": file / "below" / "it"},
        {"folder": Path("/proc/nowhere")},
        {"file": tmp_path / ("x" * 240)},
        {"folder": tmp_path / ("x" * 300)},
        {"file": Path("a\0b")},
        {"named": tmp_path / "x.txt"},
    ):
        assert refusal(**paths, force=True), paths
    assert os.listdir(tmp_path) == ["file"]  # noqa: PTH208


def test_missing_folders_are_made_links_stay_and_devices_are_written_to(tmp_path: Path) -> None:
    with write_output(tmp_path / "a/b/file") as path:
        path.write_text("new")
    (tmp_path / "link").symlink_to(tmp_path / "a/b/file")
    with write_output(tmp_path / "link") as path:
        path.write_text("newer")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a/b/file").read_text() == "newer"
    with write_output(Path("/dev/null")) as path:
        path.write_text("gone")
    assert not Path("/dev/null").is_file()


def test_an_error_names_the_file_that_was_meant(tmp_path: Path) -> None:
    def write() -> None:
        with atomic_write(tmp_path / "made") as path:
            path.symlink_to("/dev/full")
            path.write_text("x")

    with pytest.raises(OSError, match="No space left on device") as caught:
        write()
    assert caught.value.filename == str(tmp_path / "made")

    def read() -> None:
        with atomic_write(tmp_path / "made"):
            (tmp_path / "missing").read_text()

    with pytest.raises(FileNotFoundError) as other:
        read()
    assert str(other.value.filename) == str(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_known_by_its_manifest(tmp_path: Path) -> None:
    seal(tmp_path, kind="run", format=1, files=[], about={"config": {"seed": 1}})
    assert has_manifest_of(tmp_path, {"kind": "run", "config": {"seed": 1}})
    assert not has_manifest_of(tmp_path, {"kind": "run", "config": {"seed": 2}})
    assert not has_manifest_of(tmp_path / "none", {"kind": "run"})
