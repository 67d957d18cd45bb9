"""`tertulia judge conversations`: metrics of whole conversations."""

from tertulia.cli.command import command
from tertulia.cli.output import Bars, print_problems
from tertulia.cli.report import print_report
from tertulia.core.codec import Problems
from tertulia.judge.conversations import ConversationsConfig, describe_files, run_conversations
from tertulia.judge.report import report_run, save_judged
from tertulia.judge.runs import check_out


@command(ConversationsConfig)
def conversations(settings: ConversationsConfig, *, as_json: bool) -> None:
    """Measure whole conversations (self-play, chats, corpora): sentiment, coherence, questions, repetition."""
    check_out(settings.out)
    problems = Problems()
    with Bars() as bars:
        run = run_conversations(settings, bars, problems)
        bars.step("Reporting")
        if settings.out:
            report = save_judged(run, settings.out, data=describe_files(settings))
        else:
            report = report_run(run, plots=False)
    print_report(report, as_json=as_json)
    print_problems(problems)
