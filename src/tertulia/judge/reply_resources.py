"""Resources of reply metrics: language models, rankers, word frequencies and entailment classifiers by specification.

Each function takes a specification and returns what `tertulia.metrics.reference_free` and `follow_ups` describe as a
protocol. The defaults are packaged models or built-in rules, so that they work offline.
"""

from collections.abc import Sequence

import numpy as np

from tertulia.core.consistency import ConsistencyClassifier, HasRelations
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import UsageError
from tertulia.core.reply import Ask
from tertulia.corpus.load import SAMPLE, load_dialogues
from tertulia.metrics.metric import ReplyExample
from tertulia.metrics.reference_free import ReplyRanker, WordIdf, unit
from tertulia.models.classifiers.consistency import DEFAULT, load_consistency
from tertulia.models.generators.teachers import cached
from tertulia.models.sentence_encoder import SentenceEncoder
from tertulia.models.text_likelihood import TextScorer
from tertulia.talk.bot import RankingBot
from tertulia.talk.bots.generative import BaseGenerativeBot
from tertulia.talk.spec import make_bot

DEFAULT_LANGUAGE_MODEL = "smollm2"
RELATED_TURNS = 4
"""Turns that a reply should be related to; chosen with benchmarks/reply_scores.py."""


def language_model(spec: str) -> TextScorer:
    """A generative bot's model as a scorer of texts; its decoding options do not matter."""
    bot = make_bot(spec or DEFAULT_LANGUAGE_MODEL, reference=True)
    if not isinstance(bot, BaseGenerativeBot):
        raise UsageError(
            f"The bot {bot.spec!r} has no language model that could score texts.",
            hint="Give smollm2, hf:NAME_OR_FOLDER, or the folder of a training run of a generative model.",
        )
    return TextScorer(bot.model, name=bot.spec)


def ranker(spec: str) -> ReplyRanker:
    """The cosine of sentence vectors by default, else the score of a bot that ranks."""
    if not spec or spec == "minilm":
        return SentenceSimilarity(SentenceEncoder.load().eval())
    bot = make_bot(spec, reference=True)
    if not isinstance(bot, RankingBot):
        raise UsageError(
            f"The bot {bot.spec!r} cannot rank given replies.",
            hint="Give the folder of a trained ranker, tfidf, or a generative model.",
        )
    return BotRanker(bot)


class SentenceSimilarity:
    """The mean cosine of a reply with the last turns before it."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        self.encode = cached(encoder.encode)

    def scores(self, batch: Sequence[ReplyExample]) -> list[float]:
        """Cosines from -1 to 1."""
        contexts = [one.context[-RELATED_TURNS:] for one in batch]
        replies = unit(self.encode([one.reply for one in batch]))
        turns = iter(unit(self.encode([text for context in contexts for text in context])))
        return [
            float(np.mean([next(turns) @ reply for _ in context]))
            for context, reply in zip(contexts, replies, strict=True)
        ]


class BotRanker:
    """A bot's score of each reply as the only candidate; speakers alternate, and the bot knows the persona."""

    def __init__(self, bot: RankingBot) -> None:
        self.bot = bot

    def scores(self, batch: Sequence[ReplyExample]) -> list[float]:
        """As the bot scores candidates; the scale is the bot's own."""
        scored = self.bot.score([as_ask(one) for one in batch], [[one.reply] for one in batch])
        return [float(score) for (score,) in scored]


def as_ask(example: ReplyExample) -> Ask:
    """The request that the reply answers: the partner has the last turn, and the speakers alternate."""
    me, partner = "bot", "partner"
    size = len(example.context)
    turns = tuple(Turn(me if (size - i) % 2 == 0 else partner, text) for i, text in enumerate(example.context))
    personas = {me: Persona(example.persona)} if example.persona else {}
    return Ask(Dialogue("reply", turns, personas), me)


def idf(spec: str) -> WordIdf:
    """Counts in the turns of the sample, or of other data."""
    return WordIdf.of_texts(turn.text for dialogue in load_dialogues(spec or SAMPLE) for turn in dialogue.turns)


def entailment(spec: str) -> ConsistencyClassifier:
    """The built-in rules by default, or a classifier of natural language inference; every pair is classified once."""
    return RememberingClassifier(load_consistency(spec or DEFAULT))


class RememberingClassifier:
    """A classifier that keeps its answers: several metrics ask for the same pairs."""

    def __init__(self, classifier: ConsistencyClassifier) -> None:
        self.classifier = classifier
        self._rows: dict[tuple[str, str], HasRelations] = {}

    def probabilities(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[HasRelations]:
        """For each pair the probabilities of the three classes."""
        pairs = list(zip(premises, hypotheses, strict=True))
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._rows]
        rows = self.classifier.probabilities([p for p, _ in new], [h for _, h in new]) if new else ()
        self._rows.update(zip(new, rows, strict=True))
        return [self._rows[pair] for pair in pairs]
