"""Classifiers on labelled responses: a judged run with accuracy, macro-F1, figures by label and ROC-AUC.

Word overlap and the most frequent label are always among the subjects, and everything is measured again where overlap
is middling: a classifier is only interesting if it beats overlap, and only there does it have a chance to.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from tertulia.core.dialogue import Json
from tertulia.core.grounding import LABELS
from tertulia.core.progress import Progress
from tertulia.core.score import Score
from tertulia.core.text import plural
from tertulia.judge.grounding.classify import (
    FIVE,
    OVERLAP,
    THRESHOLD,
    TWO,
    WAYS,
    LabelPredictions,
    NamedClassifier,
    Way,
    choose_threshold,
    classify,
    load_classifiers,
    majority_baseline,
    overlap_baseline,
    overlap_shares,
    predictions,
    true_label,
)
from tertulia.judge.grounding.config import GroundingConfig
from tertulia.judge.grounding.errors import error_tables
from tertulia.judge.grounding.inputs import BEGIN_V1, LabelledResponse, LabelledSet, read_labelled
from tertulia.judge.grounding.people import agreement_table
from tertulia.judge.runs import JudgedItem, JudgedRun, describe_config
from tertulia.metrics import classification as metrics
from tertulia.metrics.classification import ClassVerdict, LabelVerdict, ScoredVerdict

METRICS = (
    metrics.ACCURACY,
    metrics.MACRO_F1,
    metrics.ROC_AUC,
    metrics.PRECISION,
    metrics.RECALL,
    metrics.F1,
)
PUBLISHED_SIZES = {836: "dev", 6474: "test"}
"""Responses in the released splits of BEGIN v1."""


def run_labelled(given: LabelledSet, config: GroundingConfig, progress: Progress) -> JudgedRun:
    """Judge classifiers and baselines on labelled responses."""
    responses = given.responses
    inputs = [one.input for one in responses]
    shares = overlap_shares(inputs)
    threshold, chosen = _threshold(given, config, progress)
    ways = WAYS if given.five else (TWO,)
    progress.step("Loading classifiers")
    loaded = [one for one in load_classifiers(config.classifiers) if one.classifier.name != OVERLAP]
    subjects = [overlap_baseline(shares, threshold), majority_baseline(responses, ways)]
    subjects += [predictions(one.subject, classify(one, inputs, progress)) for one in loaded]
    progress.step("Measuring")
    middle = [config.band[0] <= share <= config.band[1] for share in shares]
    bands = {"": [True] * len(shares), band_name(config.band): middle}
    scores = [
        score
        for subject in subjects
        for band, mask in bands.items()
        for way in ways
        for score in way_scores(subject, responses, way, band, mask)
    ]
    compared = [setting_name(way, band) for band in bands for way in ways]
    tables: list[dict[str, Json]] = [agreement_table(given, subjects)] if given.people else []
    tables += [] if given.five else [_cross_table(one, responses) for one in subjects if one.probabilities]
    tables += error_tables(_explained(subjects, loaded), responses, shares, count=config.examples)
    return JudgedRun(
        verb="grounding",
        config=describe_config(config),
        subjects=tuple(one.subject for one in subjects),
        settings=tuple(dict.fromkeys(score.setting for score in scores)),
        scores=tuple(scores),
        metrics={m.name: m.info for m in METRICS if any(score.metric == m.name for score in scores)},
        items=tuple(_items(subjects, responses, shares, ways[0])),
        notes=(*given.notes, *chosen, *_notes(config, ways, responses)),
        details={
            "lead": f"{len(responses)} labelled responses.",
            "ways": {way.name: list(way.labels) for way in ways},
            "bands": list(bands),
            "compared": {"settings": compared, "subjects": [one.subject.name for one in subjects[2:]]},
            "published": PUBLISHED_SIZES.get(len(responses), "test") if given.readers == {BEGIN_V1} else None,
            "threshold": threshold,
            "intervals": "over passages",
            "tables": tables,
        },
    )


def _threshold(given: LabelledSet, config: GroundingConfig, progress: Progress) -> tuple[float, tuple[str, ...]]:
    """The threshold of the overlap baseline, and where it comes from."""
    if config.threshold is not None:
        return config.threshold, (f"Word overlap counts as support from {config.threshold:g}, as given.",)
    if config.tune is None:
        return THRESHOLD, (f"Word overlap counts as support from {THRESHOLD:g}, the default; see --tune.",)
    progress.step("Choosing a threshold")
    tuning = read_labelled(config.tune)
    value = choose_threshold(tuning, given)
    why = f"chosen for accuracy on {plural(len(tuning.responses), 'response')} of {config.tune}"
    return value, (f"Word overlap counts as support from {value:.3f}, {why}.",)


def band_name(band: tuple[float, float]) -> str:
    """How the band is called in settings.

    >>> band_name((0.4, 0.85))
    'overlap .40 to .85'
    """
    low, high = (f"{end:.2f}".removeprefix("0") for end in band)
    return f"overlap {low} to {high}"


def setting_name(way: Way, band: str = "", label: str = "") -> str:
    """The setting of a figure.

    >>> setting_name(TWO, "overlap .40 to .85", "attributable")
    'attributable or not, overlap .40 to .85: attributable'
    """
    name = f"{way.name}, {band}" if band else way.name
    return f"{name}: {label}" if label else name


def way_scores(
    subject: LabelPredictions, responses: Sequence[LabelledResponse], way: Way, band: str, mask: Sequence[bool]
) -> Iterator[Score]:
    """All scores of a subject for one way to label, on the responses of the mask."""
    rows = [i for i, keep in enumerate(mask) if keep]
    own = {
        "subject": subject.subject.name,
        "units": [responses[i].unit for i in rows],
        "clusters": [responses[i].cluster for i in rows],
    }
    setting = setting_name(way, band)
    verdicts = [LabelVerdict(true_label(way, responses[i]), subject.labels[way.name][i]) for i in rows]
    yield metrics.ACCURACY.score(verdicts, setting=setting, **own)  # type: ignore[arg-type]
    yield metrics.MACRO_F1.score(verdicts, setting=setting, **own)  # type: ignore[arg-type]
    if way == TWO:
        scored = [ScoredVerdict(responses[i].supported, subject.support[i]) for i in rows]
        yield metrics.ROC_AUC.score(scored, setting=setting, **own)  # type: ignore[arg-type]
    if subject.subject.kind == "baseline":  # one label always: nothing to say by label
        return
    for k, label in enumerate(way.labels):
        binary = [ClassVerdict(one.true == k, one.predicted == k) for one in verdicts]
        for metric in (metrics.PRECISION, metrics.RECALL, metrics.F1):
            yield metric.score(binary, setting=setting_name(way, band, label), **own)  # type: ignore[arg-type]


def _cross_table(subject: LabelPredictions, responses: Sequence[LabelledResponse]) -> dict[str, Json]:
    """Which of the five labels a classifier gives to responses whose own labels are others."""
    counts = Counter(zip((one.written for one in responses), subject.labels[FIVE.name], strict=True))
    written = list(dict.fromkeys(one.written for one in responses))
    rows = [[label, *(str(counts[label, k]) for k in range(len(LABELS)))] for label in written]
    title = f"Which of five labels {subject.subject.name} gives to which of the file's"
    return {"title": title, "head": ["label in the file", *LABELS], "rows": rows, "notes": []}


def _explained(
    subjects: Sequence[LabelPredictions], loaded: Sequence[NamedClassifier]
) -> list[tuple[LabelPredictions, NamedClassifier]]:
    """Those whose errors are shown: the classifiers, or overlap if there is no other."""
    if not loaded:
        return [(subjects[0], load_classifiers([OVERLAP])[0])]
    return list(zip(subjects[2:], loaded, strict=True))


def _items(
    subjects: Sequence[LabelPredictions], responses: Sequence[LabelledResponse], shares: Sequence[float], way: Way
) -> Iterator[JudgedItem]:
    """The texts of each response with its true label and what everybody predicts."""
    for i, one in enumerate(responses):
        said = {}
        for subject in (subjects[0], *subjects[2:]):
            label = way.labels[subject.labels[way.name][i]]
            sure = f" ({max(subject.probabilities[i]):.2f})" if subject.probabilities and way == FIVE else ""
            said[f"by {subject.subject.name}"] = f"{label}{sure}"
        content: dict[str, Json] = {
            "context": [one.input.previous] if one.input.previous else [],
            "reply": one.input.response,
            "evidence": one.input.evidence,
            "true label": one.written,
            **said,
            "word overlap": f"{shares[i]:.2f}",
        }
        yield JudgedItem(one.unit, content)


def _notes(config: GroundingConfig, ways: Sequence[Way], responses: Sequence[LabelledResponse]) -> tuple[str, ...]:
    passages = len({one.cluster for one in responses})
    low, high = config.band
    notes = [
        f"{plural(len(responses), 'response')} to {plural(passages, 'passage')}; 95 % intervals over"
        " passages: Wilson's for shares, by bootstrap for macro-F1 and ROC-AUC.",
        f"Overlap is the share of the response's content words that the evidence has; the middle is from {low:g} to"
        f" {high:g}.",
    ]
    if FIVE in ways:
        notes.append(
            f"Of three labels, neutral adds up the probabilities of {', '.join(LABELS[1:4])}. A response is"
            " attributable if its label of five is entailment."
        )
    else:
        notes.append("The labels of these responses only say whether the evidence supports them.")
    return tuple(notes)
