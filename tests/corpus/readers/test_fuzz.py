"""Every format of dialogues and logs, mutated: read or refused in words, within bounds of time and memory."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tertulia.core.codec import Problems
from tertulia.core.errors import DataError
from tertulia.corpus.chatlogs.gold import read_gold
from tertulia.corpus.chatlogs.read import read_logs
from tertulia.corpus.load import load_exchanges

LINES = range(40)
DISCORD = [
    {
        "id": str(i),
        "type": "Reply",
        "timestamp": f"2026-03-02T23:{i:02d}:11.123+00:00",
        "content": "@Ada L. no",
        "author": {"id": "2", "name": "bob stone"},
        "reference": {"messageId": str(i - 1)},
        "mentions": [{"id": "1", "name": "ada", "nickname": "Ada L."}],
    }
    for i in LINES
]
SLACK = [
    {
        "user": f"U{i % 3}",
        "text": "no, <@U1> &amp; <https://x.org|it>",
        "ts": f"177243{i}.02",
        "thread_ts": "1772430.02",
    }
    for i in LINES
]
LOGS = {
    "2010-02-13.raw.txt": "".join(
        f"[0{i % 9}:15] <n{i % 5}> n{(i + 1) % 5}: how are you\n=== x joined\n" for i in LINES
    ),
    "irssi.log": "--- Log opened Mon Mar 02 10:00:00 2026\n" + "".join(f"10:{i:02d} <@n{i}> hi\n" for i in LINES),
    "room.weechatlog": "".join(f"2026-03-02 10:00:{i:02d}\tn{i % 4}\thi there\n" for i in LINES),
    "energymech.log": "".join(f"[10:{i:02d}] <n{i}> hi\n[10:{i:02d}] *** Joins: x\n" for i in LINES),
    "generic.txt": "".join(f"2026-03-02T10:{i:02d}:11Z n{i}: hi\n* n{i} waves\n" for i in LINES),
    "rooms.ascii.txt": "".join(f"#r{i % 2} 2026-03-02 10:{i:02d} <n{i % 7}> hi all\n" for i in LINES),
    "dated.ascii.txt": "".join(f"[2026-03-0{1 + i // 20} 10:{i:02d}:00] <n{i % 7}> hi all\n" for i in LINES),
    "slack.json": json.dumps(SLACK),
    "discord.json": json.dumps({"channel": {"name": "help"}, "messages": DISCORD}),
}

_FUZZ = """
import json, random, resource, sys, time
from pathlib import Path
from tertulia.core.codec import Problems
from tertulia.core.errors import TertuliaError
from tertulia.corpus.chatlogs.lowe import LoweRules, extract_dialogues
from tertulia.corpus.chatlogs.read import read_logs, with_nicks_before
from tertulia.corpus.load import load_exchanges

WORDS = [b"9999-12-31 23:59", b"0001-01-01", b"1e400", b"-1", b"nan", b"null", b"[" * 3000, b'"', b"\\xff\\xfe",
         b"\\x00", b"\\r", b"\\xe2\\x80\\xa8", b"<" * 500, b"12:61", b"\\t", b"{}",
         b"\\xef\\xbb\\xbf", b"99999999999999999999"]

def mutated(content, rng):
    content = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at, kind = rng.randrange(len(content) + 1), rng.randrange(4)
        if kind == 0:
            content[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            content[at:at] = rng.choice(WORDS)
        elif kind == 2:
            del content[at : at + rng.randint(1, 30)]
        else:
            other = rng.randrange(len(content) + 1)
            content[at:at] = content[other : other + rng.randint(1, 60)]
    return bytes(content)

def read(file, name):
    if name:
        return list(load_exchanges(file, format=name, problems=Problems()))
    logs = list(with_nicks_before(read_logs(file, problems=Problems())))
    return [extract_dialogues(log, LoweRules(), nicks_before=nicks) for log, nicks in logs]

folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
slowest, crashes, count, refused = (0.0, ""), [], 0, 0
for label, (path, name) in json.loads((folder / "files.json").read_text()).items():
    file = Path(path)
    original = file.read_bytes()
    for number in range(rounds):
        rng = random.Random(f"{label} {number}")
        file.write_bytes(mutated(original, rng))
        start = time.process_time()
        try:
            read(file, name)
        except TertuliaError:
            refused += 1
        except Exception as error:
            crashes.append(f"{label} {number}: {type(error).__name__}: {error}")
        count += 1
        slowest = max(slowest, (time.process_time() - start, f"{label} {number}"))
    file.write_bytes(original)
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
print(json.dumps({"count": count, "refused": refused, "crashes": crashes, "slowest": slowest, "grown": grown}))
"""


def test_mutated_files_are_read_or_refused_within_bounds(
    original: Callable[..., Path], originals: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    files = {name: (str(original(name, tmp_path / name)), name) for name in originals}
    for name, content in LOGS.items():
        for packed in ("", ".gz") if not name.endswith((".json", ".weechatlog")) else ("",):
            file = tmp_path / f"logs{packed}" / (name + packed)
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(gzip.compress(content.encode(), mtime=0) if packed else content.encode())
            files[f"log {name}{packed}"] = (str(file), "")
    (tmp_path / "files.json").write_text(json.dumps(files))
    done = subprocess.run(
        [sys.executable, "-c", _FUZZ, tmp_path, "15"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["crashes"] == []
    assert report["count"] == 15 * len(files) > 400
    assert 0 < report["refused"] < report["count"]
    assert report["slowest"][0] < 5  # CPU seconds, of files of some kilobytes
    assert report["grown"] < 300  # MiB, over all files


def test_a_clock_far_in_the_future_costs_no_time(tmp_path: Path) -> None:
    lines = ["9999-12-31 23:59 <a> hi", *("2020-01-01 10:00 <b> ho", "10:01 <a> undated") * 2000]
    (tmp_path / "x.log").write_text("\n".join(lines))
    logs = list(read_logs(tmp_path / "x.log"))
    assert sum(len(log.lines) for log in logs) == 4001


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", ["x.log", "x.json", "x.jsonl", "x.txt.gz"])
def test_utf_16_is_called_by_its_name(tmp_path: Path, encoding: str, name: str) -> None:
    content = ('[{"ts": "1"}]' if "json" in name else "[10:00] <ana> hello\n").encode(encoding)
    file = tmp_path / name
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(DataError, match="is UTF-16, not UTF-8") as error:
        list(read_logs(file))
    assert "iconv -f UTF-16" in error.value.hint
    with pytest.raises(DataError, match="is UTF-16, not UTF-8"):
        list(load_exchanges(file))


def test_a_pipe_is_read_and_one_in_a_folder_is_left_alone(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["/bin/sh", "-c", f"printf '[10:00] <ana> hi\\n[10:01] <ben> ho\\n' > {pipe}"]):
        (log,) = read_logs(pipe)
    assert [line.nick for line in log.lines] == ["ana", "ben"]
    folder = tmp_path / "logs"
    folder.mkdir()
    os.mkfifo(folder / "stuck.log")
    (folder / "x.log").write_text("[10:00] <ana> hi\n")
    assert [log.name for log in read_logs(folder)] == ["x"]
    with pytest.raises(DataError, match="neither a file nor a folder"):
        load_exchanges(pipe)


def test_one_bad_message_of_an_export_is_counted_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    broken = [3, {"ts": "never"}, {"ts": "1e300"}, {"ts": "inf"}, {"user": "U1"}]
    (tmp_path / "logs" / "slack.json").write_text(json.dumps([*SLACK, *broken]))
    messages = [*DISCORD, None, {"id": "x"}, DISCORD[0] | {"timestamp": "0000"}, DISCORD[0] | {"author": 3}]
    (tmp_path / "logs" / "discord.json").write_text(json.dumps({"channel": {}, "messages": messages}))
    problems = Problems()
    logs = list(read_logs(tmp_path / "logs", problems=problems))
    assert sum(len(log.lines) for log in logs) == len(SLACK) + len(DISCORD)
    assert problems.count == 9
    assert f"{tmp_path / 'logs' / 'discord.json'}, line 41: not a message" in problems.examples[0]
    with pytest.raises(DataError, match="line 41"):
        list(read_logs(tmp_path / "logs"))
    (tmp_path / "logs" / "slack.json").write_text(json.dumps(broken))
    with pytest.raises(DataError, match="None of the 5 messages"):
        list(read_logs(tmp_path / "logs" / "slack.json", problems=Problems()))


def test_logs_that_name_their_room_and_logs_in_plain_letters_are_read(tmp_path: Path) -> None:
    for name in ("rooms.ascii.txt", "dated.ascii.txt"):
        (tmp_path / name).write_text(LOGS[name])
    logs = {log.name: log for log in read_logs(tmp_path)}
    assert list(logs) == [
        "dated@2026-03-01",
        "dated@2026-03-02",
        "rooms/#r0@2026-03-02",
        "rooms/#r1@2026-03-02",
    ]
    assert [line.number for line in logs["rooms/#r1@2026-03-02"].lines] == list(range(1, 40, 2))
    assert {(log.room, len(log.lines)) for log in logs.values() if "rooms" in log.name} == {("#r0", 20), ("#r1", 20)}
    assert all(line.kind == "message" for log in logs.values() for line in log.lines)
    (tmp_path / "dated.raw.txt").write_text("[10:00] <ana> hi\n")  # beside it, the plain letters are a copy
    assert next(log.name for log in read_logs(tmp_path)) == "dated"
    (tmp_path / "dated.raw.txt").unlink()
    (tmp_path / "dated.annotation.txt").write_text("0 0 -\n0 1 -\n")
    (gold,) = read_gold(tmp_path)
    assert (len(gold.log.lines), gold.links[1]) == (40, frozenset({0}))


def test_a_corrupt_file_among_dialogues_is_skipped_when_a_folder_is_recognised(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"2010-02-13T01:02:00.000Z\tana\t\thi\n" * 50, mtime=0))
    packed[12:20] = b"\xff" * 8
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "1.tsv.gz").write_bytes(packed)
    with pytest.raises(DataError):
        list(load_exchanges(tmp_path, problems=Problems()))
