"""Where the user's own config file is; apart from `user_config`, because --help need not read it."""

import os
from pathlib import Path

import typer

VARIABLE = "TERTULIA_CONFIG"


def user_file() -> Path | None:
    """The user's file; None if there is none."""
    named = os.environ.get(VARIABLE)
    if named == "":
        return None
    path = Path(named) if named else Path(typer.get_app_dir("tertulia")) / "config.toml"
    return path if named or path.is_file() else None
