"""The Ubuntu Dialogue Corpus in its four layouts; damage is limited to its own dialogue or row."""

import io
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from tertulia import sample
from tertulia.core.codec import Problems
from tertulia.core.dialogue import Dialogue, Exchange, Turn
from tertulia.core.errors import DataError, UsageError
from tertulia.corpus.load import corpus_in, load_dialogues, load_exchanges, recognise, save_dialogues, save_exchanges
from tertulia.corpus.readers.tables import csv_rows
from tertulia.corpus.testsets import TestSetConfig, make_test_set, write_ubuntu_csv

Original = Callable[..., Path]
HEAD = "folder,dialogueID,date,from,to,text\n"


def read(file: Path, text: str, **more: str) -> tuple[list[Dialogue], list[str]]:
    """The dialogues of a table, and its problems."""
    file.write_text(text)
    problems = Problems()
    dialogues = list(load_dialogues(file, problems=problems, **more))
    assert problems.count == len(problems.examples)
    return dialogues, [example.partition(", ")[2].partition("\n")[0] for example in problems.examples]


def test_lines_of_the_log_are_turns(original: Original) -> None:
    one, two = load_dialogues(original("ubuntu"))
    assert one == Dialogue(
        "3/17",
        (
            Turn("ann", "hello, anybody?", meta={"date": "2008-04-23T14:55:00.000Z"}),
            Turn("ann", 'my "sound" is gone\nsince today', meta={"date": "2008-04-23T14:56:00.000Z"}),
            Turn("bob", "try alsamixer :\\", meta={"date": "2008-04-23T14:57:00.000Z", "to": "ann"}),
        ),
    )
    assert (two.id, [(t.speaker, t.text) for t in two.turns]) == ("3/4", [("cai", ""), ("dee", "cai?")])


def test_writing_what_was_read_gives_the_same_bytes(original: Original, tmp_path: Path) -> None:
    file = original("ubuntu")
    save_dialogues(load_dialogues(file), tmp_path / "again.csv", format="ubuntu")
    assert (tmp_path / "again.csv").read_bytes() == file.read_bytes()


def test_ids_without_a_folder_round_trip(tmp_path: Path) -> None:
    turns = (Turn("a", "x"),)
    for name in ("d1", "3/17", "a/b/c", "/x", "x/", "", "x.tsv"):
        save_dialogues([Dialogue(name, turns)], tmp_path / "x.csv", format="ubuntu")
        assert list(load_dialogues(tmp_path / "x.csv")) == [Dialogue(name, turns)]


@pytest.mark.parametrize(
    ("rows", "kept", "problem"),
    [
        ("3,1.tsv,d,a,,x\n3,2.tsv,d,a,x\n3,2.tsv,d,b,,y\n3,3.tsv,d,b,,z\n", "13", "line 3: expected 6 columns, got 5"),
        ('3,1.tsv,d,a,,"x\n3,1.tsv,d,b,,"y"\n3,2.tsv,d,a,,"z"\n', "2", "line 2: ',' expected after '\"'"),
        ('3,1.tsv,d,a,,"x"\n3,2.tsv,d,b,,"y\n3,3.tsv,d,a,,"z"\n', "13", "line 3: ',' expected after '\"'"),
        ('3,1.tsv,d,a,,"x"\n3,2.tsv,d,b,,"y', "1", "line 3: unexpected end of data"),
        ('3,1.tsv,d,a,,"x\nmore, and" more"\n3,1.tsv,d,b,,"y"\n3,2.tsv,d,b,,z', "2", "line 2: ',' expected"),
        ("3,1.tsv,d,a,,x\noops\n3,1.tsv,d,b,,y\n3,2.tsv,d,b,,z\n", "2", "line 2: expected 6 columns, got 1 (line 3)"),
        ("oops\n3,1.tsv,d,a,,x\n", "1", "line 2: expected 6 columns, got 1"),
    ],
)
def test_a_damaged_row_damages_only_its_dialogue(tmp_path: Path, rows: str, kept: str, problem: str) -> None:
    dialogues, problems = read(tmp_path / "x.csv", HEAD + rows)
    assert [d.id for d in dialogues] == [f"3/{number}" for number in kept]
    assert len(problems) == 1
    assert problems[0].startswith(problem)


def test_bytes_that_are_not_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_bytes(HEAD.encode() + b"3,1.tsv,d,a,,caf\xe9\n3,2.tsv,d,a,,x\n")
    problems = Problems()
    assert [d.id for d in load_dialogues(file, problems=problems)] == ["3/2"]
    assert "line 2: not valid UTF-8" in problems.examples[0]


def test_an_unclosed_quote_damages_only_its_row() -> None:
    lines = ['a,"b\n', *(f"{i},c\n" for i in range(50_000))]
    first, *others = csv_rows(lines)
    assert (first.line, first.value) == (1, ["a", '"b'])
    assert "field larger than field limit" in first.damage
    assert [(row.line, row.value) for row in others] == [(i + 2, [str(i), "c"]) for i in range(50_000)]


def test_memory_does_not_grow_with_the_table(tmp_path: Path) -> None:
    def peak(dialogues: int) -> int:
        file = tmp_path / "x.csv"
        with file.open("w") as out:
            out.write(HEAD)
            out.writelines(f'3,{i}.tsv,d,a,,"{"x" * 200}"\n' * 3 for i in range(dialogues))
        tracemalloc.start()
        assert sum(1 for _ in load_dialogues(file)) == dialogues
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak_bytes

    peak(10)  # imports
    assert peak(3000) < 2 * peak(300)


def test_consecutive_dialogues_need_different_ids(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'d' does not fit .* the dialogue before it has the same id"):
        save_dialogues([Dialogue("d", (Turn("a", "x"),))] * 2, tmp_path / "x.csv", format="ubuntu")
    with pytest.raises(DataError, match="it has no turns"):
        save_dialogues([Dialogue("d", ())], tmp_path / "x.csv", format="ubuntu")
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_one_dialogue(original: Original) -> None:
    file = original("ubuntu-tsv")
    (one,) = load_dialogues(file)
    assert (one.id, [(t.speaker, t.text) for t in one.turns]) == ("17", [("ann", 'any "ideas'), ("bob", "yes:\ttabs")])
    assert one.turns[1].meta == {"date": "2004-11-23T11:49:00.000Z", "to": "ann"}


def test_the_original_folder_layout(originals: dict[str, dict[str, str]], tmp_path: Path) -> None:
    text = originals["ubuntu-tsv"]["17.tsv"]
    for path in ("dialogs/10/1.tsv", "dialogs/3/10.tsv", "dialogs/3/9.tsv", "dialogs/3/11.tsv"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text if "9" not in path else "a row\tof two\n")
    folder = corpus_in(tmp_path)
    assert folder == tmp_path / "dialogs"
    problems = Problems()
    assert [d.id for d in load_dialogues(folder, problems=problems)] == ["3/10", "3/11", "10/1"]
    assert "9.tsv, line 1: expected 4 columns, got 2" in problems.examples[0]
    with pytest.raises(UsageError, match="no splits"):
        load_dialogues(folder, split="train")
    (dialogue,) = load_dialogues(folder / "10")
    assert dialogue.id == "10/1"


def test_numbered_folders_of_other_files_are_not_recognised(tmp_path: Path) -> None:
    (tmp_path / "2019").mkdir()
    (tmp_path / "2019" / "sales.tsv").write_text("may\t1\t2\t3\n")
    with pytest.raises(DataError, match="no corpus files"):
        load_dialogues(tmp_path)


def test_the_sample_as_an_ubuntu_folder(tmp_path: Path) -> None:
    expected = {d.id: [(t.speaker, t.text) for t in d.turns] for d in sample.dialogues("test")}
    save_dialogues(sample.dialogues("test"), tmp_path / "u", format="ubuntu-tsv")
    loaded = {d.id: [(t.speaker, t.text) for t in d.turns] for d in load_dialogues(tmp_path / "u")}
    assert loaded == {f"{len(turns)}/{name}": turns for name, turns in expected.items()}


@pytest.mark.parametrize(
    ("dialogues", "why"),
    [
        ([Dialogue("3/x", (Turn("a", "x"),))] * 2, "two dialogues with this id"),
        ([Dialogue("../x", (Turn("a", "x"),))], "not a valid file name"),
        ([Dialogue("", (Turn("a", "x"),))], "not a valid file name"),
        ([Dialogue("3/x", ())], "it has no turns"),
    ],
)
def test_dialogues_that_cannot_become_files_are_refused(tmp_path: Path, dialogues: list[Dialogue], why: str) -> None:
    with pytest.raises(DataError, match=why):
        save_dialogues(dialogues, tmp_path / "u", format="ubuntu-tsv")
    assert list(tmp_path.iterdir()) == []


def test_pairs_with_labels(original: Original) -> None:
    one, two = load_exchanges(original("ubuntu-pairs"))
    assert one == Exchange(
        one.id,
        (Turn("first", "hi , all"), Turn("first", "any idea ?"), Turn("second", "no")),
        Turn("first", "oh well\nbye"),
        label="1",
    )
    assert (two.context, two.response, two.label) == (
        (Turn("first", "hi"),),
        Turn("second", "__dialog_end__"),
        "0",
    )
    assert one.id != two.id


def test_the_true_reply_is_the_first_candidate(original: Original) -> None:
    (one,) = load_exchanges(original("ubuntu-ranking"))
    assert one.response == Turn("first", "oh well", meta={"candidates": ["oh well", "no , sir", "a\nb"]})
    assert (len(one.context), one.label) == (3, None)


def test_either_reader_reads_both_layouts(original: Original) -> None:
    folder = original("ubuntu-pairs").parent
    original("ubuntu-ranking")
    both = list(load_exchanges(folder))
    assert [e.label for e in both] == ["1", "0", None]
    assert list(load_exchanges(folder, format="ubuntu-pairs")) == both
    assert list(load_exchanges(folder, format="ubuntu-ranking")) == both


def test_the_tags_of_version_1(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("a b __EOS__ c __EOS__,d,1\n")
    with pytest.raises(DataError, match=r"x\.csv"):
        recognise(file)
    (one,) = load_exchanges(file, format="ubuntu-pairs")
    assert [(t.speaker, t.text) for t in (*one.context, one.response)] == [
        ("first", "a b"),
        ("second", "c"),
        ("first", "d"),
    ]


@pytest.mark.parametrize(
    ("name", "row", "why"),
    [
        ("ubuntu-pairs", "a __eou__ __eot__,b __eou__,maybe", "expected label 0 or 1, got 'maybe'"),
        ("ubuntu-pairs", "a __eou__ __eot__,b __eou__", "expected 3 columns, got 2"),
        ("ubuntu-ranking", "a __eou__ __eot__,b __eou__,c __eou__", "expected 4 columns, got 3"),
    ],
)
def test_damaged_pairs(original: Original, name: str, row: str, why: str) -> None:
    file = original(name)
    rows = len(list(load_exchanges(file)))
    file.write_text(file.read_text() + row + "\n" + file.read_text().splitlines()[1] + "\n")
    problems = Problems()
    assert len(list(load_exchanges(file, problems=problems))) == rows + 1
    assert (problems.count, f"line {rows + 2}: {why}" in problems.examples[0]) == (1, True)


def test_replies_of_a_corpus_are_written_as_true_pairs(tmp_path: Path) -> None:
    dialogue = Dialogue("d", (Turn("x", "hi"), Turn("y", "one\ntwo"), Turn("y", "three")))
    save_dialogues([dialogue], tmp_path / "x.jsonl")
    save_exchanges(load_exchanges(tmp_path / "x.jsonl"), tmp_path / "x.csv", format="ubuntu-pairs")
    assert (tmp_path / "x.csv").read_text().splitlines() == [
        "Context,Utterance,Label",
        "hi __eou__ __eot__,one __eou__ two __eou__,1",
        "hi __eou__ __eot__ one __eou__ two __eou__ __eot__,three __eou__,1",
    ]


@pytest.mark.parametrize(
    ("name", "exchanges", "why"),
    [
        ("ubuntu-pairs", [Exchange("e", (), Turn("b", "x"), label="generic")], "expected label 0 or 1, got 'generic'"),
        ("ubuntu-ranking", [Exchange("e", (), Turn("b", "x"))], "one of its candidates.*\n.*corpus testset"),
        ("ubuntu-ranking", [Exchange("e", (), Turn("b", "x", meta={"candidates": ["y"]}))], "one of its candidates"),
        (
            "ubuntu-ranking",
            [Exchange("e", (), Turn("b", "x", meta={"candidates": c})) for c in (["x", "y"], ["x"])],
            "expected 1 distractors as in the first row, got 0",
        ),
    ],
)
def test_exchanges_that_do_not_fit_a_table_are_refused(
    tmp_path: Path, name: str, exchanges: list[Exchange], why: str
) -> None:
    with pytest.raises(DataError, match=why):
        save_exchanges(exchanges, tmp_path / "x.csv", format=name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", [1, 2])
def test_a_test_set_round_trips(tmp_path: Path, version: int) -> None:
    items = make_test_set(sample.dialogues(), TestSetConfig(version=version, distractors=4))
    out = io.StringIO()
    write_ubuntu_csv(items, out)
    file = tmp_path / "testset.csv"
    file.write_text(out.getvalue())
    assert recognise(file).name == "ubuntu-ranking"
    loaded = list(load_exchanges(file))
    assert len(loaded) == len(items)
    for exchange, item in zip(loaded, items, strict=True):
        assert [t.text for t in exchange.context] == [" ".join(t.text.split()) for t in item.exchange.context]
        candidates = exchange.response.meta["candidates"]
        assert candidates[0] == exchange.response.text == " ".join(item.candidates[item.truth].split())
        assert sorted(candidates) == sorted(" ".join(text.split()) for text in item.candidates)
    save_exchanges(loaded, tmp_path / "again.csv", format="ubuntu-ranking")
    assert (tmp_path / "again.csv").read_text() == out.getvalue()
