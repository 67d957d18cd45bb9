"""Correlations of metrics with people's ratings: their rows in a judged run, and the tables and heat maps of them.

`judge meta` and `judge hybrid` save rows in `details["correlations"]`; everything shown is read from there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from tertulia.core.dialogue import Json
from tertulia.core.estimate import Estimate
from tertulia.judge.document import Plot, Section, short
from tertulia.judge.runs import JudgedRun
from tertulia.metrics.correlation import KINDS, Correlation, CorrelationKind
from tertulia.metrics.plots import heat_map, regression_plot

RatingLevel = Literal["turn", "dialogue", "system"]
CORRELATIONS, AGREEMENT, COEFFICIENTS, PROXY = "correlations", "agreement", "coefficients", "proxy"
"""Where a run's details have the rows, the agreement of raters, a model's coefficients, and a line through bots."""
LEVELS: Mapping[str, str] = {
    "turn": "replies",
    "dialogue": "conversations",
    "system": "systems, by means",
    "interactive": "conversations with people",
    "interactive bots": "bots, means of their conversations with people",
    "self-play bots": "bots, means of their self-play",
}
"""What is correlated, by level."""
WIDE = 6
"""Tables with more aspects than this are in the files alone; the terminal shows the main aspect."""


class CorrelationRow(NamedTuple):
    """One cell of a matrix of correlations."""

    level: str
    metric: str
    aspect: str
    correlation: Correlation

    def as_json(self) -> dict[str, Json]:
        """As it is saved."""
        return {"level": self.level, "metric": self.metric, "aspect": self.aspect, **self.correlation.as_json()}


class RaterAgreement(NamedTuple):
    """How far people agree on an aspect, and how well one of them agrees with the others."""

    level: str
    aspect: str
    raters: float
    """Mean number of ratings of a unit."""
    alpha: Estimate
    """Krippendorff's, ordinal."""
    ceiling: Mapping[CorrelationKind, Estimate]
    """One rater against the mean of the others."""

    def as_json(self) -> dict[str, Json]:
        """As it is saved."""
        ceiling = {kind: e.as_json() for kind, e in self.ceiling.items()}
        return {
            "level": self.level,
            "aspect": self.aspect,
            "raters": self.raters,
            "alpha": self.alpha.as_json(),
            "ceiling": ceiling,
        }


def read_rows(run: JudgedRun) -> list[CorrelationRow]:
    """The correlations of a saved run."""
    records = run.details.get(CORRELATIONS, ())
    return [CorrelationRow(r["level"], r["metric"], r["aspect"], Correlation.from_json(r)) for r in records]


def correlation_sections(run: JudgedRun, figures: object = None) -> list[Section]:
    """For each level: Spearman with intervals, a heat map of each kind, and all kinds with p-values for the files."""
    rows = read_rows(run)
    sections = [*_agreement_sections(run)]
    for level in dict.fromkeys(row.level for row in rows):
        own = [row for row in rows if row.level == level]
        wide = len({row.aspect for row in own}) > WIDE
        main = [row for row in own if row.aspect == _main_aspect(own)]
        sections += [replace(_matrix_section(level, own), detail=wide), *([_list_section(level, main)] if wide else [])]
        sections.append(
            replace(_list_section(level, own, f"All correlations, {LEVELS.get(level, level)}"), detail=True)
        )
    return sections


def _matrix_section(level: str, rows: Sequence[CorrelationRow]) -> Section:
    metrics, aspects = (list(dict.fromkeys(getattr(row, name) for row in rows)) for name in ("metric", "aspect"))
    kind: CorrelationKind = "spearman"
    cells = {(r.metric, r.aspect): r.correlation for r in rows if r.correlation.kind == kind}
    shown = _value if len(aspects) > WIDE else _with_interval
    short_names = _without_level(aspects)
    table = [(m, *(shown(cells[m, a]) if (m, a) in cells else "" for a in aspects)) for m in metrics]
    maps = [_map(level, kind, rows) for kind in KINDS if any(r.correlation.kind == kind for r in rows)]
    n = max((r.correlation.estimate.n for r in rows), default=0)
    title = f"Spearman with people's ratings, {LEVELS.get(level, level)} (n = {n})"
    notes = ("* p < .05, ** p < .01, not corrected for the number of correlations.",)
    return Section(title, ("metric", *short_names), tuple(table), notes, tuple(maps))


def _without_level(aspects: Sequence[str]) -> list[str]:
    """Names of aspects without the level that they have in common.

    >>> _without_level(["turn fluent", "turn overall"]), _without_level(["fluent", "turn overall"])
    (['fluent', 'overall'], ['fluent', 'turn overall'])
    """
    for level in ("turn ", "dialogue "):
        if all(aspect.startswith(level) for aspect in aspects):
            return [aspect.removeprefix(level) for aspect in aspects]
    return list(aspects)


def _main_aspect(rows: Sequence[CorrelationRow]) -> str:
    """The one that people were asked about the whole; else the first."""
    aspects = dict.fromkeys(row.aspect for row in rows)
    return next((a for part in ("overall", "quality") for a in aspects if part in a), next(iter(aspects)))


def _list_section(level: str, rows: Sequence[CorrelationRow], title: str = "") -> Section:
    """One row per metric and aspect."""
    cells = {(r.metric, r.aspect, r.correlation.kind): r.correlation for r in rows}
    table = [
        (
            metric,
            aspect,
            *(text for kind in KINDS for text in _cells(cells.get((metric, aspect, kind)))),
            max((cells[key].estimate.n for kind in KINDS if (key := (metric, aspect, kind)) in cells), default=0),
        )
        for metric, aspect in dict.fromkeys((r.metric, r.aspect) for r in rows)
    ]
    head = ("metric", "aspect", *(text for kind in KINDS for text in (kind, "p")), "n")
    return Section(title or f"Correlation with {rows[0].aspect}, {LEVELS.get(level, level)}", head, tuple(table))


def _cells(correlation: Correlation | None) -> tuple[str, str]:
    if correlation is None:
        return "", ""
    p = correlation.p
    return short(correlation.estimate), "-" if p != p else "<.0001" if p < 1e-4 else f"{p:.4f}"


def _map(level: str, kind: CorrelationKind, rows: Iterable[CorrelationRow]) -> Plot:
    own = [row for row in rows if row.correlation.kind == kind]
    names = dict(zip((aspects := list(dict.fromkeys(r.aspect for r in own))), _without_level(aspects), strict=True))
    cells = {(r.metric, names[r.aspect]): r.correlation.estimate.value for r in own}
    caption = f"{kind.capitalize()} of metrics with people's ratings, {LEVELS.get(level, level)}"
    return Plot(f"{level.replace(' ', '-')}-{kind}.svg", heat_map(cells, title=kind.capitalize()), caption)


def _value(correlation: Correlation) -> str:
    if correlation.estimate.value != correlation.estimate.value:
        return "-"
    text = f"{correlation.estimate.value:.2f}".replace("0.", ".", 1)
    return text + ("**" if correlation.p < 0.01 else "*" if correlation.p < 0.05 else "")


def _with_interval(correlation: Correlation) -> str:
    if correlation.estimate.value != correlation.estimate.value:
        return "-"
    return short(correlation.estimate) + ("**" if correlation.p < 0.01 else "*" if correlation.p < 0.05 else "")


def _agreement_sections(run: JudgedRun) -> list[Section]:
    rows = []
    for record in run.details.get(AGREEMENT, ()):
        ceiling = [_read(record["ceiling"][kind]) for kind in KINDS if kind in record["ceiling"]]
        alpha = _read(record["alpha"])
        rows.append((record["level"], record["aspect"], f"{record['raters']:.1f}", *map(short, (alpha, *ceiling))))
    if not rows:
        return []
    notes = (
        "Alpha: Krippendorff's, ordinal; 0 is chance, 1 is perfect. Ceiling: one rater against the mean of the others,"
        " which is about what to expect of a judge as good as one person.",
    )
    head = ("level", "aspect", "raters", "alpha", *(f"ceiling, {kind}" for kind in KINDS))
    return [Section("How far people agree", head, tuple(rows), notes)]


def _read(record: Mapping[str, Json]) -> Estimate:
    value, low, high = (float("nan") if record[k] is None else float(record[k]) for k in ("value", "low", "high"))
    return Estimate(value, low, high, int(record["n"]))


def coefficient_sections(run: JudgedRun, figures: object = None) -> list[Section]:
    """The coefficients of least squares on all bots, with 90 % intervals."""
    rows = [
        (name, short(_read(record["formula"])), short(_read(record["robust"])))
        for name, record in run.details.get(COEFFICIENTS, {}).items()
    ]
    if not rows:
        return []
    notes = (
        "Least squares on all bots, features as they are. Robust: over conversations, whatever the errors are like.",
    )
    head = ("metric", "coefficient, 90 % interval", "robust 90 % interval")
    return [Section(f"Coefficients of the hybrid metric for {run.details['aspect']}", head, tuple(rows), notes)]


def proxy_sections(run: JudgedRun, figures: object = None) -> list[Section]:
    """The line through bots with R^2, the plot, and the points."""
    details = run.details[PROXY]
    x, y = details["metric"], details["score"]
    points = {bot: (_read(a), _read(b)) for bot, (a, b) in details["points"].items()}
    line = {name: _read(record) for name, record in details["line"].items()}
    references = {name: (float(a), float(b)) for name, (a, b) in details["references"].items()}
    rows: list[tuple[object, ...]] = [
        ("R^2, bootstrap", short(line["r2"])),
        ("R^2, Fisher's interval", short(line["r2_fisher"])),
        ("R^2 without the raters' sampling error", short(line["r2_corrected"])),
        ("slope", f"{line['slope'].value:.4g} [{line['slope'].low:.4g}, {line['slope'].high:.4g}]"),
        ("intercept", f"{line['intercept'].value:.4g} [{line['intercept'].low:.4g}, {line['intercept'].high:.4g}]"),
    ]
    for record in details[CORRELATIONS]:
        correlation = Correlation.from_json(record)
        rows.append((correlation.kind, f"{short(correlation.estimate)}, p = {_cells(correlation)[1]}"))
    svg = regression_plot(
        points, (line["intercept"].value, line["slope"].value), x=x, y=y, references=references or None
    )
    plot = Plot("regression.svg", svg, f"{y} against {x} of {len(points)} bots; diamonds: published")
    bots = [(bot, short(a), short(b)) for bot, (a, b) in points.items()]
    bots += [(f"  paper: {name}", f"{a:g}", f"{b:g}") for name, (a, b) in references.items()]
    return [
        Section(f"{y} explained by {x}", ("", "value"), tuple(rows), (), (plot,)),
        Section("Bots", ("bot", x, y), tuple(bots)),
    ]
