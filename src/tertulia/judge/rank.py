"""Ranking the next reply: each true reply among others drawn from the same set, hits@k with intervals.

The traps of this game, closed: the true reply stands at a random place, ties are broken at random, no distractor has
its text, and the interval is drawn over dialogues, as replies of one dialogue are not independent.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import Field

from tertulia.core.config import Config
from tertulia.core.dialogue import Dialogue, Json
from tertulia.core.errors import BotError
from tertulia.core.estimate import Estimate
from tertulia.core.reply import Ask
from tertulia.corpus import candidates as game
from tertulia.corpus.candidates import RankTask, Whose, shown
from tertulia.metrics.ranking import ranks_of_truth
from tertulia.metrics.significance import bootstrap_mean
from tertulia.metrics.table import METRICS
from tertulia.talk.bot import Bot, RankingBot


class RankConfig(Config):
    """What is ranked, among how many, and how it is counted."""

    bots: tuple[str, ...] = Field(("tfidf", "generic"), min_length=1)
    """Bots to judge."""
    data: str = "sample"
    """A file or folder of dialogues, or `sample`."""
    split: str = "valid"
    """The split to take, empty for all; tune on valid, look at test once."""
    candidates: int = Field(20, ge=2, le=1000)
    """The true reply and its distractors together."""
    persona: Whose = "own"
    """Whose persona the bot is shown: none, own (of the one it speaks for), their (of the one it answers) or both."""
    revised: bool = False
    """Show personas in their revised wording, where the data has one."""
    speaker: str | None = None
    """Only replies of this speaker; all by default."""
    metrics: tuple[str, ...] = ("hits@1", "hits@5", "mrr")
    """What to print."""
    seed: int = 0
    """For distractors, places and ties."""


@dataclass(frozen=True, slots=True)
class RankResult:
    """A bot's figures over a set of tasks."""

    bot: str
    figures: dict[str, Estimate]
    ranks: tuple[int, ...]
    """One per task, in the order of the tasks."""

    def as_json(self) -> dict[str, Json]:
        """For `--json`."""
        return {"bot": self.bot} | {name: figure.as_json() for name, figure in self.figures.items()}


def rank_tasks(dialogues: Sequence[Dialogue], config: RankConfig) -> list[RankTask]:
    """Every reply with distractors from other dialogues of the same set, seeded."""
    return game.rank_tasks(dialogues, candidates=config.candidates, speaker=config.speaker, seed=config.seed)


def judge_rank(
    bot: Bot,
    tasks: Sequence[RankTask],
    config: RankConfig,
    *,
    batch: int = 256,
    progress: Callable[[int], None] = lambda n: None,
) -> RankResult:
    """Let the bot score all candidates, and count. `progress` hears of tasks done."""
    if not isinstance(bot, RankingBot):
        raise BotError(f"The bot {bot.spec!r} cannot rank given replies.", hint="tfidf and generic can.")
    measures = {name: METRICS.get(name) for name in config.metrics}
    scores: list[list[float]] = []
    for start in range(0, len(tasks), batch):
        part = tasks[start : start + batch]
        scores += bot.score([_ask(task, config) for task in part], [task.candidates for task in part])
        progress(len(part))
    ranks = ranks_of_truth(scores, [task.truth for task in tasks], seed=config.seed)
    groups = [task.dialogue for task in tasks]
    figures = {name: bootstrap_mean(measure(ranks), groups, seed=config.seed) for name, measure in measures.items()}
    return RankResult(bot.spec, figures, tuple(ranks.tolist()))


def _ask(task: RankTask, config: RankConfig) -> Ask:
    exchange = shown(task.exchange, config.persona, revised=config.revised)
    return Ask(exchange.dialogue, exchange.response.speaker, seed=config.seed)
