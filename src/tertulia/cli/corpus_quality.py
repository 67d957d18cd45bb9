"""`tertulia corpus dedup`, `tag`, `filter`, `push`, `card`: a better corpus, with a reason for everything removed."""

from tertulia.cli.command import command
from tertulia.cli.output import Bars, out, print_json, print_problems, print_table
from tertulia.core.errors import UsageError
from tertulia.corpus.card import CARD, CardConfig, write_card
from tertulia.corpus.dedup import DedupConfig, remove_duplicates
from tertulia.corpus.derived import DeriveConfig, DeriveCounts
from tertulia.corpus.filter import FilterConfig, filter_corpus
from tertulia.corpus.push import PushConfig, push_corpus
from tertulia.corpus.tag import TagConfig, tag_corpus


@command(DedupConfig)
def dedup(settings: DedupConfig, *, as_json: bool) -> None:
    """Remove near-duplicates: of dialogues that are similar, the first one stays."""
    with Bars() as bars:
        counts = remove_duplicates(settings, bars)
    print_counts(settings, counts, as_json=as_json)


@command(TagConfig)
def tag(settings: TagConfig, *, as_json: bool) -> None:
    """Measure every dialogue (language, length, repetition, safety, personal data) and keep the results with it."""
    with Bars() as bars:
        counts = tag_corpus(settings, bars)
    print_counts(settings, counts, as_json=as_json)


@command(FilterConfig)
def filter_items(settings: FilterConfig, *, as_json: bool) -> None:
    """Keep what fulfils conditions on tags and no rule removes; replace personal data. Removals are counted by reason.

    Conditions consist of names of tags, numbers, texts in quotes, lists, comparisons, `in`, `and`, `or`, `not`.
    """
    with Bars() as bars:
        counts = filter_corpus(settings, bars)
    print_counts(settings, counts, as_json=as_json)


@command(PushConfig)
def push(settings: PushConfig, *, as_json: bool) -> None:
    """Write a corpus in the folder layout of the Hugging Face hub, with a dataset card; nothing is uploaded."""
    with Bars() as bars:
        counts = push_corpus(settings, bars)
    print_counts(settings, counts, as_json=as_json)
    if not as_json:
        out.print(f"Open it with: datasets.load_dataset({str(settings.out)!r})", markup=False)


@command(CardConfig)
def card(settings: CardConfig, *, as_json: bool) -> None:
    """Write the dataset card (README.md) of a corpus folder again, such as after an erasure."""
    if not settings.folder.is_dir():
        raise UsageError(f"{settings.folder} is not a folder.", hint="Give a folder that a corpus command made.")
    written = write_card(settings.folder, licence=settings.licence)
    if not written:
        raise UsageError(
            f"{settings.folder / CARD} was changed by hand and is left alone.", hint="Move it away to write a new one."
        )
    if as_json:
        print_json({"card": str(settings.folder / CARD)})
    else:
        out.print(f"Wrote {settings.folder / CARD}", markup=False)


def print_counts(settings: DeriveConfig | PushConfig, counts: DeriveCounts, *, as_json: bool) -> None:
    """Print what was read, removed for each reason, changed and kept."""
    if as_json:
        figures = {"read": counts.read, "kept": counts.kept, "removed": dict(counts.removed.most_common())}
        changed = dict(counts.changed.most_common())
        more = {"changed": changed, "damaged_lines": counts.problems.count, "out": str(settings.out)}
        print_json(figures | more)
    else:
        rows: list[tuple[str, int]] = [("read", counts.read)]
        rows += [(f"removed: {reason}", n) for reason, n in counts.removed.most_common()]
        rows += [(f"replaced: {kind}", n) for kind, n in counts.changed.most_common()]
        print_table(("", settings.target), [*rows, ("kept", counts.kept)])
        out.print(f"Wrote to {settings.out}", markup=False)
    print_problems(counts.problems)
