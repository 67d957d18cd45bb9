"""The user's own defaults: a TOML file with a table per command, below the file of `--config` and above our defaults.

    log_level = "info"          # an option before the command

    [serve]
    port = 8080

    [judge.rank]
    metrics = ["hits@1", "mrr"]

It is `config.toml` in the platform's folder for settings (Linux: ~/.config/tertulia), or what TERTULIA_CONFIG names; an
empty TERTULIA_CONFIG means none. Which variable sets which option of a command is here, too.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from tertulia.cli.commands import COMMANDS, Group
from tertulia.cli.user_file import user_file as user_file
from tertulia.cli.verbosity import Verbosity, verbosity
from tertulia.core.config import Config, load_toml, validate
from tertulia.core.errors import ConfigError, close_names

_NO_FILE_NEEDED = ("config", "json")


class GlobalOptions(Config):
    """Options before the command: `tertulia -v corpus mine ...`."""

    quiet: bool = False
    """Show no progress, and errors only."""
    verbose: bool = False
    """Log what is done: the same as log_level = "info"."""
    log_level: Literal["debug", "info", "warning", "error"] | None = None
    """Log messages of this level and above."""
    debug: bool = False
    """Log everything, and show where in the code an error comes from."""


def global_options(given: Mapping[str, Any]) -> Verbosity:
    """What the options before the command and the user's file ask for."""
    own = {name: value for name, value in user_values().items() if name not in COMMANDS}
    if "log_level" in given:
        validate(GlobalOptions, {"log_level": given["log_level"]}, where="--log-level")
    options = validate(GlobalOptions, {**own, **given}, where=str(user_file()))
    level = options.log_level or ("debug" if options.debug else "info" if options.verbose else "")
    return Verbosity(options.quiet, level, options.debug, verbosity().as_json)


def user_values() -> dict[str, Any]:
    """All of the user's file, or nothing. A table that is no command is an error."""
    file = user_file()
    values = load_toml(file) if file else {}
    known = [*COMMANDS, *GlobalOptions.model_fields]
    for name, value in values.items():
        if name not in known:
            raise _unknown(file, name, known)
        entry = COMMANDS.get(name)
        if entry and not isinstance(value, dict):
            raise ConfigError(f"In {file}: {name!r} must be a table, such as [{name}].")
        subcommands = entry.commands if isinstance(entry, Group) else {}
        for sub in value if subcommands else ():
            if sub not in subcommands:
                raise _unknown(file, f"{name}.{sub}", [f"{name}.{command}" for command in subcommands])
    return values


def command_values(path: Sequence[str]) -> dict[str, Any]:
    """The user's table of a command: [judge.rank] for ("judge", "rank")."""
    values = user_values()
    for name in path:
        values = values.get(name, {})
        if not isinstance(values, dict):
            raise ConfigError(f"In {user_file()}: {'.'.join(path)!r} must be a table, such as [{'.'.join(path)}].")
    return values


def variable(path: Sequence[str], label: str) -> str:
    """The environment variable of an option or argument of a command.

    >>> variable(("judge", "rank"), "--by-length"), variable(("chat",), "BOT")
    ('TERTULIA_JUDGE_RANK_BY_LENGTH', 'TERTULIA_CHAT_BOT')
    """
    return "_".join(("TERTULIA", *path, label.lstrip("-"))).upper().replace("-", "_")


def unknown_variables(path: Sequence[str], labels: Sequence[str]) -> dict[str, str]:
    """Variables that look like options of a command and are none, each with the closest that is, or nothing.

    Variables of commands whose names begin with this one's, and secrets, have names of their own.
    """
    known = {variable(path, label) for label in (*labels, *_NO_FILE_NEEDED)}
    prefix = variable(path, "")
    unknown = (name for name in os.environ if name.startswith(prefix) and name not in known)
    return {name: next(iter(close_names(name, known)), "") for name in unknown}


def _unknown(file: Path | None, name: str, known: Sequence[str]) -> ConfigError:
    near = close_names(name, known)
    hint = f"Did you mean {near[0]!r}?" if near else "A table is named after a command: [serve], [judge.rank]."
    return ConfigError(f"In {file}: there is no command or option called {name!r}.", hint=hint)
