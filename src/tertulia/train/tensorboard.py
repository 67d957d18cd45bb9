"""Event files as TensorBoard reads them, written without it: a few numbers need no package of that size.

A file is a row of records: eight bytes of length and their checksum, the record and its checksum (CRC-32C, rotated and
shifted by a constant, as the TFRecord format has it). A record is an `Event` in protocol buffers, of which four fields
are used: time, step, the file's version, and a summary of scalars; a fifth one says that a run goes on from a step,
upon which TensorBoard forgets what it was told of later ones.
"""

import struct
import time
from collections.abc import Mapping
from pathlib import Path

FOLDER = "tensorboard"
_POLYNOMIAL = 0x82F63B78
_ROTATED = 0xA282EAD8


class Events:
    """An event file that grows."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.iterdir()))
        self.file = folder / f"events.out.tfevents.{int(time.time()):010d}.{number:04d}"
        self._waiting = [frame(event(0, version="brain.Event:2"))]

    def go_on(self, step: int) -> None:
        """A run goes on after an update: what was told of later ones does not hold."""
        self._waiting.append(frame(event(step + 1, starts=True)))

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        """Some figures."""
        self._waiting.append(frame(event(step, scalars=scalars)))

    def flush(self) -> None:
        """Write what is waiting."""
        with self.file.open("ab") as out:
            out.writelines(self._waiting)
        self._waiting = []


def clear(folder: Path) -> None:
    """Remove the event files of a folder."""
    for file in folder.glob("events.out.tfevents.*"):
        file.unlink()


def event(step: int, *, version: str = "", scalars: Mapping[str, float] | None = None, starts: bool = False) -> bytes:
    """An Event, serialized."""
    made = b"\x09" + struct.pack("<d", time.time()) + b"\x10" + varint(step)  # wall_time = 1, step = 2
    if version:
        made += _field(3, version.encode())  # file_version
    if scalars:
        values = [_field(1, name.encode()) + b"\x15" + struct.pack("<f", value) for name, value in scalars.items()]
        made += _field(5, b"".join(_field(1, value) for value in values))  # summary, of tag = 1 and simple_value = 2
    if starts:
        made += _field(7, b"\x08\x01")  # session_log, of status = 1: START
    return made


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first.

    >>> varint(300).hex()
    'ac02'
    """
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def frame(record: bytes) -> bytes:
    """A record between its checksums."""
    length = struct.pack("<Q", len(record))
    return length + struct.pack("<I", _masked(length)) + record + struct.pack("<I", _masked(record))


def crc32c(data: bytes) -> int:
    """The checksum of Castagnoli.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def _masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + _ROTATED) & 0xFFFFFFFF


def _entry(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value


_TABLE = [_entry(byte) for byte in range(256)]
