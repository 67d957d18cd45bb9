"""Repetition: within a reply, of earlier turns, of the partner, and conversations that go in circles.

Generative models repeat themselves, which people dislike at once (See et al. 2019). All shares are of n-grams of words;
a reply that is too short to have one has no value.

- seq-rep-n (Welleck et al. 2020): 1 minus different n-grams over all n-grams of a reply.
- context-rep-n: share of a reply's n-grams that stand in an earlier turn, by whomever.
- self-repetition and parroting: share of a judged turn's bigrams that stand in the same speaker's earlier turns, and in
  the turn just before it; "extrep" and "partnerrep" of See et al. 2019, except that all earlier turns count.
- loop: 1 if a speaker says the same again, at least `MIN_LOOP_LETTERS` letters long so that "yes" and "thank you" do
  not count, or if two turns in a row, of whatever length, occur again; else 0.

`ConversationExample` has no names of speakers. If two turns in a row are judged, both speakers are (self-play), and
they take turns; else all judged turns are by one speaker.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from statistics import fmean

from tertulia.core.text import ngrams, squash, words
from tertulia.metrics.metric import ConversationExample, Metric, MetricFamily, ReplyExample

NAN = float("nan")
MIN_LOOP_LETTERS = 12
"""As long as "i don't know"."""
BIGRAMS = 2


def turn_key(text: str) -> str:
    """What is compared when turns are the same: the words, or the text itself if it has none; empty if it is blank.

    >>> turn_key("I don't  KNOW!"), turn_key(" 🙂 ")
    ("i don't know", '🙂')
    """
    return " ".join(words(text)) or squash(text)


def repeated_ngrams(batch: Sequence[ReplyExample], *, n: int) -> list[float]:
    """The share of n-grams of each reply that it has already used.

    >>> repeated_ngrams([ReplyExample("no no no no")], n=1)
    [0.75]
    """
    shares = []
    for one in batch:
        grams = list(ngrams(words(one.reply), n))
        shares.append(1 - len(set(grams)) / len(grams) if grams else NAN)
    return shares


def context_ngrams(batch: Sequence[ReplyExample], *, n: int) -> list[float]:
    """The share of n-grams of each reply that an earlier turn has; nan without earlier turns.

    >>> context_ngrams([ReplyExample("do you like tea", context=("I like tea.",))], n=2)
    [0.3333333333333333]
    """
    return [
        _share(one.reply, {gram for turn in one.context for gram in ngrams(words(turn), n)}, n) if one.context else NAN
        for one in batch
    ]


def self_repetition(batch: Sequence[ConversationExample]) -> list[float]:
    """The mean share of bigrams that judged turns repeat from the same speaker's earlier ones.

    >>> chat = ConversationExample(("Hi!", "I like tea", "Oh?", "I like tea a lot"), (False, True, False, True))
    >>> self_repetition([chat])
    [0.5]
    """
    return [_mean(share for own in _by_speaker(one) for share in _shares_of_earlier(own)) for one in batch]


def parroting(batch: Sequence[ConversationExample]) -> list[float]:
    """The mean share of bigrams of judged turns that stand in the turn before.

    >>> parroting([ConversationExample(("I like tea", "You like tea?"), (False, True))])
    [0.5]
    """
    return [
        _mean(
            _share(one.turns[i], set(ngrams(words(one.turns[i - 1]), BIGRAMS)), BIGRAMS)
            for i in range(1, len(one.turns))
            if one.judged[i]
        )
        for one in batch
    ]


def loop(batch: Sequence[ConversationExample]) -> list[float]:
    """1 for each conversation that goes in circles, 0 for others, nan for those with fewer than two judged turns.

    >>> generic = ("Why?", "I don't know.", "Really?", "I don't know!")
    >>> loop([ConversationExample(generic, (False, True) * 2), ConversationExample(("a", "b"), (True, True))])
    [1.0, 0.0]
    """
    return [float(_goes_in_circles(one)) if sum(one.judged) > 1 else NAN for one in batch]


def _goes_in_circles(one: ConversationExample) -> bool:
    for own in _by_speaker(one):
        keys = [key for text in own if len(key := turn_key(text)) >= MIN_LOOP_LETTERS]
        if len(set(keys)) < len(keys):
            return True
    keys = [turn_key(text) for text in one.turns]
    exchanges = [pair for pair in ngrams(keys, 2) if any(pair)]
    return len(set(exchanges)) < len(exchanges)


def _by_speaker(one: ConversationExample) -> list[list[str]]:
    """The judged turns of each speaker."""
    judged = [i for i, flag in enumerate(one.judged) if flag]
    if any(j == i + 1 for i, j in pairwise(judged)):
        return [[one.turns[i] for i in judged if i % 2 == side] for side in (0, 1)]
    return [[one.turns[i] for i in judged]]


def _shares_of_earlier(turns: Iterable[str]) -> Iterable[float]:
    """For all turns but the first, the share of bigrams that earlier ones have."""
    earlier: set[tuple[str, ...]] = set()
    for i, text in enumerate(turns):
        if i:
            yield _share(text, earlier, BIGRAMS)
        earlier.update(ngrams(words(text), BIGRAMS))


def _share(text: str, known: set[tuple[str, ...]], n: int) -> float:
    grams = list(ngrams(words(text), n))
    return sum(gram in known for gram in grams) / len(grams) if grams else NAN


def _mean(values: Iterable[float]) -> float:
    valid = [value for value in values if value == value]
    return fmean(valid) if valid else NAN


def _seq_rep(name: str, n: int) -> Metric:
    summary, citation = f"share of {n}-grams that a reply repeats from itself", "Welleck et al. 2020"
    return Metric(
        name,
        "reply",
        summary=summary,
        citation=citation,
        higher_is_better=False,
        bounded=True,
        compute=partial(repeated_ngrams, n=n),
    )


def _context_rep(name: str, n: int) -> Metric:
    summary, citation = f"share of {n}-grams of a reply that stand in an earlier turn", "See et al. 2019"
    return Metric(
        name,
        "reply",
        summary=summary,
        citation=citation,
        higher_is_better=None,
        bounded=True,
        compute=partial(context_ngrams, n=n),
    )


SEQ_REP = MetricFamily("seq-rep-N", _seq_rep, "share of n-grams that a reply repeats from itself")
CONTEXT_REP = MetricFamily("context-rep-N", _context_rep, "share of n-grams of a reply that stand in an earlier turn")
SELF_REPETITION = Metric(
    "self-repetition",
    "conversation",
    "mean",
    "share of bigrams that a speaker has used in earlier turns",
    "See et al. 2019",
    False,
    bounded=True,
    compute=self_repetition,
)
PARROTING = Metric(
    "parroting",
    "conversation",
    "mean",
    "share of bigrams that stand in the partner's last turn",
    "See et al. 2019",
    False,
    bounded=True,
    compute=parroting,
)
LOOP = Metric(
    "loop",
    "conversation",
    "mean",
    "share of conversations in which a speaker repeats a turn, or an exchange recurs",
    higher_is_better=False,
    bounded=True,
    compute=loop,
)
