"""Mining from and into an object store, which has neither locks nor renaming: a real S3 server on this machine."""

import functools
import gzip
import http.server
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard

from tertulia.artefacts.folders import open_folder
from tertulia.artefacts.stores import filesystem
from tertulia.cli.main import run
from tertulia.core.errors import DataError, MissingExtra, UsageError
from tertulia.corpus.mine import MineConfig, mine
from tertulia.corpus.mining.manifest import MANIFEST

from .conftest import config, fingerprint
from .test_resume import InterruptAfter, Interrupted

pytest.importorskip("s3fs", reason="the extra `stores` is not installed")
moto = pytest.importorskip("moto.server", reason="moto's server is not installed")
pytestmark = [
    # From aiobotocore: connections left to the garbage collector when the event loop has ended.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
LAYOUT = {"block_bytes": 1 << 19, "buckets": 3}


@pytest.fixture(scope="module")
def corpus(forum: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fifth of the forum: a store is slow."""
    small = tmp_path_factory.mktemp("corpus") / "forum.jsonl"
    small.write_bytes(b"".join(forum.read_bytes().splitlines(keepends=True)[:4000]))
    small.with_name("subwords.model").write_bytes(forum.with_name("subwords.model").read_bytes())
    return small


@pytest.fixture(scope="module")
def expected(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    out = tmp_path_factory.mktemp("expected")
    mine(config(corpus, out, **LAYOUT))
    return results(out)


@pytest.fixture(scope="module")
def store(corpus: Path) -> Iterator[Any]:
    """A bucket `corpora` with the forum in it."""
    server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server.start()
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**keys, "AWS_ENDPOINT_URL": "http://{}:{}".format(*server.get_host_and_port())}.items():
            patch.setenv(name, value)
        filesystem.cache_clear()
        fs, _ = filesystem("s3://corpora")
        fs.mkdir("corpora")
        fs.put_file(str(corpus), "corpora/in/forum.jsonl")
        yield fs
        filesystem.cache_clear()
    server.stop()


def results(out: Path) -> dict[str, str]:
    """Everything but the manifest, in which the input has another stamp."""
    return {name: digest for name, digest in fingerprint(out).items() if name != "manifest.json"}


def downloaded(store: Any, url: str, to: Path) -> Path:
    store.get(url.removeprefix("s3://"), str(to), recursive=True)
    return to


def settings(corpus: Path, url: str, **more: Any) -> Any:
    return config(corpus, url, **LAYOUT | {"source": "s3://corpora/in"} | more)  # type: ignore[arg-type]


def test_an_interrupted_run_in_a_store_continues_and_gives_the_bytes_of_a_disk(
    store: Any, corpus: Path, tmp_path: Path, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = "s3://corpora/out"
    for title, after in (("Reading messages", 1), ("Mining", 2)):
        with pytest.raises(Interrupted):
            mine(settings(corpus, url), InterruptAfter(title, after))
    assert "funnel.json" not in open_folder(url).sizes()
    assert len([name for name in open_folder(f"{url}/_work").sizes() if name.startswith("bundle")]) == 2
    outcome = mine(settings(corpus, url, workers=2))
    assert outcome.pairs == "s3://corpora/out/pairs"
    assert results(downloaded(store, url, tmp_path / "copy")) == expected
    assert mine(settings(corpus, url)) == outcome
    with pytest.raises(UsageError, match="buckets was 3, now 4"):
        mine(settings(corpus, url, buckets=4))
    assert [file.name for file in tmp_path.iterdir()] == ["copy"]  # no folder called s3:


def test_a_run_that_another_one_replaces_writes_no_funnel(store: Any, corpus: Path) -> None:
    url = "s3://corpora/contested"

    class StartOver:
        """Starts over with other settings, once the last stage has begun."""

        def step(self, title: str, total: int | None = None) -> None:
            if title == "Mining":
                store.pipe_file("corpora/contested/manifest.json", b'{"inputs": [], "rules": {}}')

        def advance(self, n: int = 1) -> None: ...

        def note(self, text: str) -> None: ...

    with pytest.raises(DataError, match="Another run has started over in s3://corpora/contested"):
        mine(settings(corpus, url), StartOver())
    assert set(open_folder(url).sizes()) == {MANIFEST, "subwords.model"}
    assert open_folder(f"{url}/pairs").sizes() == {}


def test_only_one_of_two_writers_creates_a_file(store: Any) -> None:
    folder = open_folder("s3://corpora/race")
    assert [folder.create("manifest.json", content) for content in (b"first", b"second")] == [True, False]
    assert folder.read("manifest.json") == b"first"
    folder.remove(["manifest.json", "never there"])
    assert folder.sizes() == {}


def test_the_command_line_writes_to_a_store_and_refuses_what_needs_a_disk(
    store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["corpus", "mine", "sample", "--vocabulary", "400", "--out"]
    with pytest.raises(SystemExit, match=r"^0$"):
        run([*command, "s3://corpora/sample", "--json"])
    assert orjson.loads(capsys.readouterr().out)["out"] == "s3://corpora/sample"
    assert {"funnel.svg", "funnel.json", "config.toml"} <= set(open_folder("s3://corpora/sample").sizes())
    for more, words in ((["--dialogues"], "cannot write to s3://"), (["--threads", "rules"], "--threads cannot")):
        with pytest.raises(SystemExit) as exit_code:
            run(["corpus", "mine", "sample", "--out", "s3://corpora/other", *more])
        assert exit_code.value.code == 2
        assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []  # no folder called s3:


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("s3://corpora/nothing", "File not found: s3://corpora/nothing"),
        ("s3://nowhere/x.jsonl", "File not found"),
        ("nonsense://x/y.jsonl", "Protocol not known: nonsense"),
    ],
)
def test_an_address_without_messages_is_a_clear_error(store: Any, tmp_path: Path, url: str, error: str) -> None:
    with pytest.raises((DataError, UsageError), match=error):
        mine(config(tmp_path / "x", tmp_path / "out", source=url, subwords=None))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("package", "url", "advice"),
    [
        ("gcsfs", "gs://bucket/x.jsonl", "pip install gcsfs"),
        ("huggingface_hub", "hf://datasets/o/n/x.jsonl", "pip install huggingface_hub"),
        ("s3fs", "s3://bucket/x.jsonl", r"pip install 'tertulia\[stores\]'"),
    ],
)
def test_a_missing_package_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, url: str, advice: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    filesystem.cache_clear()
    with pytest.raises(MissingExtra, match=advice):
        mine(config(tmp_path / "x", tmp_path / "out", source=url, subwords=None))


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("x.jsonl", bytes),
        ("x.jsonl.gz", gzip.compress),
        ("x.jsonl.zst", lambda text: zstandard.compress(text[:5000]) + zstandard.compress(text[5000:])),
    ],
)
def test_files_of_a_web_server_are_mined_like_files(corpus: Path, tmp_path: Path, name: str, pack: Any) -> None:
    """Whether or not it answers requests for parts of a file, which Python's own server does not."""
    folder = tmp_path / "served"
    folder.mkdir()
    text = b"".join(corpus.read_bytes().splitlines(keepends=True)[:500])
    (folder / name).write_bytes(pack(text))
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/{name}"
        subwords = {"subwords": corpus.with_name("subwords.model"), "block_bytes": 1 << 19}
        outcome = mine(config(corpus, tmp_path / "out", source=url, **subwords))
        server.shutdown()
    assert outcome.funnel.messages == 500
    assert outcome.problems.count == 0


class _Hub(http.server.BaseHTTPRequestHandler):
    """As much of the Hugging Face hub as its client asks for: one dataset of one file."""

    content = b""

    def do_HEAD(self) -> None:
        self._answer(self.content, {"X-Repo-Commit": "0" * 40, "ETag": '"e"'})

    def do_GET(self) -> None:
        if "/resolve/" in self.path:
            first, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")
            part = self.content[int(first) : int(last) + 1 if last else None]
            return self._answer(part, {"Content-Range": f"bytes {first}-{last}/{len(self.content)}"}, 206)
        if "/tree/" in self.path:
            return self._answer(json.dumps([self._file()]).encode())
        return self._answer(json.dumps({"id": "o/n", "sha": "0" * 40, "siblings": [], "tags": []}).encode())

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self._answer(json.dumps([self._file()] if "x.jsonl" in asked else []).encode())

    def _file(self) -> dict[str, Any]:
        return {"type": "file", "path": "x.jsonl", "size": len(self.content), "oid": "1" * 40}

    def _answer(self, body: bytes, headers: dict[str, str] | None = None, code: int = 200) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args: object) -> None: ...


MINE = """
import sys
from pathlib import Path
from tertulia.corpus.mine import MineConfig, mine
mine(MineConfig(source=sys.argv[1], out=Path(sys.argv[2]), subwords=Path(sys.argv[3])))
"""


def test_a_dataset_of_the_hugging_face_hub_is_mined_like_a_file(corpus: Path, tmp_path: Path) -> None:
    """By the hub's own client, which takes its address from the environment when it is imported."""
    text = b"".join(corpus.read_bytes().splitlines(keepends=True)[:500])
    (tmp_path / "x.jsonl").write_bytes(text)
    model = corpus.with_name("subwords.model")
    mine(MineConfig(source=str(tmp_path / "x.jsonl"), out=tmp_path / "disk", subwords=model))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Hub", (_Hub,), {"content": text})) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        hub = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": ""}
        hub |= {"HF_HUB_OFFLINE": "0"}
        command = [sys.executable, "-c", MINE, "hf://datasets/o/n/x.jsonl", str(tmp_path / "hub"), str(model)]
        done = subprocess.run(command, env=os.environ | hub, capture_output=True, text=True, check=False)
        server.shutdown()
    assert done.returncode == 0, done.stderr
    assert results(tmp_path / "hub") == results(tmp_path / "disk")
    (source,) = json.loads((tmp_path / "hub" / MANIFEST).read_text())["inputs"]
    assert source["size"] == len(text)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None: ...


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # from Ray's start
def test_machines_without_a_shared_disk_give_the_bytes_of_a_disk_even_if_one_is_lost(
    store: Any, corpus: Path, tmp_path: Path, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two Ray nodes with folders of their own, which meet in the store only; one is killed in the last stage."""
    ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    folders = [tmp_path / "node 1", tmp_path / "node 2"]
    nodes = []
    for folder in folders:
        folder.mkdir()
        monkeypatch.setenv("TMPDIR", str(folder))
        nodes.append(cluster.add_node(num_cpus=1))
    monkeypatch.delenv("TMPDIR")
    lost: list[Any] = []

    class Loss:
        """A node is lost, and with it the disk of that machine."""

        def step(self, title: str, total: int | None = None) -> None:
            self.mining = title == "Mining"

        def advance(self, n: int = 1) -> None:
            if self.mining and not lost:
                lost.append(nodes.pop())
                cluster.remove_node(lost[0], allow_graceful=False)
                shutil.rmtree(folders[1])

        def note(self, text: str) -> None: ...

    url = "s3://corpora/cluster"
    try:
        mine(settings(corpus, url, engine="ray", address=cluster.address, buckets=3), Loss())
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert len(lost) == 1
    assert results(downloaded(store, url, tmp_path / "copy")) == expected
    assert [file for file in folders[0].iterdir() if file.name.startswith("tertulia-")] == []
