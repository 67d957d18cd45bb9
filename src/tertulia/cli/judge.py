"""`tertulia judge ...`: verdicts on bots."""

from pathlib import Path
from typing import Annotated

import typer

from tertulia.cli.output import AsJson, Bars, ConfigFile, argument, option, out, print_json, print_table, tell_problems
from tertulia.core.codec import Problems
from tertulia.core.config import resolve
from tertulia.corpus.load import load_dialogues
from tertulia.judge.rank import RankConfig, judge_rank, rank_tasks
from tertulia.metrics.table import METRICS
from tertulia.talk.spec import make_bot

app = typer.Typer()


@app.callback()
def judge() -> None:
    """Judge bots."""


@app.command()
def rank(
    bots: Annotated[list[str] | None, argument(RankConfig, "bots")] = None,
    data: Annotated[str | None, option(RankConfig, "data", "--data")] = None,
    split: Annotated[str | None, option(RankConfig, "split", "--split")] = None,
    candidates: Annotated[int | None, option(RankConfig, "candidates", "--candidates")] = None,
    persona: Annotated[str | None, option(RankConfig, "persona", "--persona")] = None,
    speaker: Annotated[str | None, option(RankConfig, "speaker", "--speaker")] = None,
    metrics: Annotated[list[str] | None, option(RankConfig, "metrics", "--metric")] = None,
    seed: Annotated[int | None, option(RankConfig, "seed", "--seed")] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """How often a bot finds the true reply among others, with 95 % intervals."""
    given = {"bots": bots or None, "data": data, "candidates": candidates, "persona": persona, "seed": seed}
    given |= {"split": split, "speaker": speaker, "metrics": metrics or None}
    if data and not split and Path(data).is_file():
        given["split"] = ""
    settings = resolve(RankConfig, config, given)
    for name in settings.metrics:
        METRICS.get(name)
    problems = Problems()
    with Bars() as bars:
        bars.step("Reading")
        dialogues = list(load_dialogues(settings.data, split=settings.split or None, problems=problems))
        tasks = rank_tasks(dialogues, settings)
        results = []
        for spec in settings.bots:
            bars.step(f"Loading {spec}")
            bot = make_bot(spec)
            bars.step(f"Ranking with {spec}", total=len(tasks))
            results.append(judge_rank(bot, tasks, settings, progress=bars.advance))
    if json:
        print_json(
            {
                "chance": 1 / settings.candidates,
                "settings": settings.model_dump(mode="json"),
                "bots": [r.as_json() for r in results],
            }
        )
    else:
        print_table(("bot", *settings.metrics), [(r.bot, *(r.figures[m] for m in settings.metrics)) for r in results])
        out.print(
            f"{len(tasks)} replies among {settings.candidates}; chance hits@1 {1 / settings.candidates:.3f}; "
            "95 % intervals by bootstrap over dialogues."
        )
    tell_problems(problems)
