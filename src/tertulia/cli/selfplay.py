"""`tertulia selfplay`: let bots talk to themselves and to each other, and save the conversations."""

import math

from rich.text import Text

from tertulia.cli.command import command
from tertulia.cli.output import MISSING, Bars, out, print_json, print_table
from tertulia.core.dialogue import Json
from tertulia.core.progress import duration
from tertulia.core.text import plural
from tertulia.talk.selfplay.config import SelfplayConfig
from tertulia.talk.selfplay.run import PairingSummary, SelfplayOutcome, run_selfplay


@command(SelfplayConfig)
def selfplay(settings: SelfplayConfig, *, as_json: bool) -> None:
    """Let bots talk to themselves or to each other; after an interruption, the same command continues."""
    with Bars() as bars:
        outcome = run_selfplay(settings, bars)
    if as_json:
        print_json(_as_json(outcome))
        return
    if len(outcome.pairings) == 1:
        for turn in outcome.first.turns:
            out.print(Text.assemble((f"{turn.speaker}: ", "bold"), turn.text))
        out.print()
    print_table(("pairing", "conversations", "turns", "distinct-2", "time"), map(_row, outcome.pairings))
    count = sum(one.conversations for one in outcome.pairings)
    out.print(f"\n{plural(count, 'conversation')} in {outcome.file}")
    if outcome.continued:
        was = "all" if outcome.continued == outcome.shards else f"{outcome.continued} of {outcome.shards}"
        out.print(f"An earlier run had finished {was} shards.")


def _row(one: PairingSummary) -> tuple[str, ...]:
    values = (estimate.value for estimate in one.distinct2.values())
    figures = " / ".join(MISSING if math.isnan(value) else f"{value:.3f}" for value in values)
    time = MISSING if one.seconds is None else duration(one.seconds)
    return one.name, str(one.conversations), str(one.turns), figures, time


def _as_json(outcome: SelfplayOutcome) -> dict[str, Json]:
    return {
        "out": str(outcome.file),
        "conversations": sum(one.conversations for one in outcome.pairings),
        "turns": sum(one.turns for one in outcome.pairings),
        "shards": outcome.shards,
        "continued": outcome.continued,
        "pairings": [
            {
                "pairing": one.name,
                "conversations": one.conversations,
                "turns": one.turns,
                "distinct2": {bot: estimate.as_json() for bot, estimate in one.distinct2.items()},
                "seconds": one.seconds,
            }
            for one in outcome.pairings
        ],
    }
