"""Simulated raters: what a study's report will look like before anybody is paid, and with a truth that is known.

A simulated rater does not read. It knows how good each bot is (a quality between 0 and 1, higher on some items than on
others) and answers accordingly, with biases of its own: leniency (how much higher it rates everything), noise (how much
a single answer varies), laziness (always the same answer) and failed attention (wrong answers to training questions and
attention checks). Qualities, leniency and noise are on the logit scale; a bot of quality 0.7 gets a yes from a rater
without bias in 70 % of cases, on a median item.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import Field

from tertulia.core.config import Config
from tertulia.core.errors import UsageError
from tertulia.study.questions import SIDES, TIE, Answer, Question, allowed_values, is_asked

UNDESIRABLE = frozenset({"personal", "contradicted"})
"""Questions on which a high number is bad."""
HIGHEST, LOWEST = 0.8, 0.4
"""Qualities of the first and the last bot, unless they are given."""
TIE_WIDTH = 0.4
"""Two sides whose appeal differs by less (in logits) are called a tie."""
CHAT_LINES = (
    "Hello, how are you today?",
    "What do you like to do at weekends?",
    "I have just come back from a walk by the river.",
    "Do you like music?",
    "What did you have for breakfast?",
    "I am reading a book about the sea.",
    "Have you ever been to Madrid?",
    "Tell me something about yourself.",
    "What do you think about that?",
    "It rained all day here.",
)
WRITTEN = ("Here the same thing is told differently.", "One could also put it like this.", "Quite another wording.")


class RaterBias(Config):
    """How simulated raters differ from perfect ones."""

    leniency: float = Field(default=0.5, ge=0)
    """Standard deviation of leniency between raters, in logits."""
    noise: float = Field(default=0.5, ge=0)
    """Standard deviation of single answers, in logits."""
    laziness: float = Field(default=0.0, ge=0, le=1)
    """Share of raters who always give the same answer."""
    failed_attention: float = Field(default=0.0, ge=0, le=1)
    """Probability of a wrong answer to a training question or an attention check."""
    items: float = Field(default=1.0, ge=0)
    """Standard deviation of what a bot's replies differ by, in logits: without it, raters agree by chance only."""


class ShownBots(NamedTuple):
    """What is shown, as a simulated rater sees it."""

    qualities: tuple[float, ...]
    """Of the bots, by side."""
    persona_side: str = ""
    """Where the bot's own persona stands, if there are two to choose from."""

    def at(self, side: str | None) -> "ShownBots":
        """What is shown on one side; all of it if there is only one."""
        return ShownBots(self.qualities[SIDES.index(side) :]) if side in SIDES[1:] else self


@dataclass(frozen=True, slots=True)
class SimulatedRater:
    """One rater. Equal raters with equal random numbers answer equally."""

    name: str
    leniency: float
    noise: float
    lazy: bool
    failed_attention: float
    rng: random.Random

    def pays_attention(self) -> bool:
        """Whether the next check is answered correctly."""
        return self.rng.random() >= self.failed_attention

    def answers(self, questions: Sequence[Question], shown: ShownBots) -> dict[str, Answer]:
        """Answers to the questions about one target that are asked, given the answers before them."""
        given: dict[str, Answer] = {}
        for question in questions:
            if is_asked(question, given):
                given[question.id] = self.answer(question, shown)
        return given

    def answer(self, question: Question, shown: ShownBots) -> Answer:
        """An answer to one question."""
        if question.kind == "text":
            return self.rng.choice(WRITTEN)
        if self.lazy:
            return _straight_line(question)
        if question.kind == "side":
            return self._side(question, shown)
        quality = shown.qualities[0]
        appeal = self._appeal(1 - quality if question.id in UNDESIRABLE else quality)
        if question.kind == "yes-no":
            return self.rng.random() < _logistic(appeal)
        if question.kind == "vote":
            return "up" if self.rng.random() < _logistic(appeal) else "down"
        if question.kind == "scale":
            # A binomial draw: its mean is where the quality lies on the scale.
            steps = question.high - question.low
            return question.low + sum(self.rng.random() < _logistic(appeal) for _ in range(steps))
        return self.rng.choice(allowed_values(question))

    def chat_line(self, number: int, max_words: int | None) -> str:
        """A message in a chat."""
        line = CHAT_LINES[number % len(CHAT_LINES)]
        return " ".join(line.split()[:max_words])

    def wrong_answer(self, question: Question, right: Answer) -> Answer:
        """Some answer other than the right one."""
        if question.kind == "yes-no":
            return not right
        if question.kind == "scale":
            return question.low if right != question.low and right != question.low + 1 else question.high
        return self.rng.choice([value for value in allowed_values(question) if value != right])

    def _appeal(self, quality: float) -> float:
        return _logit(quality) + self.leniency + self.rng.gauss(0, self.noise)

    def _side(self, question: Question, shown: ShownBots) -> str:
        values = allowed_values(question)
        if shown.persona_side:  # which of two personas: the better the bot, the more often its own is recognised
            other = next(side for side in SIDES if side != shown.persona_side)
            return shown.persona_side if self.rng.random() < max(shown.qualities[0], 0.5) else other
        appeals = [self._appeal(quality) for quality in shown.qualities]
        difference = appeals[0] - appeals[1] + _logistic_noise(self.rng)
        if TIE in values and abs(difference) < TIE_WIDTH:
            return TIE
        return SIDES[0] if difference > 0 else SIDES[1]


def simulated_raters(count: int, bias: RaterBias, *, seed: int = 0) -> list[SimulatedRater]:
    """Raters with biases drawn at random; the same seed gives the same raters."""
    rng = random.Random(seed)
    lazy = set(rng.sample(range(count), round(bias.laziness * count)))
    return [
        SimulatedRater(
            f"simulated-{i + 1:03}",
            rng.gauss(0, bias.leniency),
            bias.noise,
            i in lazy,
            bias.failed_attention,
            random.Random(rng.getrandbits(64)),
        )
        for i in range(count)
    ]


def bot_qualities(bots: Sequence[str], given: Mapping[str, float]) -> dict[str, float]:
    """A quality for each bot: as given, else evenly spaced from the first bot (best) to the last.

    >>> bot_qualities(["a", "b", "c"], {"c": 0.9})
    {'a': 0.8, 'b': 0.6, 'c': 0.9}
    """
    for name, quality in given.items():
        if name not in bots:
            raise UsageError(f"There is no bot called {name!r}.", hint=f"Bots: {', '.join(bots)}.")
        if not 0 < quality < 1:
            raise UsageError(f"The quality of {name!r} must lie between 0 and 1, and is {quality:g}.")
    step = (HIGHEST - LOWEST) / max(len(bots) - 1, 1)
    return {name: given.get(name, round(HIGHEST - i * step, 6)) for i, name in enumerate(bots)}


def item_quality(quality: float, item: str, deviation: float) -> float:
    """The quality of a bot on one item, the same for all raters; the bot's own quality on the median item.

    >>> item_quality(0.7, "unit 1", 0.0), 0 < item_quality(0.7, "unit 1", 1.0) < 1
    (0.7, True)
    """
    if deviation == 0:
        return quality
    return _logistic(_logit(quality) + random.Random(item).gauss(0, deviation))


def _straight_line(question: Question) -> Answer:
    if question.kind == "yes-no":
        return True
    if question.kind == "scale":
        return (question.low + question.high + 1) // 2
    return allowed_values(question)[0]


def _logit(share: float) -> float:
    return math.log(share / (1 - share))


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, x))))


def _logistic_noise(rng: random.Random) -> float:
    """What makes the choice between two sides follow Bradley and Terry's model."""
    return _logit(min(max(rng.random(), 1e-9), 1 - 1e-9))
