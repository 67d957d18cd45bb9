"""`tertulia corpus mine` and `erase`: extract dialogues from message trees and chat logs, and erase people again."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tertulia.artefacts.folders import open_folder
from tertulia.artefacts.stores import is_url
from tertulia.cli.command import Given, command
from tertulia.cli.output import Bars, out, print_json, print_problems, print_table
from tertulia.core.errors import DataError, UsageError, keeping
from tertulia.core.text import plural
from tertulia.corpus.chatlogs.mine import ChatlogConfig, ChatlogOutcome, mine_chatlogs, preview_chatlogs
from tertulia.corpus.erase import EraseConfig, Erased, Verification, preview_erasure
from tertulia.corpus.erase import erase as erase_messages
from tertulia.corpus.mine import MineConfig, MineOutcome, preview_mining
from tertulia.corpus.mine import mine as mine_trees
from tertulia.metrics.plots import funnel_plot, turns_plot

_UNTIL_THEN = "Until then, erasing.json in the folder keeps the texts that are searched for."
_MAX_LISTED = 30
"""Lines of a list that are printed."""


@command(MineConfig, ChatlogConfig, labels={ChatlogConfig: "[--threads]"})
def mine(given: Given, *, as_json: bool, dry_run: bool) -> None:
    """Mine message trees for context-reply pairs by Meena's rules; with --threads, chat logs for dialogues.

    Options marked [--threads] apply to chat logs.
    """
    if "threads" not in given.options:
        _reject_other_options(given, MineConfig, "requires --threads")
        config = given.resolve(MineConfig)
        if dry_run:
            _preview_trees(config, as_json)
            return
        with Bars() as bars:
            outcome = mine_trees(config, bars)
            bars.step("Plotting the funnel")
            with open_folder(config.out).write("funnel.svg") as file:
                file.write_text(funnel_plot(outcome.funnel.steps()), encoding="utf-8")
        _print_trees(config, outcome, as_json)
    else:
        _reject_other_options(given, ChatlogConfig, "cannot be used with --threads")
        for target in (given.options.get("out"), *(given.options.get("source") or [])):
            if is_url(target):
                raise UsageError(f"--threads cannot read or write {target}.", hint="Give paths on a disk.")
        chatlogs = replace(given, options=_with_one_source(given.options)).resolve(ChatlogConfig)
        if dry_run:
            _preview_chatlogs(chatlogs, as_json)
            return
        with Bars() as bars:
            result = mine_chatlogs(chatlogs, bars)
            bars.step("Plotting dialogues by number of turns")
            (chatlogs.out / "turns.svg").write_text(turns_plot(dict(result.stats.by_turns)), encoding="utf-8")
        _print_chatlogs(chatlogs, result, as_json)


@command(EraseConfig)
def erase(settings: EraseConfig, *, as_json: bool, dry_run: bool) -> None:
    """Erase people, or single messages, from a mined corpus and what was made from it; then search all of it again.

    An erasure that was interrupted is finished by the same command.
    """
    if dry_run:
        _preview_erasure(settings, as_json)
        return
    with keeping("The erasure is not finished.", hint="Run the same command again to finish it."), Bars() as bars:
        erased = erase_messages(
            settings.folder,
            authors=settings.authors,
            ids=settings.ids,
            near=settings.near,
            derived=settings.derived,
            look_in=settings.look_in or None,
            remove_derived=settings.remove_derived,
            progress=bars,
        )
    verification = erased.verification
    if as_json:
        print_json(asdict(erased) | {"verification": _verification_json(verification)})
    else:
        _print_erased(erased)
    _raise_if_left(verification)


def _preview_trees(config: MineConfig, as_json: bool) -> None:
    preview = preview_mining(config)
    size = sum(size for _, size in preview.sources)
    if as_json:
        sources = [{"file": name, "bytes": size} for name, size in preview.sources]
        facts = {"out": str(config.out), "state": preview.state, "shards": preview.buckets}
        print_json({"dry_run": True, "sources": sources, "bytes": size} | facts)
        return
    print_table(("source", "MB"), [(name, f"{size / 1e6:.1f}") for name, size in preview.sources[:_MAX_LISTED]])
    states = {
        "new": "would be made",
        "continue": "has this run, which would be continued",
        "done": "has this run, finished: nothing would be mined again",
        "start over": "has another run, which would be removed (--fresh)",
    }
    files, shards = plural(len(preview.sources), "file"), plural(preview.buckets, "shard")
    out.print(f"Would mine {files} (about {size / 1e6:.1f} MB) into {shards}.", markup=False)
    out.print(f"{config.out} {states[preview.state]}. Nothing was written.", markup=False)


def _preview_chatlogs(config: ChatlogConfig, as_json: bool) -> None:
    preview = preview_chatlogs(config)
    if as_json:
        print_json({"dry_run": True, "out": str(config.out), **preview._asdict()})
        return
    logs, lines = plural(preview.logs, "log"), plural(preview.lines, "line")
    out.print(f"Would extract dialogues from {logs} of {lines} into {config.out}. Nothing was written.", markup=False)


def _preview_erasure(settings: EraseConfig, as_json: bool) -> None:
    with Bars() as bars:
        bars.step("Searching")
        preview = preview_erasure(
            settings.folder,
            authors=settings.authors,
            ids=settings.ids,
            near=settings.near,
            derived=settings.derived,
            look_in=settings.look_in or None,
        )
    if as_json:
        print_json({"dry_run": True} | _verification_json(preview))
        return
    for title, lines in (
        ("Would be removed or masked", _counted(preview.traces)),
        (f"Near matches ({settings.near})", _counted(f"{near.where}: {near.kind}" for near in preview.near)),
        ("Made from this corpus", [f"{one.path}: {one.why}" for one in preview.derived]),
        ("Not searched", preview.unsearched),
    ):
        if lines:
            out.print(f"{title}:", markup=False)
            for line in lines[:_MAX_LISTED]:
                out.print(f"  {line}", markup=False)
            if len(lines) > _MAX_LISTED:
                out.print(f"  ... and {len(lines) - _MAX_LISTED} more", markup=False)
    searched = f"{plural(preview.rows, 'record')} in {plural(preview.files, 'file')}"
    out.print(f"Searched {searched}. Nothing was written.", markup=False)


def _counted(lines: Iterable[str]) -> list[str]:
    """Lines that are the same become one, with their number."""
    return [line if count == 1 else f"{line} ({count} times)" for line, count in Counter(lines).items()]


def _verification_json(verification: Verification) -> dict[str, object]:
    near, derived = ([item._asdict() for item in items] for items in (verification.near, verification.derived))
    return asdict(verification) | {"near": near, "derived": derived, "clean": verification.clean}


def _print_erased(erased: Erased) -> None:
    counts = {name: value for name, value in asdict(erased).items() if isinstance(value, int)}
    print_table(("erased", ""), list(counts.items()))
    for folder in erased.folders:
        out.print(f"Removed {folder}", markup=False)
    verification = erased.verification
    near = plural(len(verification.near), "near match", "near matches")
    left = f"{plural(len(verification.traces), 'trace')} left in them, {near} to decide on"
    searched = f"{plural(verification.rows, 'record')} in {plural(verification.files, 'file')}"
    out.print(f"Searched {searched} once more: {left}.", markup=False)
    _print_list("Traces left", verification.traces)
    _print_list(
        "To decide on (--near mask, remove or keep)", [f"{n.where}: {n.kind}: {n.text}" for n in verification.near]
    )
    _print_list(
        "Made from erased data (make them again, or remove them with --remove-derived)",
        [f"{d.path} ({d.kind}): {d.why}" for d in verification.derived],
    )
    _print_list("Not searched", verification.unsearched)


def _print_list(title: str, items: Sequence[str]) -> None:
    if items:
        out.print(f"{title}:", markup=False)
        for item in items[:_MAX_LISTED]:
            out.print(f"  {item}", markup=False)
        if len(items) > _MAX_LISTED:
            out.print(f"  ... and {len(items) - _MAX_LISTED} more; --json has all", markup=False)


def _raise_if_left(verification: Verification) -> None:
    """An erasure that leaves anything is not finished, and the exit code says so."""
    if verification.traces:
        raise DataError(
            f"Traces are left: {', '.join(verification.traces[:5])}",
            hint=f"Edit or remove these files, and erase again. {_UNTIL_THEN}",
        )
    if verification.near:
        raise DataError(
            f"To be decided on: {plural(len(verification.near), 'near match', 'near matches')}.",
            hint=f"Erase again with --near mask, --near remove or --near keep. {_UNTIL_THEN}",
        )
    if verification.derived:
        raise DataError(
            f"Made from erased data: {plural(len(verification.derived), 'folder')}, "
            f"{', '.join(derived.path for derived in verification.derived[:5])}",
            hint="Make them again from the data as it is now, or erase again with --remove-derived.",
        )


def _reject_other_options(given: Given, config: type[MineConfig] | type[ChatlogConfig], why: str) -> None:
    """An option that the chosen config does not have is an error."""
    for name in given.options:
        if name not in config.model_fields:
            option = "--field" if name == "fields" else f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} {why}.", hint="See `tertulia corpus mine --help`.")


def _with_one_source(options: Mapping[str, Any]) -> dict[str, object]:
    """Chat logs have a single source, while the argument is a list."""
    sources = options.get("source") or []
    if len(sources) > 1:
        raise UsageError("--threads takes one log or one folder of logs.", hint="Put the logs into one folder.")
    return {**options, "source": sources[0]} if sources else dict(options)


def _print_trees(config: MineConfig, outcome: MineOutcome, as_json: bool) -> None:
    if as_json:
        replaced = {"replaced": outcome.replaced} if config.scrub else {}
        figures = asdict(outcome.funnel) | {"damaged_lines": outcome.problems.count} | replaced
        print_json(figures | {"out": str(config.out)})
    else:
        print_table(("", "messages"), outcome.funnel.steps())
        if config.scrub:
            print_table(("replaced", ""), list(outcome.replaced.items()))
        plot = open_folder(config.out).location("funnel.svg") if is_url(config.out) else Path(config.out) / "funnel.svg"
        out.print(f"Wrote the pairs to {outcome.pairs} and a plot to {plot}", markup=False)
    print_problems(outcome.problems)


def _print_chatlogs(config: ChatlogConfig, outcome: ChatlogOutcome, as_json: bool) -> None:
    stats = outcome.as_json()
    if as_json:
        print_json(stats | {"out": str(config.out)})
        print_problems(outcome.problems)
        return
    rows = [
        (k.replace("_", " "), f"{v:.2f}" if isinstance(v, float) else v) for k, v in stats.items() if k != "by_turns"
    ]
    print_table(("", config.source), [row for row in rows if not isinstance(row[1], dict)])
    out.print(f"Wrote the dialogues to {outcome.dialogues} and a plot to {config.out / 'turns.svg'}", markup=False)
    print_problems(outcome.problems)
