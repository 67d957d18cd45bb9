"""The tables of `judge grounding`: figures beside baselines and published ones, figures by label, confusion matrices.

They are views: everything comes from the scores of a run. A confusion matrix is in the scores of macro-F1, whose values
and weights are the predicted and the true label.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from tertulia.core.estimate import Estimate
from tertulia.judge.document import FigureCell, Plot, Section
from tertulia.judge.report_leaderboard import scores_of, standings
from tertulia.judge.runs import JudgedRun
from tertulia.metrics import classification
from tertulia.metrics.classification import Counts, confusion_matrix
from tertulia.metrics.grounding import CLAIMS, LABEL_SHARES
from tertulia.metrics.plots import confusion_plot

Figures = Mapping[tuple[str, str, str], Estimate]
Cells = Mapping[tuple[str, str, str], FigureCell]
"""By subject, setting and metric."""
ACCURACY, MACRO_F1, ROC_AUC = (
    m.name for m in (classification.ACCURACY, classification.MACRO_F1, classification.ROC_AUC)
)
BY_LABEL = (classification.PRECISION.name, classification.RECALL.name, classification.F1.name)
SHARES: Mapping[str, str] = {
    "attributable": LABEL_SHARES["entailment"].name,
    **{str(label): metric.name for label, metric in LABEL_SHARES.items() if label != "entailment"},
    "attributable claims": CLAIMS.name,
}
"""Columns of the shares of labels, and their metrics; a reply is attributable if its label is entailment."""
PUBLISHED: Mapping[str, Mapping[tuple[str, str], tuple[float, float | None]]] = {
    "BERT, MNLI": {("three labels", "dev"): (0.672, 0.483), ("three labels", "test"): (0.668, 0.482)},
    "BERT, silver": {
        ("three labels", "dev"): (0.709, 0.485),
        ("five labels", "dev"): (0.437, 0.308),
        ("three labels", "test"): (0.697, 0.481),
        ("five labels", "test"): (0.409, 0.295),
    },
    "BERT, MNLI + silver": {
        ("three labels", "dev"): (0.696, 0.504),
        ("five labels", "dev"): (0.464, 0.335),
        ("three labels", "test"): (0.685, 0.471),
        ("five labels", "test"): (0.438, 0.310),
    },
    "T5, MNLI": {("three labels", "dev"): (0.691, 0.503), ("three labels", "test"): (0.685, 0.491)},
    "T5, silver": {
        ("three labels", "dev"): (0.693, 0.505),
        ("five labels", "dev"): (0.452, 0.324),
        ("three labels", "test"): (0.683, 0.491),
        ("five labels", "test"): (0.422, 0.306),
    },
    "T5, MNLI + silver": {
        ("three labels", "dev"): (0.710, 0.526),
        ("five labels", "dev"): (0.455, 0.335),
        ("three labels", "test"): (0.693, 0.495),
        ("five labels", "test"): (0.432, 0.314),
    },
    "always neutral": {("three labels", "test"): (0.567, None)},
    "people": {("three labels", "dev"): (0.90, None), ("five labels", "dev"): (0.75, None)},
}
"""Dziri et al. 2021 (arXiv 2105.00071v1): accuracy and macro-F1 on BEGIN v1, by way and split."""


def grounding_sections(run: JudgedRun, figures: Figures, *, plots: bool = True) -> list[Section]:
    """The tables of a run of `judge grounding`; none of another run."""
    if run.verb != "grounding":
        return []
    cells = _cells(run, figures)
    if "ways" not in run.details:
        return [_label_shares(run, cells, setting) for setting in run.settings]
    ways: Mapping[str, Sequence[str]] = run.details["ways"]
    sections = [_comparison(run, cells, way) for way in ways]
    sections += [_by_label(run, cells, way, labels, detail=i > 0) for i, (way, labels) in enumerate(ways.items())]
    for i, (way, labels) in enumerate(ways.items()):
        sections += _confusions(run, way, labels, plots=plots, detail=i > 0)
    return sections


def _label_shares(run: JudgedRun, cells: Cells, classifier: str) -> Section:
    """What a classifier says about the replies of each bot."""
    rows = [
        (subject.name, *(cells[subject.name, classifier, metric] for metric in SHARES.values()))
        for subject in run.subjects
    ]
    better = {name: run.metrics[metric].higher_is_better for name, metric in SHARES.items()}
    return Section(f"Labels of replies by {classifier}", ("", *SHARES), tuple(rows), better=better)


def _comparison(run: JudgedRun, cells: Cells, way: str) -> Section:
    """All subjects, on all responses and where overlap is middling, above the published rows."""
    bands: Sequence[str] = run.details["bands"]
    metrics = [m for m in (ACCURACY, MACRO_F1, ROC_AUC) if any(key[1:] == (way, m) for key in cells)]
    columns = [(_setting(way, band), metric) for band in bands for metric in metrics]
    rows = [(s.name, *(cells.get((s.name, *column), "") for column in columns)) for s in run.subjects]
    names = [metric.removeprefix("label ") for metric in metrics]
    head = ("", *names, *(f"middle: {name}" for name in names))
    split = str(run.details.get("published"))
    published = [(f"paper: {name}", _shown(row[way, split])) for name, row in PUBLISHED.items() if (way, split) in row]
    empty = ("",) * (len(columns) - 2)
    notes = [f"Middle: responses with {bands[-1]}, where overlap alone says little."]
    if published:
        notes.append(
            f"The paper's rows (Dziri et al. 2021) are of the {split} split of BEGIN v1, without intervals; its people"
            " are annotators against the final label."
        )
    shown = [*rows, *((name, *row, *empty) for name, row in published)]
    better = dict.fromkeys(head[1:], True)
    return Section(f"{way.capitalize()}: how often each is right", head, tuple(shown), tuple(notes), better=better)


def _by_label(run: JudgedRun, cells: Cells, way: str, labels: Sequence[str], *, detail: bool) -> Section:
    rows = []
    for subject in run.subjects:
        for label in labels:
            keys = [(subject.name, f"{way}: {label}", metric) for metric in BY_LABEL]
            if keys[0] in cells:
                rows.append((subject.name, label, *(cells[key] for key in keys)))
    head = ("", "label", "precision", "recall", "F1")
    better = dict.fromkeys(head[2:], True)
    return Section(f"{way.capitalize()}, label by label", head, tuple(rows), detail=detail, better=better)


def _confusions(run: JudgedRun, way: str, labels: Sequence[str], *, plots: bool, detail: bool) -> list[Section]:
    """The confusion matrix of every subject but the constant one (the paper's figure 2)."""
    sections = []
    for number, subject in enumerate(run.subjects):
        matrix = saved_confusion(run, subject.name, way, labels)
        if matrix is None or subject.kind == "baseline":
            continue
        title = f"{way.capitalize()}: what {subject.name} takes for what"
        rows = tuple(
            (label, *(_share(count, sum(row)) for count in row), sum(row))
            for label, row in zip(labels, matrix.tolist(), strict=True)
        )
        drawn: tuple[Plot, ...] = ()
        if plots:
            name = f"confusion-{number}-{len(labels)}.svg"
            svg = confusion_plot(matrix, labels)
            drawn = (
                Plot(
                    name,
                    svg,
                    f"{title}: the table below, shaded by the share of the row.",
                ),
            )
        note = "Rows are true labels, columns predicted ones: counts, and shares of the row."
        sections.append(Section(title, ("true", *labels, "all"), rows, (note,), drawn, detail=detail))
    return sections


def saved_confusion(run: JudgedRun, subject: str, setting: str, labels: Sequence[str]) -> Counts | None:
    """The confusion matrix behind a score of macro-F1; None if there is no such score."""
    score = run.score(subject, setting, MACRO_F1)
    if score is None:
        return None
    true, predicted = (np.asarray(column, dtype=np.int64).tolist() for column in (score.weights, score.values))
    return confusion_matrix(true, predicted, range(len(labels)))


def _cells(run: JudgedRun, figures: Figures) -> Cells:
    """Every figure with its place among the best; in HTML it leads to its units."""
    scores = scores_of(run)
    badges = standings(scores, figures)
    return {one.key: FigureCell(figures[one.key], badges.get(one.key, ""), i) for i, one in enumerate(scores)}


def _setting(way: str, band: str) -> str:
    return f"{way}, {band}" if band else way


def _share(count: int, total: int) -> str:
    """A count with its share of the row.

    >>> _share(3, 4), _share(0, 4)
    ('3 (.75)', '0')
    """
    if not count:
        return "0"
    share = f"{count / total:.2f}"
    return f"{count} ({share.removeprefix('0')})"


def _shown(cells: tuple[float, float | None]) -> tuple[str, str]:
    accuracy, f1 = (("" if value is None else f"{value:.3f}".removeprefix("0")) for value in cells)
    return accuracy, f1
