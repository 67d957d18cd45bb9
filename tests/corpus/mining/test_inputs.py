"""Every kind of input, and every kind of damage."""

import gzip
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.core.errors import DamagedLine, DataError, UsageError
from tertulia.corpus.mine import MineConfig, MineOutcome, mine
from tertulia.corpus.mining.lines import parse_lines
from tertulia.corpus.mining.pairs import read_pairs
from tertulia.corpus.mining.shapes import SHAPES, Cleaning

Record = dict[str, Any]
FORUM: list[Record] = [
    {"id": "a", "author": "ana", "text": "good morning everybody", "thread": "t"},
    {"id": "b", "author": "ben", "text": "good morning to you too", "parent": "a", "thread": "t"},
    {"id": "c", "author": "ana", "text": "so what is new with you", "parent": "b", "thread": "t"},
]
EXPECTED = {"b": ["good morning everybody", "good morning to you too"], "c": [r["text"] for r in FORUM]}


def lines(records: list[Record]) -> bytes:
    return b"".join(json.dumps(r).encode() + b"\n" for r in records)


def run(source: str | tuple[str, ...], out: Path, **more: Any) -> MineOutcome:
    return mine(MineConfig.model_validate({"source": source, "out": out, "vocabulary": 300} | more))


def pairs(out: Path) -> dict[str, list[str]]:
    return {d.id: [t.text for t in d.turns] for d in read_pairs(out)}


def as_parquet(records: list[Record]) -> bytes:
    sink = io.BytesIO()
    every = {name: [record.get(name) for record in records] for name in {n: 0 for r in records for n in r}}
    pq.write_table(pa.table(every), sink, row_group_size=2)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("x.jsonl", lambda r: lines(r)),
        ("x.jsonl", lambda r: lines(r).rstrip(b"\n")),
        ("x.jsonl", lambda r: b"\xef\xbb\xbf" + lines(r).replace(b"\n", b"\r\n\r\n")),
        ("x.jsonl.gz", lambda r: gzip.compress(lines(r))),
        ("x.jsonl.zst", lambda r: zstandard.compress(lines(r))),
        ("x.jsonl.zst", lambda r: zstandard.compress(lines(r[:1])) + zstandard.compress(lines(r[1:]))),
        ("x.parquet", as_parquet),
    ],
)
@pytest.mark.parametrize("block_bytes", [1, 100, 1 << 20])
def test_lines_packed_or_not_and_parquet(
    tmp_path: Path, name: str, pack: Callable[[list[Record]], bytes], block_bytes: int
) -> None:
    (tmp_path / name).write_bytes(pack(FORUM))
    outcome = run(str(tmp_path / name), tmp_path / "out", block_bytes=block_bytes, strict=True)
    assert pairs(tmp_path / "out") == EXPECTED
    assert (outcome.funnel.messages, outcome.problems.count) == (3, 0)


def test_several_files_and_folders(tmp_path: Path) -> None:
    folder = tmp_path / "more"
    folder.mkdir()
    (tmp_path / "1.jsonl").write_bytes(lines(FORUM[:1]))
    (folder / "2.jsonl.gz").write_bytes(gzip.compress(lines(FORUM[1:2])))
    (folder / "3.parquet").write_bytes(as_parquet(FORUM[2:]))
    (folder / "README.txt").write_text("no messages")
    run((str(tmp_path / "1.jsonl"), str(folder)), tmp_path / "out")
    assert pairs(tmp_path / "out") == EXPECTED


def test_a_field_map(tmp_path: Path) -> None:
    names = {"text": "body", "id": "number", "parent": "re", "author": "by", "thread": "topic"}
    records = [{names[k]: v for k, v in r.items()} | {"score": 5} for r in FORUM]
    (tmp_path / "x.jsonl").write_bytes(lines(records))
    run(str(tmp_path / "x.jsonl"), tmp_path / "out", fields=names)
    assert pairs(tmp_path / "out") == EXPECTED
    with pytest.raises(UsageError, match="no field 'words'"):
        run(str(tmp_path / "x.jsonl"), tmp_path / "other", fields={"words": "body"})


def test_numbers_are_ids_too(tmp_path: Path) -> None:
    numbers = {"a": 1, "b": 2, "c": 3, None: None}
    records = [r | {"id": numbers[r["id"]], "parent": numbers[r.get("parent")]} for r in FORUM]
    (tmp_path / "x.jsonl").write_bytes(lines(records))
    (tmp_path / "x.parquet").write_bytes(as_parquet(records))
    for name in ("x.jsonl", "x.parquet"):
        run(str(tmp_path / name), tmp_path / f"out-{name}")
        assert list(pairs(tmp_path / f"out-{name}")) == ["2", "3"]


def test_a_pipe(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tertulia.corpus.mine import *;"
        "mine(MineConfig(source='-', out=Path(sys.argv[1]), vocabulary=300))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "out")]
    for _ in range(2):  # the second time it finds that it is done
        subprocess.run(command, input=lines(FORUM), check=True)
        assert pairs(tmp_path / "out") == EXPECTED
    other = subprocess.run(command, input=lines(FORUM[:2]), check=False, capture_output=True)
    assert b"inputs 1.size was" in other.stderr


def comment(name: str, parent: str, body: str, author: str = "ana") -> Record:
    return {"id": name, "parent_id": parent, "link_id": "t3_s", "author": author, "body": body, "score": 1}


DUMP = [
    comment("c1", "t3_s", "&gt; what do you all eat &amp; drink\n\nmostly bread, to be honest"),
    comment("c2", "t1_c1", "[removed]"),
    comment("c3", "t1_c2", "an answer to nothing at all"),
    comment("c4", "t1_c1", "bread is fine by me\n\nEdit: spelling, sorry for that", "[deleted]"),
    comment("c5", "t1_c1", "give reddit credit where it is due"),
]
SUBMISSION = {"id": "s", "title": "what do you all eat & drink", "selftext": "i am out of ideas", "author": "op"}


def test_reddit_dumps(tmp_path: Path) -> None:
    (tmp_path / "RC_2018-07.zst").write_bytes(zstandard.compress(lines(DUMP)))
    (tmp_path / "RS_2018-07.zst").write_bytes(zstandard.compress(lines([SUBMISSION])))
    outcome = run(str(tmp_path), tmp_path / "out")
    opening, bread = "what do you all eat & drink\n\ni am out of ideas", "mostly bread, to be honest"
    assert pairs(tmp_path / "out") == {
        "t1_c1": [opening, bread],
        "t1_c4": [opening, bread, "bread is fine by me"],
        "t1_c5": [opening, bread, "give reddit credit where it is due"],
    }
    assert outcome.funnel.removed["deleted"] == 1
    assert outcome.funnel.removed["subtree"] == 1


def test_reddit_comments_without_their_submissions(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(lines(DUMP))
    outcome = run(str(tmp_path / "c.jsonl"), tmp_path / "out")
    assert set(pairs(tmp_path / "out")) == {"t1_c4", "t1_c5"}
    assert outcome.funnel.removed["no parent"] == 0


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("fine by me EDIT: typo", "fine by me"),
        ("fine by me\n\n**Edit 2:** typo", "fine by me"),
        ("fine by me (edit: typo)", "fine by me"),
        ("fine by me. Edit thanks for the gold", "fine by me"),
        ("fine by me\nedited for clarity", "fine by me"),
        ("fine by me edit - typo", "fine by me"),
        ("credit: reddit, not me", "credit: reddit, not me"),
        ("i edit videos for a living", "i edit videos for a living"),
        ("the new edition: a mess", "the new edition: a mess"),
    ],
)
def test_edit_notes(body: str, left: str) -> None:
    parsed = parse_lines(lines([comment("c", "t3_s", body)]), SHAPES["reddit"], Cleaning())
    assert parsed.frame["text"][0].rstrip(".").strip() == left
    kept = parse_lines(lines([comment("c", "t3_s", body)]), SHAPES["reddit"], Cleaning(edits=False))
    assert kept.frame["text"][0] == body


def test_links_go_by_rule_or_are_cut_out(tmp_path: Path) -> None:
    linked = [FORUM[0], FORUM[1] | {"text": "see [this page](https://x.org/a) or http://y.org/b?c=d it is good"}]
    (tmp_path / "x.jsonl").write_bytes(lines(linked))
    assert run(str(tmp_path / "x.jsonl"), tmp_path / "rule").funnel.removed["url"] == 1
    run(str(tmp_path / "x.jsonl"), tmp_path / "cut", links="cut")
    assert pairs(tmp_path / "cut")["b"][-1] == "see this page or  it is good"


@pytest.mark.parametrize(
    "names",
    [
        {"thread": "conversation_id", "parent": "reply-to", "author": "speaker"},
        {"thread": "root", "parent": "reply_to", "author": "user"},
    ],
)
def test_convokit(tmp_path: Path, names: dict[str, str]) -> None:
    records = [{names.get(k, k): v for k, v in r.items()} | {"meta": {"x": 1}, "timestamp": 5} for r in FORUM]
    (tmp_path / "utterances.jsonl").write_bytes(lines(records))
    (tmp_path / "speakers.json").write_text("{}")
    (tmp_path / "corpus.json").write_text("{}")
    run(str(tmp_path), tmp_path / "out")
    assert pairs(tmp_path / "out") == EXPECTED


BAD = [
    b"oops",
    b"[1, 2]",
    b"5",
    b'{"id": "x"}',
    b'{"text": "x"}',
    b'{"id": null, "text": "x"}',
    b'{"id": "x", "text": "\xff"}',
    b'{"id": "x", "text": "\\ud83d"}',
    b'{"id": "x", "text": "cut',
]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("block_bytes", [1, 64, 1 << 20])
def test_damaged_lines_are_counted_with_their_numbers_or_refused(tmp_path: Path, bad: bytes, block_bytes: int) -> None:
    good = lines(FORUM).splitlines()
    (tmp_path / "x.jsonl").write_bytes(b"\n".join([good[0], b"", bad, *good[1:], bad]))
    outcome = run(str(tmp_path / "x.jsonl"), tmp_path / "out", block_bytes=block_bytes)
    assert pairs(tmp_path / "out") == EXPECTED
    assert outcome.problems.count == 2
    assert [example.split(": ")[0].split(", ")[1] for example in outcome.problems.examples] == ["line 3", "line 6"]
    with pytest.raises(DamagedLine, match=r"x.jsonl, line [36]: "):
        run(str(tmp_path / "x.jsonl"), tmp_path / "strict", strict=True, block_bytes=block_bytes)


def test_damaged_rows_of_parquet(tmp_path: Path) -> None:
    records = [FORUM[0], FORUM[1], FORUM[2] | {"text": None}]
    (tmp_path / "x.parquet").write_bytes(as_parquet(records))
    outcome = run(str(tmp_path / "x.parquet"), tmp_path / "out")
    assert "x.parquet, line 3" in outcome.problems.examples[0]
    assert list(pairs(tmp_path / "out")) == ["b"]


def test_duplicates_circles_and_orphans_are_counted(tmp_path: Path) -> None:
    strange = [
        FORUM[1],
        {"id": "x", "parent": "y", "author": "ana", "text": "round we go again", "thread": "t"},
        {"id": "y", "parent": "x", "author": "ana", "text": "round we go again and again", "thread": "t"},
        {"id": "o", "parent": "nowhere", "author": "ana", "text": "is anybody there at all", "thread": "t"},
        {"id": "n", "text": "nobody wrote this one", "thread": "t"},
    ]
    (tmp_path / "x.jsonl").write_bytes(lines(FORUM + strange))
    outcome = run(str(tmp_path / "x.jsonl"), tmp_path / "out", strict=True)
    assert {k: v for k, v in outcome.funnel.removed.items() if v} == {"duplicate id": 1, "no parent": 3}
    assert pairs(tmp_path / "out") == EXPECTED


@pytest.mark.parametrize("meta", [{"rude": True}, {"unsafe": 1}, {"rude": "yes"}, {"unsafe": {"why": 1}}])
def test_marks_of_any_kind(tmp_path: Path, meta: Record) -> None:
    (tmp_path / "x.jsonl").write_bytes(lines([FORUM[0], FORUM[1] | {"meta": meta}]))
    assert run(str(tmp_path / "x.jsonl"), tmp_path / "out").funnel.removed["unsafe"] == 1


@pytest.mark.parametrize("meta", [{}, None, 5, "rude", [1], {"rude": False, "unsafe": 0}, {"rude": "", "unsafe": []}])
def test_what_is_no_mark(tmp_path: Path, meta: object) -> None:
    (tmp_path / "x.jsonl").write_bytes(lines([FORUM[0], FORUM[1] | {"meta": meta}]))
    outcome = run(str(tmp_path / "x.jsonl"), tmp_path / "out", strict=True)
    assert (outcome.funnel.removed["unsafe"], outcome.funnel.pairs) == (0, 1)


def test_a_lexicon(tmp_path: Path) -> None:
    (tmp_path / "lexicon.txt").write_text("you TOO\n\nmorn\n")
    (tmp_path / "x.jsonl").write_bytes(lines(FORUM))
    outcome = run(str(tmp_path / "x.jsonl"), tmp_path / "out", lexicon=tmp_path / "lexicon.txt")
    assert (outcome.funnel.removed["unsafe"], outcome.funnel.removed["subtree"]) == (1, 1)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("x.parquet", b"no parquet", "not a readable Parquet"),
        ("x.jsonl.gz", gzip.compress(lines(FORUM * 50))[:-12], "cannot be read to its end"),
        ("x.jsonl.zst", b"no zstandard", "cannot be read"),
    ],
)
def test_unreadable_files_are_clear_errors(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=told):
        run(str(tmp_path / name), tmp_path / "out")
    with pytest.raises(DataError, match="There is no"):
        run(str(tmp_path / "nowhere"), tmp_path / "out")


values = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.just({"a": [1]})
)
records = st.dictionaries(st.sampled_from(["id", "text", "parent", "thread", "author", "meta", "x"]), values)


@settings(max_examples=60, deadline=None)
@given(st.lists(records.map(lambda r: json.dumps(r).encode()) | st.binary(max_size=10) | st.sampled_from(BAD)))
def test_one_bad_line_changes_nothing_about_the_others(found: list[bytes]) -> None:
    """All at once or one by one: the same messages, and every line that is not empty is a message or damage."""
    found = [line.replace(b"\n", b" ") for line in found]
    shape = SHAPES["messages"]
    together = parse_lines(b"\n".join(found), shape, Cleaning())
    alone = [parse_lines(line, shape, Cleaning()) for line in found if line.strip()]
    assert together.frame.rows() == [row for parsed in alone for row in parsed.frame.rows()]
    bad = {damage.line for damage in together.damage}
    assert together.frame.height + len(bad) == sum(bool(line.strip()) for line in found)
