"""`tertulia demo`: the complete path on the sample, then the chat page."""

import time

from rich.text import Text

from tertulia.cli.command import command
from tertulia.cli.output import Bars, err, out, print_json, print_table
from tertulia.cli.serve import run_server
from tertulia.core.errors import keeping
from tertulia.lab.demo import DemoConfig, DemoOutcome, run_demo
from tertulia.lab.demo_report import write_demo_report
from tertulia.web.config import ServeConfig


@command(DemoConfig)
def demo(settings: DemoConfig, *, as_json: bool) -> None:
    """Mine the sample's threads, index the retrieval bot, rank held-out replies, let two bots talk, report, serve."""
    start = time.perf_counter()
    with keeping(f"The steps that are finished are kept in {settings.out}."), Bars() as bars:
        outcome = run_demo(settings, bars)
        bars.step("Writing the report")
        write_demo_report(outcome, settings.out / "report.html")
    seconds = time.perf_counter() - start
    if as_json:
        print_json(_as_json(outcome, seconds))
    else:
        _print(outcome, settings, seconds)
    if settings.serve:
        db = f"sqlite:///{settings.out / 'tertulia.db'}"
        on_loopback = settings.host in ("127.0.0.1", "::1", "localhost")
        config = ServeConfig(bots=outcome.bots, host=settings.host, port=settings.port, db=db, explain=on_loopback)
        run_server(config)


def _print(outcome: DemoOutcome, settings: DemoConfig, seconds: float) -> None:
    run = outcome.ranking
    rows = [(subject, figure) for (subject, _, metric), figure in run.estimates().items() if metric == "hits@1"]
    chance = ("chance", f"{float(run.details['chance']):.3f}")
    print_table(("bot", f"hits@1 of {run.config['candidates']}"), [*rows, chance])
    funnel = outcome.mined.funnel
    out.print(f"\n{funnel.messages} forum messages gave {funnel.pairs} context-reply pairs.")
    if outcome.conversations:
        out.print("\nTwo bots talking:")
        for turn in outcome.conversations[0].turns:
            out.print(Text.assemble((f"  {turn.speaker}: ", "bold"), turn.text))
    if outcome.without_model:
        err.print(Text(f"Without the language model: {outcome.without_model}", style="yellow"))
    out.print(f"\nDone in {seconds:.0f} s. The report: {settings.out / 'report.html'}", markup=False)


def _as_json(outcome: DemoOutcome, seconds: float) -> dict[str, object]:
    figures = outcome.ranking.estimates().items()
    return {
        "ranking": [{"subject": s, "setting": p, "metric": m} | figure.as_json() for (s, p, m), figure in figures],
        "chance": outcome.ranking.details["chance"],
        "messages": outcome.mined.funnel.messages,
        "pairs": outcome.mined.funnel.pairs,
        "language_model": not outcome.without_model,
        "seconds": round(seconds, 1),
    }
