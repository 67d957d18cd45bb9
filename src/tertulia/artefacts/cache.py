"""Where Tertulia keeps what it can make again, such as model weights unpacked from a pip package."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """$TERTULIA_CACHE, or `tertulia` in the user's cache folder."""
    if own := os.environ.get("TERTULIA_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tertulia"
