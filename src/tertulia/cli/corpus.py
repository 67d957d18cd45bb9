"""`tertulia corpus ...`: list, get, show, stats, convert; the other commands have modules of their own."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tertulia.cli.command import AsJson, command
from tertulia.cli.ending import prepare_outputs
from tertulia.cli.output import MISSING, Bars, err, out, print_json, print_problems, print_table
from tertulia.cli.show import show_dialogue, show_exchange, show_sample
from tertulia.core.codec import Problems, dialogue_to_json, exchange_to_json
from tertulia.core.dialogue import Dialogue, Exchange, Json
from tertulia.core.errors import UnknownName, keeping
from tertulia.core.registry import Row
from tertulia.core.text import plural
from tertulia.corpus.catalog import CATALOG, RECORD, GetConfig, get_dataset
from tertulia.corpus.config import ReadConfig, ShowConfig
from tertulia.corpus.convert import ConvertConfig, convert_corpus
from tertulia.corpus.load import SAMPLE, corpus_in, holds, load_dialogues, load_exchanges
from tertulia.corpus.readers.base import AnyReader, Holds, Item
from tertulia.corpus.registry import READERS
from tertulia.corpus.stats import StatsConfig, sample_stats, stats_of
from tertulia.corpus.write import written_as

_BUNDLED = "the bundled corpus: use this name wherever a corpus is expected"
_PARQUET = "Tertulia's own dialogues in Parquet"


def list_formats(json: AsJson = False) -> None:
    """List the formats that can be read and written, and the corpora that `get` can download."""
    formats = [_format(row, reader) for row, reader in READERS.usable()]
    formats.append({"name": "parquet", "holds": "dialogues", "written": [".parquet"], "summary": _PARQUET})
    bundled = {"name": SAMPLE, "licence": "CC0-1.0", "format": "", "what": _BUNDLED}
    corpora = [
        bundled,
        *({"name": d.name, "licence": d.licence, "format": d.format, "what": d.description} for d in CATALOG.values()),
    ]
    if json:
        print_json({"formats": formats, "corpora": corpora})
        return
    print_table(
        ("format", "contains", "written as", "description"),
        [(f["name"], f["holds"], _shorten(f["written"]), f["summary"]) for f in formats],
        left=True,
    )
    out.print()
    print_table(
        ("corpus", "format", "licence", "description"),
        [(c["name"], c["format"] or MISSING, c["licence"], c["what"]) for c in corpora],
        left=True,
    )
    out.print("\nDownload one with: tertulia corpus get NAME", markup=False)


def _shorten(endings: list[str]) -> str:
    """The endings without compressed variants."""
    return " ".join(e for e in endings if not e.endswith((".gz", ".ndjson"))) or MISSING


def _format(row: Row, reader: AnyReader) -> dict[str, Json]:
    return {"name": row.name, "holds": reader.holds, "written": list(written_as(reader)), "summary": row.summary}


@command(GetConfig)
def get_corpus(settings: GetConfig, *, as_json: bool) -> None:
    """Download, verify and unpack a well-known corpus; each has its own licence."""
    if settings.name not in CATALOG:
        raise UnknownName("corpus", settings.name, CATALOG)
    dataset = CATALOG[settings.name]
    err.print(f"{dataset.name}: {dataset.description}. Licence: {dataset.licence}.", markup=False)
    folder = settings.out or Path("corpora") / settings.name
    prepare_outputs(settings.model_copy(update={"out": folder}), given=settings.model_fields_set)
    with keeping(f"What was downloaded so far is kept in {folder}."), Bars() as bars:
        result = get_dataset(settings.name, folder, bars)
    corpus = corpus_in(result.folder)
    if as_json:
        print_json(
            {
                "corpus": dataset.name,
                "licence": dataset.licence,
                "folder": str(result.folder),
                "format": dataset.format,
                "corpus_folder": str(corpus) if corpus else None,
                "files": len(result.files),
                "downloaded": result.downloaded,
                "hash_recorded_on_first_use": result.unverified,
            }
        )
        return
    out.print(f"{plural(len(result.files), 'file')} in {result.folder}", markup=False)
    if result.unverified:
        files = ", ".join(result.unverified)
        out.print(
            f"No hash is published for {files}. It is recorded in {RECORD} and verified from now on.", markup=False
        )
    if dataset.format and corpus:
        out.print(f"Show it with: tertulia corpus show {corpus} --format {dataset.format}", markup=False)


@command(ShowConfig)
def show(settings: ShowConfig, *, as_json: bool) -> None:
    """Show dialogues or exchanges in a readable form."""
    if settings.target == SAMPLE and not as_json and not settings.split and settings.part != "dialogues":
        show_sample(settings)
        return
    problems = Problems()
    selected = list(islice(_read(settings, problems), settings.skip, settings.skip + settings.limit))
    if as_json:
        print_json([dialogue_to_json(i) if isinstance(i, Dialogue) else exchange_to_json(i) for i in selected])
    else:
        for item in selected:
            if isinstance(item, Dialogue):
                show_dialogue(item)
            else:
                show_exchange(item)
        if not selected:
            err.print(f"Nothing to show: {_nothing(settings)}", markup=False, soft_wrap=True)
    print_problems(problems)


def _nothing(settings: ShowConfig) -> str:
    where = f"{settings.target}, {settings.split}," if settings.split else settings.target
    return f"{where} has no more than the {settings.skip} to skip." if settings.skip else f"{where} is empty."


@command(StatsConfig)
def stats(settings: StatsConfig, *, as_json: bool) -> None:
    """Compute statistics of a corpus."""
    figures: dict[str, Json]
    problems = Problems()
    if settings.target == SAMPLE and not settings.split:
        figures = sample_stats()
    else:
        with Bars() as bars:
            result = stats_of(settings, bars)
        problems = result.problems
        figures = result.stats.as_json() | {"damaged_lines": problems.count}
    if as_json:
        print_json(figures)
    else:
        print_table(
            ("", settings.target),
            [(k.replace("_", " "), f"{v:.2f}" if isinstance(v, float) else v) for k, v in _flatten(figures).items()],
        )
    print_problems(problems)


@command(ConvertConfig)
def convert(settings: ConvertConfig, *, as_json: bool) -> None:
    """Convert a corpus to another format."""
    with Bars() as bars:
        converted = convert_corpus(settings, bars)
    if as_json:
        figures = {converted.kind: converted.count, "damaged_lines": converted.problems.count}
        replaced = {"replaced": dict(converted.replaced)} if settings.scrub else {}
        repeated = {"role_repeated": converted.repeating} if converted.repeating else {}
        print_json({"out": str(settings.out)} | figures | replaced | repeated)
    else:
        if settings.scrub:
            print_table(("replaced", ""), converted.replaced.most_common())
        written = plural(converted.count, converted.kind.removesuffix("s"))
        out.print(f"Wrote {written} to {settings.out}", markup=False)
    if converted.repeating:
        err.print(
            f"In {plural(converted.repeating, 'dialogue')} one role has two turns in a row: for trainers that need"
            " alternation, convert with --merge-turns.",
            markup=False,
        )
    print_problems(converted.problems)


def _holds(settings: ReadConfig) -> Holds:
    return holds(settings.target, split=settings.split, format=settings.format)


def _read(settings: ReadConfig, problems: Problems) -> Iterator[Item]:
    return _dialogues(settings, problems) if _holds(settings) == "dialogues" else _exchanges(settings, problems)


def _dialogues(settings: ReadConfig, problems: Problems) -> Iterator[Dialogue]:
    skipped = None if settings.strict else problems
    return load_dialogues(settings.target, split=settings.split, format=settings.format, problems=skipped)


def _exchanges(settings: ReadConfig, problems: Problems) -> Iterator[Exchange]:
    skipped = None if settings.strict else problems
    return load_exchanges(settings.target, split=settings.split, format=settings.format, problems=skipped)


def _flatten(figures: dict[str, Json], prefix: str = "") -> dict[str, Json]:
    """Nested counts as one level, with the names of the levels joined."""
    flat: dict[str, Json] = {}
    for name, value in figures.items():
        flat |= _flatten(value, f"{prefix}{name}: ") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat
