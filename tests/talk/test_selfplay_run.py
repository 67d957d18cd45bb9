"""The bytes of self-play do not depend on processes, engines or kills, and nothing foreign is overwritten."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tertulia import sample
from tertulia.artefacts.manifest import read_manifest
from tertulia.core.config import validate
from tertulia.core.errors import BotError, DataError, UsageError
from tertulia.core.progress import Silent
from tertulia.corpus.load import load_dialogues
from tertulia.models.checkpoint import read_manifest as read_checkpoint
from tertulia.models.checkpoint import seal
from tertulia.models.generators.hred import HRED, HREDConfig
from tertulia.models.generators.transformer import Transformer, TransformerConfig
from tertulia.models.tokenizer import WordTokenizer
from tertulia.talk.selfplay import SelfplayConfig, SelfplayOutcome, run_selfplay
from tertulia.talk.selfplay.run import CONVERSATIONS, KIND, PLAN, WORK

FAST = "samples=2&max_tokens=6"


@pytest.fixture(scope="module")
def bots(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Real bots: retrieval, a tiny Transformer and a tiny HRED, saved as training runs are."""
    folder = tmp_path_factory.mktemp("bots")
    tokenizer = WordTokenizer.learn(turn.text for d in sample.dialogues("valid")[:5] for turn in d.turns)
    transformer = Transformer.untrained(TransformerConfig(d_model=16, heads=2, decoder_layers=1), tokenizer)
    hred = HRED.untrained(HREDConfig(dim=8, encoder=8, context=12, decoder=8), tokenizer)
    for name, model in (("transformer", transformer), ("hred", hred)):
        seal(folder / name, bot=name, model=name, files=model.save(folder / name), training={})
    return ("anna=tfidf:sample", f"ben={folder / 'transformer'}?{FAST}", f"{folder / 'hred'}?{FAST}")


@pytest.fixture(scope="module")
def expected(bots: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The conversations of an undisturbed run in this process."""
    out = tmp_path_factory.mktemp("expected")
    run(bots, out)
    return (out / CONVERSATIONS).read_bytes()


def run(bots: tuple[str, ...], out: Path, progress: Any = None, **values: Any) -> SelfplayOutcome:
    settings = {"with_itself": True, "conversations": 3, "turns": 4, "shard": 2, "personas": "sample"} | values
    return run_selfplay(validate(SelfplayConfig, {"bots": bots, "out": out, **settings}, where="the test"), progress)


class Stops(Silent):
    """Interrupts after some turns, as Ctrl-C would."""

    def __init__(self, turns: int) -> None:
        self.left = turns

    def advance(self, n: int = 1) -> None:
        self.left -= n
        if self.left < 0:
            raise KeyboardInterrupt


def test_conversations_and_their_provenance(bots: tuple[str, ...], expected: bytes, tmp_path: Path) -> None:
    out = tmp_path / "out"
    outcome = run(bots, out)
    dialogues = list(load_dialogues(out))
    assert (out / CONVERSATIONS).read_bytes() == expected
    assert {file.name for file in out.iterdir()} == {CONVERSATIONS, "manifest.json"}
    assert [(d.meta["names"], d.speakers) for d in dialogues[::3]] == [
        (["anna", "anna"], ("anna", "anna (2)")),
        (["ben", "ben"], ("ben", "ben (2)")),
        (["hred", "hred"], ("A", "B")),
    ]
    folder = bots[2].partition("?")[0]
    last = dialogues[-1]
    assert last.meta["bots"] == [bots[2]] * 2
    facts = last.meta["selfplay"]
    assert (facts["pairing"], facts["index"], facts["seed"], facts["opener"]) == ("hred", 2, 0, None)
    provenance = last.turns[-1].meta["provenance"]
    assert provenance["checkpoint"] == read_checkpoint(Path(folder)).fingerprint
    assert provenance["settings"]["samples"] == 2
    assert len({t.meta["provenance"]["seed"] for d in dialogues for t in d.turns[1:]}) == 27
    assert [len(d.personas) for d in dialogues] == [2] * 9
    about = read_manifest(out, kind=KIND, format=1).about
    assert about["run"] == facts["run"]
    assert set(about["seconds"]) == {"anna", "ben", "hred"}
    assert [(one.name, one.conversations, one.turns) for one in outcome.pairings] == [
        (name, 3, 12) for name in ("anna", "ben", "hred")
    ]
    assert 0 < outcome.pairings[0].distinct2["anna"].value <= 1


@pytest.mark.slow
def test_processes_do_not_change_the_bytes(bots: tuple[str, ...], expected: bytes, tmp_path: Path) -> None:
    run(bots, tmp_path, processes=2)
    assert (tmp_path / CONVERSATIONS).read_bytes() == expected


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ray_does_not_change_the_bytes(bots: tuple[str, ...], expected: bytes, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    run(bots, tmp_path, engine="ray", processes=2)
    assert (tmp_path / CONVERSATIONS).read_bytes() == expected


def test_an_interrupted_run_continues_and_keeps_finished_shards(
    bots: tuple[str, ...], expected: bytes, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(bots, tmp_path, Stops(14))
    shards = {file.name: file.stat().st_mtime_ns for file in (tmp_path / WORK).glob("*.jsonl")}
    assert sorted(shards) == ["000000.jsonl", "000001.jsonl"]
    assert not (tmp_path / CONVERSATIONS).exists()
    with pytest.raises(UsageError, match="turns was 4, now 5"):
        run(bots, tmp_path, turns=5)
    assert {file.name: file.stat().st_mtime_ns for file in (tmp_path / WORK).glob("*.jsonl")} == shards
    outcome = run(bots, tmp_path)
    assert (outcome.continued, outcome.shards) == (2, 6)
    assert (tmp_path / CONVERSATIONS).read_bytes() == expected


@pytest.mark.slow
def test_a_killed_command_continues_with_the_same_bytes(tmp_path: Path) -> None:
    arguments = ("-n", "60", "--turns", "6", "--shard", "1", "--processes", "2", "--json")
    command = [sys.executable, "-m", "tertulia", "selfplay", "tfidf", *arguments, "--out", "out"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while len(list((tmp_path / "out" / WORK).glob("*.jsonl"))) < 3:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
    saved = len(list((tmp_path / "out" / WORK).glob("*.jsonl")))
    assert 3 <= saved < 60
    assert not (tmp_path / "out" / CONVERSATIONS).exists()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    figures = json.loads(done.stdout)
    assert saved <= figures["continued"] < figures["shards"] == 60
    run(("tfidf",), tmp_path / "other", conversations=60, turns=6, shard=1, personas="none")
    files = [tmp_path / name / CONVERSATIONS for name in ("out", "other")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_finished_run_is_not_played_again_and_another_command_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(("generic",), out)
    written = (out / CONVERSATIONS).stat().st_mtime_ns
    outcome = run(("generic",), out)
    assert outcome.continued == outcome.shards == 2
    with pytest.raises(UsageError, match=r"another command: other bots"):
        run(("generic?to_statements=no",), out)
    assert (out / CONVERSATIONS).stat().st_mtime_ns == written
    with pytest.raises(KeyboardInterrupt):
        run(("generic?to_statements=no",), out, Stops(6), force=True)
    assert (out / CONVERSATIONS).stat().st_mtime_ns == written  # until the new one is complete
    assert run(("generic?to_statements=no",), out).continued == 1
    assert {t.text for d in load_dialogues(out) for t in d.turns} == {"Hi!", "no"}
    read_manifest(out, kind=KIND, format=1)


@pytest.mark.parametrize("name", ["notes.txt", CONVERSATIONS, "manifest.json"])
def test_a_foreign_folder_is_refused_even_by_force(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"kind": "model"}\n', encoding="utf-8")
    for force in (False, True):
        with pytest.raises(UsageError, match="not written by self-play"):
            run(("generic",), tmp_path, force=force)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text(encoding="utf-8") == '{"kind": "model"}\n'


def test_a_file_is_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "x.jsonl"
    out.write_text("mine\n", encoding="utf-8")
    with pytest.raises(UsageError, match="was not written by this command"):
        run(("generic",), out)
    assert out.read_text(encoding="utf-8") == "mine\n"
    run(("generic",), out, force=True)
    first = out.read_bytes()
    assert run(("generic",), out).continued == 2
    with pytest.raises(UsageError, match="was not written by this command"):
        run(("generic",), out, seed=1)
    assert out.read_bytes() == first
    with pytest.raises(KeyboardInterrupt):
        run(("generic",), out, Stops(6), seed=1, force=True)
    assert out.read_bytes() == first  # until the new one is complete
    run(("generic",), out, seed=1)
    assert out.read_bytes() != first
    assert [file.name for file in tmp_path.iterdir()] == [out.name]


def test_a_damaged_shard_is_reported(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(("generic",), tmp_path, Stops(6))
    assert (tmp_path / WORK / PLAN).is_file()
    (tmp_path / WORK / "000000.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match=r"000000.jsonl is damaged"):
        run(("generic",), tmp_path)


def test_a_bot_that_cannot_be_loaded_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not the folder of a finished training run"):
        run(("hred:nowhere",), tmp_path / "new" / "out")
    with pytest.raises(UsageError, match="not the folder of a finished training run"):
        run(("hred:nowhere",), tmp_path / "x.jsonl")
    assert not (tmp_path / "new" / "out").exists()
    assert [file.name for file in tmp_path.iterdir()] == ["new"]


class Endpoint(BaseHTTPRequestHandler):
    """Replies with the number of messages, or fails while it is down."""

    is_down = True

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = {"role": "assistant", "content": f"{len(body['messages'])} messages"}
        answer = {"model": "m", "choices": [{"message": message, "finish_reason": "stop"}]}
        self.send_response(500 if Endpoint.is_down else 200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({"error": "down"} if Endpoint.is_down else answer).encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        pass


@contextmanager
def endpoint() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


def test_a_failing_bot_fails_after_the_others_and_is_tried_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with endpoint() as address:
        bots = (f"remote=openai:m?base_url={address}&retries=0", "generic")
        Endpoint.is_down = True
        with pytest.raises(BotError, match=r"2 of 4 shards failed, of 'remote'.*500") as error:
            run(bots, out)
        assert "run the same command again" in error.value.hint
        assert sorted(file.name for file in (out / WORK).glob("*.jsonl")) == ["000002.jsonl", "000003.jsonl"]
        Endpoint.is_down = False
        assert run(bots, out).continued == 2
    texts = [[t.text for t in d.turns] for d in load_dialogues(out)]
    assert len(texts) == 6
    assert all(text.endswith("messages") for text in texts[0][1:])
    assert texts[3][1:] == ["ok"] * 3
