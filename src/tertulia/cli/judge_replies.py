"""`tertulia judge replies`: judge single replies, generated or given, by any reply metric."""

from tertulia.cli.command import command
from tertulia.cli.output import Bars
from tertulia.cli.report import conclude
from tertulia.core.codec import Problems
from tertulia.judge.config import RepliesConfig


@command(RepliesConfig)
def replies(settings: RepliesConfig, *, as_json: bool) -> None:
    """Measure bots' replies in held-out contexts, or given replies, with and without references."""
    from tertulia.judge.reply_metrics import describe_replies_data, run_replies  # needs torch

    problems = Problems()
    with Bars() as bars:
        run = run_replies(settings, bars, problems)
    conclude(run, settings.out, data=lambda: describe_replies_data(settings), as_json=as_json, problems=problems)
