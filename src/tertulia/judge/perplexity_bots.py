"""From a run, or a model at hand, to the bot that writes with it, as judges want it: without filters, named shortly."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tertulia.core.config import validate
from tertulia.models.checkpoint import read_manifest
from tertulia.models.generator import Generator
from tertulia.talk.bots.writer import WriterBot, WriterOptions
from tertulia.talk.spec import parse_spec

Model = Generator | WriterBot | Path | str
"""A model that writes, its bot, or where its training run lies, options behind a question mark."""


class Judged(NamedTuple):
    """A bot, and the architecture behind it."""

    bot: WriterBot
    model: str


def judged(model: Model, *, preset: str | None = None, method: str | None = None) -> Judged:
    """The bot of a model that writes. What a run's options say wins over what is given here.

    Where neither says how to write, it is the likeliest word each time (greedy): then nothing is drawn. Filters are off
    where the options name none, since it is the model that is judged.
    """
    if isinstance(model, WriterBot):
        return Judged(model, type(model.model).__name__)
    if not isinstance(model, str | Path):
        return Judged(WriterBot(model, _options({}, preset, method)), type(model).__name__)
    spec = parse_spec(str(model))
    folder = spec.target or spec.name
    bot = WriterBot.build(folder, _options(spec.options, preset, method))
    return Judged(bot, read_manifest(Path(folder), check=False).model)


def _options(given: dict[str, str], preset: str | None, method: str | None) -> WriterOptions:
    if not {"preset", "method"} & set(given):
        wishes = {"preset": preset, "method": method or (None if preset else "greedy")}
        given = {name: value for name, value in wishes.items() if value is not None} | given
    return validate(WriterOptions, {"filters": "none"} | given, where="the options of how to write")


def short_names(specs: Sequence[str]) -> list[str]:
    """What runs are called in tables: by their folder, where that tells them apart.

    >>> short_names(["runs/a", "runs/b?method=beam"]), short_names(["x/a", "y/a"])
    (['a', 'b'], ['x/a', 'y/a'])
    """
    names = [Path(spec.partition("?")[0]).name or spec for spec in specs]
    return names if len(set(names)) == len(names) else list(specs)
