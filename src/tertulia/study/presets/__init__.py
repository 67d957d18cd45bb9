"""The ten presets, and studies based on them.

A study's TOML says `preset = "NAME"` and overrides what it likes: tables are merged, lists (such as `[[questions]]`)
and texts replace those of the preset. A text given in English only therefore never leaves an outdated translation
behind: a language without its text is an error.
"""

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from tertulia.core.config import parse_toml, validate
from tertulia.core.errors import ConfigError, UnknownName
from tertulia.core.toml_lines import line_of
from tertulia.study.config import StudyConfig, missing_parts

PRESETS = {
    "ssa-static": "Responses to fixed contexts: sensible? specific? human-like? (Meena)",
    "ssa-interactive": "Chats of 14 to 28 turns, every bot turn labelled sensible and specific (Meena)",
    "interactive-likert": "Free chats with up and down votes, then five questions on a 7-point scale",
    "persona-chat": "Chats with a bot that plays a persona: fluency, engagingness, consistency, persona detection",
    "pairwise-static": "Two responses to one context: A, B or a tie on four aspects",
    "pairwise-chat": "Two complete conversations side by side (in the manner of ACUTE-Eval)",
    "arena": "Two blinded bots answer the same person side by side; vote and continue",
    "begin": "Is a response grounded in its document? Questions per sentence, labels derived (BEGIN)",
    "collect-dialogues": "Two people, a persona each, chat to get to know each other (Persona-Chat's collection)",
    "rewrite-personas": "People rewrite personas in other words (Persona-Chat's revised personas)",
}
"""Name and one line of help of every preset."""

_LANGUAGE = re.compile(r"[a-z]{2}")


def load_preset(name: str) -> StudyConfig:
    """A preset as a study that still lacks its bots and items."""
    return validate(StudyConfig, _preset_values(name), where=f"the preset {name}")


def preset_text(name: str) -> str:
    """The TOML text of a preset, for researchers who want to change its questions or texts."""
    if name not in PRESETS:
        raise UnknownName("preset", name, PRESETS)
    return files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8")


def study_from_toml(text: str, file: str) -> StudyConfig:
    """A study from its TOML; errors name the file and the line."""
    values, lines = parse_toml(text, where=file)
    preset = values.get("preset", "")
    if preset and preset not in PRESETS:
        error = UnknownName("preset", str(preset), PRESETS)
        raise ConfigError(f"In {file}: line {line_of(lines, ('preset',))}: {error.message}", hint=error.hint) from None
    base = _preset_values(preset) if preset else _read("defaults")
    config = validate(StudyConfig, merge(base, values), where=file, lines=lines)
    if problems := missing_parts(config):
        listed = "; ".join(f"line {line_of(lines, problem.keys[0]) or 1}: {problem}" for problem in problems)
        raise ConfigError(f"In {file}: {listed}")
    return config


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The base with changes: tables are merged, everything else and texts by language are replaced.

    >>> merge({"pay": {"per_hour": 12, "currency": "EUR"}, "title": {"en": "a", "de": "b"}},
    ...       {"pay": {"per_hour": 15}, "title": {"en": "c"}})
    {'pay': {'per_hour': 15, 'currency': 'EUR'}, 'title': {'en': 'c'}}
    """
    merged = dict(base)
    for key, value in changes.items():
        old = base.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and not _is_localised(old):
            merged[key] = merge(old, value)
        else:
            merged[key] = value
    return merged


def _is_localised(table: Mapping[str, Any]) -> bool:
    return bool(table) and all(_LANGUAGE.fullmatch(key) for key in table)


def _preset_values(name: str) -> dict[str, Any]:
    values, _ = parse_toml(preset_text(name), where=f"the preset {name}")
    return merge(_read("defaults"), values) | {"preset": name}


def _read(name: str) -> dict[str, Any]:
    values, _ = parse_toml(files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8"), where=name)
    return values


def study_template(name: str) -> str:
    """A study to start from: a short TOML on top of a preset, with what has to be filled in."""
    config = load_preset(name)
    lines = [f"# {PRESETS[name]}.", f'preset = "{name}"', f'title = "{config.title.get("en")}"']
    lines.append('languages = ["en"]  # of en, de, es; the first is the default')
    if config.protocol != "chat" or config.persona != "none":
        lines.append('items = "items.jsonl"')
    lines.append(f"ratings_per_unit = {config.ratings_per_unit}")
    if config.protocol == "chat":
        lines.append(f"conversations_per_bot = {config.conversations_per_bot}")
    if config.units_per_participant:
        lines.append(f"units_per_participant = {config.units_per_participant}")
    lines += ["", "[pay]", f'currency = "{config.pay.currency}"', f"per_hour = {config.pay.per_hour:g}"]
    if config.protocol == "chat" and any(bot.spec == "human" for bot in config.bots):
        return "\n".join(lines) + "\n"
    if config.protocol != "write":
        specs = ("generic", "tfidf") if config.protocol == "chat" else ("", "")
        for bot_name, spec in zip(("first", "second"), specs, strict=True):
            lines += ["", "[[bots]]", f'name = "{bot_name}"', *([f'spec = "{spec}"'] if spec else [])]
    return "\n".join(lines) + "\n"
