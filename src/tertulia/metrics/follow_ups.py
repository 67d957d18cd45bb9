"""How good a reply is by what would be said next: the log-likelihood of follow-up utterances, as in FED.

After a good reply people say other things than after a bad one. FED (Mehri and Eskenazi 2020) asks a language model how
likely such utterances are after context and reply; no reference and no training is needed. For each aspect there are
negative and for some also positive follow-ups, written for this project. The score of an aspect is

    mean over positive ones of log P(follow-up | context, reply) / tokens  -  the same mean over negative ones

(without positive ones, only the second term), and `overall` takes the negative ones of all aspects. Dividing by the
number of tokens, of which the end of the turn is one, keeps long follow-ups from dominating; how frequent a follow-up
is in general moves all scores alike.

Differences from FED: it takes the likelihood of context, reply and follow-up together, here only the follow-up counts.
Complaints alone (as in De Bruyn et al. 2022) agree with people far better than contrasts do on two of three sets of
ratings, and not at all on the third; docs/reply-scores.md has the figures.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import NamedTuple, Protocol

from tertulia.metrics.metric import Metric, ReplyExample

CITATION = "Mehri and Eskenazi 2020 (FED)"


class LikelihoodModel(Protocol):
    """The resource "language_model"."""

    def log_likelihoods(
        self, prompts: Sequence[tuple[str, ...]], continuations: Sequence[str]
    ) -> Sequence[tuple[float, int]]:
        """Log-probability and number of tokens of each continuation as the next turn after its prompt's turns.

        The end of the turn is part of the continuation.
        """
        ...


def per_token(likelihood: tuple[float, int]) -> float:
    """Log-probability per token; nan for no tokens."""
    logprob, tokens = likelihood
    return logprob / tokens if tokens else float("nan")


class FollowUps(NamedTuple):
    """What people say after a reply that lacks a quality, and after one that has it."""

    negative: tuple[str, ...]
    positive: tuple[str, ...] = ()


FOLLOW_UPS: Mapping[str, FollowUps] = {
    "interesting": FollowUps(negative=("That is so boring.", "That is not interesting at all.")),
    "engaging": FollowUps(
        negative=("I do not want to talk any more.", "You do not seem to care.", "You are not listening to me.")
    ),
    "specific": FollowUps(negative=("You say that to everybody.", "Could you be more specific?")),
    "relevant": FollowUps(
        ("What does that have to do with anything?", "Why are you changing the subject?", "That is not what I asked."),
        ("Yes, that is just what I was asking about.",),
    ),
    "correct": FollowUps(negative=("No, that is wrong.", "You just said the opposite.")),
    "sensible": FollowUps(
        ("That makes no sense.", "That is a strange thing to say."),
        ("Yes, that makes sense.", "That is a good answer."),
    ),
    "understandable": FollowUps(negative=("I have no idea what you mean.", "What are you talking about?")),
    "fluent": FollowUps(("That is not even a sentence.",), ("That was nicely said.",)),
}
"""By aspect; FED's turn-level qualities, with "sensible" for "semantically appropriate"."""
COMPLAINTS = FollowUps(tuple(text for one in FOLLOW_UPS.values() for text in one.negative))
"""The negative follow-ups of all aspects."""
TEXTS = tuple(dict.fromkeys(text for one in FOLLOW_UPS.values() for text in (*one.negative, *one.positive)))


def follow_up_scores(
    batch: Sequence[ReplyExample], *, language_model: LikelihoodModel, follow_ups: FollowUps
) -> list[float]:
    """How much likelier the positive follow-ups are than the negative ones, for each reply.

    All follow-ups of all aspects are scored together, whichever are asked for: reading context and reply is much of the
    work, and a language model that remembers its results then has those of the other aspects.

    >>> class Agreeable:
    ...     def log_likelihoods(self, prompts, continuations):
    ...         return [(-2.0 if "Yes" in text else -8.0, 4) for text in continuations]
    >>> follow_up_scores([ReplyExample("Sure.")], language_model=Agreeable(), follow_ups=FOLLOW_UPS["relevant"])
    [1.5]
    """
    prompts = [(*one.context, one.reply) for one in batch]
    likelihoods = language_model.log_likelihoods(
        [prompt for prompt in prompts for _ in TEXTS], [text for _ in prompts for text in TEXTS]
    )
    scores = []
    for start in range(0, len(likelihoods), len(TEXTS)):
        of_reply = map(per_token, likelihoods[start : start + len(TEXTS)])
        by_text = dict(zip(TEXTS, of_reply, strict=True))
        positive = fmean(by_text[text] for text in follow_ups.positive) if follow_ups.positive else 0.0
        scores.append(positive - fmean(by_text[text] for text in follow_ups.negative))
    return scores


def _metric(name: str, follow_ups: FollowUps, summary: str, citation: str = CITATION) -> Metric:
    compute = partial(follow_up_scores, follow_ups=follow_ups)
    return Metric(f"follow-up: {name}", "reply", "mean", summary, citation, compute=compute, needs=("language_model",))


def _aspect(name: str) -> Metric:
    against = " against praise" if FOLLOW_UPS[name].positive else ""
    return _metric(name, FOLLOW_UPS[name], f"how unlikely complaints are that a reply is not {name}{against}")


INTERESTING, ENGAGING, SPECIFIC, RELEVANT, CORRECT, SENSIBLE, UNDERSTANDABLE, FLUENT = map(_aspect, FOLLOW_UPS)
OVERALL = _metric(
    "overall", COMPLAINTS, "how unlikely complaints of any kind are after a reply", f"{CITATION}; De Bruyn et al. 2022"
)
