import gzip
import json
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia import sample
from tertulia.core.codec import Problems
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.errors import DamagedLine, DataError, UnknownName, UsageError
from tertulia.corpus.load import files_of, load_dialogues, load_exchanges, recognise, save_dialogues

NATIVE = {"id": "d", "turns": [{"speaker": "a", "text": "hi"}, {"speaker": "b", "text": "hello"}]}
PERSONACHAT = {"id": "d", "utterances": ["hi", "hello"], "first_speaker_persona_original": ["I sail."]}
MESSAGES = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}


def lines(path: Path, *records: object) -> Path:
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("record", "name", "speakers"),
    [
        (NATIVE, "tertulia", ("a", "b")),
        (PERSONACHAT, "personachat", ("first", "second")),
        (MESSAGES, "messages", ("user", "assistant")),
    ],
)
def test_formats_are_detected_from_the_first_record(
    tmp_path: Path, record: object, name: str, speakers: tuple[str, ...]
) -> None:
    file = lines(tmp_path / "x.jsonl", "", "not json", [1, 2], {"other": 1}, record)
    assert recognise(file).name == name
    problems = Problems()
    (dialogue,) = load_dialogues(file, problems=problems)
    assert dialogue.speakers == speakers
    assert [t.text for t in dialogue.turns] == ["hi", "hello"]
    assert problems.count == 3


def test_a_given_format_is_not_detected(tmp_path: Path) -> None:
    file = lines(tmp_path / "x.jsonl", NATIVE)
    with pytest.raises(DamagedLine, match="'messages' is missing"):
        list(load_dialogues(file, format="messages"))
    with pytest.raises(UnknownName, match="Did you mean 'personachat'"):
        list(load_dialogues(file, format="persona-chat"))


@pytest.mark.parametrize("content", ["hello\n", '{"x": 1}\n', "[" * 100_000 + "\n"])
def test_unrecognised_formats_are_rejected(tmp_path: Path, content: str) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text(content)
    with pytest.raises(
        DataError, match=r"Unrecognised format: .*x\.jsonl\n.*--format: .*messages.*personachat.*tertulia"
    ):
        list(load_dialogues(file))


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_an_empty_file_is_an_error(tmp_path: Path, content: str) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text(content)
    with pytest.raises(DataError, match=r"x\.jsonl is empty"):
        list(load_dialogues(file))


def test_damaged_lines_raise_or_are_counted(tmp_path: Path) -> None:
    file = lines(tmp_path / "x.jsonl", NATIVE, "{oops", NATIVE, {"id": "d"})
    with pytest.raises(DamagedLine, match="line 2"):
        list(load_dialogues(file))
    problems = Problems()
    assert len(list(load_dialogues(file, problems=problems))) == 2
    assert problems.count == 2
    assert [f"line {n}:" in example for n, example in zip((2, 4), problems.examples, strict=True)] == [True, True]


def test_invalid_utf8_damages_only_its_own_line(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    good = json.dumps(NATIVE).encode()
    file.write_bytes(b"\n".join([good, good.replace(b"hello", b"caf\xe9"), good]))
    problems = Problems()
    assert [d.turns[1].text for d in load_dialogues(file, problems=problems)] == ["hello", "hello"]
    assert problems.count == 1
    assert "not valid UTF-8" in problems.examples[0]
    with pytest.raises(DamagedLine, match="line 2"):
        list(load_dialogues(file))


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text(json.dumps(NATIVE), encoding="utf-8-sig")
    assert [d.id for d in load_dialogues(file)] == ["d"]


def test_compressed_files(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl.gz"
    file.write_bytes(gzip.compress(json.dumps(NATIVE).encode()))
    assert [d.id for d in load_dialogues(file)] == ["d"]


def big_gz() -> bytes:
    rows = (json.dumps(NATIVE | {"id": f"d{i * 7919 % 104729}"}) for i in range(5000))
    return gzip.compress("\n".join(rows).encode())


@pytest.mark.parametrize("damage", ["truncated", "corrupted", "not gzip", "empty"])
def test_damaged_compressed_files_are_rejected(tmp_path: Path, damage: str) -> None:
    complete = big_gz()
    corrupted = bytearray(complete)
    corrupted[len(complete) // 2 : len(complete) // 2 + 50] = b"\xff" * 50
    file = tmp_path / "x.jsonl.gz"
    file.write_bytes(
        {"truncated": complete[: len(complete) // 2], "corrupted": bytes(corrupted), "not gzip": b"{}", "empty": b""}[
            damage
        ]
    )
    with pytest.raises(DataError, match=r"x\.jsonl\.gz"):
        list(load_dialogues(file, problems=Problems()))


def test_folders_with_splits(tmp_path: Path) -> None:
    lines(tmp_path / "valid.jsonl", NATIVE | {"id": "v"})
    lines(tmp_path / "train-2.jsonl", NATIVE | {"id": "t2"})
    lines(tmp_path / "train-1.ndjson", NATIVE | {"id": "t1"})
    save_dialogues([Dialogue("p", (Turn("a", "x"),))], tmp_path / "test.parquet")
    lines(tmp_path / "README.md", "not a corpus")
    assert [d.id for d in load_dialogues(tmp_path)] == ["p", "t1", "t2", "v"]
    assert [d.id for d in load_dialogues(tmp_path, split="train")] == ["t1", "t2"]
    with pytest.raises(DataError, match="no corpus files of the split 'tset'"):
        load_dialogues(tmp_path, split="tset")


def test_missing_files_and_empty_folders_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"File not found: .*gone\.jsonl\n.*'sample'"):
        load_dialogues(tmp_path / "gone.jsonl")
    with pytest.raises(DataError, match="no corpus files in"):
        files_of(tmp_path)


def test_the_sample_by_name_and_split() -> None:
    assert list(load_dialogues("sample")) == sample.dialogues()
    assert list(load_dialogues("sample", split="test")) == sample.dialogues("test")
    with pytest.raises(UnknownName, match="Did you mean 'valid'"):
        load_dialogues("sample", split="vald")


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz", "x.ndjson", "x.parquet", "new/folder/x.jsonl"])
@settings(max_examples=15, deadline=None)
@given(st.lists(st.from_type(Dialogue), min_size=1, max_size=3))
def test_saved_dialogues_load_unchanged(
    tmp_path_factory: pytest.TempPathFactory, name: str, dialogues: list[Dialogue]
) -> None:
    file = tmp_path_factory.getbasetemp() / "load" / name
    assert save_dialogues(iter(dialogues), file) == len(dialogues)
    assert list(load_dialogues(file, format="tertulia")) == dialogues
    assert [f.name for f in file.parent.iterdir() if f.name.endswith((".partial", ".unfinished"))] == []


def test_a_gz_file_is_compressed(tmp_path: Path) -> None:
    save_dialogues([Dialogue("d", ())], tmp_path / "x.jsonl.gz")
    assert gzip.decompress((tmp_path / "x.jsonl.gz").read_bytes()) == b'{"id":"d","turns":[]}\n'


def test_saving_in_an_unsuitable_format_is_an_error(tmp_path: Path) -> None:
    talk = [Dialogue("d", (Turn("a", "x"), Turn("a", "y")))]
    with pytest.raises(UsageError, match=r"Unrecognised file type: x\.docx"):
        save_dialogues(talk, tmp_path / "x.docx")
    with pytest.raises(UsageError, match="Parquet files contain"):
        save_dialogues(talk, tmp_path / "x.parquet", format="messages")
    with pytest.raises(UnknownName):
        save_dialogues(talk, tmp_path / "x.jsonl", format="excel")
    with pytest.raises(DataError, match="alternate"):
        save_dialogues(talk, tmp_path / "x.jsonl", format="personachat")
    assert list(tmp_path.iterdir()) == []


def test_a_file_may_be_rewritten_in_place(tmp_path: Path) -> None:
    file = lines(tmp_path / "x.jsonl", PERSONACHAT, PERSONACHAT | {"id": "e"})
    assert save_dialogues(load_dialogues(file), file) == 2
    assert recognise(file).name == "tertulia"
    assert [d.id for d in load_dialogues(file)] == ["d", "e"]


LOG = "=== ann has joined\n[12:18] <ann> hello\n[12:18] <bob> ann: hi\n[12:19]  * ann waves\n"


@pytest.mark.parametrize(
    "log",
    [
        LOG,
        "--- Day changed Mon Nov 15 2004\n12:18 <@ann> hello\n12:18 -!- bob has joined\n",
        "2004-11-15 12:18:01\tann\thello\n2004-11-15 12:18:02\t-->\tbob has joined\n",
    ],
)
def test_the_error_for_a_chat_log_names_the_command_to_use(tmp_path: Path, log: str) -> None:
    file = tmp_path / "day.txt"
    file.write_text(log)
    with pytest.raises(
        DataError,
        match=r"day\.txt is a chat log of interleaved conversations.*\n.*corpus mine .*day\.txt --threads rules",
    ):
        next(load_dialogues(file))


def test_the_error_for_annotated_logs_names_the_command_to_use(tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    (room / "day.raw.txt").write_text(LOG)
    (room / "day.annotation.txt").write_text("1 1 -\n1 2 -\n")
    (tmp_path / "gold.clusters.txt").write_text("day:1 2\n")
    for target in (room, room / "day.raw.txt", tmp_path):
        with pytest.raises(
            DataError,
            match=r"room contains chat logs annotated with reply links.*\n.*corpus mine .*room --threads rules",
        ):
            next(load_dialogues(target))


def test_an_exchange_file_among_dialogues_is_named_in_the_error(tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", NATIVE)
    lines(tmp_path / "b.jsonl", {"id": "e", "context": [], "response": {"speaker": "bot", "text": "hi"}})
    dialogues = load_dialogues(tmp_path)
    assert next(dialogues).id == "d"
    with pytest.raises(UsageError, match=r"b\.jsonl contains exchanges"):
        next(dialogues)
    assert [e.id for e in load_exchanges(tmp_path)] == ["d#1", "e"]


def test_the_public_persona_chat_has_no_damaged_lines(shared_data: Path) -> None:
    problems = Problems()
    dialogues = list(islice(load_dialogues(shared_data / "personachat", problems=problems), 500))
    assert len(dialogues) == 500
    assert {len(d.speakers) for d in dialogues} == {2}
    assert all(d.persona_of(speaker) for d in dialogues for speaker in d.speakers)
    assert problems.count == 0
