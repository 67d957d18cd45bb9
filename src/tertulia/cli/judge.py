"""`tertulia judge ...`: verdicts on bots."""

import typer

from tertulia.cli.judge_curve import curve
from tertulia.cli.judge_profiles import profiles
from tertulia.cli.judge_rank import rank

app = typer.Typer()
app.command()(rank)
app.command()(curve)
app.command()(profiles)


@app.callback()
def judge() -> None:
    """Judge bots."""
