"""`tertulia corpus ...`: list, show, stats, convert, mine."""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from tertulia.cli.output import (
    AsJson,
    Bars,
    ConfigFile,
    argument,
    option,
    out,
    print_json,
    print_table,
    tell_problems,
)
from tertulia.cli.show import show_dialogue, show_sample
from tertulia.core.codec import Problems, dialogue_to_json
from tertulia.core.config import resolve
from tertulia.core.dialogue import Dialogue, Json
from tertulia.corpus.load import SAMPLE, load_dialogues, save_dialogues
from tertulia.corpus.mine import MineConfig
from tertulia.corpus.mine import mine as mine_corpus
from tertulia.corpus.sample_stats import sample_stats
from tertulia.corpus.stats import corpus_stats
from tertulia.corpus.table import READERS
from tertulia.corpus.tasks import ConvertConfig, ReadConfig, ShowConfig

app = typer.Typer()

Split = Annotated[str | None, option(ReadConfig, "split", "--split")]
Format = Annotated[str | None, option(ReadConfig, "format", "--format")]
Strict = Annotated[bool | None, option(ReadConfig, "strict", "--strict")]


@app.command("list")
def list_formats(json: AsJson = False) -> None:
    """The formats that can be read, and the bundled corpus."""
    rows = [("sample", "the bundled corpus (CC0): give this name wherever a corpus is wanted")]
    rows += [(row.name, row.summary) for row in READERS.rows()]
    rows.append(("parquet", "Tertulia's own dialogues in Parquet, by the ending .parquet"))
    if json:
        print_json([{"name": name, "summary": summary} for name, summary in rows])
    else:
        print_table(("name", "what"), rows)


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
    """Show dialogues as people read them."""
    given = {"target": target, "split": split, "format": format, "strict": strict}
    settings = resolve(ShowConfig, config, given | {"part": part, "limit": limit, "skip": skip})
    if settings.target == SAMPLE and not json and not split and settings.part != "dialogues":
        show_sample(settings)
        return
    problems = Problems()
    chosen = islice(_read(settings, problems), settings.skip, settings.skip + settings.limit)
    if json:
        print_json([dialogue_to_json(d) for d in chosen])
    else:
        for dialogue in chosen:
            show_dialogue(dialogue)
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
    else:
        counted = corpus_stats(_read(settings, problems)).as_json() | {"damaged_lines": problems.count}
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
    with Bars() as bars:
        bars.step(f"Writing {settings.out}")
        count = save_dialogues(_counted(_read(settings, problems), bars), settings.out, format=settings.to)
    if json:
        print_json({"out": str(settings.out), "dialogues": count, "damaged_lines": problems.count})
    else:
        out.print(f"{count} dialogues in {settings.out}", markup=False)
    tell_problems(problems)


@app.command()
def mine(
    source: Annotated[str | None, argument(MineConfig, "source")] = None,
    out_folder: Annotated[Path | None, option(MineConfig, "out", "--out")] = None,
    min_subwords: Annotated[int | None, option(MineConfig, "min_subwords", "--min-subwords")] = None,
    max_subwords: Annotated[int | None, option(MineConfig, "max_subwords", "--max-subwords")] = None,
    min_letters: Annotated[float | None, option(MineConfig, "min_letters", "--min-letters")] = None,
    max_repeats: Annotated[int | None, option(MineConfig, "max_repeats", "--max-repeats")] = None,
    overlap_n: Annotated[int | None, option(MineConfig, "overlap_n", "--overlap-n")] = None,
    max_overlap: Annotated[float | None, option(MineConfig, "max_overlap", "--max-overlap")] = None,
    context: Annotated[int | None, option(MineConfig, "context", "--context")] = None,
    vocabulary: Annotated[int | None, option(MineConfig, "vocabulary", "--vocabulary")] = None,
    unsafe: Annotated[str | None, option(MineConfig, "unsafe", "--unsafe")] = None,
    strict: Annotated[bool | None, option(MineConfig, "strict", "--strict")] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Mine message trees for context-reply pairs, with Meena's rules; prints where the messages went."""
    given = {k: v for k, v in locals().items() if k in MineConfig.model_fields}
    settings = resolve(MineConfig, config, given | {"out": out_folder})
    with Bars() as bars:
        outcome = mine_corpus(settings, bars)
    if json:
        print_json(asdict(outcome.funnel) | {"damaged_lines": outcome.problems.count, "out": str(settings.out)})
    else:
        print_table(("", "messages"), outcome.funnel.steps())
        out.print(f"The pairs are in {outcome.pairs}", markup=False)
    tell_problems(outcome.problems)


def _read(settings: ReadConfig, problems: Problems) -> Iterator[Dialogue]:
    skipped = None if settings.strict else problems
    return load_dialogues(settings.target, split=settings.split, format=settings.format, problems=skipped)


def _counted(dialogues: Iterator[Dialogue], bars: Bars) -> Iterator[Dialogue]:
    for dialogue in dialogues:
        bars.advance()
        yield dialogue


def _flat(counted: dict[str, Json], prefix: str = "") -> dict[str, Json]:
    """Counts within counts, one line each."""
    flat: dict[str, Json] = {}
    for name, value in counted.items():
        flat |= _flat(value, f"{prefix}{name}: ") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat
