"""Files in object stores and on web servers, by their URL: s3://, gs://, hf://, https://, or what else fsspec knows.

fsspec and the package of a store (s3fs, gcsfs, ...) are optional and imported when the first URL is used. Credentials
and endpoints come from where these packages look for them, such as AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL.
"""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import IO, Any

from tertulia.core.errors import DataError, MissingExtra, TertuliaError, UsageError

_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
_READ_AHEAD = 8 << 20
"""Bytes requested at a time from a file that is read from its start."""
_BUFFER = 1 << 20
"""Bytes taken from what was read ahead at a time."""
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "hf": "huggingface_hub"}
_PACKAGES |= {"http": "aiohttp", "https": "aiohttp"}
_VERSIONS = ("ETag", "etag", "blob_id", "sha", "md5Hash", "crc32c", "mtime", "LastModified", "last_modified")
"""What stores call that which changes whenever a file does, the surest first."""


def is_url(text: object) -> bool:
    """Whether it is a URL rather than a path.

    >>> is_url("s3://corpora/reddit"), is_url("C:/corpora"), is_url("corpora://")
    (True, False, True)
    """
    return isinstance(text, str) and bool(_URL.match(text))


@lru_cache(maxsize=64)
def filesystem(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it. One that lists anew each time: others write at the same time."""
    protocol = url.split("://")[0]
    package = _PACKAGES.get(protocol, "fsspec")
    try:
        core: Any = import_module("fsspec.core")
        import_module(package)
        with store_errors(url):
            fs, path = core.url_to_fs(url, use_listings_cache=False)
    except ImportError:
        raise MissingExtra(f"The package {package}, which reads {protocol}://,", _install(package)) from None
    except ValueError as error:
        raise UsageError(
            f"{url} cannot be opened: {error}.", hint="Known are s3://, gs://, hf:// and https://."
        ) from None
    return fs, str(path)


def _install(package: str) -> str:
    return f"pip install {package}" if package in ("gcsfs", "huggingface_hub") else "pip install 'tertulia[stores]'"


@contextmanager
def store_errors(url: str) -> Iterator[None]:
    """Whatever a store raises, in our words. Stores are many, and each has its own exceptions; a file that is missing
    is a FileNotFoundError in all of them."""
    try:
        yield
    except (TertuliaError, FileNotFoundError, FileExistsError, ImportError, ValueError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{url} cannot be reached: {reason}", hint="Check the address, the credentials and the network."
        ) from None


def open_url(url: str) -> IO[bytes]:
    """Open a file for reading; it can be sought, and is read ahead."""
    fs, path = filesystem(url)
    with store_errors(url):
        file = fs.open(path, "rb", block_size=_READ_AHEAD, cache_type="readahead")
    return io.BufferedReader(_StoreFile(url, file), _BUFFER)


class _StoreFile(io.RawIOBase):
    """A file of fsspec whose errors are ours."""

    def __init__(self, url: str, file: Any) -> None:
        self._url, self._file = url, file

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """Where the server allows to ask for ranges, which all stores do."""
        return bool(self._file.seekable())

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to another place."""
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        """The place."""
        return int(self._file.tell())

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer."""
        with store_errors(self._url):
            content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        """Close the file, too."""
        self._file.close()
        super().close()


def version_of(information: dict[str, Any]) -> str:
    """What changes whenever the file does, as far as its store says; empty if it says nothing."""
    return next((str(information[key]) for key in _VERSIONS if information.get(key)), "")
