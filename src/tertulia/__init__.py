"""Tertulia: a lab for open-domain dialogue, in four verbs: corpus, train, talk, judge.

`import tertulia as tt` has the short functions of `tertulia.api`: `tt.bot`, `tt.load`, `tt.judge`, `tt.train`. They are
imported when they are used, so that importing the package takes no time; `__init__.pyi` has their types.
"""

from importlib import import_module

__version__ = "0.2.0"

_CALLABLE = ("judge", "train")
"""Packages that are functions of the API, too."""
_PUBLIC = {
    "bot": "tertulia.api",
    "load": "tertulia.api",
    "ChatBot": "tertulia.api",
    "ChatSession": "tertulia.api",
    "TrainedRun": "tertulia.api",
    "Verdict": "tertulia.api",
    "Dialogue": "tertulia.core.dialogue",
    "Persona": "tertulia.core.dialogue",
    "Turn": "tertulia.core.dialogue",
    "TertuliaError": "tertulia.core.errors",
    "Estimate": "tertulia.core.estimate",
    "Reply": "tertulia.core.reply",
}
"""Names of the package, and where they are defined."""


def __getattr__(name: str) -> object:
    if name in _CALLABLE:
        return import_module(f"tertulia.{name}")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'tertulia' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return ["__version__", *_CALLABLE, *_PUBLIC]
