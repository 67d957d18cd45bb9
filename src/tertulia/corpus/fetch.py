"""Downloading a file with the standard library alone: in pieces, and resumed where it broke off."""

import hashlib
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException, HTTPResponse
from pathlib import Path

from tertulia import __version__
from tertulia.core.errors import DataError
from tertulia.core.progress import Progress

PIECE = 1 << 18
TRIES = 4
"""How often a download is taken up again after it broke off."""


class FetchError(DataError):
    """A file that could not be had from where it should be."""


def fetch(urls: Sequence[str], path: Path, progress: Progress, *, timeout: float = 30.0) -> str:
    """Download to `path` from the first address that has it; returns that address. Half a file is kept and resumed."""
    failures = []
    for url in urls:
        try:
            _fetch(url, path, progress, timeout)
        except FetchError as error:
            failures.append(error.message)
        else:
            return url
    raise FetchError(
        " ".join(failures),
        hint=f"Is there a network? Or get it with another program, put it at {path}, and run this again.",
    )


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(url: str, path: Path, progress: Progress, timeout: float) -> None:
    if not url.startswith(("https://", "http://")):
        raise FetchError(f"{url} is no web address.")
    partial = path.with_name(path.name + ".partial")
    progress.step(f"Downloading {path.name} (KiB)")
    why = ""
    for _ in range(TRIES):
        try:
            if _take(url, partial, progress, timeout):
                partial.replace(path)
                _tag_of(partial).unlink(missing_ok=True)
                return
            why = "the connection was closed too early"
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416:  # what we have is not the beginning of what is there now
                partial.unlink(missing_ok=True)
                why = "the server has another file than the one begun"
                continue
            raise FetchError(f"{url} answered {error.code} {error.reason}.") from None
        except urllib.error.URLError as error:
            raise FetchError(f"{url} could not be reached: {error.reason}.") from None
        except (HTTPException, OSError) as error:
            why = str(error) or type(error).__name__
    raise FetchError(f"{url} broke off {TRIES} times ({why}); what came is kept for the next try.")


def _take(url: str, partial: Path, progress: Progress, timeout: float) -> bool:
    """One try: take up where the partial file ends, if the server still has the same file. Whether it is whole now."""
    have = partial.stat().st_size if partial.is_file() else 0
    headers = {"User-Agent": f"tertulia/{__version__}", "Accept-Encoding": "identity"}
    tag = _tag_of(partial)
    if have and tag.is_file():
        headers |= {"Range": f"bytes={have}-", "If-Range": tag.read_text(encoding="ascii")}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout) as answer:
        resumed = answer.status == 206 and _start(answer) == have
        if answer.status == 206 and not resumed:
            partial.unlink(missing_ok=True)
            return False
        have = have if resumed else 0
        length = answer.headers.get("Content-Length", "")
        total = have + int(length) if length.isdecimal() else None
        progress.step(f"Downloading {partial.name.removesuffix('.partial')} (KiB)", total=_kib(total))
        progress.advance(have // 1024)
        _remember(answer, tag)
        with partial.open("ab" if resumed else "wb") as out:
            while piece := answer.read(PIECE):
                out.write(piece)
                progress.advance((have + len(piece)) // 1024 - have // 1024)
                have += len(piece)
    return total is None or have == total


def _start(answer: HTTPResponse) -> int | None:
    """Where the piece begins that the server sends: of `bytes 500-999/1000`, 500."""
    start = (answer.headers.get("Content-Range") or "").removeprefix("bytes ").partition("-")[0]
    return int(start) if start.isdecimal() else None


def _remember(answer: HTTPResponse, tag: Path) -> None:
    """Keep what tells this version of the file from another; without it a broken download begins anew."""
    etag = answer.headers.get("ETag") or ""
    version = etag if etag and not etag.startswith("W/") else answer.headers.get("Last-Modified") or ""
    if version and version.isascii():
        tag.write_text(version, encoding="ascii")
    else:
        tag.unlink(missing_ok=True)


def _tag_of(partial: Path) -> Path:
    return partial.with_name(partial.name + ".tag")


def _kib(size: int | None) -> int | None:
    return None if size is None else size // 1024
