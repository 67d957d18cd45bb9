"""The interface's strings by key and language: `en.toml`, `de.toml`, `es.toml`, each with the same keys."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

INTERFACE_LANGUAGES = ("en", "de", "es")


def text(key: str, lang: str, **values: object) -> str:
    """An interface string; in a language without translation, the English one.

    >>> text("button.next", "de"), text("progress.units", "en", done=2, total=5)
    ('Weiter', '2 of 5 done')
    """
    strings = interface_texts(lang)
    return strings[key].format_map(values) if values else strings[key]


@cache
def interface_texts(lang: str) -> Mapping[str, str]:
    """All strings of a language by dotted key, for a page that needs many of them."""
    language = lang if lang in INTERFACE_LANGUAGES else "en"
    content = files(__name__).joinpath(f"{language}.toml").read_text(encoding="utf-8")
    return {f"{group}.{key}": value for group, table in tomllib.loads(content).items() for key, value in table.items()}
