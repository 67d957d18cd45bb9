"""`tertulia judge ...`: verdicts on bots."""

import typer

from tertulia.cli.judge_curve import curve
from tertulia.cli.judge_perplexity import perplexity
from tertulia.cli.judge_profiles import profiles
from tertulia.cli.judge_rank import rank
from tertulia.cli.judge_samples import samples

app = typer.Typer()
app.command()(rank)
app.command()(curve)
app.command()(profiles)
app.command()(perplexity)
app.command()(samples)


@app.callback()
def judge() -> None:
    """Judge bots."""
