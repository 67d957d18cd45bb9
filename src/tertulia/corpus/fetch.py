"""Download a file with the standard library alone: in pieces, and resumed after an interruption.

A partial download is kept on purpose, beside the entity tag that identifies the version of the file, so that the next
call continues it.
"""

import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException, HTTPResponse
from pathlib import Path

from tertulia import __version__
from tertulia.core.errors import DataError
from tertulia.core.progress import Progress

_PIECE = 1 << 18
ATTEMPTS = 4
"""How often an interrupted download is continued within one call."""


class FetchError(DataError):
    """A file could not be downloaded."""


def fetch(urls: Sequence[str], path: Path, progress: Progress, *, timeout: float = 30.0) -> str:
    """Download to `path` from the first URL that works and return that URL. A partial file is kept and resumed."""
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
        hint=f"Check the network. Or download it with another program to {path} and run this again.",
    )


def _fetch(url: str, path: Path, progress: Progress, timeout: float) -> None:
    if not url.startswith(("https://", "http://")):
        raise FetchError(f"{url} is not a web address.")
    partial = path.with_name(path.name + ".partial")
    progress.step(f"Downloading {path.name} (KiB)")
    reason = ""
    for _ in range(ATTEMPTS):
        try:
            if _attempt(url, partial, progress, timeout):
                partial.replace(path)
                _tag_of(partial).unlink(missing_ok=True)
                return
            reason = "the connection was closed too early"
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416:  # range not satisfiable: the partial file is longer than the file on the server
                partial.unlink(missing_ok=True)
                reason = "the file on the server has changed"
                continue
            raise FetchError(f"{url} returned {error.code} {error.reason}.") from None
        except urllib.error.URLError as error:
            raise FetchError(f"Cannot reach {url}: {error.reason}.") from None
        except (HTTPException, OSError) as error:
            reason = str(error) or type(error).__name__
    raise FetchError(f"The download of {url} was interrupted {ATTEMPTS} times ({reason}); the partial file is kept.")


def _attempt(url: str, partial: Path, progress: Progress, timeout: float) -> bool:
    """Continue the partial file if the server still has the same version; returns whether it is complete now."""
    received = partial.stat().st_size if partial.is_file() else 0
    headers = {"User-Agent": f"tertulia/{__version__}", "Accept-Encoding": "identity"}
    tag = _tag_of(partial)
    if received and tag.is_file():
        headers |= {"Range": f"bytes={received}-", "If-Range": tag.read_text(encoding="ascii")}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout) as response:
        resumed = response.status == 206 and _range_start(response) == received
        if response.status == 206 and not resumed:
            partial.unlink(missing_ok=True)
            return False
        received = received if resumed else 0
        length = response.headers.get("Content-Length", "")
        total = received + int(length) if length.isdecimal() else None
        progress.step(f"Downloading {partial.name.removesuffix('.partial')} (KiB)", total=_kib(total))
        progress.advance(received // 1024)
        _save_tag(response, tag)
        with partial.open("ab" if resumed else "wb") as out:
            while piece := response.read(_PIECE):
                out.write(piece)
                progress.advance((received + len(piece)) // 1024 - received // 1024)
                received += len(piece)
    return total is None or received == total


def _range_start(response: HTTPResponse) -> int | None:
    """The first byte of the range that the server sends: of `bytes 500-999/1000`, 500."""
    start = (response.headers.get("Content-Range") or "").removeprefix("bytes ").partition("-")[0]
    return int(start) if start.isdecimal() else None


def _save_tag(response: HTTPResponse, tag: Path) -> None:
    """Save what identifies this version of the file; without it an interrupted download starts over."""
    etag = response.headers.get("ETag") or ""
    version = etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified") or ""
    if version and version.isascii():
        tag.write_text(version, encoding="ascii")
    else:
        tag.unlink(missing_ok=True)


def _tag_of(partial: Path) -> Path:
    return partial.with_name(partial.name + ".tag")


def _kib(size: int | None) -> int | None:
    return None if size is None else size // 1024
