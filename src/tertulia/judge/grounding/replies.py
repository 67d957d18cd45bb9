"""Replies whose labels nobody knows: what classifiers say about each bot's replies in conversations with evidence.

A figure is the share of a bot's replies with a label, with an interval over conversations. Conversations without
evidence are counted and said: there is nothing that their replies could rest on.
"""

from collections.abc import Iterator, Sequence

from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError
from tertulia.core.grounding import GroundingInput, GroundingVerdict
from tertulia.core.progress import Progress
from tertulia.core.score import Score
from tertulia.core.text import plural
from tertulia.judge.document import short
from tertulia.judge.grounding.classify import CHUNK, NamedClassifier, load_classifiers, overlap_shares
from tertulia.judge.grounding.config import GroundingConfig
from tertulia.judge.grounding.inputs import GroundedReplies, GroundedReply
from tertulia.judge.runs import JudgedItem, JudgedRun, Subject, describe_config
from tertulia.metrics.agreement import UnitRating, krippendorff_alpha
from tertulia.metrics.grounding import CLAIMS, ENTAILMENT, LABEL_SHARES
from tertulia.metrics.significance import paired_difference
from tertulia.models.classifiers.grounding import grounding_verdicts

METRICS = (*LABEL_SHARES.values(), CLAIMS)


def run_replies(given: GroundedReplies, config: GroundingConfig, progress: Progress) -> JudgedRun:
    """Classify the replies of all bots."""
    replies = given.replies
    if not replies:
        raise DataError(
            f"There are no replies with evidence in {', '.join(config.files)};"
            f" conversations without any: {sum(given.without_evidence.values())}.",
            hint="Give conversations whose dialogues have `evidence`, or labelled responses.",
        )
    progress.step("Loading classifiers")
    loaded = load_classifiers(config.classifiers)
    inputs = [one.input for one in replies]
    verdicts = {named.subject.name: _verdicts(named, inputs, progress) for named in loaded}
    subjects = list(dict.fromkeys(one.subject for one in replies))
    scores = [
        score
        for subject in subjects
        for name, own in verdicts.items()
        for score in _scores(subject, name, replies, own)
    ]
    details: dict[str, Json] = {
        "lead": f"{plural(len(replies), 'reply', 'replies')} in {plural(given.conversations, 'conversation')} with"
        " evidence, by classifiers that may be wrong.",
        "classifiers": {
            one.subject.name: [one.subject.spec, one.subject.kind, one.subject.fingerprint] for one in loaded
        },
        "without evidence": given.without_evidence,
        "tables": _difference_tables(scores, subjects, list(verdicts), replies, verdicts),
        "intervals": "over conversations",
    }
    return JudgedRun(
        verb="grounding",
        config=describe_config(config),
        subjects=tuple(Subject(subject) for subject in subjects),
        settings=tuple(verdicts),
        scores=tuple(scores),
        metrics={metric.name: metric.info for metric in METRICS},
        items=tuple(_items(replies, verdicts, overlap_shares(inputs))),
        notes=(*_notes(given), f"Classifiers: {'; '.join(_described(one.subject) for one in loaded)}."),
        details=details,
    )


def _verdicts(named: NamedClassifier, inputs: Sequence[GroundingInput], progress: Progress) -> list[GroundingVerdict]:
    progress.step(f"Classifying by {named.subject.name}", total=len(inputs))
    verdicts: list[GroundingVerdict] = []
    for start in range(0, len(inputs), CHUNK):
        part = inputs[start : start + CHUNK]
        verdicts += grounding_verdicts(named.classifier, part)
        progress.advance(len(part))
    return verdicts


def _scores(
    subject: str, classifier: str, replies: Sequence[GroundedReply], verdicts: Sequence[GroundingVerdict]
) -> Iterator[Score]:
    own = [i for i, one in enumerate(replies) if one.subject == subject]
    labels = [verdicts[i].label for i in own]
    units, clusters = [replies[i].unit for i in own], [replies[i].cluster for i in own]
    for metric in METRICS:
        yield metric.score(labels, subject=subject, setting=classifier, units=units, clusters=clusters)


def _items(
    replies: Sequence[GroundedReply], verdicts: dict[str, list[GroundingVerdict]], shares: Sequence[float]
) -> Iterator[JudgedItem]:
    """Each reply with its evidence, and what every classifier says about it and its sentences."""
    for i, one in enumerate(replies):
        content: dict[str, Json] = {
            "turns": [{"speaker": turn.speaker, "text": turn.text} for turn in one.turns],
            "judged": [False] * (len(one.turns) - 1) + [True],
            "evidence": one.input.evidence,
            "dialogue": one.cluster,
        }
        for name, own in verdicts.items():
            content |= _said(f"by {name}", own[i], one.input.response)
        content["word overlap"] = f"{shares[i]:.2f}"
        yield JudgedItem(one.unit, content, one.subject)


def _said(by: str, verdict: GroundingVerdict, response: str) -> dict[str, Json]:
    """A verdict as facts to read: the label, labels of sentences if there are several, unsupported words."""
    facts: dict[str, Json] = {by: f"{verdict.label} ({max(verdict.probabilities):.2f})"}
    if len(verdict.sentences) > 1:
        parts = (f"{response[s.span.start : s.span.end]} [{s.label}]" for s in verdict.sentences)
        facts[f"{by}, sentences"] = " ".join(parts)
    words = [response[start:end] for s in verdict.sentences for start, end in s.unsupported]
    if words:
        facts[f"{by}, unsupported"] = ", ".join(words)
    return facts


def _difference_tables(
    scores: Sequence[Score],
    subjects: Sequence[str],
    classifiers: Sequence[str],
    replies: Sequence[GroundedReply],
    verdicts: dict[str, list[GroundingVerdict]],
) -> list[dict[str, Json]]:
    """Each further classifier against the first one on the same replies, by bot."""
    first, *others = classifiers
    rows = []
    attributable = {(s.subject, s.setting): s for s in scores if s.metric == ENTAILMENT.name}
    for subject in subjects if others else ():
        own = [i for i, one in enumerate(replies) if one.subject == subject]
        clusters = {replies[i].unit: replies[i].cluster for i in own}
        for other in others:
            difference = paired_difference(attributable[subject, other], attributable[subject, first], ENTAILMENT.info)
            ratings = [
                UnitRating(replies[i].unit, name, verdicts[name][i].label) for i in own for name in (first, other)
            ]
            alpha = krippendorff_alpha(ratings, clusters=clusters)
            rows.append([subject, other, short(difference), short(alpha), str(len(own))])
    if not rows:
        return []
    head = ["subject", "classifier", f"attributable, minus {first}", f"alpha with {first}", "replies"]
    note = "Differences of shares on the same replies, and Krippendorff's alpha of the five labels (nominal)."
    return [{"title": f"Classifiers compared with {first}", "head": head, "rows": rows, "notes": [note]}]


def _described(classifier: Subject) -> str:
    """A classifier with what identifies it.

    >>> _described(Subject("best", "runs/best", "grounding run best", "f00d"))
    'best (runs/best, grounding run best, f00d)'
    """
    known = dict.fromkeys(part for part in (classifier.spec, classifier.kind, classifier.fingerprint) if part)
    parts = [part for part in known if part != classifier.name]
    return f"{classifier.name} ({', '.join(parts)})" if parts else classifier.name


def _notes(given: GroundedReplies) -> Iterator[str]:
    yield (
        "Shares of replies by the label that a classifier gives them; attributable is entailment. Attributable claims"
        " leave generic replies out, which claim nothing. 95 % intervals (Wilson's) over conversations."
    )
    for what, counts in (("Conversations", given.without_evidence), ("Single replies", given.bare)):
        if counts:
            listed = ", ".join(f"{subject} {count}" for subject, count in counts.items())
            yield f"{what} without evidence are not judged: {listed}."
