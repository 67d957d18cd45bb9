"""Text as tokens, for the models that write: words, or SentencePiece subwords (BPE).

The first numbers are the same for both: padding, unknown, the end of a turn, and the marks that tell a dialogue's parts
apart when it is laid out as one stream: a turn of the one the model speaks for, a turn of the other, a persona
sentence.
"""

import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, Protocol

import sentencepiece

from tertulia.core.errors import DataError
from tertulia.core.text import tokens

PAD, UNKNOWN, END, OWN, OTHER, PERSONA = range(6)
MARKS = ("<pad>", "<unknown>", "<end>", "<own>", "<other>", "<persona>")
"""What the first numbers stand for."""
WORDS, SUBWORDS = "words.txt", "subwords.model"
Kind = Literal["words", "subwords"]
_CLOSING = re.compile(r" ([.,!?;:%)\]}…]+)(?= |$)")
_OPENING = re.compile(r"([(\[{]) ")


class Tokenizer(Protocol):
    """Text to numbers and back."""

    def __len__(self) -> int:
        """How many tokens there are, marks included."""
        ...

    def encode(self, text: str, /) -> tuple[int, ...]:
        """The tokens of a text, without any mark."""
        ...

    def decode(self, ids: Sequence[int], /) -> str:
        """A text again; marks are left out."""
        ...

    def save(self, folder: Path, /) -> str:
        """Write it; the name of its file."""
        ...


class WordTokenizer:
    """Words and punctuation in lower case, the most frequent ones."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._number = {word: i for i, word in enumerate(self.words, start=len(MARKS))}
        self.encode = lru_cache(maxsize=400_000)(self._encode)

    @classmethod
    def learn(cls, texts: Iterable[str], *, size: int = 20_000, min_count: int = 1) -> "WordTokenizer":
        """The most frequent words of some texts; `size` counts the marks too."""
        counts = Counter(word for text in texts for word in tokens(text))
        known = sorted((w for w in counts if counts[w] >= min_count), key=lambda w: (-counts[w], w))
        if not known:
            raise DataError("There is not a single word to learn from.", hint="Check the data: it needs dialogues.")
        return cls(known[: size - len(MARKS)])

    def __len__(self) -> int:
        return len(self.words) + len(MARKS)

    def _encode(self, text: str, /) -> tuple[int, ...]:
        return tuple(self._number.get(word, UNKNOWN) for word in tokens(text))

    def decode(self, ids: Sequence[int], /) -> str:
        """Words with blanks between, none before closing punctuation."""
        words = [self.words[i - len(MARKS)] if i >= len(MARKS) else MARKS[i] for i in ids if i >= len(MARKS) or i == 1]
        return _OPENING.sub(r"\1", _CLOSING.sub(r"\1", " ".join(words)))

    def save(self, folder: Path, /) -> str:
        """One word a line."""
        (folder / WORDS).write_text("".join(f"{word}\n" for word in self.words), encoding="utf-8")
        return WORDS


class SubwordTokenizer:
    """SentencePiece BPE: any text, nothing unknown but signs never seen."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        if [self._processor.id_to_piece(i) for i in range(len(MARKS))] != list(MARKS):
            raise DataError("These subwords were not learned for writing.", hint="Learn them with the model's recipe.")
        self.encode = lru_cache(maxsize=400_000)(self._encode)

    @classmethod
    def learn(cls, texts: Iterable[str], *, size: int = 8000) -> "SubwordTokenizer":
        """Subwords of some texts; fewer where the texts do not hold so many."""
        out = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(text for text in texts if text.strip()),
                model_writer=out,
                model_type="bpe",
                vocab_size=size,
                hard_vocab_limit=False,
                pad_id=PAD,
                unk_id=UNKNOWN,
                eos_id=END,
                bos_id=-1,
                pad_piece=MARKS[PAD],
                unk_piece=MARKS[UNKNOWN],
                eos_piece=MARKS[END],
                control_symbols=list(MARKS[OWN:]),
                normalization_rule_name="nmt_nfkc",
                num_threads=1,
                minloglevel=2,
            )
        except (RuntimeError, OSError) as error:
            raise DataError(
                f"No subwords could be learned ({str(error).splitlines()[-1]}).",
                hint="Give more text, or a smaller vocabulary.",
            ) from None
        return cls(out.getvalue())

    def __len__(self) -> int:
        return int(self._processor.vocab_size())

    def _encode(self, text: str, /) -> tuple[int, ...]:
        return tuple(self._processor.encode(text))

    def decode(self, ids: Sequence[int], /) -> str:
        """A text again."""
        return str(self._processor.decode([i for i in ids if i >= len(MARKS)]))

    def save(self, folder: Path, /) -> str:
        """The SentencePiece model."""
        (folder / SUBWORDS).write_bytes(self.model)
        return SUBWORDS


def learn_tokenizer(kind: Kind, texts: Iterable[str], *, size: int) -> Tokenizer:
    """A tokenizer of that kind for some texts."""
    return WordTokenizer.learn(texts, size=size) if kind == "words" else SubwordTokenizer.learn(texts, size=size)


def load_tokenizer(folder: Path) -> Tokenizer:
    """What `save` wrote."""
    if (folder / SUBWORDS).is_file():
        return SubwordTokenizer((folder / SUBWORDS).read_bytes())
    try:
        return WordTokenizer((folder / WORDS).read_text(encoding="utf-8").split("\n")[:-1])
    except OSError as error:
        raise DataError(f"There is no tokenizer in {folder} ({error}).", hint="Train the model anew.") from None


def count_words(text: str) -> int:
    """Words of a turn, its end included: what perplexity per word is counted over, whatever the tokens.

    >>> count_words("i like tea .")
    5
    """
    return len(tokens(text)) + 1
