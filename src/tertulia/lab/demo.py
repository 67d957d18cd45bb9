"""The complete path on the bundled sample: mine, index, rank, let bots talk, report. Small data, the real machinery."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from tertulia import sample
from tertulia.artefacts.files import save_config
from tertulia.artefacts.outputs import Output
from tertulia.core.config import Config
from tertulia.core.dialogue import Dialogue
from tertulia.core.errors import TertuliaError
from tertulia.core.estimate import Estimate
from tertulia.core.progress import Progress, Silent
from tertulia.core.text import words
from tertulia.corpus.load import load_dialogues, save_dialogues
from tertulia.corpus.mine import MineConfig, MineOutcome, mine
from tertulia.corpus.stats import CorpusStats, corpus_stats
from tertulia.judge.config import RankConfig
from tertulia.judge.rank import run_rank
from tertulia.judge.report import identify, save_judged
from tertulia.judge.runs import JudgedRun, describe_data
from tertulia.metrics.diversity import distinct
from tertulia.talk.bot import Bot
from tertulia.talk.selfplay import Seat, SelfplayConfig, selfplay
from tertulia.talk.spec import make_bot
from tertulia.talk.tfidf_index import MessageReply, TfidfIndex, pairs_of

DEMO_REPEATS = 10
"""The sample's forum is small: a text that occurs ten times there is like one that occurs a hundred times elsewhere."""
MIN_FORUM_WORDS = 6
COMPANION = "companion"
"""The bot to talk to, a language model; it also talks with the retrieval bot."""


class DemoConfig(Config):
    """The demo's few options."""

    out: Annotated[Path, Output("folder", "own", known_by=("mined",))] = Path("tertulia-demo")
    """Folder for everything the demo creates."""
    host: str = "127.0.0.1"
    """Address to serve the chat page on at the end."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to serve the chat page on; 0 picks a free one."""
    serve: bool = True
    """Whether to serve the chat page at the end."""
    conversations: int = Field(default=2, ge=1)
    """Number of conversations between the two bots."""
    turns: int = Field(default=8, ge=2)
    """Number of turns in each conversation."""
    seed: int = 0
    """Random seed."""


@dataclass(frozen=True, slots=True)
class DemoIndex:
    """The retrieval bot's index, and how many of its replies come from where."""

    index: TfidfIndex
    from_dialogues: int
    from_forum: int


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """Everything in the report."""

    corpus: CorpusStats
    mined: MineOutcome
    index: TfidfIndex
    ranking: JudgedRun
    conversations: tuple[Dialogue, ...]
    distinct: dict[str, Estimate]
    """distinct-2 of what each bot said."""
    without_model: str
    """Why the language models did not take part; empty when they did."""
    retrieval: str
    """Specification of the retrieval bot."""
    bots: tuple[str, ...]
    """Specifications of the bots to serve, the one to talk to first."""


def run_demo(config: DemoConfig, progress: Progress | None = None) -> DemoOutcome:
    """Run all steps and save the results in the folder; `tertulia.lab.demo_report` writes the report."""
    progress = progress or Silent()
    config.out.mkdir(parents=True, exist_ok=True)
    save_config(config, config.out / "config.toml")
    mined = mine(MineConfig(out=config.out / "mined", max_repeats=DEMO_REPEATS, dialogues=True), progress)
    progress.step("Indexing the retrieval bot")
    indexed = demo_index(mined)
    indexed.index.save(config.out / "tfidf")
    progress.note(f"{indexed.from_dialogues} replies from dialogues, {indexed.from_forum} from the forum")
    bots = (f"tfidf:{config.out / 'tfidf'}", "generic")
    ranking = run_rank(RankConfig(bots=bots, seed=config.seed), progress)
    progress.step("Reporting the ranking")
    ranking = identify(ranking, data=describe_data("sample", "valid"))
    save_judged(ranking, config.out / "ranking")
    retrieval = make_bot(bots[0])
    partner, reason = _language_model(progress)
    conversations = _converse(retrieval, partner, config, progress)
    save_dialogues(conversations, config.out / "selfplay.jsonl")
    speakers = sorted({turn.speaker for dialogue in conversations for turn in dialogue.turns})
    return DemoOutcome(
        corpus=corpus_stats(sample.dialogues()),
        mined=mined,
        index=indexed.index,
        ranking=ranking,
        conversations=tuple(conversations),
        distinct={
            name: distinct((t.text for d in conversations for t in d.turns if t.speaker == name), 2)
            for name in speakers
        },
        without_model=reason,
        retrieval=str(config.out / "tfidf"),
        bots=demo_bots(config.out, with_models=not reason),
    )


def demo_bots(out: Path, *, with_models: bool) -> tuple[str, ...]:
    """The bots to serve: the one worth talking to first, then what to compare it with."""
    models = (COMPANION, "smollm2") if with_models else ()
    return (*models, str(out / "tfidf"), "generic")


def demo_index(mined: MineOutcome) -> DemoIndex:
    """The retrieval bot's index: the training dialogues and what was mined from the forum.

    Of the forum only replies to messages of some length: a short message depends on what was said before it.
    """
    dialogues = [pair for dialogue in load_dialogues("sample", split="train") for pair in pairs_of(dialogue)]
    mined_pairs = [(d.turns[-2].text, d.turns[-1].text, d.id) for d in load_dialogues(mined.pairs)]
    forum = [MessageReply(*pair) for pair in mined_pairs if len(words(pair[0])) >= MIN_FORUM_WORDS]
    return DemoIndex(TfidfIndex.from_pairs(dialogues + forum), len(dialogues), len(forum))


def _language_model(progress: Progress) -> tuple[Bot | None, str]:
    """The companion, or the reason why it is missing: the demo works without it, but says so."""
    progress.step("Loading the language model (the first time takes half a minute)")
    try:
        if importlib.util.find_spec("torch") is None:
            return None, "torch is not installed: pip install 'tertulia[models]'"
        return make_bot(COMPANION), ""
    except TertuliaError as error:
        progress.note(str(error))
        return None, str(error)


def _converse(retrieval: Bot, partner: Bot | None, config: DemoConfig, progress: Progress) -> list[Dialogue]:
    """Conversations of the retrieval bot with the language model or, without one, with itself."""
    other = Seat(COMPANION, partner) if partner else Seat("tfidf too", retrieval)
    people = sample.personas("valid")
    pairs = list(zip(people[::2], people[1::2], strict=False))
    play = SelfplayConfig(
        bots=(retrieval.spec, other.bot.spec), conversations=config.conversations, turns=config.turns, seed=config.seed
    )
    progress.step(f"tfidf talks with {other.name}", total=config.conversations * (config.turns - 1))
    return selfplay((Seat("tfidf", retrieval), other), play, personas=pairs, progress=progress.advance)
