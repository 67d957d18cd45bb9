"""`tertulia corpus split` and `tertulia corpus testset`: parts to train and to test on."""

from pathlib import Path
from typing import Annotated

from tertulia.cli.output import AsJson, Bars, ConfigFile, argument, option, out, print_json, print_table, tell_problems
from tertulia.core.codec import Problems, dump_line
from tertulia.core.config import resolve, save
from tertulia.core.dialogue import Dialogue
from tertulia.corpus.load import load_dialogues, save_dialogues
from tertulia.corpus.split import SplitConfig, author_overlap, split_dialogues
from tertulia.corpus.tasks import ReadConfig
from tertulia.corpus.testsets import TestSetConfig, item_to_json, make_test_set, write_ubuntu_csv

Split = Annotated[str | None, option(ReadConfig, "split", "--split")]
Format = Annotated[str | None, option(ReadConfig, "format", "--format")]
Strict = Annotated[bool | None, option(ReadConfig, "strict", "--strict")]


def split(
    target: Annotated[str | None, argument(SplitConfig, "target")] = None,
    out_folder: Annotated[Path | None, option(SplitConfig, "out", "--out")] = None,
    by: Annotated[str | None, option(SplitConfig, "by", "--by")] = None,
    shares: Annotated[tuple[float, float, float] | None, option(SplitConfig, "shares", "--shares")] = None,
    seed: Annotated[int | None, option(SplitConfig, "seed", "--seed")] = None,
    near: Annotated[float | None, option(SplitConfig, "near", "--near")] = None,
    drop_near: Annotated[bool | None, option(SplitConfig, "drop_near", "--drop-near")] = None,
    ending: Annotated[str | None, option(SplitConfig, "ending", "--ending")] = None,
    format: Format = None,  # noqa: A002
    strict: Strict = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Cut a corpus into train, valid and test: never one conversation in two of them, copies counted."""
    given = {"target": target, "out": out_folder, "by": by, "shares": shares, "seed": seed, "near": near}
    settings = resolve(
        SplitConfig, config, given | {"drop_near": drop_near, "ending": ending, "format": format, "strict": strict}
    )
    problems = Problems()
    with Bars() as bars:
        bars.step("Reading")
        dialogues = _read(settings, problems)
        bars.step(f"Splitting {len(dialogues)} dialogues by {settings.by}")
        outcome = split_dialogues(dialogues, settings)
        for name, part in outcome.parts.items():
            save_dialogues(part, settings.out / f"{name}{settings.ending}")
        save(settings, settings.out / "config.toml")
    figures = {
        "dialogues": outcome.counts,
        "near_duplicates_of_train": outcome.near_duplicates,
        "speakers_in_two_splits": author_overlap(outcome.parts),
        "largest_group": outcome.largest_group,
    }
    if json:
        print_json(figures | {"out": str(settings.out), "damaged_lines": problems.count})
    else:
        rows = [(n, count, outcome.near_duplicates.get(n, "")) for n, count in outcome.counts.items()]
        print_table(("split", "dialogues", "like one in train"), rows)
        out.print(f"{figures['speakers_in_two_splits']} speakers are in more than one. Written to {settings.out}")
    tell_problems(problems)


def ranking_set(
    target: Annotated[str | None, argument(TestSetConfig, "target")] = None,
    out_file: Annotated[Path | None, option(TestSetConfig, "out", "--out")] = None,
    version: Annotated[int | None, option(TestSetConfig, "version", "--version")] = None,
    max_context: Annotated[int | None, option(TestSetConfig, "max_context", "--max-context")] = None,
    distractors: Annotated[int | None, option(TestSetConfig, "distractors", "--distractors")] = None,
    hard: Annotated[bool | None, option(TestSetConfig, "hard", "--hard")] = None,
    pool: Annotated[int | None, option(TestSetConfig, "pool", "--pool")] = None,
    seed: Annotated[int | None, option(TestSetConfig, "seed", "--seed")] = None,
    split: Split = None,
    format: Format = None,  # noqa: A002
    strict: Strict = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Make a test set for ranking the next reply, as the Ubuntu papers do: one item per dialogue."""
    given = {"target": target, "out": out_file, "version": version, "max_context": max_context, "hard": hard}
    given |= {"distractors": distractors, "pool": pool, "seed": seed, "split": split, "format": format}
    settings = resolve(TestSetConfig, config, given | {"strict": strict})
    problems = Problems()
    with Bars() as bars:
        bars.step("Reading")
        dialogues = _read(settings, problems)
        bars.step("Choosing contexts and distractors")
        items = make_test_set(dialogues, settings)
        settings.out.parent.mkdir(parents=True, exist_ok=True)
        with settings.out.open("w", encoding="utf-8", newline="") as lines:
            if settings.out.suffix == ".csv":
                write_ubuntu_csv(items, lines)
            else:
                lines.writelines(dump_line(item_to_json(item)) + "\n" for item in items)
    mean = sum(len(item.exchange.context) for item in items) / len(items)
    if json:
        print_json({"out": str(settings.out), "items": len(items), "mean_context_turns": mean})
    else:
        out.print(f"{len(items)} items, {mean:.1f} turns of context on average, in {settings.out}")
    tell_problems(problems)


def _read(settings: ReadConfig, problems: Problems) -> list[Dialogue]:
    skipped = None if settings.strict else problems
    return list(load_dialogues(settings.target, split=settings.split, format=settings.format, problems=skipped))
