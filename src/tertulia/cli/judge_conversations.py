"""`tertulia judge conversations`: metrics of whole conversations."""

from tertulia.cli.command import command
from tertulia.cli.output import Bars
from tertulia.cli.report import conclude
from tertulia.core.codec import Problems
from tertulia.judge.conversations import ConversationsConfig, describe_files, run_conversations


@command(ConversationsConfig)
def conversations(settings: ConversationsConfig, *, as_json: bool) -> None:
    """Measure whole conversations (self-play, chats, corpora): sentiment, coherence, questions, repetition."""
    problems = Problems()
    with Bars() as bars:
        run = run_conversations(settings, bars, problems)
    conclude(run, settings.out, data=lambda: describe_files(settings), as_json=as_json, problems=problems)
