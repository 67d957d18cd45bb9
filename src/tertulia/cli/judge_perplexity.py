"""`tertulia judge perplexity`: how well models that write foresee what people say."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tertulia.cli.output import AsJson, Bars, ConfigFile, argument, option, out, print_json, print_table, tell_problems
from tertulia.core.codec import Problems
from tertulia.core.config import resolve
from tertulia.judge.perplexity import PerplexityConfig

if TYPE_CHECKING:
    from tertulia.judge.perplexity_run import PerplexityOutcome


def perplexity(
    runs: Annotated[list[str] | None, argument(PerplexityConfig, "runs")] = None,
    data: Annotated[str | None, option(PerplexityConfig, "data", "--data")] = None,
    split: Annotated[str | None, option(PerplexityConfig, "split", "--split")] = None,
    persona: Annotated[list[str] | None, option(PerplexityConfig, "persona", "--persona")] = None,
    wording: Annotated[list[str] | None, option(PerplexityConfig, "wording", "--wording")] = None,
    speaker: Annotated[str | None, option(PerplexityConfig, "speaker", "--speaker")] = None,
    limit: Annotated[int | None, option(PerplexityConfig, "limit", "--limit")] = None,
    replies: Annotated[int | None, option(PerplexityConfig, "replies", "--replies")] = None,
    preset: Annotated[str | None, option(PerplexityConfig, "preset", "--preset")] = None,
    method: Annotated[str | None, option(PerplexityConfig, "method", "--method")] = None,
    ranked: Annotated[int | None, option(PerplexityConfig, "ranked", "--ranked")] = None,
    candidates: Annotated[int | None, option(PerplexityConfig, "candidates", "--candidates")] = None,
    importance_samples: Annotated[
        int | None, option(PerplexityConfig, "importance_samples", "--importance-samples")
    ] = None,
    vectors: Annotated[Path | None, option(PerplexityConfig, "vectors", "--vectors")] = None,
    table: Annotated[list[str] | None, option(PerplexityConfig, "table", "--table")] = None,
    out_folder: Annotated[Path | None, option(PerplexityConfig, "out", "--out")] = None,
    seed: Annotated[int | None, option(PerplexityConfig, "seed", "--seed")] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """How well models foresee what people say: perplexity, and how near their replies come to the true ones."""
    given: dict[str, Any] = {"runs": runs or None, "data": data, "split": split, "speaker": speaker, "limit": limit}
    given |= {"persona": persona or None, "wording": wording or None, "table": table or None, "vectors": vectors}
    given |= {"replies": replies, "preset": preset, "method": method, "ranked": ranked, "candidates": candidates}
    given |= {"importance_samples": importance_samples, "out": out_folder, "seed": seed}
    if data and not split and Path(data).is_file():
        given["split"] = ""
    settings = resolve(PerplexityConfig, config, given)
    # Here, not above: these bring torch along, which the other judges can do without.
    from tertulia.judge.perplexity_report import write_perplexity_report
    from tertulia.judge.perplexity_run import run_perplexity

    problems = Problems()
    with Bars() as bars:
        outcome = run_perplexity(settings, bars, problems)
    if settings.out:
        write_perplexity_report(outcome, settings.out)
    if json:
        print_json(outcome.as_json())
    else:
        _print(outcome)
    tell_problems(problems)


def _print(outcome: "PerplexityOutcome") -> None:
    for paper in outcome.tables:
        rows = [[cell.replace(" [", "\n[") for cell in row] for row in paper.rows]
        print_table(paper.head, rows, title=paper.title)
        out.print()
    if not outcome.tables:
        cells = [[str(v.figures.get(name, "")).replace(" [", "\n[") for name in outcome.metrics] for v in outcome.rows]
        rows = [[v.run, str(v.setting), *row] for v, row in zip(outcome.rows, cells, strict=True)]
        print_table(("run", "persona", *outcome.metrics), rows)
    if outcome.ratios:
        print_table(
            ("run", "persona", "times"),
            [(ratio.run, ratio.setting, ratio.times) for ratio in outcome.ratios],
            title=f"Perplexity as a multiple of that of {outcome.ratios[0].than}, on the same words",
        )
    notes = [note for paper in outcome.tables for note in paper.notes] or outcome.notes
    for note in dict.fromkeys(notes):
        out.print(note, markup=False)
