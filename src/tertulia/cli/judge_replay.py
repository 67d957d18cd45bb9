"""`tertulia judge replay`: what would another bot have said in stored conversations?"""

from tertulia.cli.command import command
from tertulia.cli.output import Bars, out
from tertulia.cli.report import conclude
from tertulia.core.codec import Problems
from tertulia.core.text import plural
from tertulia.corpus.identity import describe_paths
from tertulia.corpus.write import save_dialogues
from tertulia.judge.replay import ReplayConfig, replayed_dialogues, run_replay
from tertulia.judge.replay_study import WrittenStudy, write_study

DIALOGUES = "dialogues.jsonl"


@command(ReplayConfig)
def replay(settings: ReplayConfig, *, as_json: bool) -> None:
    """Replay stored conversations with another bot from some turn on, and compare both continuations."""
    problems = Problems()
    with Bars() as bars:
        replayed = run_replay(settings, bars, problems)
    study: WrittenStudy | None = None

    def save_pairs() -> None:
        nonlocal study
        save_dialogues(replayed_dialogues(replayed.pairs), settings.out / DIALOGUES)
        study = write_study(replayed.pairs, settings.study) if settings.study else None

    conclude(
        replayed.run,
        settings.out,
        data=lambda: describe_paths(settings.conversations, settings.split or None),
        as_json=as_json,
        problems=problems,
        save_more=save_pairs,
    )
    if study and not as_json:
        left = (
            f"; left out: {plural(study.left_out, 'pair')} with the same text on both sides" if study.left_out else ""
        )
        out.print(f"{settings.study}: {plural(study.pairs, 'pair')} to compare, in {study.items}{left}.", markup=False)
        out.print(f"Check it with: tertulia study check {settings.study}", markup=False)
