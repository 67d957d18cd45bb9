"""One report for every judged run: figures with intervals, paired comparisons, the papers' tables, examples, notes.

`report_run` describes one run; `report_compare.compare_runs` describes several together. Both only read scores, items
and what the manifest says. In HTML every figure leads to the units it was computed from (`report_data`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from tertulia.artefacts.files import write_json
from tertulia.artefacts.outputs import write_output
from tertulia.core.dialogue import Json
from tertulia.core.estimate import Estimate
from tertulia.judge.contamination import contamination_warnings, with_contamination
from tertulia.judge.document import (
    Document,
    FigureCell,
    Section,
    markdown_document,
    short,
    write_document,
    write_html_document,
)
from tertulia.judge.grounding.tables import grounding_sections
from tertulia.judge.paper_tables import Figures, paper_tables
from tertulia.judge.report_data import embed
from tertulia.judge.report_examples import example_section, pathology_section
from tertulia.judge.report_identity import identity, identity_facts, method_section
from tertulia.judge.report_leaderboard import LEGEND, JudgedScore, adjust, scores_of, standings
from tertulia.judge.report_plots import run_plots
from tertulia.judge.runs import JudgedRun, identified, save_run
from tertulia.metrics.metric import MetricInfo
from tertulia.metrics.significance import Comparison, by_group

REPORT_JSON = "report.json"
LENGTHS = {"1": 1, "2": 2, "3-4": 4, "5-8": 8, "9-16": 16, "17+": math.inf}
"""Groups of replies by turns of context, each with its upper end."""
TITLES = {
    "rank": "How often bots find the true reply",
    "perplexity": "How well models predict human turns",
    "samples": "What the model may say",
    "profiles": "How well profiles are predicted from utterances",
    "conversations": "What conversations are like",
    "curve": "What more training dialogues change",
    "study": "What people say",
    "meta": "How well metrics agree with people",
    "hybrid": "What people would say, from automatic metrics",
    "proxy": "Whether a metric stands for people",
    "llm": "What a language model says",
    "ppi": "What people say, with the help of a judge",
    "replay": "What another bot would have said",
    "grounding": "Whether replies rest on their evidence",
}
TESTED = (
    "Intervals are 95 % bootstrap intervals over clusters; p-values are of t tests on clusters, adjusted by Holm's"
    " procedure over all comparisons of a metric. * p < .05."
)


@dataclass(frozen=True, slots=True)
class RunReport:
    """A report in both its forms: a document to read and JSON to compute with."""

    document: Document
    json: Mapping[str, Json]
    scores: tuple[JudgedScore, ...] = ()
    """What the cells of the document were computed from, in the order of their numbers."""
    figures: Figures | None = None

    def save(self, folder: Path) -> None:
        """Write it into a folder."""
        write_document(self.document, folder, data=self._data())
        write_json(folder / REPORT_JSON, orjson.loads(orjson.dumps(self.json)))

    def save_as(self, path: Path) -> None:
        """Write it into a folder, or into a file whose ending says the format: .html, .md or .json."""
        if path.suffix == ".html":
            self.save_html(path)
        elif path.suffix == ".md":
            with write_output(path) as file:
                file.write_text(markdown_document(self.document), encoding="utf-8")
        elif path.suffix == ".json":
            with write_output(path) as file:
                write_json(file, orjson.loads(orjson.dumps(self.json)))
        else:
            self.save(path)

    def save_html(self, path: Path) -> None:
        """Write the document alone, as one HTML file."""
        write_html_document(self.document, path, data=self._data())

    def _data(self) -> str:
        return embed(self.scores, self.figures, title=self.document.title).html() if self.figures else ""


def identify(run: JudgedRun, *, data: Mapping[str, Json] | None = None) -> JudgedRun:
    """A run that was just made with everything that identifies it, and what its bots were built from.

    `data` describes what was judged (`tertulia.corpus.identity`).
    """
    return with_contamination(identified(run, data=data))


def save_judged(run: JudgedRun, folder: Path, *, data: Mapping[str, Json] | None = None) -> RunReport:
    """Save a run with its report; returns the report."""
    saved = save_run(identify(run, data=data), folder)
    report = report_run(saved)
    report.save(folder)
    return report


def report_run(run: JudgedRun, *, plots: bool = True) -> RunReport:
    """The report of one run."""
    figures = run.estimates()
    comparisons = adjust(run.comparisons())
    lengths = _by_length(run)
    labelled = run.verb == "grounding" and "ways" in run.details
    leading = grounding_sections(run, figures, plots=plots)  # too many settings to begin with all figures
    tables = [*paper_tables(run, figures), *saved_tables(run)]
    how = "over conversations and raters" if run.raters else run.details.get("intervals", "by bootstrap over clusters")
    scores = scores_of(run)
    numbers = {one.key: i for i, one in enumerate(scores)}
    leaderboard = figure_table(scores, figures, several=len(run.settings) > 1, hidden=bool(tables or leading))
    leaderboard = replace(leaderboard, plots=run_plots(run, figures) if plots and not leading else ())
    sections = (
        *(leading or (leaderboard,)),
        *tables,
        comparison_section(comparisons),
        pathology_section(scores, figures, numbers),
        _length_section(run, lengths),
        *((leaderboard,) if labelled else (example_section(run),)),
        method_section(run),
    )
    document = Document(
        title=TITLES.get(run.verb, f"judge {run.verb}"),
        lead=f"{run.details.get('lead', '')} {_count(run.subjects, 'subject')}, "
        f"{_count(run.settings, 'setting')}; 95 % intervals {how}.".strip(),
        sections=tuple(s for s in sections if s.rows or s.notes or s.plots or s.examples),
        identity=identity_facts(run),
        warnings=tuple(contamination_warnings(run)),
    )
    return RunReport(
        document, _run_json(run, figures, comparisons, lengths, [*leading, *tables]), tuple(scores), figures
    )


def saved_tables(run: JudgedRun) -> list[Section]:
    """The tables that a run was saved with, as studies are: agreement and votes are no means of scores."""
    return [
        Section(
            table["title"],
            tuple(table["head"]),
            tuple(tuple(row) for row in table["rows"]),
            tuple(table["notes"]),
            detail=table.get("detail", False),
        )
        for table in run.details.get("tables", ())
    ]


def _count(things: Sequence[object], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def figure_table(
    scores: Sequence[JudgedScore], figures: Figures, *, several: bool = True, hidden: bool = False
) -> Section:
    """A row for each subject and setting, a column for each metric; the best of each column is marked."""
    numbers = {one.key: i for i, one in enumerate(scores)}
    badges = standings(scores, figures)
    infos: dict[str, MetricInfo] = {one.score.metric: one.info for one in scores}
    rows = []
    for subject, setting in dict.fromkeys(one.key[:2] for one in scores):
        keys = ((subject, setting, metric) for metric in infos)
        cells = (FigureCell(figures[key], badges.get(key, ""), numbers[key]) if key in numbers else "" for key in keys)
        rows.append((subject, *((setting,) if several else ()), *cells))
    head = ("subject", *(("setting",) if several else ()), *infos)
    better = {name: info.higher_is_better for name, info in infos.items()}
    return Section("Figures", head, tuple(rows), (LEGEND,) if badges else (), detail=hidden, better=better)


def comparison_section(comparisons: Sequence[Comparison]) -> Section:
    """A row for each subject and setting; differences of means, and ratios of perplexities."""
    if not comparisons:
        return Section("Paired comparison")
    cells = {(c.subject, c.setting, c.metric): c for c in comparisons}
    metrics = list(dict.fromkeys(c.metric for c in comparisons))
    several = any(c.setting for c in comparisons)
    rows = []
    for subject, setting in dict.fromkeys((c.subject, c.setting) for c in comparisons):
        row = [cells.get((subject, setting, metric)) for metric in metrics]
        shared = max(c.estimate.n for c in row if c)
        both = [part for c in row for part in ((comparison_cell(c), p_cell(c)) if c else ("", ""))]
        rows.append((subject, *((setting,) if several else ()), *both, shared))
    head = (
        "subject",
        *(("setting",) if several else ()),
        *(part for metric in metrics for part in (metric, "p")),
        "shared units",
    )
    title = f"Compared with {comparisons[0].baseline}, paired on the same units"
    return Section(title, head, tuple(rows), (TESTED,))


def comparison_cell(comparison: Comparison) -> str:
    """A signed difference, or a factor.

    >>> comparison_cell(Comparison("a", "b", "", "mrr", "difference", Estimate(0.02, -0.01, 0.05, 9)))
    '+.020 [-.010, .050]'
    """
    text = short(comparison.estimate)
    if comparison.kind == "ratio":
        return f"x {text}"
    return f"+{text}" if comparison.estimate.value > 0 else text


def p_cell(comparison: Comparison) -> str:
    """An adjusted p-value, with a mark if it is significant.

    >>> compared = Comparison("a", "b", "", "mrr", "difference", Estimate(0.02, 0.01, 0.03, 9))
    >>> p_cell(replace(compared, adjusted_p=0.0123)), p_cell(replace(compared, adjusted_p=1e-9)), p_cell(compared)
    ('.012*', '<.001*', '-')
    """
    if math.isnan(comparison.adjusted_p):
        return "-"
    p = comparison.adjusted_p
    text = "<.001" if p < 0.0005 else f"{p:.3f}".replace("0.", ".", 1)
    return f"{text}{'*' if comparison.significant else ''}"


def _by_length(run: JudgedRun) -> dict[tuple[str, str, str], dict[str, Estimate]]:
    """Figures by turns of context, of runs whose items say how many there are."""
    turns = {item.unit: n for item in run.items if isinstance(n := item.content.get("turns"), int)}
    if not turns:
        return {}
    name_of = {t: next(name for name, last in LENGTHS.items() if t <= last) for t in set(turns.values())}
    groups = {unit: name_of[t] for unit, t in sorted(turns.items(), key=lambda pair: pair[1])}
    parts = by_group(run.scores, run.metrics, groups, seed=run.seed)
    return {score.key: figures for score, figures in zip(run.scores, parts, strict=True) if figures}


def _length_section(run: JudgedRun, lengths: Mapping[tuple[str, str, str], Mapping[str, Estimate]]) -> Section:
    metrics = list(dict.fromkeys(metric for _, _, metric in lengths))
    rows = []
    for subject, setting in dict.fromkeys((subject, setting) for subject, setting, _ in lengths):
        by_metric = {metric: lengths.get((subject, setting, metric), {}) for metric in metrics}
        for turns in dict.fromkeys(turns for figures in by_metric.values() for turns in figures):
            row = [by_metric[metric].get(turns) for metric in metrics]
            n = max(e.n for e in row if e)
            rows.append((subject, setting, turns, n, *(short(e) if e else "" for e in row)))
    head = ("subject", "setting", "turns", "n", *metrics)
    return Section("By turns of context", head, tuple(rows), detail=not run.config.get("by_length"))


def _run_json(
    run: JudgedRun,
    figures: Figures,
    comparisons: Sequence[Comparison],
    lengths: Mapping[tuple[str, str, str], Mapping[str, Estimate]],
    tables: Sequence[Section],
) -> dict[str, Json]:
    return {
        "identity": identity(run),
        "warnings": contamination_warnings(run),
        "run": metadata(run),
        "figures": [figure_json(key, figure) for key, figure in figures.items()],
        "comparisons": [comparison.as_json() for comparison in comparisons],
        "by_length": [
            figure_json(key, figure) | {"turns": turns}
            for key, part in lengths.items()
            for turns, figure in part.items()
        ],
        "tables": [table.as_json() for table in tables],
        "notes": list(run.notes),
    }


def metadata(run: JudgedRun) -> dict[str, Json]:
    """What the manifest says about a run."""
    subjects = [{"name": s.name, "spec": s.spec, "kind": s.kind, "fingerprint": s.fingerprint} for s in run.subjects]
    return {
        "verb": run.verb,
        "config": dict(run.config),
        "subjects": subjects,
        "settings": list(run.settings),
        "metrics": [info.as_json() for info in run.metrics.values()],
        "details": {name: value for name, value in run.details.items() if name != "tables"},
        "about": dict(run.about),
    }


def figure_json(key: tuple[str, str, str], figure: Estimate) -> dict[str, Json]:
    """One figure."""
    return dict(zip(("subject", "setting", "metric"), key, strict=True)) | figure.as_json()
