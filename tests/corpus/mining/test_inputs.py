"""Every kind of input and of damage."""

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
from tertulia.corpus.mining.schemas import SCHEMAS, Cleaning

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
    ("name", "encode"),
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
def test_json_lines_compressed_or_not_and_parquet(
    tmp_path: Path, name: str, encode: Callable[[list[Record]], bytes], block_bytes: int
) -> None:
    (tmp_path / name).write_bytes(encode(FORUM))
    outcome = run(str(tmp_path / name), tmp_path / "out", block_bytes=block_bytes, strict=True)
    assert pairs(tmp_path / "out") == EXPECTED
    assert (outcome.funnel.messages, outcome.problems.count) == (3, 0)


def test_several_files_and_folders_are_mined_together(tmp_path: Path) -> None:
    folder = tmp_path / "more"
    folder.mkdir()
    (tmp_path / "1.jsonl").write_bytes(lines(FORUM[:1]))
    (folder / "2.jsonl.gz").write_bytes(gzip.compress(lines(FORUM[1:2])))
    (folder / "3.parquet").write_bytes(as_parquet(FORUM[2:]))
    (folder / "README.txt").write_text("no messages")
    run((str(tmp_path / "1.jsonl"), str(folder)), tmp_path / "out")
    assert pairs(tmp_path / "out") == EXPECTED


def test_field_names_can_be_mapped(tmp_path: Path) -> None:
    names = {"text": "body", "id": "number", "parent": "re", "author": "by", "thread": "topic"}
    records = [{names[k]: v for k, v in r.items()} | {"score": 5} for r in FORUM]
    (tmp_path / "x.jsonl").write_bytes(lines(records))
    run(str(tmp_path / "x.jsonl"), tmp_path / "out", fields=names)
    assert pairs(tmp_path / "out") == EXPECTED
    with pytest.raises(UsageError, match="no field 'words'"):
        run(str(tmp_path / "x.jsonl"), tmp_path / "other", fields={"words": "body"})


def test_ids_may_be_numbers(tmp_path: Path) -> None:
    numbers = {"a": 1, "b": 2, "c": 3, None: None}
    records = [r | {"id": numbers[r["id"]], "parent": numbers[r.get("parent")]} for r in FORUM]
    (tmp_path / "x.jsonl").write_bytes(lines(records))
    (tmp_path / "x.parquet").write_bytes(as_parquet(records))
    for name in ("x.jsonl", "x.parquet"):
        run(str(tmp_path / name), tmp_path / f"out-{name}")
        assert list(pairs(tmp_path / f"out-{name}")) == ["2", "3"]


def test_messages_may_come_through_a_pipe(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tertulia.corpus.mine import *;"
        "mine(MineConfig(source='-', out=Path(sys.argv[1]), vocabulary=300))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "out")]
    for _ in range(2):  # the second run finds that everything is done
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


def test_reddit_dumps_are_mined_with_their_submissions(tmp_path: Path) -> None:
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


def test_reddit_comments_are_mined_without_their_submissions(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(lines(DUMP))
    outcome = run(str(tmp_path / "c.jsonl"), tmp_path / "out")
    assert set(pairs(tmp_path / "out")) == {"t1_c4", "t1_c5"}
    assert outcome.funnel.removed["no parent"] == 0


@pytest.mark.parametrize(
    ("body", "expected"),
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
def test_edit_notes_are_cut_off(body: str, expected: str) -> None:
    parsed = parse_lines(lines([comment("c", "t3_s", body)]), SCHEMAS["reddit"], Cleaning())
    assert parsed.frame["text"][0].rstrip(".").strip() == expected
    unchanged = parse_lines(lines([comment("c", "t3_s", body)]), SCHEMAS["reddit"], Cleaning(edits=False))
    assert unchanged.frame["text"][0] == body


THREAT = "I will kill you and your whole family tonight"


@pytest.mark.parametrize("schema", ["reddit", "convokit"])
def test_raw_sources_are_judged_for_safety_unless_told_otherwise(schema: str, tmp_path: Path) -> None:
    """They carry no marks. What hangs below an unsafe message goes too, and "the process" may be killed."""
    texts = ["good morning everybody", THREAT, "that is not nice of you", "i will kill the process then"]
    parents = [None, "a", "b", "a"]
    records = [
        comment(name, f"t1_{parent}" if parent else "t3_s", text)
        if schema == "reddit"
        else {"id": name, "conversation_id": "a", "speaker": name, "text": text, "reply-to": parent}
        for name, parent, text in zip("abcd", parents, texts, strict=True)
    ]
    (tmp_path / "x.jsonl").write_bytes(lines(records))
    outcome = run(str(tmp_path / "x.jsonl"), tmp_path / "out")
    assert (outcome.funnel.removed["unsafe"], outcome.funnel.removed["subtree"], outcome.funnel.pairs) == (1, 1, 1)
    assert next(iter(pairs(tmp_path / "out").values()))[-1] == texts[-1]
    for mode in ("none", "marked"):
        assert run(str(tmp_path / "x.jsonl"), tmp_path / mode, unsafe=mode).funnel.pairs == 3


def test_messages_that_can_carry_marks_are_judged_by_these_alone_unless_told_otherwise(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(lines([FORUM[0], FORUM[1] | {"text": THREAT}]))
    assert run(str(tmp_path / "x.jsonl"), tmp_path / "auto").funnel.removed["unsafe"] == 0
    assert run(str(tmp_path / "x.jsonl"), tmp_path / "judged", unsafe="judged").funnel.removed["unsafe"] == 1


def test_messages_with_links_are_removed_or_only_the_links(tmp_path: Path) -> None:
    linked = [FORUM[0], FORUM[1] | {"text": "see [this page](https://x.org/a) or http://y.org/b?c=d it is good"}]
    (tmp_path / "x.jsonl").write_bytes(lines(linked))
    assert run(str(tmp_path / "x.jsonl"), tmp_path / "rule").funnel.removed["url"] == 1
    run(str(tmp_path / "x.jsonl"), tmp_path / "cut", links="cut")
    assert pairs(tmp_path / "cut")["b"][-1] == "see this page or  it is good"
    linked[1] = FORUM[1] | {
        "text": "on old.reddit.com/r/tea?x=1 and ftp://x.y i read a.b it is good enough for everybody"
    }
    (tmp_path / "y.jsonl").write_bytes(lines(linked))
    assert run(str(tmp_path / "y.jsonl"), tmp_path / "bare rule").funnel.removed["url"] == 1
    run(str(tmp_path / "y.jsonl"), tmp_path / "bare cut", links="cut")
    assert pairs(tmp_path / "bare cut")["b"][-1] == "on  and  i read a.b it is good enough for everybody"


@pytest.mark.parametrize(
    "names",
    [
        {"thread": "conversation_id", "parent": "reply-to", "author": "speaker"},
        {"thread": "root", "parent": "reply_to", "author": "user"},
    ],
)
def test_convokit_corpora_are_mined(tmp_path: Path, names: dict[str, str]) -> None:
    records = [{names.get(k, k): v for k, v in r.items()} | {"meta": {"x": 1}, "timestamp": 5} for r in FORUM]
    (tmp_path / "utterances.jsonl").write_bytes(lines(records))
    (tmp_path / "speakers.json").write_text("{}")
    (tmp_path / "corpus.json").write_text("{}")
    run(str(tmp_path), tmp_path / "out")
    assert pairs(tmp_path / "out") == EXPECTED


MORE = {"id": "m", "author": "ana", "text": "one more of these", "thread": "other"}
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
def test_damaged_lines_are_counted_with_their_numbers_or_rejected(tmp_path: Path, bad: bytes, block_bytes: int) -> None:
    good = lines(FORUM).splitlines()
    (tmp_path / "x.jsonl").write_bytes(b"\n".join([good[0], b"", bad, *good[1:], bad]))
    outcome = run(str(tmp_path / "x.jsonl"), tmp_path / "out", block_bytes=block_bytes)
    assert pairs(tmp_path / "out") == EXPECTED
    assert outcome.problems.count == 2
    assert [example.split(": ")[0].split(", ")[1] for example in outcome.problems.examples] == ["line 3", "line 6"]
    with pytest.raises(DamagedLine, match=r"x.jsonl, line [36]: "):
        run(str(tmp_path / "x.jsonl"), tmp_path / "strict", strict=True, block_bytes=block_bytes)


def test_damaged_parquet_rows_are_counted(tmp_path: Path) -> None:
    records = [FORUM[0], FORUM[1], FORUM[2] | {"text": None}]
    (tmp_path / "x.parquet").write_bytes(as_parquet(records))
    outcome = run(str(tmp_path / "x.parquet"), tmp_path / "out")
    assert "x.parquet, line 3" in outcome.problems.examples[0]
    assert list(pairs(tmp_path / "out")) == ["b"]


def test_duplicates_cycles_and_orphans_are_counted(tmp_path: Path) -> None:
    invalid = [
        FORUM[1],
        {"id": "x", "parent": "y", "author": "ana", "text": "round we go again", "thread": "t"},
        {"id": "y", "parent": "x", "author": "ana", "text": "round we go again and again", "thread": "t"},
        {"id": "o", "parent": "nowhere", "author": "ana", "text": "is anybody there at all", "thread": "t"},
        {"id": "n", "text": "nobody wrote this one", "thread": "t"},
    ]
    (tmp_path / "x.jsonl").write_bytes(lines(FORUM + invalid))
    outcome = run(str(tmp_path / "x.jsonl"), tmp_path / "out", strict=True)
    assert {k: v for k, v in outcome.funnel.removed.items() if v} == {"duplicate id": 1, "no parent": 3}
    assert pairs(tmp_path / "out") == EXPECTED


@pytest.mark.parametrize("meta", [{"rude": True}, {"unsafe": 1}, {"rude": "yes"}, {"unsafe": {"why": 1}}])
def test_truthy_flags_of_any_type_make_a_message_unsafe(tmp_path: Path, meta: Record) -> None:
    (tmp_path / "x.jsonl").write_bytes(lines([FORUM[0], FORUM[1] | {"meta": meta}]))
    assert run(str(tmp_path / "x.jsonl"), tmp_path / "out").funnel.removed["unsafe"] == 1


@pytest.mark.parametrize("meta", [{}, None, 5, "rude", [1], {"rude": False, "unsafe": 0}, {"rude": "", "unsafe": []}])
def test_falsy_or_malformed_marks_are_ignored(tmp_path: Path, meta: object) -> None:
    (tmp_path / "x.jsonl").write_bytes(lines([FORUM[0], FORUM[1] | {"meta": meta}]))
    outcome = run(str(tmp_path / "x.jsonl"), tmp_path / "out", strict=True)
    assert (outcome.funnel.removed["unsafe"], outcome.funnel.pairs) == (0, 1)


def test_phrases_of_the_lexicon_match_words_in_any_case(tmp_path: Path) -> None:
    (tmp_path / "lexicon.txt").write_text("you TOO\n\nmorn\n")
    (tmp_path / "x.jsonl").write_bytes(lines(FORUM))
    outcome = run(str(tmp_path / "x.jsonl"), tmp_path / "out", lexicon=tmp_path / "lexicon.txt")
    assert (outcome.funnel.removed["unsafe"], outcome.funnel.removed["subtree"]) == (1, 1)


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("x.parquet", b"no parquet", "not a readable Parquet"),
        ("x.jsonl.zst", b"no zstandard", "Cannot read"),
    ],
)
def test_unreadable_and_missing_files_are_clear_errors(tmp_path: Path, name: str, content: bytes, error: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=error):
        run(str(tmp_path / name), tmp_path / "out")
    with pytest.raises(DataError, match="File not found"):
        run(str(tmp_path / "nowhere"), tmp_path / "out")


FILLER = lines([MORE | {"id": f"m{n}", "text": f"one more of these, number {n}"} for n in range(4000)])
"""More than is decompressed at once."""
PARTS = [lines(FORUM), FILLER, lines([MORE])]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.jsonl.gz", b"".join(map(gzip.compress, PARTS))[:-9]),
        ("x.jsonl.gz", b"".join(map(gzip.compress, PARTS[:2])) + b"no member"),
        ("x.jsonl.zst", b"".join(map(zstandard.compress, PARTS))[:-9]),
        ("x.jsonl.zst", b"".join(map(zstandard.compress, PARTS[:2])) + zstandard.compress(PARTS[2])[:11]),
        ("x.jsonl.zst", b"".join(map(zstandard.compress, PARTS[:2])) + b"no frame"),
    ],
)
def test_compressed_files_that_are_cut_off_or_corrupt_are_damage(tmp_path: Path, name: str, content: bytes) -> None:
    """What can be read is mined and the rest counted; if strict, it is refused."""
    (tmp_path / name).write_bytes(content)
    outcome = run(str(tmp_path / name), tmp_path / "out")
    assert pairs(tmp_path / "out") == EXPECTED
    assert outcome.problems.count == 1
    assert "cannot be read to its end" in outcome.problems.examples[-1]
    with pytest.raises(DamagedLine, match="cannot be read to its end"):
        run(str(tmp_path / name), tmp_path / "strict", strict=True)


def test_a_file_that_is_corrupt_from_its_start_is_damage_beside_others(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "good.jsonl").write_bytes(lines(FORUM))
    (folder / "x.jsonl.zst").write_bytes(zstandard.compress(lines(FORUM))[:9] + b"\xff" * 50)
    outcome = run(str(folder), tmp_path / "out")
    assert pairs(tmp_path / "out") == EXPECTED
    assert outcome.problems.count == 1
    assert "cannot be read to its end" in outcome.problems.examples[0]
    with pytest.raises(DamagedLine, match="cannot be read to its end"):
        run(str(folder), tmp_path / "strict", strict=True)


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
def test_a_damaged_line_does_not_affect_the_others(encoded: list[bytes]) -> None:
    """Together or one by one: the same messages, and every line that is not empty is a message or damaged."""
    encoded = [line.replace(b"\n", b" ") for line in encoded]
    schema = SCHEMAS["messages"]
    together = parse_lines(b"\n".join(encoded), schema, Cleaning())
    separate = [parse_lines(line, schema, Cleaning()) for line in encoded if line.strip()]
    assert together.frame.rows() == [row for parsed in separate for row in parsed.frame.rows()]
    bad = {damage.line for damage in together.damage}
    assert together.frame.height + len(bad) == sum(bool(line.strip()) for line in encoded)
