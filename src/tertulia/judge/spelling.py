"""What words outside a model's vocabulary cost: spelled letter by letter under a small model of characters.

A model of words gives all words that it does not know one token, and any of them counts as predicted; a model of
subwords has to spell them. To compare the two, an unknown word is charged the nats of its spelling on top of the token
for unknown words: P(word) = P(unknown) P(spelling). The model of characters is trained on the words of the vocabulary,
which are those of the training text. It also gives probability to words that are in the vocabulary, so the charge is
never too low. That holds for any model of words, also one whose vocabulary has every word of its training text: its
P(unknown) was never trained and is far too small, so its plain perplexity is too high, not too low. Models of subwords
spell everything themselves, in bytes if need be, and are charged nothing.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable

from tertulia.core.text import tokens
from tertulia.models.tokenizer import SubwordTokenizer, Tokenizer, WordTokenizer

CHARACTERS = 0x110000
"""Code points of Unicode: what an unseen character is drawn from."""
ORDER = 4
"""Characters that are looked at together, the predicted one included."""
_START, _END = "\ue000", "\ue001"
Charge = Callable[[str], float]
"""Nats for spelling the unknown words of a text."""


class CharacterModel:
    """An n-gram model of the characters of words, interpolated as by Witten and Bell (1991).

    >>> model = CharacterModel(["tea", "teas", "sea"])
    >>> model.nats("tea") < model.nats("eat") < model.nats("xyz")
    True
    """

    def __init__(self, words: Iterable[str], *, order: int = ORDER) -> None:
        self.order = order
        self._counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for word in words:
            for history, character in self._steps(word):
                for start in range(len(history) + 1):
                    self._counts[history[start:]][character] += 1

    def nats(self, word: str) -> float:
        """Negative log-probability of a word and its end."""
        return -sum(math.log(self.probability(character, history)) for history, character in self._steps(word))

    def probability(self, character: str, history: str) -> float:
        """Of a character, or the end of a word, after others: what each shorter history says, the unseen included."""
        value = 1 / CHARACTERS
        for start in range(len(history), -1, -1):
            if counts := self._counts.get(history[start:]):
                total, types = sum(counts.values()), len(counts)
                value = (counts.get(character, 0) + types * value) / (total + types)
        return value

    def _steps(self, word: str) -> Iterable[tuple[str, str]]:
        padded = _START * (self.order - 1) + word + _END
        return ((padded[i : i + self.order - 1], padded[i + self.order - 1]) for i in range(len(word) + 1))


def spelling_charge(tokenizer: Tokenizer) -> Charge | None:
    """How the unknown words of a tokenizer are charged; None if it is unknown how they are spelled."""
    if isinstance(tokenizer, WordTokenizer):
        known, model = frozenset(tokenizer.words), CharacterModel(tokenizer.words)
        return lambda text: math.fsum(model.nats(word) for word in tokens(text) if word not in known)
    if isinstance(tokenizer, SubwordTokenizer):
        return lambda text: 0.0
    return None
