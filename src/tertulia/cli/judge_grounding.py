"""`tertulia judge grounding`: do replies rest on their evidence, and how well do classifiers tell?"""

from tertulia.cli.command import command
from tertulia.cli.output import Bars
from tertulia.cli.report import conclude
from tertulia.core.codec import Problems
from tertulia.judge.grounding.config import GroundingConfig


@command(GroundingConfig)
def grounding(settings: GroundingConfig, *, as_json: bool) -> None:
    """Judge grounding classifiers on labelled responses (BEGIN, studies), or bots' replies by classifiers."""
    from tertulia.judge.grounding.run import describe_grounding_data, run_grounding  # may need torch

    problems = Problems()
    with Bars() as bars:
        run = run_grounding(settings, bars, problems)
    conclude(run, settings.out, data=lambda: describe_grounding_data(settings), as_json=as_json, problems=problems)
