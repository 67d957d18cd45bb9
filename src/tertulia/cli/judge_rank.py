"""`tertulia judge rank`: who finds the true reply among others."""

from collections.abc import Iterable
from json import dumps
from pathlib import Path
from typing import Annotated, Any

from tertulia.cli.output import AsJson, Bars, ConfigFile, argument, option, out, print_json, print_table, tell_problems
from tertulia.core.codec import Problems
from tertulia.core.config import resolve
from tertulia.judge.rank import RankConfig, Setting
from tertulia.judge.rank_report import write_rank_report
from tertulia.judge.rank_run import RankOutcome, run_rank
from tertulia.judge.rank_tables import short


def rank(
    bots: Annotated[list[str] | None, argument(RankConfig, "bots")] = None,
    data: Annotated[str | None, option(RankConfig, "data", "--data")] = None,
    split: Annotated[str | None, option(RankConfig, "split", "--split")] = None,
    candidates: Annotated[int | None, option(RankConfig, "candidates", "--candidates")] = None,
    hard: Annotated[bool | None, option(RankConfig, "hard", "--hard/--random")] = None,
    published: Annotated[bool | None, option(RankConfig, "published", "--published/--drawn")] = None,
    persona: Annotated[list[str] | None, option(RankConfig, "persona", "--persona")] = None,
    wording: Annotated[list[str] | None, option(RankConfig, "wording", "--wording")] = None,
    speaker: Annotated[str | None, option(RankConfig, "speaker", "--speaker")] = None,
    metrics: Annotated[list[str] | None, option(RankConfig, "metrics", "--metric")] = None,
    limit: Annotated[int | None, option(RankConfig, "limit", "--limit")] = None,
    by_length: Annotated[bool | None, option(RankConfig, "by_length", "--by-length/--together")] = None,
    table: Annotated[str | None, option(RankConfig, "table", "--table")] = None,
    out_file: Annotated[Path | None, option(RankConfig, "out", "--out")] = None,
    report: Annotated[Path | None, option(RankConfig, "report", "--report")] = None,
    seed: Annotated[int | None, option(RankConfig, "seed", "--seed")] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """How often a bot finds the true reply among others, with 95 % intervals."""
    given: dict[str, Any] = {"bots": bots or None, "data": data, "candidates": candidates, "seed": seed, "hard": hard}
    given |= {"split": split, "speaker": speaker, "metrics": metrics or None, "published": published, "table": table}
    given |= {"persona": persona or None, "wording": wording or None, "by_length": by_length, "limit": limit}
    if data and not split and Path(data).is_file():
        given["split"] = ""
    settings = resolve(RankConfig, config, given | {"out": out_file, "report": report})
    problems = Problems()
    with Bars() as bars:
        outcome = run_rank(settings, bars, problems)
    if settings.out:
        settings.out.parent.mkdir(parents=True, exist_ok=True)
        settings.out.write_text(dumps(outcome.as_json(), ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    if settings.report:
        write_rank_report(outcome, settings.report)
    if json:
        print_json(outcome.as_json())
    else:
        _print(outcome)
    tell_problems(problems)


def _print(outcome: RankOutcome) -> None:
    metrics, several = outcome.metrics, len(outcome.settings) > 1
    head = ("bot", "persona") if several else ("bot",)

    def cells(bot: str, setting: Setting, figures: Iterable[object]) -> tuple[object, ...]:
        return (bot, setting, *figures) if several else (bot, *figures)

    if outcome.table:
        rows = [[cell.replace(" [", "\n[") for cell in row] for row in outcome.table.rows]
        print_table(outcome.table.head, rows, title=outcome.table.title)
    else:
        found = [cells(r.bot, r.setting, (r.figures[m] for m in metrics)) for r in outcome.rows]
        print_table((*head, *metrics), found)
    if outcome.config.by_length:
        lengths = [
            cells(r.bot, r.setting, (turns, figures[metrics[0]].n, *(short(figures[m]) for m in metrics)))
            for r in outcome.rows
            for turns, figures in r.by_length.items()
        ]
        print_table((*head, "turns", "n", *metrics), lengths, title="By turns of context")
    if outcome.differences:
        pairs = [cells(d.than, d.setting, (short(d.figures[m]) for m in metrics)) for d in outcome.differences]
        print_table((*head, *metrics), pairs, title=f"How far ahead of others {outcome.results[0][0].bot} is")
    fewest, most = outcome.sizes
    among = fewest if fewest == most else f"{fewest} to {most}"
    out.print(
        f"{outcome.tasks} replies among {among}; chance hits@1 {outcome.chance:.3f}; "
        "95 % intervals by bootstrap over dialogues."
    )
    for note in outcome.table.notes if outcome.table else outcome.notes[1:]:
        out.print(note, markup=False)
