"""BEGIN's five labels of a response, derived from the answers about each of its sentences.

The questions form a hierarchy (the preset `begin`): on topic? If not, generic or off-topic. Else personal? informative?
contradicted or supported by the document? The first label that fits is the sentence's. The paper lists hallucination
("personal, or not supported") before contradiction; since what is contradicted is never supported, "not supported" is
read here as neither supported nor contradicted.
"""

from collections.abc import Mapping, Sequence

from tertulia.core.dialogue import Json
from tertulia.core.grounding import GroundingLabel

QUESTIONS = ("on_topic", "why_not", "personal", "supported", "contradicted")
"""Ids of the questions that a label depends on."""
OFF_TOPIC_UP_TO = 2
"""A sentence is off the topic if it has at most this."""
AGREE_FROM = 4
"""A statement about a sentence holds if it has at least this."""
_WORST_FIRST: tuple[GroundingLabel, ...] = ("contradiction", "hallucination", "off-topic", "entailment", "generic")


def begin_label(answers: Mapping[str, Json]) -> GroundingLabel:
    """The label of one sentence.

    >>> begin_label({"on_topic": 5, "cooperative": 5, "personal": 1, "informs": 5, "contradicted": 1, "supported": 4})
    'entailment'
    >>> begin_label({"on_topic": 1, "why_not": "generic"})
    'generic'
    """
    if answers["on_topic"] <= OFF_TOPIC_UP_TO:
        return "generic" if answers["why_not"] == "generic" else "off-topic"
    if answers["personal"] >= AGREE_FROM:
        return "hallucination"
    if answers.get("contradicted", 0) >= AGREE_FROM:
        return "contradiction"
    if answers.get("supported", 0) >= AGREE_FROM:
        return "entailment"
    return "hallucination"


def response_label(labels: Sequence[GroundingLabel]) -> GroundingLabel:
    """The label of a response: the worst of its sentences, where a generic one does no harm.

    >>> response_label(["generic", "entailment"]), response_label(["entailment", "hallucination"])
    ('entailment', 'hallucination')
    """
    if not labels:
        raise ValueError("a response has at least one sentence")
    return min(labels, key=_WORST_FIRST.index)


def is_cooperative(answers: Mapping[str, Json]) -> bool:
    """Whether the sentence helps the conversation along."""
    return bool(answers.get("cooperative", 0) >= AGREE_FROM)
