"""A folder with a manifest is complete, and says what it is; anything else is an error that says what to do."""

import json
from pathlib import Path

import pytest

from tertulia.artefacts.manifest import MANIFEST, is_complete, open_folder, read_about, read_manifest, seal
from tertulia.core.errors import DataError


def make(folder: Path) -> None:
    open_folder(folder)
    (folder / "a.txt").write_text("one")
    (folder / "b.txt").write_text("two")
    seal(folder, kind="thing", format=2, files=["a.txt", "b.txt"], about={"bot": "parrot", "n": 3})


def test_what_was_sealed_is_read_back(tmp_path: Path) -> None:
    make(tmp_path / "x")
    manifest = read_manifest(tmp_path / "x", kind="thing", format=2)
    assert manifest.about == {"bot": "parrot", "n": 3}
    assert set(manifest.files) == {"a.txt", "b.txt"}
    assert read_about(tmp_path / "x")["bot"] == "parrot"
    assert is_complete(tmp_path / "x")


def test_the_fingerprint_changes_with_the_content_and_not_with_the_place(tmp_path: Path) -> None:
    make(tmp_path / "x")
    make(tmp_path / "y")
    before = read_manifest(tmp_path / "y", kind="thing", format=2).fingerprint
    assert read_manifest(tmp_path / "x", kind="thing", format=2).fingerprint == before
    open_folder(tmp_path / "y")
    (tmp_path / "y" / "b.txt").write_text("three")
    assert seal(tmp_path / "y", kind="thing", format=2, files=["a.txt", "b.txt"]).fingerprint != before


def test_a_folder_that_is_being_written_is_not_complete(tmp_path: Path) -> None:
    make(tmp_path / "x")
    open_folder(tmp_path / "x")
    assert not is_complete(tmp_path / "x")
    with pytest.raises(DataError, match=r"incomplete: manifest\.json is missing") as caught:
        read_manifest(tmp_path / "x", kind="thing", format=2, remake="Make it again.")
    assert caught.value.hint == "Make it again."


def test_damage_is_noticed(tmp_path: Path) -> None:
    make(tmp_path / "x")
    (tmp_path / "x" / "a.txt").write_text("other")
    with pytest.raises(DataError, match=r"a\.txt has changed"):
        read_manifest(tmp_path / "x", kind="thing", format=2)
    assert read_manifest(tmp_path / "x", kind="thing", format=2, check=False).about["n"] == 3
    (tmp_path / "x" / "a.txt").unlink()
    with pytest.raises(DataError, match=r"incomplete: a\.txt is missing"):
        read_manifest(tmp_path / "x", kind="thing", format=2)
    for broken in ("{", "[1]", '{"kind": "thing", "format": 2, "files": 3}', '{"kind": "thing", "format": 2}'):
        (tmp_path / "x" / MANIFEST).write_text(broken)
        with pytest.raises(DataError, match="damaged"):
            read_manifest(tmp_path / "x", kind="thing", format=2)


def test_another_kind_format_or_version_is_refused_with_a_hint(tmp_path: Path) -> None:
    make(tmp_path / "x")
    with pytest.raises(DataError, match="contains a 'thing', not a 'model'"):
        read_manifest(tmp_path / "x", kind="model", format=2)
    with pytest.raises(DataError, match=r"an earlier version of Tertulia \(format 2; this one reads 3\)") as caught:
        read_manifest(tmp_path / "x", kind="thing", format=3, remake="Train it again.")
    assert caught.value.hint == "Train it again."
    with pytest.raises(DataError, match=r"a newer Tertulia \(format 2; this one reads 1\)"):
        read_manifest(tmp_path / "x", kind="thing", format=1)
    (tmp_path / "x" / MANIFEST).write_text(json.dumps({"bot": "tfidf", "files": {}}))
    with pytest.raises(DataError, match="an earlier version of Tertulia"):
        read_manifest(tmp_path / "x", kind="thing", format=2)


def test_fields_of_the_manifest_itself_cannot_be_overwritten(tmp_path: Path) -> None:
    open_folder(tmp_path)
    with pytest.raises(ValueError, match="writes 'kind' itself"):
        seal(tmp_path, kind="thing", format=1, files=[], about={"kind": "other"})
    assert not is_complete(tmp_path)
