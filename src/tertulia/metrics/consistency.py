"""Metrics of consistency: does a speaker contradict their persona, or what they said before?

Each turn gets one of three labels against each of two sets of premises, by a classifier that is passed in (resource
`entailment`; by default the built-in rules): contradicting, neutral or entailed (`tertulia.core.consistency`). A metric
is the share of turns with one label. Turns without premises, such as a first turn or one without a persona, have none.
"""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean
from typing import Literal

from tertulia.core.consistency import Claim, ConsistencyClassifier, Relation, consistency_verdicts, statements
from tertulia.metrics.metric import ConversationExample, Metric, ReplyExample

Source = Literal["persona", "own turns"]
NAN = float("nan")
PAPER = "Welleck et al. 2019; Madotto et al. 2019"
MAX_PREMISES = 60
"""Own statements that a turn is compared with, the last ones."""


def turn_utterances(example: ConversationExample, source: Source) -> list[Claim]:
    """The judged turns of a conversation that have premises, each with these and with the turn before it.

    >>> example = ConversationExample(("Do you have kids?", "Two boys.", "Nice!", "No kids."), (False, True) * 2)
    >>> [(one.text, one.premises) for one in turn_utterances(example, "own turns")]
    [('No kids.', ('Two boys.',))]
    """
    speakers = example.speakers or tuple(str(i % 2) for i in range(len(example.turns)))
    personas = dict(example.personas)
    own: dict[str, list[str]] = {}
    made = []
    for i, (text, speaker) in enumerate(zip(example.turns, speakers, strict=True)):
        question = example.turns[i - 1] if i and speakers[i - 1] != speaker else ""
        said = own.setdefault(speaker, [])
        known = personas.get(speaker, example.persona) if source == "persona" else said[-MAX_PREMISES:]
        if example.judged[i] and known:
            made.append(Claim(text, tuple(known), question))
        said += statements(text, question)
    return made


def reply_utterance(example: ReplyExample, source: Source) -> Claim | None:
    """A reply with its premises; None if there are none. Speakers alternate, and the partner has the last turn."""
    if source == "persona":
        premises = example.persona
    else:
        context = example.context
        own = range(len(context) % 2, len(context), 2)
        premises = tuple(s for i in own for s in statements(context[i], context[i - 1] if i else ""))[-MAX_PREMISES:]
    return Claim(example.reply, premises, example.context[-1] if example.context else "") if premises else None


def turns_with_relation(
    batch: Sequence[ConversationExample], *, entailment: ConsistencyClassifier, source: Source, relation: Relation
) -> list[float]:
    """For each conversation the share of judged turns that have this relation to their premises."""
    utterances = [turn_utterances(example, source) for example in batch]
    verdicts = iter(consistency_verdicts(entailment, [one for own in utterances for one in own]))
    shares = [[float(next(verdicts).relation == relation) for _ in own] for own in utterances]
    return [fmean(own) if own else NAN for own in shares]


def replies_with_relation(
    batch: Sequence[ReplyExample], *, entailment: ConsistencyClassifier, source: Source, relation: Relation
) -> list[float]:
    """For each reply 1 if it has this relation to its premises, else 0."""
    utterances = [reply_utterance(example, source) for example in batch]
    verdicts = iter(consistency_verdicts(entailment, [one for one in utterances if one is not None]))
    return [NAN if one is None else float(next(verdicts).relation == relation) for one in utterances]


_VERBS: dict[Relation, str] = {"contradiction": "contradicting", "neutral": "neutral to", "entailment": "entailed by"}
_OF: dict[Source, str] = {"persona": "their speaker's persona", "own turns": "their speaker's earlier turns"}


def _metric(unit: Literal["conversation", "reply"], source: Source, relation: Relation) -> Metric:
    plural = "turns" if unit == "conversation" else "replies"
    compute: Callable[..., list[float]] = turns_with_relation if unit == "conversation" else replies_with_relation
    return Metric(
        f"{plural} {_VERBS[relation]} {source}",
        unit,
        "mean",
        f"share of {plural} {_VERBS[relation]} {_OF[source]}",
        PAPER,
        {"contradiction": False, "neutral": None, "entailment": None}[relation],
        bounded=True,
        compute=partial(compute, source=source, relation=relation),
        needs=("entailment",),
    )


TURNS_CONTRADICTING_PERSONA = _metric("conversation", "persona", "contradiction")
TURNS_NEUTRAL_TO_PERSONA = _metric("conversation", "persona", "neutral")
TURNS_ENTAILED_BY_PERSONA = _metric("conversation", "persona", "entailment")
TURNS_CONTRADICTING_OWN_TURNS = _metric("conversation", "own turns", "contradiction")
TURNS_NEUTRAL_TO_OWN_TURNS = _metric("conversation", "own turns", "neutral")
TURNS_ENTAILED_BY_OWN_TURNS = _metric("conversation", "own turns", "entailment")
REPLIES_CONTRADICTING_PERSONA = _metric("reply", "persona", "contradiction")
REPLIES_NEUTRAL_TO_PERSONA = _metric("reply", "persona", "neutral")
REPLIES_ENTAILED_BY_PERSONA = _metric("reply", "persona", "entailment")
REPLIES_CONTRADICTING_OWN_TURNS = _metric("reply", "own turns", "contradiction")
REPLIES_NEUTRAL_TO_OWN_TURNS = _metric("reply", "own turns", "neutral")
REPLIES_ENTAILED_BY_OWN_TURNS = _metric("reply", "own turns", "entailment")
