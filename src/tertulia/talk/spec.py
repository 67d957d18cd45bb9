"""Bot specifications, `name[:path or model][?option=value&...]`, and making bots from them.

The folder of a training run or an index is a specification, too: its manifest says which bot it is for (key "bot").
Commands that take several bots let users name them, `NAME=SPEC`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode

from tertulia.artefacts.manifest import MANIFEST, is_complete, read_about
from tertulia.core.config import Config, validate
from tertulia.core.errors import UnknownName, UsageError
from tertulia.core.progress import Progress
from tertulia.talk.bot import Bot, BotFactory
from tertulia.talk.evidence import DocumentsConfig, with_documents
from tertulia.talk.registry import BOTS

NAMED_SPEC = re.compile(r"(\w[\w .-]*)=(.+)", re.DOTALL)
"""A specification with a name before it."""


class NamedSpec(NamedTuple):
    """A specification and what the bot is called."""

    name: str
    spec: str
    is_given: bool
    """Whether the user gave the name; otherwise it is the name of the bot in the registry, with a number if taken."""


@dataclass(frozen=True, slots=True)
class BotSpec:
    """A parsed specification."""

    name: str
    target: str = ""
    options: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        target = self.target.replace("%", "%25").replace("?", "%3F")
        text = f"{self.name}:{target}" if target else self.name
        return f"{text}?{urlencode(self.options)}" if self.options else text


def parse_spec(text: str) -> BotSpec:
    """Parse a specification.

    >>> parse_spec("openai:gpt-x?base_url=http://127.0.0.1:9/v1&timeout=5")
    BotSpec(name='openai', target='gpt-x', options={'base_url': 'http://127.0.0.1:9/v1', 'timeout': '5'})
    """
    head, _, query = text.partition("?")
    name, _, target = head.partition(":")
    name, target = (
        (_bot_of(Path(head)), str(Path(head))) if head and is_complete(Path(head)) else (name, unquote(target))
    )
    if not name.strip():
        raise UsageError(f"{text!r} does not name a bot.", hint="A bot is name[:path or model][?option=value&...].")
    pairs = parse_qsl(query, keep_blank_values=True)
    if query and not pairs:
        raise UsageError(f"In {text!r}: expected options after '?', such as name=value&name=value.")
    options: dict[str, str] = {}
    for key, value in pairs:
        if key in options:
            raise UsageError(f"In {text!r}: the option {key!r} is given twice.")
        options[key] = value
    return BotSpec(name.strip(), target, options)


def name_specs(texts: Sequence[str]) -> list[NamedSpec]:
    """Specifications with the names they are given, or else names of their own; no two are the same.

    >>> [named.name for named in name_specs(["anna=tfidf:sample", "generic", "generic?question=Hm."])]
    ['anna', 'generic', 'generic-2']
    """
    given = [_split_name(text) for text in texts]
    taken = [name for name, _ in given if name]
    if twice := next((name for name in taken if taken.count(name) > 1), None):
        raise UsageError(f"Two bots are called {twice!r}.", hint="Give each its own name: NAME=BOT.")
    named = []
    for name, spec in given:
        if not name:
            kind = parse_spec(spec).name
            taken.append(next(n for n in (kind, *(f"{kind}-{i}" for i in range(2, len(given) + 2))) if n not in taken))
        named.append(NamedSpec(name or taken[-1], spec, bool(name)))
    return named


def _split_name(text: str) -> tuple[str, str]:
    match = None if Path(text).exists() else NAMED_SPEC.fullmatch(text)
    return (match[1].strip(), match[2]) if match else ("", text)


def make_bot(spec: str | BotSpec, progress: Progress | None = None, *, reference: bool = False) -> Bot:
    """Make the bot of a specification; with the option `documents`, together with its folder of texts.

    A `reference` computes with torch unless the specification names an engine: what a verdict is based on must not
    depend on which packages are installed.
    """
    parsed = parse_spec(spec) if isinstance(spec, str) else spec
    if reference:
        parsed = replace(parsed, options=reference_options(_factory(parsed.name).Options) | parsed.options)
    options, documents = check_spec(parsed), documents_of(parsed)
    bot: Bot = _factory(parsed.name).build(parsed.target, options)  # type: ignore[assignment]
    return bot if documents is None else with_documents(bot, documents, progress)


def reference_options(kind: type[Config]) -> dict[str, str]:
    """The options that make a bot compute as the reference does, if it has a choice."""
    return {"engine": "torch"} if "engine" in kind.model_fields else {}


def check_spec(spec: str | BotSpec) -> Config:
    """The bot's options, or the error that its specification has; nothing is loaded."""
    parsed = parse_spec(spec) if isinstance(spec, str) else spec
    factory = _factory(parsed.name)
    if parsed.target and not factory.target_help:
        raise UsageError(f"The bot {parsed.name!r} takes nothing after the colon, got {parsed.target!r}.")
    shared = DocumentsConfig.model_fields if documents_of(parsed) else ()
    own = {name: value for name, value in parsed.options.items() if name not in shared}
    return validate(factory.Options, own, where=f"the bot {parsed.name!r}")


def documents_of(spec: BotSpec) -> DocumentsConfig | None:
    """The folder of texts that a specification names, with its options; None if it names none."""
    if "documents" not in spec.options:
        return None
    given = {name: value for name, value in spec.options.items() if name in DocumentsConfig.model_fields}
    return validate(DocumentsConfig, given, where=f"the bot {spec.name!r}")


def _factory(name: str) -> type[BotFactory]:
    try:
        factory: type[BotFactory] = BOTS.get(name)
    except UnknownName:
        if not Path(name).is_dir():
            if "/" not in name:
                raise
            raise UsageError(
                f"Folder not found: {name}", hint="A bot is name[:path or model][?option=value&...], or a run's folder."
            ) from None
        raise UsageError(
            f"The folder {name} does not contain a complete bot.",
            hint=f"Resume an interrupted run with `tertulia train RECIPE.toml --out {name} --resume`.",
        ) from None
    return factory


def _bot_of(folder: Path) -> str:
    about = read_about(folder)
    if "bot" not in about:
        raise UsageError(
            f"{folder} does not contain a bot: its {MANIFEST} names none.",
            hint="A bot is name[:path or model][?option=value&...], or a run's folder.",
        )
    return str(about["bot"])
