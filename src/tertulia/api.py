"""The short way in from Python: `import tertulia as tt`.

    bot = tt.bot("smollm2")
    print(bot.chat("Hi").text)
    verdict = tt.judge("rank", "tfidf", "generic", limit=200)
    print(verdict["hits@1", "tfidf"])

Everything here is a few lines over the rooms below (`talk`, `corpus`, `judge`, `train`), takes their specifications and
configs, and returns values. Nothing is printed; `progress=True` shows the bars of the command line on stderr.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from tertulia.core.config import Cli, Config, validate
from tertulia.core.dialogue import Dialogue, Json, Persona, Turn
from tertulia.core.errors import UnknownName, UsageError
from tertulia.core.estimate import Estimate
from tertulia.core.progress import Progress, Silent
from tertulia.core.reply import Ask, Reply

if TYPE_CHECKING:
    from tertulia.judge.runs import JudgedRun
    from tertulia.metrics.significance import Comparison
    from tertulia.talk.bot import Bot

BOT, USER = "bot", "user"
Judge = Literal[
    "rank",
    "perplexity",
    "replies",
    "conversations",
    "grounding",
    "samples",
    "profiles",
    "meta",
    "hybrid",
    "proxy",
    "ppi",
    "curve",
]
"""The commands of `tertulia judge` that need nothing but their config."""

_JUDGES: dict[str, tuple[str, str]] = {
    "rank": ("judge.config:RankConfig", "judge.rank:run_rank"),
    "perplexity": ("judge.config:PerplexityConfig", "judge.perplexity:run_perplexity"),
    "replies": ("judge.config:RepliesConfig", "judge.reply_metrics:run_replies"),
    "conversations": ("judge.conversations:ConversationsConfig", "judge.conversations:run_conversations"),
    "grounding": ("judge.grounding.config:GroundingConfig", "judge.grounding.run:run_grounding"),
    "samples": ("judge.config:SamplesConfig", "judge.samples:run_samples"),
    "profiles": ("judge.config:ProfileConfig", "judge.profiles:run_profiles"),
    "meta": ("judge.meta:MetaConfig", "judge.meta:run_meta"),
    "hybrid": ("judge.hybrid:HybridConfig", "judge.hybrid:run_hybrid"),
    "proxy": ("judge.proxy:ProxyConfig", "judge.proxy:run_proxy"),
    "ppi": ("judge.ppi:PpiConfig", "judge.ppi:run_ppi"),
    "curve": ("lab.curve:CurveConfig", "lab.curve:run_curve"),
}
"""The config of each judge and the function that runs it."""
_WITHOUT_PROGRESS = ("proxy", "ppi")


@dataclass(frozen=True, slots=True)
class ChatBot:
    """A bot to talk to. It holds no conversation: `conversation` does."""

    bot: "Bot"
    """The bot itself, which replies to batches of `Ask`s."""
    persona: Persona | None = None
    """Who it is, if it was told."""

    def chat(self, text: str, *, history: Sequence[str] = (), seed: int = 0, **options: Json) -> Reply:
        """Its reply to a message. `history` are the turns before, of which the last one is the bot's; `options` are of
        this reply alone (temperature, max_tokens, ...).
        """
        speakers = [USER if (len(history) - i) % 2 == 0 else BOT for i in range(len(history))]
        turns = (*(Turn(who, said) for who, said in zip(speakers, history, strict=True)), Turn(USER, text))
        return self.reply(turns, seed=seed, **options)

    def reply(self, turns: Sequence[Turn], *, seed: int = 0, **options: Json) -> Reply:
        """Its reply to a conversation so far, whose speakers are `user` and `bot`."""
        personas = {BOT: self.persona} if self.persona else {}
        (reply,) = self.bot.reply([Ask(Dialogue("chat", tuple(turns), personas), BOT, seed=seed, options=options)])
        return reply

    def conversation(self, *, seed: int = 0) -> "ChatSession":
        """A conversation with it, from the beginning."""
        return ChatSession(self, seed)


class ChatSession:
    """A conversation with a bot, turn by turn."""

    def __init__(self, bot: ChatBot, seed: int = 0) -> None:
        self.bot, self.seed = bot, seed
        self.turns: list[Turn] = []

    def say(self, text: str, **options: Json) -> Reply:
        """Say something, and get the reply."""
        asked = (*self.turns, Turn(USER, text))
        reply = self.bot.reply(asked, seed=self.seed + len(self.turns) // 2, **options)
        self.turns = [*asked, Turn(BOT, reply.text)]
        return reply

    @property
    def dialogue(self) -> Dialogue:
        """The conversation so far."""
        return Dialogue("chat", tuple(self.turns), {BOT: self.bot.persona} if self.bot.persona else {})


def bot(spec: str, *, persona: Persona | Sequence[str] | str | None = None) -> ChatBot:
    """The bot of a specification: "smollm2", "companion", "tfidf:sample", "openai:MODEL?base_url=...", or the folder of
    a trained run. `persona` tells it who it is, in sentences.
    """
    from tertulia.talk.spec import make_bot

    if isinstance(persona, str):
        persona = (persona,)
    if persona is not None and not isinstance(persona, Persona):
        persona = Persona(tuple(persona))
    return ChatBot(make_bot(spec), persona)


def load(
    target: str | Path = "sample",
    *,
    split: str | None = None,
    format: str | None = None,  # noqa: A002 - the word users know
    limit: int | None = None,
) -> list[Dialogue]:
    """The dialogues of a file or folder in any format that `tertulia formats` lists, or of the bundled sample."""
    from tertulia.corpus.load import load_dialogues

    return list(islice(load_dialogues(target, split=split, format=format), limit))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge measured: every figure with its interval."""

    run: "JudgedRun"
    """The scores themselves, down to single replies, and the texts behind them."""
    estimates: Mapping[tuple[str, str, str], Estimate]
    """The figures by subject, setting and metric."""

    def __getitem__(self, key: str | tuple[str, str] | tuple[str, str, str]) -> Estimate:
        """A figure by metric, by (metric, subject) or by (metric, subject, setting), if that says which one."""
        wanted = (key,) if isinstance(key, str) else key
        figures = {(metric, subject, setting): e for (subject, setting, metric), e in self.estimates.items()}
        matches = {name: estimate for name, estimate in figures.items() if all(map(_is_called, name, wanted))}
        if len(matches) == 1:
            return next(iter(matches.values()))
        what = "is not one figure" if matches else "is not among the figures"
        raise UsageError(f"{wanted} {what}.", hint=f"Say which: {'; '.join(map(str, matches or figures))}.")

    def rows(self) -> list[dict[str, Json]]:
        """One row per figure, such as for a data frame: subject, setting, metric, value, low, high, n."""
        return [
            {"subject": subject, "setting": setting, "metric": metric, **estimate.as_json()}
            for (subject, setting, metric), estimate in self.estimates.items()
        ]

    def comparisons(self, baseline: str | None = None) -> "list[Comparison]":
        """Paired differences to the baseline, by default the first subject."""
        return self.run.comparisons(baseline)

    def save(self, folder: str | Path) -> Path:
        """Save the run with its report, as `tertulia judge ... --out` does; `tertulia report` opens it."""
        from tertulia.judge.report import save_judged

        save_judged(self.run, Path(folder))
        return Path(folder)

    def __str__(self) -> str:
        return "\n".join(
            f"{metric}, {subject}, {setting}: {e}" for (subject, setting, metric), e in self.estimates.items()
        )


def _is_called(name: str, wanted: str) -> bool:
    """Whether a part of a figure's name is meant; a bot on its default data is also called by its own name."""
    return name == wanted or name.startswith(f"{wanted}:")


def judge(verb: Judge, /, *subjects: str, progress: bool | Progress = False, **settings: Any) -> Verdict:
    """Judge bots, models or conversations, as `tertulia judge VERB` does.

    `subjects` are what the command takes as arguments (bots, runs, files), and `settings` are its options, by the names
    that a config file has: `judge("rank", "tfidf", "generic", data="valid.jsonl", metrics=["hits@1"])`.
    """
    if verb not in get_args(Judge):
        raise UnknownName("judge", verb, get_args(Judge))
    config_type, run = (_import(target) for target in _JUDGES[verb])
    config = validate(config_type, _arguments(config_type, subjects) | settings, where=f'tertulia.judge("{verb}")')
    with _shown(progress) as shown:
        judged = run(config) if verb in _WITHOUT_PROGRESS else run(config, shown)
    return Verdict(judged, judged.estimates())


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """A trained model."""

    folder: Path
    """Where it is: the folder is a bot's specification."""
    figures: Mapping[str, Json]
    """What was measured."""

    def bot(self, *, persona: Persona | Sequence[str] | str | None = None) -> ChatBot:
        """The bot that talks with it, for generators and rankers."""
        return bot(str(self.folder), persona=persona)


def train(
    recipe: str | Path,
    *,
    data: str | Path | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    settings: Mapping[str, Any] | None = None,
    progress: bool | Progress = False,
) -> TrainedRun:
    """Train what a recipe describes: a name of `tertulia recipes`, or a TOML file.

    `settings` change single settings by dotted names: `{"epochs": 3, "model.d_model": 128}`.
    """
    from tertulia.train.changes import with_values
    from tertulia.train.recipe import check_run_folder, find_recipe
    from tertulia.train.registry import RECIPES

    source = find_recipe(recipe)
    made = RECIPES.get(source.recipe)
    given = {"data": None if data is None else str(data), "out": out, "resume": resume, "force": force}
    values = source.values | {name: value for name, value in given.items() if value}
    config = validate(made.config, with_values(values, settings or {}), where=source.where)
    check_run_folder(config)
    with _shown(progress) as shown:
        outcome = made.train(config, shown)
    return TrainedRun(outcome.folder, outcome.figures())


def _import(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(import_module(f"tertulia.{module}"), attribute)


def _arguments(config: type[Config], subjects: Sequence[str]) -> dict[str, Json]:
    """What is given without a name, under the name of the config's argument."""
    if not subjects:
        return {}
    for name, info in config.model_fields.items():
        if any(isinstance(item, Cli) and item.argument for item in info.metadata):
            takes_several = "tuple" in str(info.annotation)
            if len(subjects) > 1 and not takes_several:
                raise UsageError(f"One {name} is expected, got {len(subjects)}.")
            return {name: list(subjects) if takes_several else subjects[0]}
    raise UsageError(f"Nothing is expected here but settings, got {subjects[0]!r}.")


@contextmanager
def _shown(progress: bool | Progress) -> Iterator[Progress]:
    """Where progress goes: nowhere, to the bars of the command line, or to the caller's own."""
    if progress is True:
        from tertulia.cli.output import Bars

        with Bars() as bars:
            yield bars
    else:
        yield progress or Silent()
