"""Grounding classifiers by name, and their verdicts on the sentences and words of a response.

A classifier reads evidence, the turn before and a response, and gives the probabilities of BEGIN's five labels. All of
them are used through the same three functions: `load_grounding`, `grounding_verdicts` and, where only a number for the
response as a whole is needed, the classifier's own `probabilities`.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from tertulia.artefacts.manifest import is_complete
from tertulia.core.english import ANTONYMS, NEGATIONS, STOP_WORDS, stem
from tertulia.core.grounding import (
    GroundingClassifier,
    GroundingInput,
    GroundingLabel,
    GroundingVerdict,
    SentenceVerdict,
    Span,
    most_likely,
)
from tertulia.core.registry import Registry
from tertulia.core.text import sentence_spans, words
from tertulia.models.classifiers.grounding_features import overlap
from tertulia.models.classifiers.grounding_models import load_run

GROUNDING = Registry("grounding classifier", "tertulia.grounding")
"""Classifiers that need no training; each row is a function without parameters that returns a `GroundingClassifier`."""
GROUNDING.add(
    "overlap",
    "tertulia.models.classifiers.grounding:OverlapClassifier",
    "the baseline: how much of the response's content occurs in the evidence",
)
GROUNDING.add(
    "lexical",
    "tertulia.models.classifiers.grounding_models:packaged",
    "what can be counted, in an additive model that explains itself; trained on the bundled sample's silver data",
)
DEFAULT = "lexical"
MAX_RESPONSE = 20_000
"""Characters of a response that sentence verdicts cover."""
MAX_SENTENCES = 100
"""Sentences of a response that have a verdict of their own: no reply of a conversation has more."""
_WORD = re.compile(r"\w+(?:['’.,]\w+)*")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_THOUSANDS = re.compile(r",(?=\d{3}(?!\d))")


class OverlapClassifier:
    """Word overlap as a classifier: the baseline that every other one is shown beside.

    The share of content words that the evidence has is taken for the probability of entailment, the rest for that of
    hallucination. It says nothing about the other labels.

    >>> OverlapClassifier().probabilities([GroundingInput("Broccoli is boiled.", "", "Broccoli can be boiled!")])
    [(1.0, 0.0, 0.0, 0.0, 0.0)]
    """

    name = "overlap"

    def probabilities(self, inputs: Sequence[GroundingInput], /) -> list[tuple[float, ...]]:
        """Overlap, and its complement."""
        shares = [overlap(one) for one in inputs]
        return [(share, 1 - share, 0.0, 0.0, 0.0) for share in shares]


def load_grounding(name: str = DEFAULT) -> GroundingClassifier:
    """A classifier by its name in the registry, by the run folder of the recipe `grounding`, or by `hf:NAME_OR_FOLDER`.

    A Hugging Face model is a classifier of sequences with BEGIN's labels or those of inference, or a text-to-text model
    that writes the label (`tertulia.models.classifiers.hf_grounding`).
    """
    classifier: GroundingClassifier
    if name.startswith("hf:"):
        from tertulia.models.classifiers.hf_grounding import load_hugging_face  # transformers takes seconds to import

        classifier = load_hugging_face(name.removeprefix("hf:"))
    elif is_complete(Path(name)):
        classifier = load_run(Path(name))
    else:
        classifier = GROUNDING.get(name)()
    return classifier


def grounding_verdicts(classifier: GroundingClassifier, inputs: Sequence[GroundingInput]) -> list[GroundingVerdict]:
    """Classify responses as a whole and sentence by sentence, all in one batch.

    A sentence with a number that the evidence does not have is never taken for supported or generic, whatever the
    classifier says: so short a sentence as "In 1985!" looks like small talk to anything that counts words.
    """
    sentences = [
        [Span(*span) for span in sentence_spans(one.response[:MAX_RESPONSE])[:MAX_SENTENCES]] for one in inputs
    ]
    flat = [
        one._replace(response=one.response[span.start : span.end])
        for one, spans in zip(inputs, sentences, strict=True)
        for span in spans
        if len(spans) > 1
    ]
    rows = classifier.probabilities([*inputs, *flat])
    parts = iter(rows[len(inputs) :])
    verdicts = []
    for one, spans, row in zip(inputs, sentences, rows, strict=False):
        own = [next(parts) for _ in spans] if len(spans) > 1 else [row] * len(spans)
        numbers = _numbers(one.evidence) if _numbers(one.response[:MAX_RESPONSE]) else set()
        its = tuple(_sentence(one, span, part, numbers) for span, part in zip(spans, own, strict=True))
        verdicts.append(GroundingVerdict(most_likely(row), row, its))
    return verdicts


def _numbers(text: str) -> set[str]:
    """The numbers in digits; thousands may be separated or not."""
    return {_THOUSANDS.sub("", number) for number in _NUMBER.findall(text)}


def _sentence(one: GroundingInput, span: Span, row: tuple[float, ...], numbers: set[str]) -> SentenceVerdict:
    label = most_likely(row)
    if label in ("entailment", "generic") and _numbers(one.response[span.start : span.end]) - numbers:
        label = "hallucination"
    return SentenceVerdict(span, label, row, unsupported_words(one, span, label))


def unsupported_words(one: GroundingInput, span: Span, label: GroundingLabel) -> tuple[Span, ...]:
    """The content words of a sentence that the evidence does not have, neighbours joined.

    For a supported or a generic sentence there are none: neither claims something that the evidence would have to say.
    Of a contradiction, negations and antonyms of the evidence's words count too: they may be all that is wrong.

    >>> text = "It was founded in 1985."
    >>> spans = unsupported_words(GroundingInput("Founded in 1982.", "", text), Span(0, len(text)), "hallucination")
    >>> [text[start:end] for start, end in spans]
    ['1985']
    """
    if label in ("entailment", "generic"):
        return ()
    evidence = set(words(one.evidence))
    known = {stem(word) for word in evidence}
    spans: list[Span] = []
    for match in _WORD.finditer(one.response, span.start, span.end):
        word = match.group().lower()
        opposite = label == "contradiction" and (word in NEGATIONS or ANTONYMS.get(word) in evidence)
        if not opposite and (word in STOP_WORDS or all(stem(part) in known for part in words(word))):
            continue
        if spans and one.response[spans[-1].end : match.start()].isspace():
            spans[-1] = Span(spans[-1].start, match.end())
        else:
            spans.append(Span(match.start(), match.end()))
    return tuple(spans)
