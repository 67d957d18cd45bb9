"""Likelihoods on disk: what a language model has scored once is not computed again by a later run.

One file for each model, of records of a fixed size: a digest of prompt and text, the log-probability, the tokens. The
file only grows, one batch of records at a time, so that a stopped run loses a batch at most. It has no texts.
"""

import fcntl
import hashlib
import math
import struct
from collections.abc import Mapping
from pathlib import Path

_RECORD = struct.Struct("<16sdI")
Scored = tuple[tuple[str, ...], str]
"""The turns of a prompt, and the text that was scored as the next one."""


class LikelihoodCache:
    """Log-probability and number of tokens of texts, by the content of prompt and text."""

    def __init__(self, file: Path) -> None:
        self.file = file
        content = file.read_bytes() if file.is_file() else b""
        whole = content[: len(content) - len(content) % _RECORD.size]  # the last write may have been interrupted
        self._records = {key: (logprob, tokens) for key, logprob, tokens in _RECORD.iter_unpack(whole)}

    def __len__(self) -> int:
        return len(self._records)

    def get(self, pair: Scored) -> tuple[float, int] | None:
        """What was remembered of a pair."""
        return self._records.get(_digest(pair))

    def add(self, scores: Mapping[Scored, tuple[float, int]]) -> None:
        """Remember scores, now and in later runs; one that is not a number is not worth a record."""
        new = {_digest(pair): score for pair, score in scores.items() if not math.isnan(score[0])}
        self._records.update(new)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("ab") as out:
            fcntl.flock(out, fcntl.LOCK_EX)  # until it is closed
            out.truncate(out.tell() - out.tell() % _RECORD.size)
            out.write(b"".join(_RECORD.pack(key, *score) for key, score in new.items()))


def _digest(pair: Scored) -> bytes:
    prompt, text = pair
    digest = hashlib.blake2b(digest_size=16)
    for part in (*prompt, text):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()
