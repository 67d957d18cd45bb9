"""The verdict of `judge rank` as one HTML file: table, picture, differences, and how it was measured."""

from pathlib import Path

from tertulia.judge.rank import RankResult
from tertulia.judge.rank_run import RankOutcome
from tertulia.judge.report import Section, code, figure, paragraph, table, write_report
from tertulia.metrics.plots import estimate_plot


def write_rank_report(outcome: RankOutcome, path: Path) -> None:
    """Write the report."""
    sections = [_figures(outcome), _differences(outcome), _lengths(outcome), _paper(outcome), _how(outcome)]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_report(
        path,
        title="Who finds the true reply",
        lead=f"{len(outcome.results)} bots, {outcome.tasks} replies, each among others; 95 % intervals over dialogues.",
        sections=[section for section in sections if section.parts],
    )


def _figures(outcome: RankOutcome) -> Section:
    first = outcome.metrics[0]
    known = {_name(result, outcome): result.figures[first] for result in outcome.rows if result.ranks}
    parts = [table(("bot", *outcome.metrics), _rows(outcome.rows, outcome))]
    if known:
        rule = outcome.chance if first in ("hits@1", "recall@1") else None
        picture = estimate_plot(known, title=f"{first}, with 95 % interval", rule=rule, rule_name="chance")
        parts.insert(0, figure(picture, "; ".join(f"{name} {estimate}" for name, estimate in known.items())))
    return Section("Figures", tuple(parts))


def _differences(outcome: RankOutcome) -> Section:
    rows = [
        (f"{d.bot} - {d.than} ({d.setting})", *(d.figures[name] for name in outcome.metrics))
        for d in outcome.differences
    ]
    return Section("Differences, on the same replies", (table(("", *outcome.metrics), rows),) if rows else ())


def _lengths(outcome: RankOutcome) -> Section:
    rows = [
        (_name(result, outcome), turns, *(figures[name] for name in outcome.metrics))
        for result in outcome.rows
        for turns, figures in result.by_length.items()
    ]
    return Section("By turns of context", (table(("bot", "turns", *outcome.metrics), rows),) if rows else ())


def _paper(outcome: RankOutcome) -> Section:
    if outcome.table is None:
        return Section("", ())
    notes = [paragraph(note, quiet=True) for note in outcome.table.notes]
    return Section(outcome.table.title, (table(outcome.table.head, outcome.table.rows), *notes))


def _how(outcome: RankOutcome) -> Section:
    notes = [paragraph(note) for note in outcome.notes]
    told = outcome.config.model_dump_json(indent=2, exclude_none=True)
    return Section("How it was measured", (*notes, paragraph(f"Chance hits@1: {outcome.chance:.3f}."), code(told)))


def _rows(results: list[RankResult], outcome: RankOutcome) -> list[tuple[object, ...]]:
    return [(_name(r, outcome), *(r.figures[name] for name in outcome.metrics)) for r in results]


def _name(result: RankResult, outcome: RankOutcome) -> str:
    return f"{result.bot} ({result.setting})" if len(outcome.settings) > 1 else result.bot
