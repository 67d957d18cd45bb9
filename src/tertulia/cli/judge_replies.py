"""`tertulia judge replies`: judge single replies, generated or given, by any reply metric."""

from tertulia.cli.command import command
from tertulia.cli.output import Bars, print_problems
from tertulia.cli.report import print_report
from tertulia.core.codec import Problems
from tertulia.judge.config import RepliesConfig
from tertulia.judge.report import report_run, save_judged
from tertulia.judge.runs import check_out


@command(RepliesConfig)
def replies(settings: RepliesConfig, *, as_json: bool) -> None:
    """Measure bots' replies in held-out contexts, or given replies, with and without references."""
    from tertulia.judge.reply_metrics import describe_replies_data, run_replies  # needs torch

    check_out(settings.out)
    problems = Problems()
    with Bars() as bars:
        run = run_replies(settings, bars, problems)
        bars.step("Reporting")
        if settings.out:
            report = save_judged(run, settings.out, data=describe_replies_data(settings))
        else:
            report = report_run(run, plots=False)
    print_report(report, as_json=as_json)
    print_problems(problems)
