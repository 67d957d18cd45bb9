"""`get_dataset` against a real server in this process: resuming, verifying, unpacking, rejecting."""

import gzip
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tertulia.core.errors import DataError, UnknownName, UsageError
from tertulia.corpus import fetch as fetching
from tertulia.corpus.catalog import CATALOG, RECORD, Dataset, Download, get_dataset
from tertulia.corpus.fetch import FetchError
from tertulia.corpus.load import corpus_in, load_dialogues
from tertulia.corpus.registry import READERS
from tertulia.corpus.unpack import unpack

LINE = json.dumps({"id": "d", "utterances": ["hi", "hello"]}) + "\n"
DATA = bytes(range(256)) * 4000


class Server:
    """Serves bytes by path, with ranges and entity tags, and can close the connection after a number of bytes."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.tags = True
        self.ranges = True
        self.close_after: list[int] = []
        self.requests: list[tuple[str, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        wanted = request.headers.get("Range")
        self.requests.append((request.path, wanted))
        body = self.files.get(request.path)
        if body is None:
            request.send_error(404)
            return
        tag = f'"{hashlib.sha256(body).hexdigest()[:8]}"'
        start = 0
        if wanted and self.ranges and request.headers.get("If-Range") == tag:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        if start >= len(body) and start:
            request.send_error(416)
            return
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if self.tags:
            request.send_header("ETag", tag)
        request.send_header("Content-Length", str(len(body) - start))
        request.end_headers()
        limit = self.close_after.pop(0) if self.close_after else len(body)
        request.wfile.write(body[start : start + limit])
        request.close_connection = True

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


def catalog_of(
    server: Server, file: str, data: bytes, *, sha256: str | None = None, reader: str = ""
) -> dict[str, Dataset]:
    server.files[f"/{file}"] = data
    download = Download(file, (f"{server.url}/{file}",), sha256)
    return {"it": Dataset("it", "a test", "CC0-1.0", (download,), reader)}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def zipped(**members: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return out.getvalue()


def tarred(*members: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def test_a_published_hash_is_verified_and_the_download_recorded(server: Server, tmp_path: Path) -> None:
    data = zipped(**{"set/train.jsonl": LINE, "set/valid.jsonl": LINE, "__MACOSX/._x": "shadow"})
    catalog = catalog_of(server, "set.zip", data, sha256=sha(data), reader="personachat")
    result = get_dataset("it", tmp_path, catalog=catalog)
    assert (result.files, result.downloaded, result.unverified) == (["set/train.jsonl", "set/valid.jsonl"], True, [])
    assert corpus_in(tmp_path) == tmp_path / "set"
    assert len(list(load_dialogues(tmp_path / "set"))) == 2
    record = json.loads((tmp_path / RECORD).read_text())
    assert (record["corpus"], record["licence"], record["format"]) == ("it", "CC0-1.0", "personachat")
    (entry,) = record["files"]
    assert (entry["sha256"], entry["bytes"], entry["checked"]) == (sha(data), len(data), "published")
    assert not [f for f in tmp_path.rglob("*") if f.name.endswith((".partial", ".tag", ".unfinished"))]


def test_existing_files_are_not_downloaded_again(server: Server, tmp_path: Path) -> None:
    catalog = catalog_of(server, "x.jsonl.gz", gzip.compress(LINE.encode()))
    first = get_dataset("it", tmp_path, catalog=catalog)
    assert (first.files, first.unverified) == (["x.jsonl"], ["x.jsonl.gz"])
    before = json.loads((tmp_path / RECORD).read_text())
    again = get_dataset("it", tmp_path, catalog=catalog)
    assert (again.files, again.downloaded, again.unverified) == (["x.jsonl"], False, [])
    assert len(server.requests) == 1
    assert json.loads((tmp_path / RECORD).read_text()) == before
    (tmp_path / "x.jsonl").unlink()
    assert get_dataset("it", tmp_path, catalog=catalog).files == ["x.jsonl"]
    assert (tmp_path / "x.jsonl").is_file()


def test_a_wrong_hash_is_rejected(server: Server, tmp_path: Path) -> None:
    catalog = catalog_of(server, "x.txt", b"forged", sha256=sha(b"true"))
    with pytest.raises(DataError, match=f"SHA-256 is {sha(b'forged')}, the one published is {sha(b'true')}"):
        get_dataset("it", tmp_path, catalog=catalog)
    assert not (tmp_path / RECORD).exists()


def test_a_change_after_the_first_use_is_rejected(server: Server, tmp_path: Path) -> None:
    catalog = catalog_of(server, "x.txt", b"one")
    assert get_dataset("it", tmp_path, catalog=catalog).unverified == ["x.txt"]
    server.files["/x.txt"] = b"two"
    (tmp_path / "x.txt").unlink()
    with pytest.raises(DataError, match=rf"the one recorded in sources\.json is {sha(b'one')}"):
        get_dataset("it", tmp_path, catalog=catalog)


def test_a_dropped_connection_is_resumed(server: Server, tmp_path: Path) -> None:
    catalog = catalog_of(server, "x.bin", DATA, sha256=sha(DATA))
    server.close_after = [300_000, 100]
    assert get_dataset("it", tmp_path, catalog=catalog).downloaded
    assert (tmp_path / "x.bin").read_bytes() == DATA
    assert [wanted for _, wanted in server.requests] == [None, "bytes=300000-", "bytes=300100-"]


def test_the_next_call_resumes_a_partial_file(server: Server, tmp_path: Path) -> None:
    catalog = catalog_of(server, "x.bin", DATA, sha256=sha(DATA))
    server.close_after = [1000] * fetching.ATTEMPTS
    with pytest.raises(FetchError, match=r"interrupted 4 times .*partial file is kept"):
        get_dataset("it", tmp_path, catalog=catalog)
    assert (tmp_path / "x.bin.partial").stat().st_size == 4000
    get_dataset("it", tmp_path, catalog=catalog)
    assert server.requests[-1][1] == "bytes=4000-"
    assert (tmp_path / "x.bin").read_bytes() == DATA
    assert sorted(f.name for f in tmp_path.iterdir()) == [RECORD, "x.bin"]


def test_a_changed_file_on_the_server_is_downloaded_from_the_start(server: Server, tmp_path: Path) -> None:
    catalog = catalog_of(server, "x.bin", DATA)
    server.close_after = [1000] * fetching.ATTEMPTS
    with pytest.raises(FetchError):
        get_dataset("it", tmp_path, catalog=catalog)
    server.files["/x.bin"] = DATA[::-1]
    get_dataset("it", tmp_path, catalog=catalog)
    assert (tmp_path / "x.bin").read_bytes() == DATA[::-1]


@pytest.mark.parametrize("what", ["tags", "ranges"])
def test_without_tags_or_ranges_an_interrupted_download_starts_over(server: Server, tmp_path: Path, what: str) -> None:
    setattr(server, what, False)
    catalog = catalog_of(server, "x.bin", DATA, sha256=sha(DATA))
    server.close_after = [1000]
    get_dataset("it", tmp_path, catalog=catalog)
    assert (tmp_path / "x.bin").read_bytes() == DATA


def test_a_partial_file_longer_than_the_file_is_discarded(server: Server, tmp_path: Path) -> None:
    catalog = catalog_of(server, "x.bin", b"short", sha256=sha(b"short"))
    (tmp_path / "x.bin.partial").write_bytes(b"far too long")
    (tmp_path / "x.bin.partial.tag").write_text(f'"{sha(b"short")[:8]}"')
    get_dataset("it", tmp_path, catalog=catalog)
    assert (tmp_path / "x.bin").read_bytes() == b"short"


def test_a_missing_file_is_reported(server: Server, tmp_path: Path) -> None:
    catalog = catalog_of(server, "x.txt", b"x")
    server.files.clear()
    with pytest.raises(
        FetchError,
        match=rf"{server.url}/x\.txt returned 404 Not Found.\n.*download it with another program to .*x\.txt",
    ):
        get_dataset("it", tmp_path, catalog=catalog)


def test_the_second_url_is_tried(server: Server, tmp_path: Path) -> None:
    server.files["/new"] = b"x"
    download = Download("x.txt", (f"{server.url}/old", f"{server.url}/new"))
    get_dataset("it", tmp_path, catalog={"it": Dataset("it", "", "", (download,))})
    assert json.loads((tmp_path / RECORD).read_text())["files"][0]["url"] == f"{server.url}/new"


def test_an_unreachable_server_is_reported(tmp_path: Path) -> None:
    gone = Server()
    gone.close()
    download = Download("x.txt", (f"{gone.url}/x.txt",))
    with pytest.raises(FetchError, match=r"Cannot reach .*\nCheck the network"):
        get_dataset("it", tmp_path, catalog={"it": Dataset("it", "", "", (download,))})


def test_only_web_addresses_are_allowed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("x")
    catalog = {"it": Dataset("it", "", "", (Download("x.txt", (secret.as_uri(),)),))}
    with pytest.raises(FetchError, match="is not a web address"):
        get_dataset("it", tmp_path, catalog=catalog)


def test_a_manually_downloaded_file_is_used(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(LINE)
    download = Download("x.jsonl", ("https://nowhere.invalid/x",), sha(LINE.encode()))
    result = get_dataset("it", tmp_path, catalog={"it": Dataset("it", "", "", (download,))})
    assert (result.files, result.downloaded) == (["x.jsonl"], False)


def test_each_corpus_needs_its_own_folder(server: Server, tmp_path: Path) -> None:
    catalog = catalog_of(server, "x.txt", b"x")
    get_dataset("it", tmp_path, catalog=catalog)
    other = Dataset("other", "", "", catalog["it"].downloads)
    with pytest.raises(UsageError, match="already contains the corpus 'it'"):
        get_dataset("other", tmp_path, catalog={"other": other})
    (tmp_path / RECORD).write_text("{")
    with pytest.raises(DataError, match=r"sources\.json is damaged"):
        get_dataset("it", tmp_path, catalog=catalog)


def test_close_names_are_suggested(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'personachat'"):
        get_dataset("persona-chat", tmp_path)


@pytest.mark.parametrize("name", ["../evil.txt", "/evil.txt", "a/../../evil.txt", "..\\evil.txt", "C:/evil.txt"])
def test_no_zip_member_is_written_outside_the_folder(server: Server, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "in"
    catalog = catalog_of(server, "x.zip", zipped(**{"good.txt": "x", name: "evil"}))
    with pytest.raises(DataError, match="not safe to unpack"):
        get_dataset("it", folder, catalog=catalog)
    assert sorted(f.name for f in tmp_path.rglob("*.txt")) == []
    assert not (folder / RECORD).exists()


def test_no_tar_member_is_written_outside_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    archive = folder / "x.tgz"
    archive.write_bytes(tarred((tarfile.TarInfo("../evil.txt"), b"evil")))
    with pytest.raises(DataError, match="not safe to unpack"):
        unpack(archive, folder)
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, ".."
    archive.write_bytes(tarred((link, b""), (tarfile.TarInfo("link/evil.txt"), b"x"), (tarfile.TarInfo("ok"), b"y")))
    assert unpack(archive, folder) == ["link/evil.txt", "ok"]
    assert (folder / "link").is_dir()
    assert not (folder / "link").is_symlink()
    assert not (tmp_path / "evil.txt").exists()


def test_an_existing_link_is_not_followed(tmp_path: Path) -> None:
    folder, outside = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    outside.mkdir()
    (folder / "link").symlink_to(outside)
    (folder / "x.zip").write_bytes(zipped(**{"link/evil.txt": "x"}))
    with pytest.raises(DataError, match="would follow a link"):
        unpack(folder / "x.zip", folder)
    assert list(outside.iterdir()) == []


def test_links_in_a_zip_are_skipped(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = zipfile.ZipInfo("link")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
        archive.writestr("ok.txt", "x")
    (tmp_path / "x.zip").write_bytes(out.getvalue())
    assert unpack(tmp_path / "x.zip", tmp_path) == ["ok.txt"]


@pytest.mark.parametrize("name", ["x.zip", "x.tgz", "x.tar", "x.jsonl.gz"])
@pytest.mark.parametrize("data", [b"", b"not an archive", DATA[:3000]])
def test_damaged_archives_are_rejected(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=name):
        unpack(tmp_path / name, tmp_path)


def test_truncated_archives_are_rejected(tmp_path: Path) -> None:
    complete = tarred((tarfile.TarInfo("x.txt"), DATA))
    (tmp_path / "x.tgz").write_bytes(complete[: len(complete) // 2])
    with pytest.raises(DataError, match=r"x\.tgz"):
        unpack(tmp_path / "x.tgz", tmp_path)
    assert not list(tmp_path.glob("x.txt*"))


def test_every_dataset_of_the_catalog_is_well_formed() -> None:
    assert set(CATALOG) >= {
        *("personachat", "convai2", "dailydialog", "empathetic", "topical-chat", "cmu-dog", "wizard", "begin-v1"),
        *("begin-v2", "ubuntu-v1", "ubuntu-v2", "irc-disentanglement", "blended-skill-talk", "reddit-small"),
    }
    for dataset in CATALOG.values():
        assert dataset.licence
        assert dataset.description
        assert dataset.format == "" or dataset.format in READERS
        assert len({download.file for download in dataset.downloads}) == len(dataset.downloads)
        for download in dataset.downloads:
            assert all(url.startswith(("https://", "http://")) for url in download.urls)
            assert download.sha256 is None or len(bytes.fromhex(download.sha256)) == 32
