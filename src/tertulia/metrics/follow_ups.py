"""How good a reply is by what would be said next: the log-likelihood of follow-up utterances, as in FED.

After a good reply people say other things than after a bad one. FED (Mehri and Eskenazi 2020) asks a language model how
likely such utterances are after context and reply: "That makes no sense." is bad news, "Tell me more!" is good news.
No reference and no training is needed. For each aspect there are a few positive and a few negative follow-ups, written
for this project, and the score is

    mean over positive ones of log P(follow-up | context, reply) / tokens  -  the same mean over negative ones

Dividing by the number of tokens (the end of the turn is one of them) keeps long follow-ups from dominating; what is
common to all replies, such as how frequent a follow-up is in general, moves all scores alike. `overall` is the mean of
all aspects. FED itself takes the likelihood of context, reply and follow-up together, which contains the likelihood of
the context; here only the follow-up counts.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import NamedTuple, Protocol

from tertulia.metrics.metric import Metric, ReplyExample

CITATION = "Mehri and Eskenazi 2020 (FED)"


class LanguageModel(Protocol):
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
    """What people say after a reply that has a quality, and after one that lacks it."""

    positive: tuple[str, ...]
    negative: tuple[str, ...]


FOLLOW_UPS: Mapping[str, FollowUps] = {
    "interesting": FollowUps(
        ("Oh, I never knew that!", "That is fascinating, tell me more.", "Wow, that is so interesting!"),
        ("That is so boring.", "Who cares about that?", "That is not interesting at all."),
    ),
    "engaging": FollowUps(
        ("I love talking about this with you.", "Good question, let me think.", "Let's talk more about that!"),
        ("I do not want to talk any more.", "This conversation is going nowhere.", "Let's talk about something else."),
    ),
    "specific": FollowUps(
        ("Thanks for all the details.", "That is exactly the answer I hoped for."),
        ("You say that to everybody.", "Could you be more specific?", "That is a very vague answer."),
    ),
    "relevant": FollowUps(
        ("Yes, that is just what I was asking about.", "Right, back to what we were talking about."),
        ("What does that have to do with anything?", "Why are you changing the subject?", "That is not what I asked."),
    ),
    "correct": FollowUps(
        ("Yes, you are right about that.", "That is true.", "Exactly, you understood me well."),
        ("No, that is wrong.", "You just said the opposite.", "You misunderstood what I said."),
    ),
    "sensible": FollowUps(
        ("Yes, that makes sense.", "That is a good answer.", "Of course."),
        ("That makes no sense.", "That is a strange thing to say.", "What a weird answer."),
    ),
    "understandable": FollowUps(
        ("I see what you mean.", "Okay, got it.", "Yes, I understand."),
        ("I have no idea what you mean.", "Sorry, what?", "What are you talking about?"),
    ),
    "fluent": FollowUps(
        ("You put that very well.", "That was nicely said."),
        ("That is not even a sentence.", "Your English is hard to follow."),
    ),
}
"""By aspect; FED's turn-level qualities, with "sensible" for "semantically appropriate"."""
OVERALL = "overall"


def follow_up_scores(
    batch: Sequence[ReplyExample], *, language_model: LanguageModel, aspects: Sequence[str]
) -> list[float]:
    """The mean of the aspects' scores for each reply.

    >>> class Agreeable:
    ...     def log_likelihoods(self, prompts, continuations):
    ...         return [(-2.0 if "Yes" in text else -8.0, 4) for text in continuations]
    >>> follow_up_scores([ReplyExample("Sure.")], language_model=Agreeable(), aspects=("fluent", "relevant"))
    [0.375]
    """
    texts = list(dict.fromkeys(text for aspect in aspects for side in FOLLOW_UPS[aspect] for text in side))
    prompts = [(*one.context, one.reply) for one in batch]
    likelihoods = language_model.log_likelihoods(
        [prompt for prompt in prompts for _ in texts], [text for _ in prompts for text in texts]
    )
    scores = []
    for start in range(0, len(likelihoods), len(texts)):
        of_reply = map(per_token, likelihoods[start : start + len(texts)])
        by_text = dict(zip(texts, of_reply, strict=True))
        scores.append(fmean(_contrast(FOLLOW_UPS[aspect], by_text) for aspect in aspects))
    return scores


def _contrast(follow_ups: FollowUps, by_text: Mapping[str, float]) -> float:
    return fmean(by_text[text] for text in follow_ups.positive) - fmean(by_text[text] for text in follow_ups.negative)


def _metric(name: str, aspects: Sequence[str], summary: str) -> Metric:
    compute = partial(follow_up_scores, aspects=tuple(aspects))
    return Metric(f"follow-up: {name}", "reply", "mean", summary, CITATION, compute=compute, needs=("language_model",))


def _aspect(name: str) -> Metric:
    return _metric(name, (name,), f"likelihood of follow-ups to {name} replies against follow-ups to others")


INTERESTING, ENGAGING, SPECIFIC, RELEVANT, CORRECT, SENSIBLE, UNDERSTANDABLE, FLUENT = map(_aspect, FOLLOW_UPS)
OVERALL_FOLLOW_UP = _metric(OVERALL, tuple(FOLLOW_UPS), "mean of the follow-up scores of all aspects")
