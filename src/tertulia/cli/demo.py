"""`tertulia demo`: the whole path on the sample, then the chat page."""

import time
from pathlib import Path
from typing import Annotated

from rich.text import Text

from tertulia.cli.output import AsJson, Bars, ConfigFile, err, option, out, print_json, print_table
from tertulia.cli.serve import run_server
from tertulia.core.config import resolve
from tertulia.judge.demo import DemoConfig, DemoOutcome, run_demo
from tertulia.judge.demo_report import write_demo_report
from tertulia.web.serving import ServeConfig


def demo(
    out_folder: Annotated[Path | None, option(DemoConfig, "out", "--out")] = None,
    host: Annotated[str | None, option(DemoConfig, "host", "--host")] = None,
    port: Annotated[int | None, option(DemoConfig, "port", "--port")] = None,
    serve: Annotated[bool | None, option(DemoConfig, "serve", "--serve/--no-serve")] = None,
    conversations: Annotated[int | None, option(DemoConfig, "conversations", "--conversations")] = None,
    turns: Annotated[int | None, option(DemoConfig, "turns", "--turns")] = None,
    seed: Annotated[int | None, option(DemoConfig, "seed", "--seed")] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Mine the sample's threads, index the retrieval bot, rank held-out replies, let two bots talk, report, serve."""
    given = {"out": out_folder, "host": host, "port": port, "serve": serve}
    given |= {"conversations": conversations, "turns": turns, "seed": seed}
    settings = resolve(DemoConfig, config, given)
    start = time.perf_counter()
    with Bars() as bars:
        outcome = run_demo(settings, bars)
        bars.step("Writing the report")
        write_demo_report(outcome, settings.out / "report.html")
    seconds = time.perf_counter() - start
    if json:
        print_json(_figures(outcome, seconds))
    else:
        _tell(outcome, settings, seconds)
    if settings.serve:
        db = f"sqlite:///{settings.out / 'tertulia.db'}"
        run_server(ServeConfig(bots=outcome.bots, host=settings.host, port=settings.port, db=db))


def _tell(outcome: DemoOutcome, settings: DemoConfig, seconds: float) -> None:
    k = outcome.rank_config.candidates
    rows = [(name, r.figures["hits@1"]) for name, r in outcome.ranking.items()]
    print_table(("bot", f"hits@1 of {k}"), [*rows, ("chance", f"{outcome.chance:.3f}")])
    funnel = outcome.mined.funnel
    out.print(f"\n{funnel.messages} forum messages gave {funnel.pairs} context-reply pairs.")
    if outcome.talks:
        out.print("\nTwo bots at a table:")
        for turn in outcome.talks[0].turns:
            out.print(Text.assemble((f"  {turn.speaker}: ", "bold"), turn.text))
    if outcome.without_model:
        err.print(Text(f"Without the language model: {outcome.without_model}", style="yellow"))
    out.print(f"\nDone in {seconds:.0f} s. The report: {settings.out / 'report.html'}", markup=False)


def _figures(outcome: DemoOutcome, seconds: float) -> dict[str, object]:
    return {
        "ranking": [r.as_json() for r in outcome.ranking.values()],
        "chance": outcome.chance,
        "messages": outcome.mined.funnel.messages,
        "pairs": outcome.mined.funnel.pairs,
        "language_model": not outcome.without_model,
        "seconds": round(seconds, 1),
    }
