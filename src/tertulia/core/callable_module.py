"""Packages that can be called: `tertulia.judge` and `tertulia.train` are rooms of the code and functions of the API.

The import system sets a package as an attribute of its parent, whatever that had by this name. So the room itself has
to be what `tt.judge("rank")` calls; it hands the call on to the function of its name in `tertulia.api`.
"""

from importlib import import_module
from types import ModuleType
from typing import Any


class CallableModule(ModuleType):
    """A module with a function of the API by its name."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the function."""
        return getattr(import_module("tertulia.api"), self.__name__.rpartition(".")[2])(*args, **options)
