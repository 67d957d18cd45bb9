"""Frames of Zstandard files, and the end of files that were cut off."""

from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.artefacts.files import open_bytes, open_text
from tertulia.artefacts.zstd import Frame, frames

SKIPPABLE = (0x184D2A53).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"aside"


def compress(content: bytes, *, checksum: bool, size: bool, level: int) -> bytes:
    compressor = zstandard.ZstdCompressor(level=level, write_checksum=checksum, write_content_size=size)
    return compressor.compress(content)


contents = st.binary(max_size=300) | st.integers(0, 400_000).map(lambda n: b"a" * n) | st.just(bytes(range(256)) * 2000)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(contents, st.booleans(), st.booleans(), st.sampled_from([1, 19])), min_size=1, max_size=4))
def test_frames_are_found_without_decompressing(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[bytes, bool, bool, int]]
) -> None:
    """Whatever the compressor wrote into its headers, and with frames between that have no content."""
    path = tmp_path_factory.mktemp("zstd") / "x.zst"
    packed = [compress(c, checksum=checksum, size=size, level=level) for c, checksum, size, level in parts]
    path.write_bytes(SKIPPABLE.join(packed))
    expected, start = [], 0
    for part in packed:
        expected.append(Frame(start, start + len(part)))
        start += len(part) + len(SKIPPABLE)
    assert list(frames(path)) == expected
    with open_bytes(path) as file:
        assert file.read() == b"".join(content for content, *_ in parts)


@pytest.mark.parametrize("cut", [1, 2, 5, 30, 5000])
def test_a_file_that_was_cut_off_is_read_up_to_there_and_raises(tmp_path: Path, cut: int) -> None:
    first, second = (zstandard.compress(bytes([n % 251 for n in range(k, k + 90_000, 7)])) for k in (0, 3))
    whole = first + second
    path = tmp_path / "x.zst"
    path.write_bytes(whole[: len(whole) - min(cut, len(second) - 1)])
    with open_bytes(path) as file, pytest.raises(EOFError, match="cut off"):
        file.read()


def test_text_can_be_read_again_from_its_start(tmp_path: Path) -> None:
    (tmp_path / "x.zst").write_bytes(zstandard.compress(b"one\ntwo\n"))
    with open_text(tmp_path / "x.zst") as text:
        assert text.read(5) == "one\nt"
        text.seek(0)
        assert text.read() == "one\ntwo\n"
