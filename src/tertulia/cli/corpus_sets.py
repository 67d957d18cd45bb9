"""`tertulia corpus split`, `testset` and `silver`: splits, test sets for ranking, silver data for grounding."""

from collections import Counter
from collections.abc import Callable, Sequence

from tertulia.cli.command import command
from tertulia.cli.output import Bars, out, print_json, print_problems, print_table
from tertulia.core.codec import Problems
from tertulia.core.dialogue import Dialogue, Exchange, Turn
from tertulia.core.progress import Progress
from tertulia.core.reply import Ask
from tertulia.core.text import plural
from tertulia.corpus.config import ReadConfig
from tertulia.corpus.load import load_dialogues
from tertulia.corpus.origin import record_origin
from tertulia.corpus.silver.generate import SilverBaseConfig, SilverConfig, silver_exchanges
from tertulia.corpus.silver.sources import grounded_dialogues
from tertulia.corpus.silver.written import ReplyGenerator, WrittenPrompt
from tertulia.corpus.split import SplitConfig
from tertulia.corpus.split_files import split_corpus
from tertulia.corpus.testsets import TestSetConfig, make_test_set, save_test_set, save_triples
from tertulia.corpus.write import check_target, save_exchanges
from tertulia.talk.spec import make_bot


@command(SplitConfig)
def split(settings: SplitConfig, *, as_json: bool) -> None:
    """Split a corpus into train, valid and test; no conversation is in two of them, and near-duplicates are counted."""
    with Bars() as bars:
        outcome = split_corpus(settings, bars)
    figures = {
        "dialogues": outcome.counts,
        "near_duplicates_of_train": outcome.near_duplicates,
        "speakers_in_two_splits": outcome.shared_authors,
        "largest_group": outcome.largest_group,
    }
    if as_json:
        print_json(figures | {"out": str(settings.out), "damaged_lines": outcome.problems.count})
    else:
        rows = [(n, count, outcome.near_duplicates.get(n, "")) for n, count in outcome.counts.items()]
        print_table(("split", "dialogues", "near-duplicates of train"), rows)
        shared = plural(outcome.shared_authors, "speaker")
        out.print(f"In more than one split: {shared}. Wrote to {settings.out}", markup=False)
    print_problems(outcome.problems)


@command(TestSetConfig)
def ranking_set(settings: TestSetConfig, *, as_json: bool) -> None:
    """Create a test set for next-reply ranking, as in the Ubuntu papers: one item per dialogue; or training triples."""
    problems = Problems()
    with Bars() as bars:
        bars.step("Reading")
        dialogues = _read(settings, problems)
        if settings.triples:
            bars.step("Drawing false replies")
            count = save_triples(dialogues, settings.out, seed=settings.seed)
        else:
            bars.step("Drawing contexts and distractors")
            items = make_test_set(dialogues, settings)
            save_test_set(items, settings.out)
    record_origin(settings.out, command="testset", source=settings.target)
    if settings.triples:
        if as_json:
            print_json({"out": str(settings.out), "triples": count})
        else:
            out.print(f"Wrote {count} training triples, half of them with a false reply, to {settings.out}")
        print_problems(problems)
        return
    mean = sum(len(item.exchange.context) for item in items) / len(items)
    if as_json:
        print_json({"out": str(settings.out), "items": len(items), "mean_context_turns": mean})
    else:
        out.print(f"Wrote {plural(len(items), 'item')} with {mean:.1f} turns of context on average to {settings.out}")
    print_problems(problems)


@command(SilverConfig)
def silver(settings: SilverConfig, *, as_json: bool) -> None:
    """Make labelled data for grounding classifiers from dialogues with evidence (BEGIN's recipe)."""

    def make(problems: Problems, progress: Progress) -> list[Exchange]:
        write = _writer(settings.bot, settings.seed) if settings.bot else None
        return silver_exchanges(grounded_dialogues(settings, problems), settings, write=write, progress=progress)

    save_silver(settings, make, as_json=as_json)


def save_silver(
    settings: SilverBaseConfig, make: Callable[[Problems, Progress], list[Exchange]], *, as_json: bool
) -> None:
    """Make silver data, save it and print how much there is of each operation."""
    check_target(settings.out, format="exchanges")
    problems = Problems()
    with Bars() as bars:
        bars.step("Reading")
        exchanges = make(problems, bars)
        save_exchanges(exchanges, settings.out)
    counts = Counter((str(e.label), str(e.response.meta["operation"])) for e in exchanges)
    rows = sorted((label, operation, count) for (label, operation), count in counts.items())
    if as_json:
        names = ("label", "operation", "examples")
        print_json({"out": str(settings.out), "made": [dict(zip(names, row, strict=True)) for row in rows]})
    else:
        print_table(("label", "operation", "examples"), rows)
        out.print(f"Wrote {plural(len(exchanges), 'example')} to {settings.out}")
    print_problems(problems)


def _writer(spec: str, seed: int) -> ReplyGenerator:
    """A bot as a writer of replies: the evidence, if there is any, is part of what it is told."""
    bot = make_bot(spec, reference=True)

    def write(prompts: Sequence[WrittenPrompt]) -> list[str]:
        texts = [f"{prompt.evidence}\n\n{prompt.previous}".strip() or "Hello." for prompt in prompts]
        asks = [Ask(Dialogue(f"silver-{i}", (Turn("user", text),)), seed=seed + i) for i, text in enumerate(texts)]
        return [reply.text for reply in bot.reply(asks)]

    return write


def _read(settings: ReadConfig, problems: Problems) -> list[Dialogue]:
    skipped = None if settings.strict else problems
    return list(load_dialogues(settings.target, split=settings.split, format=settings.format, problems=skipped))
