"""A GGUF model in llama.cpp as a `Generator`, plain or fine-tuned, and how it is loaded."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from transformers import AutoTokenizer

from tertulia.artefacts.cache import cache_folder
from tertulia.artefacts.files import sha256_of
from tertulia.artefacts.manifest import is_complete, seal
from tertulia.core.config import validate
from tertulia.core.dialogue import Json
from tertulia.core.errors import BotError, UsageError
from tertulia.models.checkpoint import read_model
from tertulia.models.generator import DialogueView
from tertulia.models.hf import packaged
from tertulia.models.hf.chat_format import ChatFormat
from tertulia.models.hf.finetuned import SMOLLM2, Base
from tertulia.models.hf.generator import ChatGenerator, Prompt, ShiftedTokenizer, end_tensor
from tertulia.models.hf.layout import DialogueLayout
from tertulia.models.hf.lora import TuningConfig
from tertulia.models.llamacpp.adapter import write_adapter
from tertulia.models.llamacpp.context import Weights
from tertulia.models.llamacpp.encoding import ENCODING, fast_file
from tertulia.models.llamacpp.library import PACKAGE, VERSION
from tertulia.models.llamacpp.model import MAX_ROWS, TOKENS, LlamaCppModel


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How llama.cpp computes."""

    threads: int = 1
    cache_bytes: int = 2**28
    """Of conversations that are kept beside the memory of those that are running."""


class LlamaCppGenerator(ChatGenerator):
    """A chat model whose logits llama.cpp computes; a `LimitedGenerator`."""

    max_rows = MAX_ROWS
    max_tokens = TOKENS
    prompts_at_once = 1

    def __init__(self, chat: ChatFormat, provenance: Mapping[str, Json], layout: DialogueLayout | None = None) -> None:
        """Fine-tuned models have the layout that they were trained with."""
        self.chat, self.layout = chat, layout
        self.tokenizer = ShiftedTokenizer(chat)
        self.provenance = dict(provenance)
        """Engine, version and digests of the weights."""
        self._ends = end_tensor(chat)

    @property
    def tokens_read(self) -> int:
        """Tokens that llama.cpp has computed so far."""
        return cast(LlamaCppModel, self.chat.lm).decoded_tokens

    def prompt(self, view: DialogueView) -> list[int]:
        """The tokens that the model reads before it generates the next turn of a view."""
        if self.layout is None or isinstance(view, Prompt):
            return super().prompt(view)
        return self.layout.prompt(view, self.chat.max_prompt_tokens(self.chat.window // 4))

    def save(self, folder: Path, /) -> Sequence[str]:
        """Refused: the weights are the GGUF file."""
        raise UsageError("A model in llama.cpp is not saved: its weights are a file already.", hint="Copy the file.")


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """A GGUF file, by its digest."""

    path: Path
    sha256: str

    @classmethod
    def at(cls, path: Path) -> "GGUFFile":
        """The file at a path; it is read once for its digest."""
        try:
            with path.open("rb") as file:
                magic = file.read(4)
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}.", hint="Give a GGUF file: gguf:FILE.") from None
        if magic != b"GGUF":
            raise UsageError(f"{path} is not a GGUF file.", hint="Give a GGUF file: gguf:FILE.")
        return cls(path, sha256_of(path))

    @classmethod
    def of_smollm2(cls) -> "GGUFFile":
        """The file in the pip package, verified."""
        path = packaged.packaged_file()
        packaged.verify(path, packaged.SHA256)
        return cls(path, packaged.SHA256)

    def fast_path(self) -> Path:
        """The weights to compute with: SmolLM2's in the faster encoding; a file of somebody's choice as it is."""
        return fast_file(self.path, sha256=self.sha256) if self.sha256 == packaged.SHA256 else self.path

    def provenance(self) -> dict[str, Json]:
        """Engine, version, the digest of the file, and its encoding if it was changed."""
        engine: dict[str, Json] = {"engine": "llamacpp", "engine_version": f"{PACKAGE} {VERSION}"}
        encoding: dict[str, Json] = {"weights_encoding": ENCODING} if self.sha256 == packaged.SHA256 else {}
        return {**engine, "weights_sha256": self.sha256, **encoding}

    def tokenizer(self) -> Any:
        """The tokenizer inside the file; it takes seconds to read, so it is kept in the cache folder."""
        unpacked = packaged.unpacked_folder()
        if self.sha256 == packaged.SHA256 and is_complete(unpacked):
            return AutoTokenizer.from_pretrained(str(unpacked))
        folder = cache_folder() / f"gguf-tokenizer-{self.sha256[:12]}"
        if not is_complete(folder):
            self._unpack_tokenizer(folder)
        return AutoTokenizer.from_pretrained(str(folder))

    def _unpack_tokenizer(self, folder: Path) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=folder.name, dir=folder.parent) as unfinished:
            new = Path(unfinished) / folder.name
            try:
                with packaged.silent_reader():
                    AutoTokenizer.from_pretrained(str(self.path.parent), gguf_file=self.path.name).save_pretrained(new)
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise BotError(
                    f"The tokenizer in {self.path} cannot be read: {str(error).splitlines()[0]}",
                    hint="Give a GGUF file of an architecture that transformers knows.",
                ) from error
            files = sorted(path.name for path in new.iterdir())
            seal(new, kind="tokenizer", format=1, files=files, about={"sha256": self.sha256})
            if not folder.exists():
                new.rename(folder)


def load_gguf(file: GGUFFile, config: EngineConfig, *, name: str) -> LlamaCppGenerator:
    """A chat model from a GGUF file."""
    chat = _chat(file, Weights(file.fast_path()), config, name)
    return LlamaCppGenerator(chat, file.provenance())


def load_finetuned(folder: Path, config: EngineConfig) -> LlamaCppGenerator:
    """The model of a run with adapters on SmolLM2, which `why_not` has checked; torch is not needed for its weights."""
    about = read_model(folder)
    tuning = validate(TuningConfig, about["config"], where=str(folder))
    file = GGUFFile.of_smollm2()
    weights = Weights(file.fast_path())
    adapter = write_adapter(folder, tuning, weights, base_sha256=file.sha256)
    weights.attach(adapter.path)
    chat = _chat(file, weights, config, SMOLLM2)
    layout = DialogueLayout(chat, plain=tuning.format == "plain", evidence_words=tuning.evidence_words)
    return LlamaCppGenerator(chat, file.provenance() | {"adapter_sha256": adapter.sha256}, layout)


def why_not(folder: Path, base: str = "") -> str:
    """Why a fine-tuned run cannot be served by llama.cpp; empty if it can."""
    about = read_model(folder)
    trained = Base(**about["base"])
    if (base or trained.name) != SMOLLM2:
        return f"the base of the run is {base or trained.name}, and only runs on smollm2 have a GGUF file as their base"
    if trained.digest != packaged.DIGEST:
        return "the run was trained on other weights of smollm2 than those that are installed"
    if about["config"].get("tune") != "lora":
        return "the run has weights of its own instead of adapters (tune = full)"
    return ""


def _chat(file: GGUFFile, weights: Weights, config: EngineConfig, name: str) -> ChatFormat:
    tokenizer = file.tokenizer()
    if tokenizer.eos_token_id is None:
        raise BotError(f"{file.path} does not say which token ends a turn.", hint="Use another file of the model.")
    end = int(tokenizer.eos_token_id)
    lm = LlamaCppModel(weights, threads=config.threads, pad=end, cache_bytes=config.cache_bytes)
    return ChatFormat(tokenizer, lm, name=name, window=lm.window, end_tokens={end})
