"""Likelihoods on disk: what a language model has scored once is not computed again by a later run.

One file for each model, of records of a fixed size: a digest of prompt and text, the log-probability, the tokens. It
grows by one batch of records at a time, so that a stopped run loses a batch at most. It has no texts. A file that is
full is written anew with the newer half of its records, and the files of models that were not used for longest go.
"""

import fcntl
import hashlib
import math
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from tertulia.artefacts.files import atomic_write

MAX_RECORDS = 2**20
"""Of one model: 29 MB on disk."""
MAX_FILES = 16
"""Models whose files are kept."""
_RECORD = struct.Struct("<16sdI")
Scored = tuple[tuple[str, ...], str]
"""The turns of a prompt, and the text that was scored as the next one."""


class LikelihoodCache:
    """Log-probability and number of tokens of texts, by the content of prompt and text."""

    def __init__(self, file: Path, *, max_records: int = MAX_RECORDS, max_files: int = MAX_FILES) -> None:
        """At most `max_records` are in the file, and at most `max_files` of its kind in its folder."""
        self.file, self.max_records, self.max_files = file, max_records, max_files
        self._records = _read(file.read_bytes() if file.is_file() else b"")

    def __len__(self) -> int:
        return len(self._records)

    def get(self, pair: Scored) -> tuple[float, int] | None:
        """What was remembered of a pair."""
        return self._records.get(_digest(pair))

    def add(self, scores: Mapping[Scored, tuple[float, int]]) -> None:
        """Remember scores, now and in later runs; one that is not a number is not worth a record."""
        new = {_digest(pair): score for pair, score in scores.items() if not math.isnan(score[0])}
        self._records.update(new)
        with self._locked() as out:
            whole = out.tell() - out.tell() % _RECORD.size  # the last write may have been interrupted
            if whole // _RECORD.size + len(new) > self.max_records:
                self._write_newer_half(new)
            else:
                out.truncate(whole)
                out.write(_written(new))

    def _write_newer_half(self, new: Mapping[bytes, tuple[float, int]]) -> None:
        """Drop the older records, of which other processes may have added some."""
        records = {**_read(self.file.read_bytes()), **new}
        self._records = dict(islice(records.items(), max(0, len(records) - self.max_records // 2), None))
        with atomic_write(self.file) as unfinished:
            unfinished.write_bytes(_written(self._records))

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        """The file, at its end; nobody else writes to it."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        if not self.file.is_file():
            self._remove_old_files()
        while True:
            with self.file.open("ab") as out:
                fcntl.flock(out, fcntl.LOCK_EX)  # until it is closed
                if self.file.is_file() and os.path.samestat(os.fstat(out.fileno()), self.file.stat()):
                    yield out
                    return
            # Another process has written it anew, or removed it, in the meantime.

    def _remove_old_files(self) -> None:
        """Make room for one more file: those that were written to longest ago go."""
        files = sorted(self.file.parent.glob(f"*{self.file.suffix}"), key=lambda file: file.stat().st_mtime)
        for file in files[: max(0, len(files) + 1 - self.max_files)]:
            file.unlink(missing_ok=True)


def _read(content: bytes) -> dict[bytes, tuple[float, int]]:
    """Records by their digests, oldest first; the last write may have been interrupted."""
    whole = content[: len(content) - len(content) % _RECORD.size]
    return {key: (logprob, tokens) for key, logprob, tokens in _RECORD.iter_unpack(whole)}


def _written(records: Mapping[bytes, tuple[float, int]]) -> bytes:
    return b"".join(_RECORD.pack(key, *score) for key, score in records.items())


def _digest(pair: Scored) -> bytes:
    prompt, text = pair
    digest = hashlib.blake2b(digest_size=16)
    for part in (*prompt, text):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()
