"""`tertulia judge grounding`: do replies rest on their evidence, and how well do classifiers tell?"""

from tertulia.cli.command import command
from tertulia.cli.output import Bars, print_problems
from tertulia.cli.report import print_report
from tertulia.core.codec import Problems
from tertulia.judge.grounding.config import GroundingConfig
from tertulia.judge.report import report_run, save_judged
from tertulia.judge.runs import check_out


@command(GroundingConfig)
def grounding(settings: GroundingConfig, *, as_json: bool) -> None:
    """Judge grounding classifiers on labelled responses (BEGIN, studies), or bots' replies by classifiers."""
    from tertulia.judge.grounding.run import describe_grounding_data, run_grounding  # may need torch

    check_out(settings.out)
    problems = Problems()
    with Bars() as bars:
        run = run_grounding(settings, bars, problems)
        bars.step("Reporting")
        if settings.out:
            report = save_judged(run, settings.out, data=describe_grounding_data(settings))
        else:
            report = report_run(run, plots=False)
    print_report(report, as_json=as_json)
    print_problems(problems)
