"""Subword counts by SentencePiece BPE, trained on the corpus at hand, as mining's length rule needs them."""

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
        """How many subwords the text has."""
        return len(self._processor.encode(text))

    @property
    def vocabulary(self) -> int:
        """How many subwords there are."""
        return int(self._processor.vocab_size())

    def save(self, path: Path) -> None:
        """Write the model as SentencePiece itself would."""
        path.write_bytes(self.model)


def read_subwords(path: Path) -> SubwordCounter:
    """A model that somebody gave us; a file that is none is their mistake."""
    try:
        counter = SubwordCounter(path.read_bytes())
        counter("")  # of an empty file SentencePiece complains only here
    except (OSError, RuntimeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no SentencePiece model"
        raise DataError(
            f"The subword model {path} cannot be read: {why}.",
            hint="--subwords names a .model file of SentencePiece, such as a mined folder's subwords.model; "
            "without it, one is learned.",
        ) from None
    return counter


def train_subwords(texts: Iterable[str], *, vocabulary: int = 8000) -> SubwordCounter:
    """A BPE model of at most `vocabulary` subwords (fewer where the texts are too few to have so many)."""
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
        raise DataError(f"No subwords could be learned from these texts ({error}).") from None
    return SubwordCounter(model.getvalue())
