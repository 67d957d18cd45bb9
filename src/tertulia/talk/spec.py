"""Bot specifications: `name[:path or model][?option=value&...]`, and the bots made from them.

A folder that holds a manifest (written by training or indexing) is a bot by itself: the manifest says which.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode

from tertulia.core.config import validate
from tertulia.core.errors import UnknownName, UsageError
from tertulia.talk.bot import Bot, BotFactory
from tertulia.talk.table import BOTS

MANIFEST = "manifest.json"
"""Written last into every artefact's folder; its field "bot" names the bot that can use it."""


@dataclass(frozen=True, slots=True)
class BotSpec:
    """A specification taken apart."""

    name: str
    target: str = ""
    options: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        target = self.target.replace("%", "%25").replace("?", "%3F")
        text = f"{self.name}:{target}" if target else self.name
        return f"{text}?{urlencode(self.options)}" if self.options else text


def parse_spec(text: str) -> BotSpec:
    """Take a specification apart.

    >>> parse_spec("openai:gpt-x?base_url=http://127.0.0.1:9/v1&timeout=5")
    BotSpec(name='openai', target='gpt-x', options={'base_url': 'http://127.0.0.1:9/v1', 'timeout': '5'})
    """
    head, _, query = text.partition("?")
    name, _, target = head.partition(":")
    name, target = (_bot_of(Path(head)), str(Path(head))) if _is_artefact(head) else (name, unquote(target))
    if not name.strip():
        raise UsageError(f"{text!r} names no bot.", hint="A bot is name[:path or model][?option=value&...].")
    pairs = parse_qsl(query, keep_blank_values=True)
    if query and not pairs:
        raise UsageError(f"In {text!r}: after '?' come options as name=value, joined by '&'.")
    options: dict[str, str] = {}
    for key, value in pairs:
        if key in options:
            raise UsageError(f"In {text!r}: the option {key!r} is given twice.")
        options[key] = value
    return BotSpec(name.strip(), target, options)


def make_bot(spec: str | BotSpec) -> Bot:
    """The bot a specification stands for, ready to answer."""
    parsed = parse_spec(spec) if isinstance(spec, str) else spec
    factory = _factory(parsed.name)
    if parsed.target and not factory.target_help:
        raise UsageError(f"The bot {parsed.name!r} takes nothing after a colon, not {parsed.target!r}.")
    options = validate(factory.Options, parsed.options, where=f"the bot {parsed.name!r}")
    bot: Bot = factory.build(parsed.target, options)  # type: ignore[assignment]
    return bot


def _factory(name: str) -> type[BotFactory]:
    try:
        found: type[BotFactory] = BOTS.get(name)
    except UnknownName:
        if not Path(name).is_dir():
            raise
        raise UsageError(
            f"The folder {name} holds no finished bot.",
            hint=f"A training that was broken off goes on with `tertulia train RECIPE.toml --out {name} --resume`.",
        ) from None
    return found


def _is_artefact(path: str) -> bool:
    try:
        return bool(path) and (Path(path) / MANIFEST).is_file()
    except OSError:  # too long for a path, say
        return False


def _bot_of(folder: Path) -> str:
    try:
        name = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["bot"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder / MANIFEST} does not say which bot it is for ({error}).") from None
    return str(name)
