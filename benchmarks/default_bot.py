"""The default bot `companion` beside plain SmolLM2, the retrieval bot and GenericBot, on text that we wrote ourselves.

Parts (--part): `perplexity` of the sample's valid split (own persona, both speakers), for the language models, SmolLM2
also in the layout that the companion was trained with; `replies` in contexts of the sample's benchmark, which no bot
was trained on (equally many of one, two and three turns, drawn by the seed, no persona given); `conversations` of each
bot with itself, with openers of sample_openers.py and personas of the valid split; `speed`, CPU time of a reply on one
thread; `openers`, the table of docs/sample.md: unedited replies to everyday openers; `character`, replies to questions
about the companion's own persona, judged by rules (entailed by the persona, contradicting it), for which --bots may
also be a specification such as `companion?temperature=0.8`.

What a bot said and its figures are kept in --out, and not computed again. Openers and replies are ours (CC0).
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import combinations
from pathlib import Path
from random import Random
from statistics import median

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from common import finish
from sample_openers import openers
from tertulia import sample
from tertulia.artefacts.files import write_json
from tertulia.core.dialogue import Dialogue, Exchange, Turn
from tertulia.core.estimate import Estimate
from tertulia.core.reply import Ask
from tertulia.corpus.load import save_dialogues
from tertulia.judge.config import PerplexityConfig, RepliesConfig
from tertulia.judge.conversations import ConversationsConfig, run_conversations
from tertulia.judge.perplexity import run_perplexity
from tertulia.judge.reply_metrics import run_replies
from tertulia.metrics.diversity import distinct
from tertulia.metrics.significance import bootstrap_mean
from tertulia.models.hf.finetuned import FinetunedGenerator
from tertulia.models.hf.lora import TuningConfig, merge
from tertulia.models.threads import use_threads
from tertulia.talk.bot import Bot
from tertulia.talk.bots.companion import default_persona
from tertulia.talk.bots.dialogue_model import DialogueModelBot
from tertulia.talk.bots.huggingface import HuggingFaceOptions
from tertulia.talk.selfplay import Scene, Seat, converse
from tertulia.talk.spec import make_bot

BOTS = ("companion", "smollm2", "tfidf", "generic")
MODELS = ("companion", "smollm2", "smollm2-plain")
CONVERSATION_METRICS = (
    "words per turn",
    "loop",
    "self-repetition",
    "parroting",
    "turns contradicting persona",
    "turns contradicting own turns",
    "turns entailed by persona",
)
CHARACTER_METRICS = ("turns contradicting persona", "turns entailed by persona", "words per turn")
QUESTIONS = (
    "What's your name?",
    "What do you do for a living?",
    "Where do you work?",
    "What do you bake in the morning?",
    "Do you have any pets?",
    "What is your dog called?",
    "Do you sing?",
    "What do you do on Thursdays?",
    "Do you live by the sea?",
    "Tell me about yourself.",
)
"""What Nuria's persona has an answer to."""
REPLY_METRICS = ("f1", "words per reply", "relatedness", "specificity by idf", "genericness")
Figures = dict[str, list[float | None]]
"""Value, low and high by name."""


def main() -> None:
    """Compute what is missing, print everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for what is kept")
    parser.add_argument("--part", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--bots", nargs="*", default=list(BOTS), help="of " + ", ".join(BOTS))
    parser.add_argument("--limit", type=int, default=8, help="dialogues of the valid split; 0 for all")
    parser.add_argument("--contexts", type=int, default=60, help="contexts to reply in")
    parser.add_argument("--conversations", type=int, default=20)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--openers", type=int, default=20)
    parser.add_argument("--character", type=int, default=3, help="times that each question is asked")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="two of everything")
    args = parser.parse_args()
    if args.quick:
        args.limit, args.contexts, args.conversations, args.turns, args.openers, args.character = 2, 3, 2, 4, 2, 1
    args.out.mkdir(parents=True, exist_ok=True)
    use_threads(1)
    figures: dict[str, float] = {}
    for part in args.part:
        names = [name for name in MODELS if name.partition("-")[0] in args.bots] if part == "perplexity" else args.bots
        rows = {bot: kept(part, bot, args) for bot in names}
        print_table(part, rows)
        figures |= {key: value for bot, row in rows.items() for key, value in flat(bot, row)}
    settings = ("limit", "contexts", "conversations", "turns", "openers", "character", "seed", "quick")
    finish("default_bot", figures, {name: getattr(args, name) for name in settings})


def flat(bot: str, figures: Figures) -> Iterator[tuple[str, float]]:
    """Every number under a name of its own; none where there is no value or no interval."""
    for name, numbers in figures.items():
        for end, number in zip(("", "_low", "_high"), numbers, strict=True):
            if number is not None:  # JSON has no nan
                yield f"{bot}_{name}{end}".replace(" ", "_"), number


def kept(part: str, bot: str, args: argparse.Namespace) -> Figures:
    """The figures of a bot, from an earlier run with the same settings if there is one."""
    compute, settings = PARTS[part]
    file = args.out / "-".join([part, name_of(bot), *(f"{name}{getattr(args, name)}" for name in (*settings, "seed"))])
    file = file.with_name(f"{file.name}.json")
    if not file.is_file():
        write_json(file, compute(bot, args))
    return dict(json.loads(file.read_text(encoding="utf-8")))


def perplexity(bot: str, args: argparse.Namespace) -> Figures:
    """Perplexity per word of the valid split; `smollm2-plain` is SmolLM2 in the companion's layout."""
    judging = PerplexityConfig(runs=(bot,), data="sample", persona=("own",), limit=args.limit or None, seed=args.seed)
    judged = run_perplexity(judging, models=[plain_smollm2()] if bot == "smollm2-plain" else [])
    return {metric: row(estimate) for (_, _, metric), estimate in judged.estimates().items()}


def plain_smollm2() -> DialogueModelBot:
    """SmolLM2 as it is, in plain text."""
    model = FinetunedGenerator.untrained(TuningConfig(rank=1, format="plain"), "smollm2")
    merge(model.model)  # adapters that are not trained change nothing
    return DialogueModelBot(model.eval(), HuggingFaceOptions(filters="none"), spec="smollm2-plain")


def replies(bot: str, args: argparse.Namespace) -> Figures:
    """Replies in contexts of the benchmark, judged without people."""
    contexts = benchmark_contexts(args.contexts, args.seed)
    texts = []
    for start in range(0, len(contexts), 30):
        part = contexts[start : start + 30]
        texts += [r.text for r in loaded(bot).reply([Ask(one.dialogue, "bot", args.seed) for one in part])]
    file = args.out / f"replies-{bot}.jsonl"
    with file.open("w", encoding="utf-8") as out:
        for one, text in zip(contexts, texts, strict=True):
            context = [turn.text for turn in one.context]
            record = {"id": one.id, "context": context, "reply": text, "reference": one.response.text, "bot": bot}
            out.write(json.dumps(record, ensure_ascii=False) + "\n")
    judged = run_replies(RepliesConfig(given=file, metrics=REPLY_METRICS, seed=args.seed))
    figures = {metric: row(estimate) for (_, _, metric), estimate in judged.estimates().items()}
    return {f"reply {name}": value for name, value in (figures | text_figures(texts)).items()}


def benchmark_contexts(count: int, seed: int) -> list[Exchange]:
    """Equally many contexts of each length, drawn by the seed."""
    rng = Random(seed)
    by_length = [[one for one in sample.benchmark() if len(one.context) == length] for length in (1, 2, 3)]
    return [one for group in by_length for one in rng.sample(group, count // 3)]


def conversations(bot: str, args: argparse.Namespace) -> Figures:
    """A bot talks to itself, with two personas of the valid split."""
    rng = Random(args.seed)
    people = rng.sample(list(combinations(sample.personas("valid"), 2)), args.conversations)
    first_turns = rng.sample(openers(), args.conversations)
    scenes = [
        Scene(f"default-{args.seed}-{i}", opener, pair, {"bots": [bot]})
        for i, (opener, pair) in enumerate(zip(first_turns, people, strict=True))
    ]
    seats = (Seat("one", loaded(bot)), Seat("two", loaded(bot)))
    dialogues = converse(seats, scenes, turns=args.turns)
    file = args.out / f"conversations-{bot}.jsonl"
    save_dialogues(dialogues, file)
    judged = run_conversations(ConversationsConfig(files=(str(file),), metrics=CONVERSATION_METRICS, by="file"))
    figures = {metric: row(estimate) for (_, _, metric), estimate in judged.estimates().items()}
    said = [(turn.text, d.id) for d in dialogues for turn in d.turns[1:]]
    return figures | text_figures([text for text, _ in said], [name for _, name in said])


def text_figures(texts: list[str], clusters: list[str] | None = None) -> Figures:
    """Share of turns with a question, and how varied all of them are."""
    asks = bootstrap_mean(np.array([float("?" in text) for text in texts]), clusters)
    return {"share with a question": row(asks), "distinct-2": row(distinct(texts, 2))}


def speed(bot: str, args: argparse.Namespace) -> Figures:
    """Median CPU seconds of a reply on one thread, to a first message and after nine turns, one ask at a time."""
    dialogue = sample.dialogues("valid")[0]
    asks = {
        "first turn": [Ask(Dialogue("d", (Turn("user", text),)), "bot", args.seed) for text in openers()[:5]],
        "tenth turn": [Ask(Dialogue("d", dialogue.turns[:9]), dialogue.turns[9].speaker, seed) for seed in range(5)],
    }
    figures: Figures = {}
    streamed = [""] if bot in ("tfidf", "generic") else ["", "?method=sample"]
    for options in streamed:
        one = loaded(f"{bot}{options}")
        one.reply(asks["first turn"][:1])  # what is compiled or loaded on first use
        for name, some in asks.items():
            times = [cpu_seconds(one, ask) for ask in some]
            figures[f"CPU s{options}, {name}"] = [median(times), min(times), max(times)]
    return figures


def cpu_seconds(bot: Bot, ask: Ask) -> float:
    """CPU time of a reply."""
    start = time.process_time()
    bot.reply([ask])
    return time.process_time() - start


def first_replies(bot: str, args: argparse.Namespace) -> Figures:
    """Replies to everyday openers, for the table of docs/sample.md."""
    texts = openers()[: args.openers]
    asks = [Ask(Dialogue(str(i), (Turn("user", text),)), "bot", args.seed) for i, text in enumerate(texts)]
    write_json(args.out / f"openers-{bot}.json", [reply.text for reply in loaded(bot).reply(asks)])
    return {"openers": [float(len(asks)), float("nan"), float("nan")]}


def character(bot: str, args: argparse.Namespace) -> Figures:
    """Replies to questions about the companion's persona, every bot as Nuria."""
    person = {"bot": default_persona()}
    asks = [
        Ask(Dialogue(f"{seed}-{i}", (Turn("user", question),), person), "bot", args.seed + seed)
        for seed in range(args.character)
        for i, question in enumerate(QUESTIONS)
    ]
    replies = [loaded(bot).reply([ask])[0] for ask in asks]
    said = [
        Dialogue(a.dialogue.id, (*a.dialogue.turns, Turn("bot", r.text)), person, meta={"bot": bot})
        for a, r in zip(asks, replies, strict=True)
    ]
    file = args.out / f"character-{name_of(bot)}.jsonl"
    save_dialogues(said, file)
    judged = run_conversations(
        ConversationsConfig(files=(str(file),), metrics=CHARACTER_METRICS, by="file", speaker="bot")
    )
    return {metric: row(estimate) for (_, _, metric), estimate in judged.estimates().items()}


def name_of(bot: str) -> str:
    """A specification as part of a file name."""
    return "".join(c if c.isalnum() or c in ".-" else "_" for c in bot)


@cache
def loaded(spec: str) -> Bot:
    """The bot of a specification, loaded once."""
    return make_bot(spec)


def row(estimate: Estimate) -> list[float | None]:
    """An estimate as it is kept."""
    return [estimate.value, estimate.low, estimate.high]


def print_table(part: str, rows: Mapping[str, Figures]) -> None:
    """One line a figure, one column a bot."""
    print(f"\n{part:<32}" + "".join(f"{bot:>26}" for bot in rows))
    for name in dict.fromkeys(name for figures in rows.values() for name in figures):
        cells = [_cell(figures.get(name)) for figures in rows.values()]
        print(f"{name:<32}" + "".join(f"{cell:>26}" for cell in cells), flush=True)


def _cell(figure: list[float | None] | None) -> str:
    if figure is None:
        return "-"
    value, low, high = (float("nan") if one is None else one for one in figure)
    return f"{value:.3f}" if low != low else f"{value:.3f} [{low:.3f}, {high:.3f}]"


PARTS: dict[str, tuple[Callable[[str, argparse.Namespace], Figures], tuple[str, ...]]] = {
    "perplexity": (perplexity, ("limit",)),
    "replies": (replies, ("contexts",)),
    "conversations": (conversations, ("conversations", "turns")),
    "speed": (speed, ()),
    "openers": (first_replies, ("openers",)),
    "character": (character, ("character",)),
}
"""What computes each part, and the settings that its figures depend on."""

if __name__ == "__main__":
    main()
