"""Word vectors in GloVe's format: a word and its numbers a line (packed or not), or the same as two arrays in .npz."""

import zipfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import numpy as np

from tertulia.core.errors import DataError
from tertulia.corpus.load import open_text
from tertulia.corpus.rooms.view import Floats


def read_vectors(path: Path, wanted: Collection[str]) -> dict[str, Floats]:
    """The vectors of the wanted words, as far as the file has them."""
    try:
        found = _from_arrays(path, wanted) if path.suffix == ".npz" else _from_file(path, wanted)
    except (OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"The word vectors in {path} cannot be read: {error}.") from None
    if not found:
        raise DataError(f"{path} has a vector for none of the words.", hint="Wanted: GloVe's text, or words + vectors.")
    # Half precision, as they are kept: a model read back sees what it was trained with.
    return {word: vector.astype(np.float16).astype(np.float32) for word, vector in found.items()}


def parse_vectors(lines: Iterable[str], wanted: Collection[str], *, source: str = "<vectors>") -> dict[str, Floats]:
    """The vectors in lines of text.

    >>> parse_vectors(["the 0.5 1", "tea 1 2"], {"tea"})["tea"].tolist()
    [1.0, 2.0]
    """
    found: dict[str, Floats] = {}
    for number, line in enumerate(lines, 1):
        word, _, rest = line.partition(" ")
        if word not in wanted:
            continue
        try:
            found[word] = np.array(rest.split(), np.float32)
        except ValueError:
            raise DataError(f"{source}, line {number}: a vector is a word and numbers, parted by blanks.") from None
        if len({len(vector) for vector in found.values()}) > 1:
            raise DataError(f"{source}, line {number}: this vector has another length than those before.")
    return found


def save_vectors(vectors: Mapping[str, Floats], path: Path) -> None:
    """Write vectors as two arrays, half precision: enough for likeness, and small."""
    words = np.array(list(vectors), dtype=np.str_)
    np.savez_compressed(path, words=words, vectors=np.array(list(vectors.values()), np.float16))


def _from_file(path: Path, wanted: Collection[str]) -> dict[str, Floats]:
    with open_text(path) as lines:
        return parse_vectors(lines, wanted, source=str(path))


def _from_arrays(path: Path, wanted: Collection[str]) -> dict[str, Floats]:
    with np.load(path, allow_pickle=False) as arrays:
        words, vectors = arrays["words"].tolist(), arrays["vectors"]
    return {word: vectors[k].astype(np.float32) for k, word in enumerate(words) if word in wanted}
