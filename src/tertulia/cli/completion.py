"""What a shell offers for an option or argument: choices, or names of the registries, plugins included.

Where nothing here fits, the shell completes paths, so a folder or a file can stand wherever a name can. Registries are
read when the shell asks, and their rows are strings, so that nothing heavy is imported.
"""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module

import typer

from tertulia.core.registry import Registry

Offer = tuple[str, str]
"""A value and a line about it."""


def completer(field: str, choices: Sequence[str]) -> Callable[[typer.Context, str], list[Offer]] | None:
    """How to complete the option of a field, if there is anything to offer."""
    source = NAMES.get(field)
    if not choices and source is None:
        return None

    def complete(ctx: typer.Context, incomplete: str) -> list[Offer]:
        path = " ".join(ctx.command_path.split()[1:])
        offers = [(choice, "") for choice in choices] or list(source(path) if source else ())
        return [offer for offer in offers if offer[0].startswith(incomplete)]

    return complete


def _rows(target: str) -> Iterator[Offer]:
    """The rows of a registry, given as `module:ATTRIBUTE`."""
    module, _, attribute = target.partition(":")
    registry: Registry = getattr(import_module(module), attribute)
    return ((row.name, row.summary) for row in registry.rows())


def _bots(_: str) -> Iterator[Offer]:
    return _rows("tertulia.talk.registry:BOTS")


def _formats(_: str) -> Iterator[Offer]:
    return _rows("tertulia.corpus.registry:READERS")


def _metrics(_: str) -> Iterator[Offer]:
    from tertulia.metrics.registry import example_name

    return ((example_name(name), summary) for name, summary in _rows("tertulia.metrics.registry:METRICS"))


def _recipes(_: str) -> Iterator[Offer]:
    from tertulia.train.configs import shipped

    yield from ((name, config.summary) for name, config in shipped().items())
    yield from (offer for offer in _rows("tertulia.train.registry:RECIPES") if offer[0] not in shipped())


def _presets(path: str) -> Iterator[Offer]:
    if path == "judge perplexity":
        return iter([("meena-base", "temperature 0.88"), ("meena-full", "the top 40 tokens")])
    from tertulia.study.presets import PRESETS

    return iter(PRESETS.items())


def _corpora(path: str) -> Iterator[Offer]:
    if path != "corpus get":
        return
    from tertulia.corpus.catalog import CATALOG

    yield from ((dataset.name, dataset.description) for dataset in CATALOG.values())


def _listed(path: str) -> Iterator[Offer]:
    """The names of what a command lists: `tertulia bots NAME`."""
    by_command = {"bots": _bots, "recipes": _recipes, "formats": _formats, "presets": _presets}
    if path == "metrics":
        return _rows("tertulia.metrics.registry:METRICS")
    return by_command[path](path) if path in by_command else iter(())


def _sample(_: str) -> Iterator[Offer]:
    return iter([("sample", "the bundled corpus")])


NAMES: dict[str, Callable[[str], Iterator[Offer]]] = {
    "bot": _bots,
    "bots": _bots,
    "partner": _bots,
    "runs": _bots,
    "metric": _metrics,
    "metrics": _metrics,
    "format": _formats,
    "to": _formats,
    "recipe": _recipes,
    "preset": _presets,
    "name": _corpora,
    "names": _listed,
    "taggers": lambda _: _rows("tertulia.corpus.taggers:TAGGERS"),
    "rules": lambda _: _rows("tertulia.corpus.custom_rules:RULES"),
    "data": _sample,
    "source": _sample,
    "target": _sample,
    "split": lambda _: iter([("train", ""), ("valid", ""), ("test", "")]),
}
"""By the name of the field, what its values are names of; called with the command, such as "judge rank"."""
