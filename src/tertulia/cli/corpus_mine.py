"""`tertulia corpus mine` and `erase`: extract dialogues from message trees and chat logs, and erase people again."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tertulia.artefacts.folders import open_folder
from tertulia.artefacts.stores import is_url
from tertulia.cli.command import Given, command
from tertulia.cli.output import Bars, out, print_json, print_problems, print_table
from tertulia.core.errors import DataError, UsageError
from tertulia.corpus.chatlogs.mine import ChatlogConfig, ChatlogOutcome, mine_chatlogs
from tertulia.corpus.erase import EraseConfig, verify
from tertulia.corpus.erase import erase as erase_messages
from tertulia.corpus.mine import MineConfig, MineOutcome
from tertulia.corpus.mine import mine as mine_trees
from tertulia.metrics.plots import funnel_plot, turns_plot


@command(MineConfig, ChatlogConfig, labels={ChatlogConfig: "[--threads]"})
def mine(given: Given, *, as_json: bool) -> None:
    """Mine message trees for context-reply pairs by Meena's rules; with --threads, chat logs for dialogues.

    Options marked [--threads] apply to chat logs.
    """
    if "threads" not in given.options:
        _reject_other_options(given, MineConfig, "requires --threads")
        config = given.resolve(MineConfig)
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
        chatlogs = Given(_with_one_source(given.options), given.file, given.labels).resolve(ChatlogConfig)
        with Bars() as bars:
            result = mine_chatlogs(chatlogs, bars)
            bars.step("Plotting dialogues by number of turns")
            (chatlogs.out / "turns.svg").write_text(turns_plot(dict(result.stats.by_turns)), encoding="utf-8")
        _print_chatlogs(chatlogs, result, as_json)


@command(EraseConfig)
def erase(settings: EraseConfig, *, as_json: bool) -> None:
    """Erase people, or single messages, from a mined corpus with everything derived from them, and verify it."""
    with Bars() as bars:
        bars.step(f"Erasing from {settings.folder}")
        erased = erase_messages(settings.folder, authors=settings.authors, ids=settings.ids)
        bars.step("Verifying")
        verification = verify(settings.folder, authors=settings.authors, ids=settings.ids)
    if as_json:
        print_json(asdict(erased) | {"verification": asdict(verification) | {"clean": verification.clean}})
    else:
        print_table(("erased", ""), [(name.replace("_", " "), count) for name, count in asdict(erased).items()])
        out.print(
            f"Searched {verification.rows} rows in {verification.files} files: {len(verification.traces)} traces left."
        )
    if not verification.clean:
        raise DataError(
            f"Traces are left: {', '.join(verification.traces[:5])}", hint="Mine the corpus again without them."
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
        print_json(asdict(outcome.funnel) | {"damaged_lines": outcome.problems.count, "out": str(config.out)})
    else:
        print_table(("", "messages"), outcome.funnel.steps())
        plot = open_folder(config.out).location("funnel.svg") if is_url(config.out) else Path(config.out) / "funnel.svg"
        out.print(f"Wrote the pairs to {outcome.pairs} and a plot to {plot}", markup=False)
    print_problems(outcome.problems)


def _print_chatlogs(config: ChatlogConfig, outcome: ChatlogOutcome, as_json: bool) -> None:
    stats = outcome.as_json()
    if as_json:
        print_json(stats | {"out": str(config.out)})
        return
    rows = [
        (k.replace("_", " "), f"{v:.2f}" if isinstance(v, float) else v) for k, v in stats.items() if k != "by_turns"
    ]
    print_table(("", config.source), [row for row in rows if not isinstance(row[1], dict)])
    out.print(f"Wrote the dialogues to {outcome.dialogues} and a plot to {config.out / 'turns.svg'}", markup=False)
