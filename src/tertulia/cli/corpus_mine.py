"""`tertulia corpus mine` and `erase`: dialogues out of message trees and chat rooms, and people out again."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tertulia.cli.output import AsJson, Bars, ConfigFile, argument, option, out, print_json, print_table, tell_problems
from tertulia.core.config import resolve
from tertulia.core.errors import DataError, UsageError
from tertulia.corpus.erase import erase as erase_people
from tertulia.corpus.erase import prove
from tertulia.corpus.mine import MineConfig
from tertulia.corpus.mine import mine as mine_trees
from tertulia.corpus.rooms.job import RoomsConfig, mine_rooms
from tertulia.corpus.tasks import EraseConfig
from tertulia.metrics.plots import funnel_plot, turns_plot


def mine(
    source: Annotated[list[str] | None, argument(MineConfig, "source")] = None,
    out_folder: Annotated[Path | None, option(MineConfig, "out", "--out")] = None,
    threads: Annotated[str | None, option(RoomsConfig, "threads", "--threads")] = None,
    model: Annotated[Path | None, option(RoomsConfig, "model", "--model")] = None,
    format: Annotated[str | None, option(MineConfig, "format", "--format")] = None,  # noqa: A002
    field: Annotated[list[str] | None, option(MineConfig, "fields", "--field")] = None,
    min_subwords: Annotated[int | None, option(MineConfig, "min_subwords", "--min-subwords")] = None,
    max_subwords: Annotated[int | None, option(MineConfig, "max_subwords", "--max-subwords")] = None,
    min_letters: Annotated[float | None, option(MineConfig, "min_letters", "--min-letters")] = None,
    max_repeats: Annotated[int | None, option(MineConfig, "max_repeats", "--max-repeats")] = None,
    overlap_n: Annotated[int | None, option(MineConfig, "overlap_n", "--overlap-n")] = None,
    max_overlap: Annotated[float | None, option(MineConfig, "max_overlap", "--max-overlap")] = None,
    context: Annotated[int | None, option(MineConfig, "context", "--context")] = None,
    vocabulary: Annotated[int | None, option(MineConfig, "vocabulary", "--vocabulary")] = None,
    subwords: Annotated[Path | None, option(MineConfig, "subwords", "--subwords")] = None,
    sample: Annotated[int | None, option(MineConfig, "sample", "--sample")] = None,
    seed: Annotated[int | None, option(MineConfig, "seed", "--seed")] = None,
    unsafe: Annotated[str | None, option(MineConfig, "unsafe", "--unsafe")] = None,
    lexicon: Annotated[Path | None, option(MineConfig, "lexicon", "--lexicon")] = None,
    edits: Annotated[bool | None, option(MineConfig, "edits", "--edits/--no-edits")] = None,
    links: Annotated[str | None, option(MineConfig, "links", "--links")] = None,
    whole: Annotated[bool | None, option(MineConfig, "whole", "--whole")] = None,
    dialogues: Annotated[bool | None, option(MineConfig, "dialogues", "--dialogues")] = None,
    strict: Annotated[bool | None, option(MineConfig, "strict", "--strict")] = None,
    fresh: Annotated[bool | None, option(MineConfig, "fresh", "--fresh")] = None,
    engine: Annotated[str | None, option(MineConfig, "engine", "--engine")] = None,
    address: Annotated[str | None, option(MineConfig, "address", "--address")] = None,
    workers: Annotated[int | None, option(MineConfig, "workers", "--workers")] = None,
    buckets: Annotated[int | None, option(MineConfig, "buckets", "--buckets")] = None,
    block_bytes: Annotated[int | None, option(MineConfig, "block_bytes", "--block-bytes")] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Mine message trees for context-reply pairs by Meena's rules; with --threads, chat-room logs for dialogues."""
    known = MineConfig.model_fields.keys() | RoomsConfig.model_fields.keys()
    given = {name: value for name, value in locals().items() if name in known} | {"out": out_folder}
    if threads is None:
        given |= {"fields": _fields(field), "source": tuple(source) if source else None}
        _trees(resolve(MineConfig, config, {k: v for k, v in given.items() if k in MineConfig.model_fields}), json)
    else:
        if source and len(source) > 1:
            raise UsageError(
                "Chat rooms are mined from one log or one folder of logs.", hint="Put the logs into one folder."
            )
        given["source"] = source[0] if source else None
        _rooms(resolve(RoomsConfig, config, _of_rooms(given)), json)


def erase(
    folder: Annotated[Path, argument(EraseConfig, "folder")],
    author: Annotated[list[str] | None, option(EraseConfig, "authors", "--author")] = None,
    ids: Annotated[list[str] | None, option(EraseConfig, "ids", "--id")] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Take people, or single messages, out of a mined corpus with everything derived from them, and prove it."""
    settings = resolve(EraseConfig, config, {"folder": folder, "authors": author or None, "ids": ids or None})
    with Bars() as bars:
        bars.step(f"Erasing from {settings.folder}")
        erased = erase_people(settings.folder, authors=settings.authors, ids=settings.ids)
        bars.step("Reading everything again")
        proof = prove(settings.folder, authors=settings.authors, ids=settings.ids)
    if json:
        print_json(asdict(erased) | {"proof": asdict(proof) | {"clean": proof.clean}})
    else:
        print_table(("erased", ""), [(name.replace("_", " "), count) for name, count in asdict(erased).items()])
        out.print(f"Read again: {proof.rows} rows in {proof.files} files, {len(proof.found)} traces left.")
    if not proof.clean:
        raise DataError(f"Traces are left: {', '.join(proof.found[:5])}", hint="Mine the corpus anew without them.")


def _trees(settings: MineConfig, json: bool) -> None:
    with Bars() as bars:
        outcome = mine_trees(settings, bars)
        bars.step("Drawing the funnel")
        (settings.out / "funnel.svg").write_text(funnel_plot(outcome.funnel.steps()), encoding="utf-8")
    if json:
        print_json(asdict(outcome.funnel) | {"damaged_lines": outcome.problems.count, "out": str(settings.out)})
    else:
        print_table(("", "messages"), outcome.funnel.steps())
        out.print(f"The pairs are in {outcome.pairs}, a picture in {settings.out / 'funnel.svg'}", markup=False)
    tell_problems(outcome.problems)


def _rooms(settings: RoomsConfig, json: bool) -> None:
    with Bars() as bars:
        outcome = mine_rooms(settings, bars)
        bars.step("Drawing dialogues against turns")
        (settings.out / "turns.svg").write_text(turns_plot(dict(outcome.stats.by_turns)), encoding="utf-8")
    counted = outcome.as_json()
    if json:
        print_json(counted | {"out": str(settings.out)})
        return
    rows = [
        (k.replace("_", " "), f"{v:.2f}" if isinstance(v, float) else v) for k, v in counted.items() if k != "by_turns"
    ]
    print_table(("", settings.source), [row for row in rows if not isinstance(row[1], dict)])
    out.print(f"The dialogues are in {outcome.dialogues}, a picture in {settings.out / 'turns.svg'}", markup=False)


def _of_rooms(given: dict[str, object]) -> dict[str, object]:
    """The options that chat rooms know; one that only trees know is a mistake, and said to be one."""
    foreign = [
        name for name, value in given.items() if value not in (None, []) and name not in RoomsConfig.model_fields
    ]
    if foreign:
        raise UsageError(f"--{foreign[0].replace('_', '-')} is for message trees; it goes without --threads.")
    return {name: value for name, value in given.items() if name in RoomsConfig.model_fields}


def _fields(pairs: list[str] | None) -> dict[str, str] | None:
    if not pairs:
        return None
    parts = [pair.partition("=") for pair in pairs]
    if any(not theirs for _, _, theirs in parts):
        raise typer.BadParameter("--field takes OURS=THEIRS, for example text=body")
    return {ours: theirs for ours, _, theirs in parts}
