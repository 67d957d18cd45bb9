"""Several judged runs as one report: all figures, and every subject against a baseline on the units they share."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from tertulia.artefacts.outputs import Force, Output
from tertulia.core.config import Cli, Config
from tertulia.core.errors import UnknownName, UsageError
from tertulia.core.estimate import Estimate
from tertulia.core.text import plural
from tertulia.judge.contamination import contamination_warnings
from tertulia.judge.document import Document
from tertulia.judge.inspect_log import is_log, read_log
from tertulia.judge.report import (
    TITLES,
    RunReport,
    comparison_section,
    figure_json,
    figure_table,
    metadata,
    report_run,
)
from tertulia.judge.report_identity import identity, identity_facts, method_section
from tertulia.judge.report_leaderboard import JudgedScore, adjust, scores_of
from tertulia.judge.runs import JudgedRun, load_run
from tertulia.metrics.significance import Comparison, compare, shared_units

ReportFormat = Literal["table", "html", "md", "json"]


class ReportConfig(Config):
    """Which judged runs to report, and against which subject."""

    runs: Annotated[tuple[Path, ...], Cli(argument=True)] = Field(min_length=1)
    """Folders of judged runs, of any `judge` command, or logs of Inspect AI (.json or .eval)."""
    baseline: str | None = None
    """The subject that all others are compared with; the first one by default."""
    out: Annotated[Path | None, Output("either")] = None
    """Write the report into this folder (report.html, report.md, report.json and the plots), or into this file, whose
    ending says the format."""
    format: ReportFormat = "table"
    """What to print: tables for the terminal, Markdown, JSON, or a complete HTML page."""
    inspect: Annotated[Path | None, Output("file", endings=(".eval", ".json"))] = None
    """Also write the run as a log of Inspect AI to this file (.eval, or .json), for `inspect view`."""
    force: Force = False


def load_any(path: Path) -> JudgedRun:
    """A judged run from its folder, or from a log of Inspect AI."""
    return read_log(path) if is_log(path) else load_run(path)


def compare_runs(config: ReportConfig) -> RunReport:
    """The report of one run, or of several together."""
    for path, count in Counter(map(Path.resolve, config.runs)).items():
        if count > 1:
            raise UsageError(f"{path} is named {count} times.", hint="Name each run once.")
    runs = [load_any(path) for path in config.runs]
    if len(runs) == 1 and config.baseline is None:
        return report_run(runs[0], plots=config.out is not None or config.format == "html")
    scores = _labelled(config.runs, runs)
    subjects = list(dict.fromkeys(one.subject for one in scores))
    baseline = _baseline(config.baseline, subjects)
    figures = {one.key: figure for run in runs for one, figure in _estimates(run, scores)}
    compared, notes = _compare_with(baseline, scores)
    comparisons = adjust(compared)
    warnings = [*_data_warnings(config.runs, runs), *(text for run in runs for text in contamination_warnings(run))]
    pairs = comparison_section(comparisons)
    single = len(runs) == 1
    document = Document(
        title=TITLES.get(runs[0].verb, f"judge {runs[0].verb}") if single else "Judged runs compared",
        lead=f"{plural(len(runs), 'run')}, {plural(len(subjects), 'subject')}; 95 % intervals, bootstrap over"
        " clusters.",
        sections=(
            figure_table(scores, figures),
            replace(pairs, notes=(*pairs.notes, *notes)),
            *(method_section(run, folder) for run, folder in zip(runs, config.runs, strict=True)),
        ),
        identity=tuple(
            (name if single else f"{name} of {folder}", value)
            for run, folder in zip(runs, config.runs, strict=True)
            for name, value in identity_facts(run)
        ),
        warnings=tuple(warnings),
    )
    json = {
        "identity": [identity(run) for run in runs],
        "warnings": warnings,
        "runs": [{"folder": str(f)} | metadata(run) for f, run in zip(config.runs, runs, strict=True)],
        "baseline": baseline,
        "figures": [figure_json(key, figure) for key, figure in figures.items()],
        "comparisons": [comparison.as_json() for comparison in comparisons],
        "notes": notes,
    }
    return RunReport(document, json, tuple(scores), figures)


def _labelled(folders: Sequence[Path], runs: Sequence[JudgedRun]) -> list[JudgedScore]:
    """All scores; a subject that occurs in several runs gets the name of the run's folder."""
    names = [subject for run in runs for subject in dict.fromkeys(score.subject for score in run.scores)]
    folder_names = [folder.name for folder in folders]
    labels = folder_names if len(set(folder_names)) == len(folder_names) else [str(folder) for folder in folders]
    return [
        one._replace(subject=f"{one.subject} [{label}]" if names.count(one.subject) > 1 else one.subject)
        for label, run in zip(labels, runs, strict=True)
        for one in scores_of(run)
    ]


def _baseline(wanted: str | None, subjects: Sequence[str]) -> str:
    if wanted is None:
        return subjects[0]
    matching = [subject for subject in subjects if subject == wanted or subject.startswith(f"{wanted} [")]
    if not matching:
        raise UnknownName("subject", wanted, subjects)
    return matching[0]


def _estimates(run: JudgedRun, scores: Sequence[JudgedScore]) -> list[tuple[JudgedScore, Estimate]]:
    figures = run.estimates()
    return [(one, figures[one.score.key]) for one in scores if one.run is run]


def _compare_with(baseline: str, scores: Sequence[JudgedScore]) -> tuple[list[Comparison], list[str]]:
    """Comparisons with the baseline wherever units agree, and notes on what could not be compared."""
    base = {(one.score.setting, one.score.metric): one.score for one in scores if one.subject == baseline}
    comparisons: list[Comparison] = []
    notes: list[str] = []
    for subject in dict.fromkeys(one.subject for one in scores if one.subject != baseline):
        matched = [
            (one, base[one.score.setting, one.score.metric])
            for one in scores
            if one.subject == subject and (one.score.setting, one.score.metric) in base
        ]
        shared = 0
        for one, other in matched:
            shared = max(shared, len(shared_units(one.score, other)))
            comparison = compare(one.score, other, one.info, seed=one.run.seed)
            if comparison and comparison.estimate.n:
                comparisons.append(replace(comparison, subject=subject, baseline=baseline))
        if not matched:
            why = "they have no setting and metric in common"
        elif not shared:
            why = "they have no units in common"
        else:
            notes.append(f"{subject} and {baseline} share {shared} units.")
            continue
        notes.append(f"{subject} and {baseline} cannot be compared paired: {why}.")
    return comparisons, notes


def _data_warnings(folders: Sequence[Path], runs: Sequence[JudgedRun]) -> list[str]:
    """A warning where runs were judged on different data: then equal unit ids need not be the same turns."""
    digests = [(run.about.get("data") or {}).get("digest") for run in runs]
    first = digests[0]
    return [
        f"{folder} was judged on other data than {folders[0]}: units are matched by their ids alone."
        for folder, digest in zip(folders[1:], digests[1:], strict=True)
        if digest != first
    ]
