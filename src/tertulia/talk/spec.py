"""Bot specifications, `name[:path or model][?option=value&...]`, and making bots from them.

The folder of a training run or an index is a specification, too: its manifest says which bot it is for (key "bot").
"""

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode

from tertulia.artefacts.manifest import MANIFEST, is_complete, read_about
from tertulia.core.config import validate
from tertulia.core.errors import UnknownName, UsageError
from tertulia.talk.bot import Bot, BotFactory
from tertulia.talk.registry import BOTS


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


def make_bot(spec: str | BotSpec) -> Bot:
    """Make the bot of a specification."""
    parsed = parse_spec(spec) if isinstance(spec, str) else spec
    factory = _factory(parsed.name)
    if parsed.target and not factory.target_help:
        raise UsageError(f"The bot {parsed.name!r} takes nothing after the colon, got {parsed.target!r}.")
    options = validate(factory.Options, parsed.options, where=f"the bot {parsed.name!r}")
    bot: Bot = factory.build(parsed.target, options)  # type: ignore[assignment]
    return bot


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
