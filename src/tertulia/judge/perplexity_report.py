"""The verdict of `judge perplexity` as a folder: page, text, picture, every figure as JSON, and the replies."""

import json
from pathlib import Path

from tertulia.judge.perplexity import WORD, Verdict
from tertulia.judge.perplexity_pages import Part, Picture, write_pages
from tertulia.judge.perplexity_run import PerplexityOutcome
from tertulia.metrics.plots import estimate_plot

FIGURES, REPLIES, PICTURE = "figures.json", "replies.jsonl", "perplexity.svg"
SHOWN = 5
"""Replies of each run and setting that the report shows."""


def write_perplexity_report(outcome: PerplexityOutcome, folder: Path) -> None:
    """Write the report."""
    parts = [_figures(outcome), *_ratios(outcome), *_papers(outcome), *_replies(outcome), _how(outcome)]
    write_pages(
        folder,
        title="How well models foresee what people say",
        lead=f"{len(outcome.verdicts)} runs, {len(outcome.settings)} settings; 95 % intervals over dialogues.",
        parts=parts,
    )
    told = json.dumps(outcome.as_json(), ensure_ascii=False, indent=2, allow_nan=False)
    (folder / FIGURES).write_text(told + "\n", encoding="utf-8")
    if any(verdict.said for verdict in outcome.rows):
        with (folder / REPLIES).open("w", encoding="utf-8") as lines:
            for verdict in outcome.rows:
                whose = {"run": verdict.run, "setting": str(verdict.setting)}
                lines.writelines(json.dumps(whose | s.as_json(), ensure_ascii=False) + "\n" for s in verdict.said)


def _figures(outcome: PerplexityOutcome) -> Part:
    known = {_name(v, outcome): v.figures[WORD] for v in outcome.rows if v.figures[WORD].n}
    pictures: tuple[Picture, ...] = ()
    if known:
        caption = "; ".join(f"{name} {estimate}" for name, estimate in known.items())
        pictures = (Picture(PICTURE, estimate_plot(known, title="perplexity per word, with 95 % interval"), caption),)
    rows = [(_name(v, outcome), *(v.figures.get(name, "") for name in outcome.metrics)) for v in outcome.rows]
    return Part("Figures", ("run", *outcome.metrics), tuple(rows), pictures=pictures)


def _ratios(outcome: PerplexityOutcome) -> list[Part]:
    rows = tuple((f"{r.run} / {r.than} ({r.setting})", r.times) for r in outcome.ratios)
    return [Part("Perplexity as a multiple of the first run's, on the same words", ("", "times"), rows)] if rows else []


def _papers(outcome: PerplexityOutcome) -> list[Part]:
    shared = set(outcome.notes)
    return [Part(t.title, t.head, t.rows, tuple(n for n in t.notes if n not in shared)) for t in outcome.tables]


def _replies(outcome: PerplexityOutcome) -> list[Part]:
    rows = [
        (_name(verdict, outcome), one.asked, one.reply, one.reference)
        for verdict in outcome.rows
        for one in verdict.said[:SHOWN]
    ]
    return [Part("Some replies", ("run", "asked", "written", "true"), tuple(rows))] if rows else []


def _how(outcome: PerplexityOutcome) -> Part:
    settings = outcome.config.model_dump(mode="json", exclude_none=True)
    rows = tuple((name, json.dumps(value, ensure_ascii=False)) for name, value in settings.items())
    return Part("How it was measured", ("setting", "value"), rows, outcome.notes)


def _name(verdict: Verdict, outcome: PerplexityOutcome) -> str:
    return f"{verdict.run} ({verdict.setting})" if len(outcome.settings) > 1 else verdict.run
