"""Modules that are imported when they are first used, for packages that take long to import and are seldom needed.

    if TYPE_CHECKING:
        import altair as alt
    else:
        alt = LazyModule("altair")

Annotations with such a module's types are quoted, so that defining a function does not import it.
"""

from importlib import import_module
from types import ModuleType
from typing import Any


class LazyModule(ModuleType):
    """Stands for a module until one of its attributes is asked for.

    >>> LazyModule("colorsys").rgb_to_hsv(0, 0, 1)[2]
    1
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)
