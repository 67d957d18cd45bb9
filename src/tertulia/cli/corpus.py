"""`tertulia corpus ...`: list, get, show, stats, convert, mine."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.text import Text

from tertulia.cli.corpus_mine import erase, mine
from tertulia.cli.corpus_sets import ranking_set, split
from tertulia.cli.output import (
    AsJson,
    Bars,
    ConfigFile,
    argument,
    err,
    option,
    out,
    print_json,
    print_table,
    tell_problems,
)
from tertulia.cli.show import show_dialogue, show_exchange, show_sample
from tertulia.core.codec import Problems, dialogue_to_json, exchange_to_json
from tertulia.core.config import resolve
from tertulia.core.dialogue import Dialogue, Exchange, Json
from tertulia.corpus.exchange_stats import exchange_stats
from tertulia.corpus.homes import HOMES, RECORD, get
from tertulia.corpus.load import SAMPLE, corpus_in, holds, load_dialogues, load_exchanges
from tertulia.corpus.readers.base import Holds, Item
from tertulia.corpus.sample_stats import sample_stats
from tertulia.corpus.stats import corpus_stats
from tertulia.corpus.table import READERS
from tertulia.corpus.tasks import ConvertConfig, GetConfig, ReadConfig, ShowConfig
from tertulia.corpus.write import save_dialogues, save_exchanges, written_as

app = typer.Typer()
app.command()(split)
app.command("testset")(ranking_set)
app.command()(mine)
app.command()(erase)
T = TypeVar("T")
_BUNDLED = "the bundled corpus: give this name wherever a corpus is wanted"
_PARQUET = "Tertulia's own dialogues in Parquet"

Split = Annotated[str | None, option(ReadConfig, "split", "--split")]
Format = Annotated[str | None, option(ReadConfig, "format", "--format")]
Strict = Annotated[bool | None, option(ReadConfig, "strict", "--strict")]


@app.command("list")
def list_formats(json: AsJson = False) -> None:
    """The formats that can be read and written, and the corpora that `get` knows."""
    formats = [_format(row.name, row.summary) for row in READERS.rows()]
    formats.append({"name": "parquet", "holds": "dialogues", "written": [".parquet"], "summary": _PARQUET})
    bundled = {"name": SAMPLE, "licence": "CC0-1.0", "format": "", "what": _BUNDLED}
    corpora = [
        bundled,
        *({"name": h.name, "licence": h.licence, "format": h.format, "what": h.what} for h in HOMES.values()),
    ]
    if json:
        print_json({"formats": formats, "corpora": corpora})
        return
    _print_columns(
        ("format", "holds", "written as", "what"),
        [(f["name"], f["holds"], _short(f["written"]), f["summary"]) for f in formats],
    )
    out.print()
    _print_columns(
        ("corpus", "format", "licence", "what"),
        [(c["name"], c["format"] or "-", c["licence"], c["what"]) for c in corpora],
    )
    out.print("Bring one home with: tertulia corpus get NAME", markup=False)


def _short(endings: list[str]) -> str:
    """Endings for people: nothing of packed twins."""
    return " ".join(e for e in endings if not e.endswith((".gz", ".ndjson"))) or "-"


def _print_columns(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Lines of words, the last column as long as it likes."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head) - 1)]
    for row in (head, *rows):
        line = "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]))
        out.print(Text(line, style="bold" if row is head else ""))


def _format(name: str, summary: str) -> dict[str, Json]:
    reader = READERS.get(name)
    return {"name": name, "holds": reader.holds, "written": list(written_as(reader)), "summary": summary}


@app.command("get")
def get_corpus(
    name: Annotated[str, argument(GetConfig, "name")],
    out_folder: Annotated[Path | None, option(GetConfig, "out", "--out")] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Download a well-known corpus, check and unpack it; its licence is its own."""
    settings = resolve(GetConfig, config, {"name": name, "out": out_folder})
    if home := HOMES.get(settings.name):
        err.print(f"{home.name}: {home.what}. Licence: {home.licence}.", markup=False)
    with Bars() as bars:
        got = get(settings.name, settings.out or Path("corpora") / settings.name, bars)
    place = corpus_in(got.folder)
    if json:
        print_json(
            {
                "corpus": got.home.name,
                "licence": got.home.licence,
                "folder": str(got.folder),
                "format": got.home.format,
                "corpus_folder": str(place) if place else None,
                "files": len(got.files),
                "downloaded": got.fresh,
                "hash_recorded_on_first_use": got.unverified,
            }
        )
        return
    out.print(f"{len(got.files)} files in {got.folder}", markup=False)
    if got.unverified:
        unknown = ", ".join(got.unverified)
        out.print(
            f"No hash was published of {unknown}: it is recorded in {RECORD}, and checked from now on.", markup=False
        )
    if got.home.format and place:
        out.print(f"Look at it with: tertulia corpus show {place} --format {got.home.format}", markup=False)


@app.command()
def show(
    target: Annotated[str | None, argument(ShowConfig, "target")] = None,
    split: Split = None,
    format: Format = None,  # noqa: A002
    strict: Strict = None,
    part: Annotated[str | None, option(ShowConfig, "part", "--part")] = None,
    limit: Annotated[int | None, option(ShowConfig, "limit", "--limit", "-n")] = None,
    skip: Annotated[int | None, option(ShowConfig, "skip", "--skip")] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Show dialogues or exchanges as people read them."""
    given = {"target": target, "split": split, "format": format, "strict": strict}
    settings = resolve(ShowConfig, config, given | {"part": part, "limit": limit, "skip": skip})
    if settings.target == SAMPLE and not json and not settings.split and settings.part != "dialogues":
        show_sample(settings)
        return
    problems = Problems()
    chosen = islice(_read(settings, problems), settings.skip, settings.skip + settings.limit)
    if json:
        print_json([dialogue_to_json(i) if isinstance(i, Dialogue) else exchange_to_json(i) for i in chosen])
    else:
        for item in chosen:
            if isinstance(item, Dialogue):
                show_dialogue(item)
            else:
                show_exchange(item)
    tell_problems(problems)


@app.command()
def stats(
    target: Annotated[str | None, argument(ReadConfig, "target")] = None,
    split: Split = None,
    format: Format = None,  # noqa: A002
    strict: Strict = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Count what is in a corpus."""
    settings = resolve(ReadConfig, config, {"target": target, "split": split, "format": format, "strict": strict})
    problems = Problems()
    if settings.target == SAMPLE and not settings.split:
        counted = _flat(sample_stats()) if not json else sample_stats()
    elif _holds(settings) == "exchanges":
        counted = exchange_stats(_exchanges(settings, problems)).as_json() | {"damaged_lines": problems.count}
        counted = counted if json else _flat(counted)
    else:
        counted = corpus_stats(_dialogues(settings, problems)).as_json() | {"damaged_lines": problems.count}
    if json:
        print_json(counted)
    else:
        print_table(
            ("", settings.target),
            [(k.replace("_", " "), f"{v:.2f}" if isinstance(v, float) else v) for k, v in counted.items()],
        )
    tell_problems(problems)


@app.command()
def convert(
    target: Annotated[str, argument(ConvertConfig, "target")],
    out_file: Annotated[Path, argument(ConvertConfig, "out")],
    split: Split = None,
    format: Format = None,  # noqa: A002
    strict: Strict = None,
    to: Annotated[str | None, option(ConvertConfig, "to", "--to")] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Write a corpus in another format."""
    given = {"target": target, "out": out_file, "split": split, "format": format, "strict": strict, "to": to}
    settings = resolve(ConvertConfig, config, given)
    problems = Problems()
    held = _holds(settings)
    to = settings.to or ("tertulia" if held == "dialogues" else "exchanges")
    kind = READERS.get(to).holds
    with Bars() as bars:
        bars.step(f"Writing {settings.out}")
        if kind == "exchanges":
            count = save_exchanges(_counted(_exchanges(settings, problems), bars), settings.out, format=to)
        else:
            count = save_dialogues(_counted(_dialogues(settings, problems), bars), settings.out, format=to)
    if json:
        print_json({"out": str(settings.out), kind: count, "damaged_lines": problems.count})
    else:
        out.print(f"{count} {kind} in {settings.out}", markup=False)
    tell_problems(problems)


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


def _counted(items: Iterator[T], bars: Bars) -> Iterator[T]:
    for item in items:
        bars.advance()
        yield item


def _flat(counted: dict[str, Json], prefix: str = "") -> dict[str, Json]:
    """Counts within counts, one line each."""
    flat: dict[str, Json] = {}
    for name, value in counted.items():
        flat |= _flat(value, f"{prefix}{name}: ") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat
