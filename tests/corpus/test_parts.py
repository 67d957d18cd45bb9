import gzip
from pathlib import Path

import pytest

from tertulia.core.codec import Problems, dump_line
from tertulia.core.errors import DataError, UsageError
from tertulia.corpus import parts
from tertulia.corpus.config import ReadConfig
from tertulia.corpus.load import load_dialogues, load_exchanges
from tertulia.corpus.parts import parts_of, read_dialogues, read_exchanges
from tertulia.corpus.write import save_dialogues, save_exchanges

from .conftest import make_dialogues

pytestmark = pytest.mark.usefixtures("small_parts")


def read_all(target: Path, problems: Problems | None = None, **options: object) -> list:
    counted = problems if problems is not None else Problems()
    return [d for p in parts_of(ReadConfig(target=str(target), **options)) for d in read_dialogues(p, counted)]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.json", "a.parquet", "a.ndjson"])
def test_the_parts_of_a_file_are_the_file(tmp_path: Path, name: str) -> None:
    save_dialogues(make_dialogues(120), tmp_path / name)
    assert read_all(tmp_path / name) == make_dialogues(120)
    if name.endswith(("jsonl", "ndjson")):
        assert len(parts_of(ReadConfig(target=str(tmp_path / name)))) > 5


@pytest.mark.parametrize("part_bytes", [1, 7, 100, 1000])
def test_lines_are_read_once_wherever_parts_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part_bytes: int
) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", part_bytes)
    lines = [dump_line({"id": str(i), "turns": [{"speaker": "ä", "text": "é" * (i % 5)}]}) for i in range(9)]
    file = tmp_path / "a.jsonl"
    file.write_bytes("\ufeff".encode() + "\r\n".join([*lines[:4], "", *lines[4:]]).encode())
    assert read_all(file) == list(load_dialogues(file))
    assert len(read_all(file)) == 9


def test_damaged_lines_have_the_numbers_they_have_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    save_dialogues(make_dialogues(120), file)
    lines = file.read_bytes().split(b"\n")
    lines[3], lines[77], lines[90] = b"{", b'{"id": 1}', b"\xff\xff"
    file.write_bytes(b"\n".join(lines))
    here, there = Problems(), Problems()
    assert read_all(file, here) == list(load_dialogues(file, problems=there))
    assert (here.count, sorted(here.examples)) == (3, sorted(there.examples))
    with pytest.raises(DataError, match="line 4"):
        read_all(file, strict=True)


def test_small_files_share_a_part_but_splits_do_not(tmp_path: Path) -> None:
    dialogues = make_dialogues(6)
    for i, name in enumerate(("train-1", "train-2", "train-3", "valid-1", "test")):
        save_dialogues([dialogues[i]], tmp_path / f"{name}.parquet")
    parts_found = parts_of(ReadConfig(target=str(tmp_path)))
    assert [(part.name, len(part.ranges)) for part in parts_found] == [("test", 1), ("train", 3), ("valid", 1)]
    assert read_all(tmp_path, split="train") == dialogues[:3]


def test_exchanges_and_the_sample_have_parts(tmp_path: Path) -> None:
    file = tmp_path / "e.jsonl"
    save_exchanges(load_exchanges("sample", split="test"), file)
    read = [e for p in parts_of(ReadConfig(target=str(file))) for e in read_exchanges(p, Problems())]
    assert read == list(load_exchanges("sample", split="test"))
    assert read_all(Path("sample")) == list(load_dialogues("sample"))
    with pytest.raises(UsageError, match="contains exchanges"):
        parts_of(ReadConfig(target=str(file)), wanted="dialogues")


def test_a_damaged_archive_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl.gz"
    save_dialogues(make_dialogues(50), file)
    file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes()))[:-20])
    with pytest.raises(DataError, match="Cannot read"):
        read_all(file)
