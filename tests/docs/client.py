"""A program that uses Tertulia from outside; mypy --strict must find it correct, with the package's own types.

Configs are made with few of their fields: the defaults of all others must be known without pydantic's plugin for mypy.
"""

from collections.abc import Sequence
from pathlib import Path

from tertulia.core.config import Config
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.estimate import Estimate
from tertulia.core.reply import Ask, Candidate, Provenance, Reply
from tertulia.corpus.load import load_dialogues
from tertulia.corpus.mine import MineConfig
from tertulia.judge.config import RankConfig
from tertulia.judge.hybrid import HybridConfig
from tertulia.judge.rank import run_rank
from tertulia.judge.runs import JudgedRun, load_run
from tertulia.metrics.metric import Metric
from tertulia.metrics.registry import METRICS
from tertulia.study.config import Consent, Pay, StudyBot, StudyConfig
from tertulia.study.localised import Localised
from tertulia.talk.bot import Bot, RankingBot
from tertulia.talk.bots.tfidf import TfidfOptions
from tertulia.talk.selfplay.config import SelfplayConfig
from tertulia.talk.spec import make_bot
from tertulia.train.recipe import TrainOptions
from tertulia.train.recipes.finetune import FinetuneRecipe
from tertulia.train.recipes.grounding import GroundingRecipe
from tertulia.train.recipes.rankers import EncoderRecipe, WordVectorRecipe
from tertulia.web.config import ServeConfig


class EchoOptions(Config):
    """No options."""


class EchoBot:
    """Says what you said."""

    summary = "Says what you said."

    def __init__(self) -> None:
        self.spec = "echo"

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        return [Reply(ask.last, Provenance(self.spec, seed=ask.seed)) for ask in asks]


def talk(spec: str, text: str) -> Reply:
    bot: Bot = make_bot(spec)
    ana = Persona(("I keep bees.",), name="Ana")
    dialogue = Dialogue("d", (Turn("you", text),), {"bot": ana})
    reply = bot.reply([Ask(dialogue, speaker="bot", seed=1)])[0]
    best: Candidate | None = max(reply.candidates, key=lambda one: one.score or 0.0, default=None)
    assert best is None or isinstance(best.text, str)
    return reply


def rank(bots: tuple[str, ...], folder: Path) -> dict[tuple[str, str, str], Estimate]:
    run: JudgedRun = run_rank(RankConfig(bots=bots, data="sample", limit=50))
    same: JudgedRun = load_run(folder)
    return {**run.estimates(), **same.estimates()}


def scores(bot: Bot, asks: list[Ask]) -> list[list[float]]:
    return bot.score(asks, [["yes", "no"]] * len(asks)) if isinstance(bot, RankingBot) else []


def configs(folder: Path) -> list[Config]:
    consent = Consent(text=Localised({"en": "You may stop at any time."}))
    study = StudyConfig(
        title=Localised({"en": "Two bots"}),
        protocol="chat",
        bots=(StudyBot(name="ours", spec="tfidf"), StudyBot(name="floor", spec="generic")),
        instructions=Localised({"en": "Talk."}),
        consent=consent,
        pay=Pay(per_hour=15),
    )
    recipes = [FinetuneRecipe(out=folder), WordVectorRecipe(epochs=1), EncoderRecipe(), GroundingRecipe(data="sample")]
    talking = [TfidfOptions(candidates=5), SelfplayConfig(bots=("tfidf",)), ServeConfig(port=8001)]
    return [study, *recipes, *talking, MineConfig(source="sample"), HybridConfig(), TrainOptions(recipe="starspace")]


echo: Bot = EchoBot()
metric: Metric = METRICS.get("f1")
words: int = sum(len(turn.text.split()) for dialogue in load_dialogues("sample") for turn in dialogue.turns)
