import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.core.codec import dialogue_from_json, dialogue_to_json
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.errors import DataError
from tertulia.corpus.shards import read_parquet, write_parquet


@settings(max_examples=60, deadline=None)
@given(st.lists(st.from_type(Dialogue), max_size=4))
def test_parquet_and_json_round_trips_agree(
    tmp_path_factory: pytest.TempPathFactory, dialogues: list[Dialogue]
) -> None:
    file = tmp_path_factory.getbasetemp() / "talks.parquet"
    assert write_parquet(dialogues, file) == len(dialogues)
    by_json = [dialogue_from_json(json.loads(json.dumps(dialogue_to_json(d)))) for d in dialogues]
    assert list(read_parquet(file)) == by_json == dialogues


def test_several_row_groups(tmp_path: Path) -> None:
    file = tmp_path / "talks.parquet"
    dialogues = [Dialogue(f"d{i}", (Turn("a", str(i)),)) for i in range(25)]
    assert write_parquet(iter(dialogues), file, rows=10) == 25
    assert pq.ParquetFile(file).num_row_groups == 3
    assert list(read_parquet(file)) == dialogues


def test_a_file_appears_only_when_complete(tmp_path: Path) -> None:
    def interrupted() -> Iterator[Dialogue]:
        yield Dialogue("d", ())
        raise RuntimeError("the source failed")

    with pytest.raises(RuntimeError):
        write_parquet(interrupted(), tmp_path / "talks.parquet")
    assert list(tmp_path.iterdir()) == []


def read_error(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        list(read_parquet(path))
    return caught.value.message


@pytest.mark.parametrize("content", [b"", b"hello", b"PAR1" + b"\0" * 50 + b"PAR1"])
def test_other_files_are_rejected(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x.parquet"
    file.write_bytes(content)
    assert "not a readable Parquet file" in read_error(file)


def test_a_truncated_file_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    write_parquet([Dialogue("d", (Turn("a", "hi"),))], file)
    file.write_bytes(file.read_bytes()[:-20])
    assert "not a readable Parquet file" in read_error(file)


def test_corruption_in_the_middle_is_detected(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    write_parquet([Dialogue(f"d{i}", (Turn("a", f"hi {i}" * 9),)) for i in range(200)], file)
    data = bytearray(file.read_bytes())
    data[20:200] = bytes(180)
    file.write_bytes(data)
    assert "damaged" in read_error(file)


def test_a_table_without_the_required_columns_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table({"id": ["a"], "text": ["b"]}), file)
    assert "the column 'turns' is missing" in read_error(file)
    pq.write_table(pa.table({"turns": [["b"]]}), file)
    assert "the column 'id' is missing" in read_error(file)


@pytest.mark.parametrize(
    "columns",
    [
        {"id": ["a"], "turns": [["hello"]]},
        {"id": [1], "turns": [[{"speaker": "a", "text": "b"}]]},
        {"id": [None], "turns": [[{"speaker": "a", "text": "b"}]]},
        {"id": ["a"], "turns": pa.array([None], pa.list_(pa.struct([("speaker", pa.string())])))},
        {"id": ["a"], "turns": [[{"speaker": "a", "text": "b"}]], "meta": ["{not json"]},
        {"id": ["a"], "turns": [[{"speaker": "a", "text": "b", "mood": "fine"}]]},
    ],
    ids=["turns are texts", "id is a number", "no id", "no turns", "meta is not JSON", "unknown field"],
)
def test_columns_of_other_types_are_rejected(tmp_path: Path, columns: dict[str, object]) -> None:
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table(columns), file)
    assert "does not contain dialogues" in read_error(file)


def test_the_required_columns_are_sufficient(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table({"id": ["a"], "turns": [[{"speaker": "b", "text": "c"}]]}), file)
    assert list(read_parquet(file)) == [Dialogue("a", (Turn("b", "c"),))]
