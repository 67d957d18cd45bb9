"""The whole path on the bundled sample: mine, index, rank, let bots talk, report. Small data, the real machinery."""

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from tertulia import sample
from tertulia.core.config import Config, save
from tertulia.core.dialogue import Dialogue
from tertulia.core.errors import TertuliaError
from tertulia.core.estimate import Estimate
from tertulia.core.progress import Progress, Silent
from tertulia.core.text import words
from tertulia.corpus.load import load_dialogues, save_dialogues
from tertulia.corpus.mine import MineConfig, MineOutcome, mine
from tertulia.corpus.stats import CorpusStats, corpus_stats
from tertulia.judge.rank import RankConfig, RankResult, judge_rank, rank_tasks
from tertulia.metrics.diversity import distinct
from tertulia.talk.bot import Bot
from tertulia.talk.lexical import Pair, TfidfIndex, pairs_of
from tertulia.talk.selfplay import Seat, SelfplayConfig, selfplay
from tertulia.talk.spec import make_bot

DEMO_REPEATS = 10
"""The sample's forum is small: a text that comes back ten times there is what one of a hundred times is elsewhere."""
MIN_FORUM_WORDS = 6


class DemoConfig(Config):
    """The demo's few knobs."""

    out: Path = Path("tertulia-demo")
    """Folder for everything the demo makes."""
    host: str = "127.0.0.1"
    """Address to serve the chat page on at the end."""
    port: int = Field(8000, ge=0, le=65535)
    """Port to serve the chat page on; 0 takes any free one."""
    serve: bool = True
    """Whether to serve the chat page at the end."""
    conversations: int = Field(2, ge=1)
    """How many conversations the two bots have."""
    turns: int = Field(8, ge=2)
    """Turns in each of them."""
    seed: int = 0
    """For distractors, sampling and ties."""


@dataclass(frozen=True, slots=True)
class DemoIndex:
    """The retrieval bot's index, and where its replies come from."""

    index: TfidfIndex
    talked: int
    forum: int


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """Everything the report tells."""

    corpus: CorpusStats
    mined: MineOutcome
    index: TfidfIndex
    ranking: dict[str, RankResult]
    rank_config: RankConfig
    chance: float
    talks: tuple[Dialogue, ...]
    talk_distinct: dict[str, Estimate]
    without_model: str
    """Why the language model did not take part; empty when it did."""
    bots: tuple[str, ...]
    """Specifications of the bots to serve."""


def run_demo(config: DemoConfig, progress: Progress | None = None) -> DemoOutcome:
    """Do it all and leave the results in the folder; the report is `tertulia.judge.demo_report`'s work."""
    progress = progress or Silent()
    config.out.mkdir(parents=True, exist_ok=True)
    save(config, config.out / "config.toml")
    mined = mine(MineConfig(out=config.out / "mined", max_repeats=DEMO_REPEATS, dialogues=True), progress)
    progress.step("Indexing the retrieval bot")
    indexed = demo_index(mined)
    indexed.index.save(config.out / "tfidf")
    progress.note(f"{indexed.talked} replies from dialogues, {indexed.forum} from the forum")
    retrieval = make_bot(f"tfidf:{config.out / 'tfidf'}")
    rank_config = RankConfig(seed=config.seed)
    ranking = _rank({"tfidf": retrieval, "generic": make_bot("generic")}, rank_config, progress)
    (config.out / "ranking.json").write_text(json.dumps([r.as_json() for r in ranking.values()], indent=2))
    partner, why = _language_model(progress)
    talks = _talk(retrieval, partner, config, progress)
    save_dialogues(talks, config.out / "selfplay.jsonl")
    names = {turn.speaker for talk in talks for turn in talk.turns}
    return DemoOutcome(
        corpus=corpus_stats(sample.dialogues()),
        mined=mined,
        index=indexed.index,
        ranking=ranking,
        rank_config=rank_config,
        chance=1 / rank_config.candidates,
        talks=tuple(talks),
        talk_distinct={
            n: distinct((t.text for d in talks for t in d.turns if t.speaker == n), 2) for n in sorted(names)
        },
        without_model=why,
        bots=(str(config.out / "tfidf"), "generic", *(() if why else ("smollm2",))),
    )


def demo_index(mined: MineOutcome) -> DemoIndex:
    """The retrieval bot reads the training dialogues and what was mined from the forum.

    Of the forum only replies to messages of some length: a short one leans on what was said before it.
    """
    talked = [pair for dialogue in load_dialogues("sample", split="train") for pair in pairs_of(dialogue)]
    answered = [(d.turns[-2].text, d.turns[-1].text, d.id) for d in load_dialogues(mined.pairs)]
    forum = [Pair(*found) for found in answered if len(words(found[0])) >= MIN_FORUM_WORDS]
    return DemoIndex(TfidfIndex.from_pairs(talked + forum), len(talked), len(forum))


def _rank(bots: dict[str, Bot], config: RankConfig, progress: Progress) -> dict[str, RankResult]:
    tasks = rank_tasks(list(load_dialogues(config.data, split=config.split)), config)
    results = {}
    for name, bot in bots.items():
        progress.step(f"Ranking {len(tasks)} held-out replies with {name}", total=len(tasks))
        results[name] = judge_rank(bot, tasks, config, progress=progress.advance)
        progress.note(f"hits@1 of {config.candidates}: {results[name].figures['hits@1']}")
    return results


def _language_model(progress: Progress) -> tuple[Bot | None, str]:
    """SmolLM2, or the reason why not: the demo works without it, but says so."""
    progress.step("Waking the language model (the first time takes half a minute)")
    try:
        if importlib.util.find_spec("torch") is None:
            return None, "torch is not installed: pip install 'tertulia[models]'"
        return make_bot("smollm2"), ""
    except TertuliaError as error:
        progress.note(str(error))
        return None, str(error)


def _talk(retrieval: Bot, partner: Bot | None, config: DemoConfig, progress: Progress) -> list[Dialogue]:
    """Retrieval and language model talk; without the model, the retrieval bot talks to itself."""
    other = Seat("smollm2", partner) if partner else Seat("tfidf too", retrieval)
    people = sample.personas("valid")
    pairs = list(zip(people[::2], people[1::2], strict=False))
    play = SelfplayConfig(
        bots=(retrieval.spec, other.bot.spec), conversations=config.conversations, turns=config.turns, seed=config.seed
    )
    progress.step(f"tfidf talks with {other.name}", total=config.conversations * (config.turns - 1))
    return selfplay((Seat("tfidf", retrieval), other), play, personas=pairs, progress=progress.advance)
