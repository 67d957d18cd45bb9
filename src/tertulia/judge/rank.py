"""Ranking the next reply: each true reply among others drawn from the same set, hits@k with intervals.

The traps of this game, closed: the true reply stands at a random place, ties are broken at random, no distractor has
its text, and the interval is drawn over dialogues, as replies of one dialogue are not independent. A setting is what a
bot is shown of personas; a bot is judged in each of them on the replies that have such personas.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import numpy as np
from pydantic import BeforeValidator, Field

from tertulia.core.config import Config
from tertulia.core.dialogue import Dialogue, Exchange, Json, Persona, Whose
from tertulia.core.errors import BotError, UsageError
from tertulia.core.estimate import Estimate
from tertulia.core.reply import Ask
from tertulia.corpus import candidates as game
from tertulia.corpus.candidates import RankTask, shown
from tertulia.metrics.ranking import Measure, Ranks, Values, measure_named, ranks_of_truth
from tertulia.metrics.significance import bootstrap_differences, bootstrap_means
from tertulia.talk.bot import Bot, RankingBot

Wording = Literal["original", "revised"]
LENGTHS = {"1": 1, "2": 2, "3-4": 4, "5-8": 8, "9-16": 16, "17+": None}
"""Turns of context that are told apart, each with the last it holds."""


def _several(value: Any) -> Any:
    """A single word is a list of one, so that `persona = "own"` is right too."""
    return (value,) if isinstance(value, str) else value


class RankSettings(Config):
    """What is ranked, among how many, and how it is counted."""

    data: str = "sample"
    """A file or folder of dialogues, a test set as `corpus testset` makes it, or `sample`."""
    split: str = "valid"
    """The split to take, empty for all; tune on valid, look at test once."""
    candidates: int = Field(20, ge=2, le=1000)
    """The true reply and its distractors together; a test set brings its own."""
    hard: bool = False
    """Take distractors that resemble the true reply instead of drawing them at random."""
    published: bool = False
    """Rank among the candidates that the data brings along with its replies, as ParlAI's Persona-Chat does."""
    persona: Annotated[tuple[Whose, ...], BeforeValidator(_several)] = ()
    """Whose persona the bot is shown: none, own, their, both, or several of these one by one; own if there is any."""
    wording: Annotated[tuple[Wording, ...], BeforeValidator(_several)] = ()
    """Wording of the personas, original or revised, or both one by one; by default original."""
    speaker: str | None = None
    """Only replies of this speaker; all by default."""
    metrics: Annotated[tuple[str, ...], BeforeValidator(_several)] = Field(("hits@1", "hits@5", "mrr"), min_length=1)
    """What to print: hits@K or recall@K for any K, with inM among M of the candidates (1in2 for short), or mrr."""
    limit: int | None = Field(None, ge=1)
    """Judge on so many replies only, drawn by the seed: for slow bots."""
    seed: int = 0
    """For distractors, places, ties and what else is drawn."""


class RankConfig(RankSettings):
    """Who is judged, and what becomes of the verdict."""

    bots: Annotated[tuple[str, ...], BeforeValidator(_several)] = Field(("tfidf", "generic"), min_length=1)
    """Bots to judge; the first is compared with the others."""
    by_length: bool = False
    """Print the figures by the number of turns before the reply, too."""
    table: Literal["personachat", "ubuntu"] | None = None
    """Print the table of a paper beside its figures: personachat (tables 3 and 6) or ubuntu (table 4)."""
    out: Path | None = None
    """Also write the verdict to this file, as JSON."""
    report: Path | None = None
    """Also write a report to this file, as HTML."""


T = TypeVar("T")


class Setting(NamedTuple):
    """What a bot is shown of personas."""

    whose: Whose = "none"
    wording: Wording = "original"

    def __str__(self) -> str:
        return self.whose if self.whose == "none" else f"{self.whose}, {self.wording}"

    def fits(self, exchange: Exchange) -> bool:
        """Whether the exchange has the personas to be shown, in that wording."""
        return all(_sentences(persona, self.wording) for persona in self.of(exchange.persona, exchange.partner))

    def of(self, own: T, their: T) -> tuple[T, ...]:
        """Which of the two are shown.

        >>> Setting("their").of(1, 2), Setting("both").of(1, 2), Setting().of(1, 2)
        ((2,), (1, 2), ())
        """
        return {"none": (), "own": (own,), "their": (their,), "both": (own, their)}[self.whose]

    def ask(self, exchange: Exchange, *, seed: int) -> Ask:
        """What the bot is asked."""
        seen = shown(exchange, self.whose, revised=self.wording == "revised")
        return Ask(seen.dialogue, seen.response.speaker, seed=seed)


def _sentences(persona: Persona | None, wording: Wording) -> tuple[str, ...]:
    if persona is None:
        return ()
    return persona.revised if wording == "revised" else persona.sentences


OWN = Setting("own")
Figures = dict[str, Estimate]


@dataclass(frozen=True, slots=True)
class RankResult:
    """A bot's figures over a set of tasks."""

    bot: str
    figures: Figures
    ranks: tuple[int, ...]
    """One per task that fits the setting, in the order of the tasks."""
    setting: Setting = OWN
    by_length: dict[str, Figures] = field(default_factory=dict)
    """The same by turns of context; lengths that do not occur are left out."""

    def as_json(self) -> dict[str, Json]:
        """For `--json`."""
        lengths = {turns: figures_as_json(figures) for turns, figures in self.by_length.items()}
        return _named(self.bot, self.setting) | figures_as_json(self.figures) | {"by_length": lengths}


@dataclass(frozen=True, slots=True)
class Difference:
    """How much higher one bot's figures are than another's, on the same tasks."""

    bot: str
    than: str
    setting: Setting
    figures: Figures

    def as_json(self) -> dict[str, Json]:
        """For `--json`."""
        return _named(self.bot, self.setting) | {"than": self.than} | figures_as_json(self.figures)


def figures_as_json(figures: Figures) -> dict[str, Json]:
    """Estimates by name."""
    return {name: figure.as_json() for name, figure in figures.items()}


def _named(bot: str, setting: Setting) -> dict[str, Json]:
    return {"bot": bot, "persona": setting.whose, "wording": setting.wording}


def rank_tasks(dialogues: Sequence[Dialogue], config: RankSettings) -> list[RankTask]:
    """Every reply with distractors from other dialogues of the same set, seeded."""
    return game.rank_tasks(
        dialogues, candidates=config.candidates, speaker=config.speaker, seed=config.seed, hard=config.hard
    )


def settings_of(config: RankSettings, tasks: Sequence[RankTask]) -> list[Setting]:
    """The settings to judge in; where nobody said whose, own personas are shown if the data has any."""
    any_own = any(OWN.fits(task.exchange) for task in tasks)
    chosen: tuple[Whose, ...] = config.persona or (("own",) if any_own else ("none",))
    wordings: tuple[Wording, ...] = config.wording or ("original",)
    found = [Setting() if whose == "none" else Setting(whose, wording) for whose in chosen for wording in wordings]
    return list(dict.fromkeys(found))


def fitting(tasks: Sequence[RankTask], setting: Setting) -> list[RankTask]:
    """The tasks whose exchange has the personas of the setting."""
    return [task for task in tasks if setting.fits(task.exchange)]


def measures_of(config: RankSettings, tasks: Sequence[RankTask]) -> list[Measure]:
    """The measures by their names, if the tasks have candidates enough for them."""
    found = [measure_named(name) for name in dict.fromkeys(config.metrics)]
    fewest = min((len(task.candidates) for task in tasks), default=0)
    for measure in found:
        if tasks and measure.of > fewest:
            raise UsageError(
                f"{measure.name} cannot be told of replies among {fewest}.", hint="Give more with --candidates."
            )
    return found


def judge_rank(
    bot: Bot,
    tasks: Sequence[RankTask],
    config: RankSettings,
    *,
    setting: Setting | None = None,
    batch: int = 256,
    progress: Callable[[int], None] = lambda n: None,
) -> RankResult:
    """Let the bot score all candidates, and count. `progress` hears of tasks done.

    Without a setting it is the first one of the config.
    """
    if not isinstance(bot, RankingBot):
        raise BotError(f"The bot {bot.spec!r} cannot rank given replies.", hint="tfidf and generic can.")
    measures = measures_of(config, tasks)
    setting = setting or settings_of(config, tasks)[0]
    tasks = fitting(tasks, setting)
    scores: list[list[float]] = []
    for start in range(0, len(tasks), batch):
        part = tasks[start : start + batch]
        asks = [setting.ask(task.exchange, seed=config.seed) for task in part]
        scores += bot.score(asks, [task.candidates for task in part])
        progress(len(part))
    ranks = ranks_of_truth(scores, [task.truth for task in tasks], seed=config.seed)
    figures, by_length = _count(ranks, tasks, measures, config.seed)
    return RankResult(bot.spec, figures, tuple(ranks.tolist()), setting, by_length)


def difference(first: RankResult, other: RankResult, tasks: Sequence[RankTask], config: RankSettings) -> Difference:
    """How much higher the first one's figures are; both of the same setting."""
    fit = fitting(tasks, first.setting)
    measures = measures_of(config, fit)
    ours, theirs = (_values(measures, np.array(r.ranks, dtype=np.int64), fit) for r in (first, other))
    found = bootstrap_differences(ours, theirs, [task.dialogue for task in fit], seed=config.seed)
    figures = {measure.name: figure for measure, figure in zip(measures, found, strict=True)}
    return Difference(first.bot, other.bot, first.setting, figures)


def _values(measures: Sequence[Measure], ranks: Ranks, tasks: Sequence[RankTask]) -> Values:
    """A column for each measure."""
    sizes = np.array([len(task.candidates) for task in tasks], dtype=np.int64)
    return np.stack([measure.values(ranks, sizes) for measure in measures], axis=1)


def _count(
    ranks: Ranks, tasks: Sequence[RankTask], measures: Sequence[Measure], seed: int
) -> tuple[Figures, dict[str, Figures]]:
    """All figures, over all tasks and by length, from the same draws of dialogues."""
    values = _values(measures, ranks, tasks)
    turns = np.array([len(task.exchange.context) for task in tasks])
    parts = {"": np.ones(len(tasks), dtype=bool)} | {name: of for name, of in _by_length(turns) if of.any()}
    columns = np.tile(values, len(parts))
    counted = np.repeat(np.stack(list(parts.values()), axis=1), len(measures), axis=1)
    found = iter(bootstrap_means(columns, [task.dialogue for task in tasks], counted=counted, seed=seed))
    by_part = {part: {measure.name: next(found) for measure in measures} for part in parts}
    return by_part.pop(""), by_part


def _by_length(turns: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Which tasks have so many turns of context."""
    above = 0
    for name, last in LENGTHS.items():
        yield name, (turns > above) & (turns <= (last or np.inf))
        above = last or 0
