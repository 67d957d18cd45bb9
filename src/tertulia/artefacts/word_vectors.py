"""Read pretrained word vectors in GloVe's format (Pennington et al. 2014): text, compressed text, or .npz.

Text has a word and its numbers on each line, separated by spaces (gzip and zstandard are decompressed on the fly); .npz
has the arrays `words` and `vectors`. Only the vectors of the wanted words are kept in memory.
"""

import zipfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import numpy as np
import zstandard
from numpy.typing import NDArray

from tertulia.artefacts.files import open_text
from tertulia.core.errors import DataError, MissingFile

Vector = NDArray[np.float32]
_EXPECTED = "Expected GloVe's text format (optionally .gz or .zst), or .npz with the arrays `words` and `vectors`."


def read_word_vectors(path: Path, wanted: Collection[str], *, allow_none: bool = False) -> dict[str, Vector]:
    """The vectors of the wanted words that the file has; a file that has none of them is an error unless allowed."""
    try:
        if path.suffix == ".npz":
            vectors = _from_arrays(path, wanted)
        else:
            with open_text(path) as lines:
                vectors = parse_word_vectors(lines, wanted, source=str(path))
    except FileNotFoundError:
        raise MissingFile(f"File not found: {path}", hint=_EXPECTED) from None
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zstandard.ZstdError) as error:
        raise DataError(f"Cannot read word vectors from {path} ({error}).", hint=_EXPECTED) from None
    if not vectors and not allow_none:
        raise DataError(f"{path} has a vector for none of the words.", hint=_EXPECTED)
    return vectors


def read_word_ranks(path: Path, wanted: Collection[str]) -> tuple[dict[str, int], int]:
    """The place of each wanted word in the file, 1 for the first, and how many words the file has.

    GloVe's files are in order of frequency, so that a place is a rank.
    """
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                words = [str(word) for word in arrays["words"]]
        else:
            with open_text(path) as lines:
                words = [line.partition(" ")[0] for line in lines]
    except FileNotFoundError:
        raise MissingFile(f"File not found: {path}", hint=_EXPECTED) from None
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zstandard.ZstdError) as error:
        raise DataError(f"Cannot read words from {path} ({error}).", hint=_EXPECTED) from None
    return {word: place for place, word in enumerate(words, 1) if word in wanted}, len(words)


def parse_word_vectors(
    lines: Iterable[str], wanted: Collection[str], *, source: str = "<vectors>"
) -> dict[str, Vector]:
    """The vectors in lines of a word and its numbers.

    >>> parse_word_vectors(["the 0.5 1", "tea 1 2"], {"tea"})["tea"].tolist()
    [1.0, 2.0]
    """
    vectors: dict[str, Vector] = {}
    size = 0
    for number, line in enumerate(lines, 1):
        word, _, rest = line.partition(" ")
        if word not in wanted:
            continue
        try:
            vector = np.array(rest.split(), np.float32)
        except ValueError:
            raise DataError(f"{source}, line {number}: expected a word and numbers separated by spaces.") from None
        size = size or len(vector)
        if len(vector) != size:
            raise DataError(f"{source}, line {number}: {len(vector)} numbers, but earlier lines have {size}.")
        vectors[word] = vector
    return vectors


def save_word_vectors(vectors: Mapping[str, Vector], path: Path) -> None:
    """Write vectors as .npz in half precision: accurate enough for similarity, and small."""
    words = np.array(list(vectors), dtype=np.str_)
    np.savez_compressed(path, words=words, vectors=np.array(list(vectors.values()), np.float16))


def _from_arrays(path: Path, wanted: Collection[str]) -> dict[str, Vector]:
    with np.load(path, allow_pickle=False) as arrays:
        words, vectors = arrays["words"].tolist(), arrays["vectors"]
    return {word: vectors[row].astype(np.float32) for row, word in enumerate(words) if word in wanted}
