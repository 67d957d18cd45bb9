"""Text as tokens for the generators: words, or SentencePiece subwords (BPE).

The first ids are the same for both: padding, unknown, end of turn, and the special tokens that separate the parts of a
dialogue when it is one stream: a turn of the model's own speaker, a turn of the other speaker, a persona sentence.

Words are in lower case, and those that are rare in the training text are unknown. Subwords read any text: what they
have no piece for is spelled in bytes. Where the training text has no capitals, they read capitals as small letters,
because a model has nothing to learn about capitals from such a text.
"""

import io
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol

import sentencepiece

from tertulia.core.errors import DataError
from tertulia.core.text import squash, tokens

PAD, UNKNOWN, END, OWN, OTHER, PERSONA = range(6)
SPECIAL_TOKENS = ("<pad>", "<unknown>", "<end>", "<own>", "<other>", "<persona>")
"""The pieces of the first ids."""
WORDS, SUBWORDS = "words.txt", "subwords.model"
TokenizerKind = Literal["words", "subwords"]
_CLOSING = re.compile(r" ([.,!?;:%)\]}…]+)(?= |$)")
_OPENING = re.compile(r"([(\[{]) ")


class Tokenizer(Protocol):
    """Text to token ids and back."""

    def __len__(self) -> int:
        """Size of the vocabulary, special tokens included."""
        ...

    def encode(self, text: str, /) -> tuple[int, ...]:
        """The ids of a text, without special tokens."""
        ...

    def decode(self, ids: Sequence[int], /) -> str:
        """The text of some ids; special tokens are left out."""
        ...

    def save(self, folder: Path, /) -> str:
        """Save it; returns the name of its file."""
        ...


class WordTokenizer:
    """The most frequent words and punctuation marks, in lower case."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._pieces = (*SPECIAL_TOKENS, *self.words)
        self._ids = {word: i for i, word in enumerate(self.words, start=len(SPECIAL_TOKENS))}
        self.encode = lru_cache(maxsize=400_000)(self._encode)

    @classmethod
    def learn(cls, texts: Iterable[str], *, size: int = 20_000, min_count: int = 1) -> "WordTokenizer":
        """The most frequent words of the texts; `size` includes the special tokens.

        Words seen fewer than `min_count` times are unknown, so that a model learns how often unknown words occur: with
        2, the share of words seen once, which estimates the share of words never seen (Good 1953).
        """
        counts = Counter(word for text in texts for word in tokens(text))
        words = sorted((w for w in counts if counts[w] >= min_count), key=lambda w: (-counts[w], w))
        if not words:
            raise DataError("No words to learn a vocabulary from.", hint="Check the data: it needs dialogues.")
        return cls(words[: size - len(SPECIAL_TOKENS)])

    def __len__(self) -> int:
        return len(self.words) + len(SPECIAL_TOKENS)

    def _encode(self, text: str, /) -> tuple[int, ...]:
        return tuple(self._ids.get(word, UNKNOWN) for word in tokens(text))

    def decode(self, ids: Sequence[int], /) -> str:
        """Words separated by spaces, with none before closing punctuation; unknown words stay visible."""
        words = [self._pieces[i] for i in ids if i >= len(SPECIAL_TOKENS) or i == UNKNOWN]
        return _OPENING.sub(r"\1", _CLOSING.sub(r"\1", " ".join(words)))

    def save(self, folder: Path, /) -> str:
        """One word per line."""
        (folder / WORDS).write_text("".join(f"{word}\n" for word in self.words), encoding="utf-8")
        return WORDS


class SubwordTokenizer:
    """SentencePiece BPE: reads any text, and loses only its case (if `lower_case`) and the width of its spaces."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        if [self._processor.id_to_piece(i) for i in range(len(SPECIAL_TOKENS))] != list(SPECIAL_TOKENS):
            raise DataError(
                "This SentencePiece model lacks the special tokens of a generator.",
                hint="Let the generator's recipe learn the subwords.",
            )
        if self._processor.piece_to_id("<0x00>") == UNKNOWN:
            raise DataError(
                "These subwords are of an earlier version: they cannot read characters outside their training text.",
                hint="Train the model again.",
            )
        self.lower_case = "a" in self._processor.normalize("A")
        """Whether capitals are read as small letters; the SentencePiece model says so itself."""
        self.encode = lru_cache(maxsize=400_000)(self._encode)

    @classmethod
    def learn(cls, texts: Iterable[str], *, size: int = 8000, lower_case: bool | None = None) -> "SubwordTokenizer":
        """Subwords of the texts, at most `size`; fewer if the texts do not have so many.

        By default they are of small letters alone if the texts have (nearly) no capitals.
        """
        texts = [text for text in map(_plain_spaces, texts) if text]
        out = io.BytesIO()
        try:
            with tempfile.TemporaryDirectory() as folder:
                rules = Path(folder) / "lower_case.tsv"
                rules.write_text(_lower_case_rules(), encoding="ascii")
                sentencepiece.SentencePieceTrainer.train(
                    sentence_iterator=iter(texts),
                    model_writer=out,
                    model_type="bpe",
                    vocab_size=size,
                    hard_vocab_limit=False,
                    byte_fallback=True,
                    pad_id=PAD,
                    unk_id=UNKNOWN,
                    eos_id=END,
                    bos_id=-1,
                    pad_piece=SPECIAL_TOKENS[PAD],
                    unk_piece=SPECIAL_TOKENS[UNKNOWN],
                    eos_piece=SPECIAL_TOKENS[END],
                    control_symbols=list(SPECIAL_TOKENS[OWN:]),
                    num_threads=1,
                    minloglevel=2,
                    **_normalisation(not has_case(texts) if lower_case is None else lower_case, rules),
                )
        except (RuntimeError, OSError) as error:
            raise DataError(
                f"Cannot learn subwords ({str(error).splitlines()[-1]}).",
                hint="Use more text, and a vocabulary with room for 256 bytes and every character of the text.",
            ) from None
        return cls(out.getvalue())

    def __len__(self) -> int:
        return int(self._processor.vocab_size())

    def _encode(self, text: str, /) -> tuple[int, ...]:
        return tuple(self._processor.encode(_plain_spaces(text)))

    def decode(self, ids: Sequence[int], /) -> str:
        """The text of some ids."""
        return str(self._processor.decode([i for i in ids if i >= len(SPECIAL_TOKENS)]))

    def save(self, folder: Path, /) -> str:
        """The SentencePiece model."""
        (folder / SUBWORDS).write_bytes(self.model)
        return SUBWORDS


MIN_CAPITALS = 0.001
"""Texts with a smaller share of capitals among their letters have no case: a stray capital teaches a model nothing."""


def has_case(texts: Iterable[str]) -> bool:
    """Whether texts use capitals.

    >>> has_case(["I like tea."]), has_case(["i like tea ."])
    (True, False)
    """
    capitals = letters = 0
    for text in texts:
        capitals += sum(map(str.isupper, text))
        letters += sum(map(str.isalpha, text))
    return capitals > MIN_CAPITALS * letters


def _plain_spaces(text: str) -> str:
    """Single spaces; SentencePiece's own sign for a space (U+2581) counts as one."""
    return squash(text.replace("\u2581", " "))


def _normalisation(lower_case: bool, rules: Path) -> dict[str, Any]:
    """SentencePiece's options: its usual rules would also rewrite ligatures, wide letters and control characters."""
    return {"normalization_rule_tsv": str(rules)} if lower_case else {"normalization_rule_name": "identity"}


@cache
def _lower_case_rules() -> str:
    """Every character of Unicode that has a lower case, and that, in SentencePiece's notation."""
    pairs = ((c, chr(c).lower()) for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000)
    return "".join(f"{c:X}\t{' '.join(f'{ord(d):X}' for d in small)}\n" for c, small in pairs if small != chr(c))


def learn_tokenizer(
    kind: TokenizerKind, texts: Iterable[str], *, size: int, min_count: int = 1, lower_case: bool | None = None
) -> Tokenizer:
    """Learn a tokenizer of that kind from texts. `min_count` is for words, `lower_case` for subwords."""
    if kind == "words":
        return WordTokenizer.learn(texts, size=size, min_count=min_count)
    return SubwordTokenizer.learn(texts, size=size, lower_case=lower_case)


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load what `save` wrote."""
    if (folder / SUBWORDS).is_file():
        return SubwordTokenizer((folder / SUBWORDS).read_bytes())
    try:
        return WordTokenizer((folder / WORDS).read_text(encoding="utf-8").split("\n")[:-1])
    except OSError as error:
        raise DataError(f"No tokenizer in {folder} ({error}).", hint="Train the model again.") from None


def count_words(text: str) -> int:
    """Words of a turn plus its end: the denominator of perplexity per word, whatever the tokens are.

    >>> count_words("i like tea .")
    5
    """
    return len(tokens(text)) + 1
