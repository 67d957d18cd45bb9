"""Subword counts by SentencePiece BPE, trained on the corpus at hand, for the length rule of mining."""

import io
from collections.abc import Iterable
from pathlib import Path

import sentencepiece

from tertulia.core.errors import DataError


class SubwordCounter:
    """Counts the subwords of a text with a SentencePiece model."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    def __call__(self, text: str) -> int:
        """Number of subwords of the text."""
        return len(self._processor.encode(text))

    @property
    def vocabulary(self) -> int:
        """Size of the vocabulary."""
        return int(self._processor.vocab_size())

    def save(self, path: Path) -> None:
        """Write the model in SentencePiece's own format."""
        path.write_bytes(self.model)


def read_subwords(path: Path) -> SubwordCounter:
    """Read a model given by the user; a file that is not a model is a clear error."""
    try:
        counter = SubwordCounter(path.read_bytes())
        counter("")  # SentencePiece rejects an empty file only here
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a SentencePiece model"
        raise DataError(
            f"Cannot read the subword model {path}: {reason}.",
            hint="--subwords expects a .model file of SentencePiece, such as subwords.model of a mined folder; "
            "omit it to learn one.",
        ) from None
    return counter


def train_subwords(texts: Iterable[str], *, vocabulary: int = 8000) -> SubwordCounter:
    """Train a BPE model of at most `vocabulary` subwords (fewer if there is too little text)."""
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=model,
            vocab_size=vocabulary,
            model_type="bpe",
            hard_vocab_limit=False,
            character_coverage=0.9995,
            byte_fallback=True,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise DataError(f"Cannot learn subwords from these texts ({error}).") from None
    return SubwordCounter(model.getvalue())
