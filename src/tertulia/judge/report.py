"""One report for every judged run: figures with intervals, paired comparisons, the papers' tables, examples, notes.

`report_run` describes one run; `compare_runs` describes several runs of any commands together and compares them on the
units they share. Both only read scores, items and what the manifest says.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import orjson
from pydantic import Field

from tertulia.artefacts.files import write_json
from tertulia.core.config import Cli, Config
from tertulia.core.dialogue import Json
from tertulia.core.errors import UnknownName
from tertulia.core.estimate import Estimate
from tertulia.core.score import Score
from tertulia.judge.document import Document, Plot, Section, short, write_document, write_html_document
from tertulia.judge.paper_tables import Figures, paper_tables
from tertulia.judge.runs import JudgedItem, JudgedRun, load_run, save_run
from tertulia.metrics.plots import band_plot, curve_plot, estimate_plot
from tertulia.metrics.significance import Comparison, by_group, compare, shared_units

REPORT_JSON = "report.json"
LENGTHS = {"1": 1, "2": 2, "3-4": 4, "5-8": 8, "9-16": 16, "17+": math.inf}
"""Groups of replies by turns of context, each with its upper end."""
EXAMPLES = 5
"""Units shown with the lowest and with the highest values, for each subject and setting."""
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
}


class ReportConfig(Config):
    """Which judged runs to report, and against which subject."""

    runs: Annotated[tuple[Path, ...], Cli(argument=True)] = Field(min_length=1)
    """Folders of judged runs, of any `judge` command."""
    baseline: str | None = None
    """The subject that all others are compared with; the first one by default."""
    out: Path | None = None
    """Write the report into this folder: report.html, report.md, report.json and the plots."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """A report in both its forms: a document to read and JSON to compute with."""

    document: Document
    json: Mapping[str, Json]

    def save(self, folder: Path) -> None:
        """Write it into a folder."""
        write_document(self.document, folder)
        write_json(folder / REPORT_JSON, orjson.loads(orjson.dumps(self.json)))

    def save_html(self, path: Path) -> None:
        """Write the document alone, as one HTML file."""
        write_html_document(self.document, path)


def save_judged(run: JudgedRun, folder: Path, *, data: Mapping[str, Json] | None = None) -> RunReport:
    """Save a run with its report; returns the report."""
    saved = save_run(run, folder, data=data)
    report = report_run(saved)
    report.save(folder)
    return report


def report_run(run: JudgedRun, *, plots: bool = True) -> RunReport:
    """The report of one run."""
    figures = run.estimates()
    comparisons = run.comparisons()
    lengths = _by_length(run)
    tables = [*paper_tables(run, figures), *saved_tables(run)]
    how = "over conversations and raters" if run.raters else run.details.get("intervals", "by bootstrap over clusters")
    document = Document(
        title=TITLES.get(run.verb, f"judge {run.verb}"),
        lead=f"{run.details.get('lead', '')} {_count(run.subjects, 'subject')}, "
        f"{_count(run.settings, 'setting')}; 95 % intervals {how}.".strip(),
        sections=tuple(
            section
            for section in (
                _figure_section(run, figures, hidden=bool(tables), plots=plots),
                *tables,
                _comparison_section(comparisons),
                _length_section(run, lengths),
                *_example_sections(run),
                _method_section(run),
            )
            if section.rows or section.notes or section.plots
        ),
    )
    return RunReport(document, _run_json(run, figures, comparisons, lengths, tables))


def saved_tables(run: JudgedRun) -> list[Section]:
    """The tables that a run was saved with, as studies are: agreement and votes are no means of scores."""
    return [
        Section(table["title"], tuple(table["head"]), tuple(tuple(row) for row in table["rows"]), tuple(table["notes"]))
        for table in run.details.get("tables", ())
    ]


def _count(things: Sequence[object], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def compare_runs(config: ReportConfig) -> RunReport:
    """Several judged runs as one report: all figures, and every subject against the baseline on shared units."""
    runs = [load_run(folder) for folder in config.runs]
    if len(runs) == 1 and config.baseline is None:
        return report_run(runs[0], plots=config.out is not None)
    labelled = _labelled(config.runs, runs)
    subjects = list(dict.fromkeys(score.subject for _, score in labelled))
    baseline = _baseline(config.baseline, subjects)
    figures = {score.key: figure for run, scores in _by_run(labelled) for score, figure in _estimates(run, scores)}
    comparisons, notes = _compare_with(baseline, labelled)
    notes += _data_notes(config.runs, runs)
    document = Document(
        title="Judged runs compared" if len(runs) > 1 else TITLES.get(runs[0].verb, ""),
        lead=f"{len(runs)} runs, {len(subjects)} subjects; 95 % intervals, bootstrap over clusters.",
        sections=(
            _figure_table(figures, "Figures"),
            replace(_comparison_section(comparisons), notes=tuple(notes)),
            *(_method_section(run, folder) for run, folder in zip(runs, config.runs, strict=True)),
        ),
    )
    return RunReport(
        document,
        {
            "runs": [{"folder": str(f)} | _metadata(run) for f, run in zip(config.runs, runs, strict=True)],
            "baseline": baseline,
            "figures": [_figure_json(key, figure) for key, figure in figures.items()],
            "comparisons": [comparison.as_json() for comparison in comparisons],
            "notes": notes,
        },
    )


def _labelled(folders: Sequence[Path], runs: Sequence[JudgedRun]) -> list[tuple[JudgedRun, Score]]:
    """All scores; a subject that occurs in several runs gets the name of the run's folder."""
    names = [subject for run in runs for subject in dict.fromkeys(score.subject for score in run.scores)]
    folder_names = [folder.name for folder in folders]
    labels = folder_names if len(set(folder_names)) == len(folder_names) else [str(folder) for folder in folders]
    labelled = []
    for label, run in zip(labels, runs, strict=True):
        for score in run.scores:
            name = f"{score.subject} [{label}]" if names.count(score.subject) > 1 else score.subject
            labelled.append((run, replace(score, subject=name)))
    return labelled


def _baseline(wanted: str | None, subjects: Sequence[str]) -> str:
    if wanted is None:
        return subjects[0]
    matching = [subject for subject in subjects if subject == wanted or subject.startswith(f"{wanted} [")]
    if not matching:
        raise UnknownName("subject", wanted, subjects)
    return matching[0]


def _by_run(labelled: Sequence[tuple[JudgedRun, Score]]) -> Iterator[tuple[JudgedRun, list[Score]]]:
    runs = {id(run): run for run, _ in labelled}
    for key, run in runs.items():
        yield run, [score for other, score in labelled if id(other) == key]


def _estimates(run: JudgedRun, scores: Sequence[Score]) -> Iterable[tuple[Score, Estimate]]:
    return zip(scores, replace(run, scores=tuple(scores)).estimates().values(), strict=True)


def _compare_with(baseline: str, labelled: Sequence[tuple[JudgedRun, Score]]) -> tuple[list[Comparison], list[str]]:
    """Comparisons with the baseline wherever units agree, and notes on what could not be compared."""
    base = {(score.setting, score.metric): (run, score) for run, score in labelled if score.subject == baseline}
    comparisons: list[Comparison] = []
    notes: list[str] = []
    for subject in dict.fromkeys(score.subject for _, score in labelled if score.subject != baseline):
        matched = [
            (run, score, base[score.setting, score.metric][1])
            for run, score in labelled
            if score.subject == subject and (score.setting, score.metric) in base
        ]
        shared = 0
        for run, score, other in matched:
            shared = max(shared, len(shared_units(score, other)))
            comparison = compare(score, other, run.metrics[score.metric], seed=run.seed)
            if comparison and comparison.estimate.n:
                comparisons.append(comparison)
        if not matched:
            why = "they have no setting and metric in common"
        elif not shared:
            why = "they have no units in common"
        else:
            notes.append(f"{subject} and {baseline} share {shared} units.")
            continue
        notes.append(f"{subject} and {baseline} cannot be compared paired: {why}.")
    return comparisons, notes


def _data_notes(folders: Sequence[Path], runs: Sequence[JudgedRun]) -> list[str]:
    """A warning where runs were judged on different data: then equal unit ids need not be the same turns."""
    digests = [(run.about.get("data") or {}).get("digest") for run in runs]
    first = digests[0]
    return [
        f"{folder} was judged on other data than {folders[0]}: units are matched by their ids alone."
        for folder, digest in zip(folders[1:], digests[1:], strict=True)
        if digest != first
    ]


def _figure_section(run: JudgedRun, figures: Figures, *, hidden: bool, plots: bool) -> Section:
    section = _figure_table(figures, "Figures", several=len(run.settings) > 1, hidden=hidden)
    plot = _plot(run, figures) if plots else None
    return replace(section, plots=(plot,) if plot else ())


def _figure_table(figures: Figures, title: str, *, several: bool = True, hidden: bool = False) -> Section:
    """A row for each subject and setting, a column for each metric."""
    metrics = list(dict.fromkeys(metric for _, _, metric in figures))
    rows = [
        (subject, *((setting,) if several else ()), *(figures.get((subject, setting, m), "") for m in metrics))
        for subject, setting in dict.fromkeys((subject, setting) for subject, setting, _ in figures)
    ]
    head = ("subject", *(("setting",) if several else ()), *metrics)
    return Section(title, head, tuple(rows), detail=hidden)


def _plot(run: JudgedRun, figures: Figures) -> Plot | None:
    """The first metric by subject and setting; curves for learning curves and sweeps of samples."""
    if run.verb == "samples":
        return _sweep_plot(run, figures)
    metric = next(iter(run.metric_names()), "")
    known = {key: e for key, e in figures.items() if key[2] == metric and e.n}
    if not known:
        return None
    if run.verb == "curve":
        points = [(float(setting.split()[0]), e) for (_, setting, _), e in known.items()]
        caption = "; ".join(f"{size:g} dialogues: {e}" for size, e in points)
        return Plot("curve.svg", band_plot(points, x="training dialogues", y=metric), caption)
    several = len(run.settings) > 1
    named = {f"{subject} ({setting})" if several else subject: e for (subject, setting, _), e in known.items()}
    chance = run.details.get("chance") if metric in ("hits@1", "recall@1", "error rate") else None
    title = f"{metric}, with 95 % interval"
    svg = estimate_plot(named, title=title, rule=chance, rule_name="chance" if chance is not None else "")
    return Plot(f"{run.verb}.svg", svg, "; ".join(f"{name} {estimate}" for name, estimate in named.items()))


def _sweep_plot(run: JudgedRun, figures: Figures) -> Plot | None:
    sizes = run.details.get("sweep", ())
    curves = {
        metric: [(float(n), figures[run.subjects[0].name, f"best of {n}", metric].value) for n in sizes]
        for metric in ("log-probability per token", "distinct replies", "words per reply", "seconds per reply")
        if sizes
    }
    if not curves:
        return None
    caption = "; ".join(f"N = {n:g}: {value:.2f} per token" for n, value in curves["log-probability per token"])
    return Plot("sweep.svg", curve_plot(curves, x="samples, N", log_x=True), caption)


def _comparison_section(comparisons: Sequence[Comparison]) -> Section:
    """A row for each subject and setting; differences of means, and ratios of perplexities."""
    cells = {(c.subject, c.setting, c.metric): c for c in comparisons}
    metrics = list(dict.fromkeys(c.metric for c in comparisons))
    baseline = comparisons[0].baseline if comparisons else ""
    rows = []
    for subject, setting in dict.fromkeys((c.subject, c.setting) for c in comparisons):
        row = [cells.get((subject, setting, metric)) for metric in metrics]
        shared = max(c.estimate.n for c in row if c)
        rows.append((subject, setting, *(_comparison_cell(c) if c else "" for c in row), shared))
    head = ("subject", "setting", *metrics, "shared units")
    return Section(f"Compared with {baseline}, paired on the same units", head, tuple(rows)) if rows else _NOT_COMPARED


_NOT_COMPARED = Section("Paired comparison")


def _comparison_cell(comparison: Comparison) -> str:
    """A signed difference, or a factor.

    >>> _comparison_cell(Comparison("a", "b", "", "mrr", "difference", Estimate(0.02, -0.01, 0.05, 9)))
    '+.020 [-.010, .050]'
    """
    text = short(comparison.estimate)
    if comparison.kind == "ratio":
        return f"x {text}"
    return f"+{text}" if comparison.estimate.value > 0 else text


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


def _example_sections(run: JudgedRun) -> list[Section]:
    """From a cell to the turn: the units with the lowest and the highest values of the first metric that has texts."""
    shared = {item.unit: item for item in run.items if not item.subject}
    own = {(item.subject, item.setting, item.unit): item for item in run.items if item.subject}
    rows: list[tuple[object, ...]] = []
    done: set[tuple[str, str]] = set()
    for score in run.scores:
        units = [
            (value, unit, item)
            for value, unit in zip(score.values, score.units, strict=True)
            if not math.isnan(value)
            and (item := own.get((score.subject, score.setting, unit)) or shared.get(unit))
            and _texts(item)
        ]
        if not units or score.key[:2] in done:
            continue
        done.add(score.key[:2])
        ordered = sorted(units, key=lambda example: example[:2])
        chosen = ordered if len(ordered) <= 2 * EXAMPLES else ordered[:EXAMPLES] + ordered[-EXAMPLES:]
        for value, unit, item in chosen:
            rows.append((score.subject, score.setting, score.metric, f"{value:.3f}", unit, *_texts(item)))
    head = ("subject", "setting", "metric", "value", "unit", "context", "reply", "reference")
    title = "Units with the lowest and the highest values"
    return [Section(title, head, tuple(rows), detail=True)] if rows else []


def _texts(item: JudgedItem) -> tuple[str, ...]:
    """Last turn of the context, reply and reference; empty if the item has none of them."""
    context = item.content.get("context") or [""]
    texts = (str(context[-1]), str(item.content.get("reply", "")), str(item.content.get("reference", "")))
    return texts if any(texts) else ()


def _method_section(run: JudgedRun, folder: Path | None = None) -> Section:
    command = run.verb if run.verb == "study" else f"judge {run.verb}"
    rows = [("command", command), *((k, _shown(v)) for k, v in run.config.items() if v not in (None, []))]
    rows += [(f"subject {s.name}", " ".join(filter(None, (s.spec, s.kind, s.fingerprint)))) for s in run.subjects]
    rows += [(name, _shown(value)) for name, value in run.about.items() if value]
    title = f"How {folder} was measured" if folder else "How it was measured"
    return Section(title, ("", "value"), tuple(rows), run.notes, detail=True)


def _shown(value: Json) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _run_json(
    run: JudgedRun,
    figures: Figures,
    comparisons: Sequence[Comparison],
    lengths: Mapping[tuple[str, str, str], Mapping[str, Estimate]],
    tables: Sequence[Section],
) -> dict[str, Json]:
    return {
        "run": _metadata(run),
        "figures": [_figure_json(key, figure) for key, figure in figures.items()],
        "comparisons": [comparison.as_json() for comparison in comparisons],
        "by_length": [
            _figure_json(key, figure) | {"turns": turns}
            for key, part in lengths.items()
            for turns, figure in part.items()
        ],
        "tables": [table.as_json() for table in tables],
        "notes": list(run.notes),
    }


def _metadata(run: JudgedRun) -> dict[str, Json]:
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


def _figure_json(key: tuple[str, str, str], figure: Estimate) -> dict[str, Json]:
    return dict(zip(("subject", "setting", "metric"), key, strict=True)) | figure.as_json()
