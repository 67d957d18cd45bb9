"""A Hugging Face model fine-tuned on dialogues: a base that stays what it is, and the weights that were trained.

A run's folder has the trained weights alone, for adapters a few megabytes, with the name and the digest of their base.
When it is loaded, the base is loaded by its name, its digest is compared (the same adapters on other weights would
produce nonsense without any error), and the adapters are merged into it.
"""

import hashlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from tertulia.core.config import validate
from tertulia.core.errors import BotError, UsageError
from tertulia.models.checkpoint import load_weights, read_model, save_weights
from tertulia.models.generator import DialogueView, TargetTurns
from tertulia.models.hf.chat_model import ChatModel
from tertulia.models.hf.generator import SHIFT, Chain, HuggingFaceGenerator, Prompt
from tertulia.models.hf.layout import DialogueLayout
from tertulia.models.hf.lora import TuningConfig, linear_layers, merge, prepare
from tertulia.models.hf.packaged import unpack

SMOLLM2 = "smollm2"
"""The base that works offline."""


@dataclass(frozen=True, slots=True)
class Base:
    """Which model was fine-tuned."""

    name: str
    """`smollm2`, a folder, or a name on the Hugging Face hub."""
    digest: str
    """Of its weights, tokens and chat template."""


class FinetunedGenerator(HuggingFaceGenerator):
    """A causal model with trained weights; its state has these alone."""

    config_type = TuningConfig

    def __init__(self, chat: ChatModel, config: TuningConfig, base: Base) -> None:
        plain = config.format == "plain"
        self.layout = DialogueLayout(chat, plain=plain, evidence_words=config.evidence_words)  # adds an end token
        super().__init__(chat)
        self.config, self.base = config, base
        prepare(self.model, config)
        self.trained = tuple(name for name, p in self.model.named_parameters() if p.requires_grad)
        self._rounded = False
        self._exact: list[tuple[nn.Parameter, torch.Tensor]] = []  # matrices that are rounded now, and what they were
        self._attention = str(self.model.config._attn_implementation)

    @classmethod
    def untrained(cls, config: TuningConfig, base: str) -> Self:
        """The base with what is to be trained; adapters are drawn from torch's global random generator."""
        chat = load_base(base)
        return cls(chat, config, Base(base, digest_of(chat)))

    def prompt(self, view: DialogueView) -> list[int]:
        """The tokens that the model reads before it generates the next turn of a view, laid out as in training."""
        if isinstance(view, Prompt):
            return list(view.tokens)
        return self.layout.prompt(view, self.chat.max_prompt_tokens(self.chat.window // 4))

    def loss(self, views: Sequence[DialogueView], target_turns: TargetTurns) -> tuple[torch.Tensor, int]:
        """Negative log-likelihood of the target turns in nats, and the number of their tokens.

        In training a dialogue is one stream, the partner's turns as they are in it; `nll` instead takes the partner's
        side to predict the partner's turns.
        """
        streams = [part for v in views for part in self.layout.segments(v, target_turns, self.max_length)]
        if not streams:  # personas that are longer than `max_length`
            nothing = [p.sum() * 0.0 for p in self.parameters() if p.requires_grad]
            return torch.stack(nothing).sum(), 0
        positions = [[i for i, is_target in enumerate(mask) if is_target and i] for _, mask in streams]
        logits = torch.cat(self.chat.lm.logits_before([ids for ids, _ in streams], positions))
        targets = [ids[i] for (ids, _), some in zip(streams, positions, strict=True) for i in some]
        target = torch.tensor(targets, device=logits.device)
        return torch.nn.functional.cross_entropy(logits.float(), target, reduction="sum"), len(targets)

    def round_frozen(self, rounded: bool) -> None:
        """Keep the frozen matrices in bfloat16 for training in it, or as they were.

        Autocast computes with the same rounded numbers, but rounds all of them again in every pass. On a CPU, attention
        is computed step by step then: the fused one takes twice as long in bfloat16. Both save a fifth of an update.
        """
        if rounded == self._rounded:
            return
        self._rounded = rounded
        if rounded:
            frozen = [self.model.get_submodule(name).weight for name in linear_layers(self.model)]
            self._exact = [(weight, weight.data) for weight in frozen if not weight.requires_grad]
            for weight, exact in self._exact:
                weight.data = exact.to(torch.bfloat16)
        else:
            for weight, exact in self._exact:
                weight.data = exact
            self._exact = []
        if self.model.device.type == "cpu":
            self.model.set_attn_implementation("eager" if rounded else self._attention)

    @property
    def max_length(self) -> int:
        """Of a stream in training, in tokens."""
        return min(self.config.max_length, self.chat.window)

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Any]:  # type: ignore[override]
        """The trained weights by their names in the base; everything else is the base's."""
        parameters = dict(self.model.named_parameters())
        return {name: parameters[name].detach() for name in self.trained}

    def load_state_dict(self, state_dict: Mapping[str, Any], *_: Any, **__: Any) -> Any:
        """Set the trained weights; others than these are an error."""
        parameters = dict(self.model.named_parameters())
        if set(state_dict) != set(self.trained):
            raise RuntimeError("the weights are not those that this config trains")
        with torch.no_grad():
            for name, value in state_dict.items():
                if parameters[name].shape != value.shape:
                    raise RuntimeError(f"{name} has another shape")
                parameters[name].copy_(value)

    def save(self, folder: Path, /) -> list[str]:
        """Write the trained weights, and in the model's file the config and the base."""
        save_weights(folder, self, {"config": self.config.model_dump(mode="json"), "base": asdict(self.base)})
        return []

    def chains(self, view: DialogueView, replies: Sequence[str]) -> list[Chain]:
        """Each reply after the prompt that the model reads when it talks; none at all if there is no room for them.

        All have the same prompt: the oldest turns are left out until the longest reply fits into `max_length` as well.
        """
        texts = [" ".join(reply.split("\n")) if self.layout.single_lines else reply for reply in replies]
        tokens = [tuple(i - SHIFT for i in self.tokenizer.encode(text.strip())) for text in texts]
        room = self.max_length - max(map(len, tokens)) - 1
        prompt = tuple(self.layout.prompt(self.layout.newest(view, room), sys.maxsize))
        if len(prompt) > room:
            return []
        start, end = len(prompt), tuple(self._ends[:1].tolist())
        return [Chain((*prompt, *ids, *end), (slice(start, start + len(ids)),)) for ids in tokens]

    def log_probs(self, chains: Sequence[Chain]) -> torch.Tensor:
        """The log-probability of the turns of each chain, ends included, in nats: (chains,). Gradients flow."""
        return -self._chain_nll(chains)

    @classmethod
    def load(cls, folder: Path, /, *, base: str = "") -> Self:
        """Load what `save` wrote, adapters merged into the base; `base` says where the base is now."""
        model = cls.load_to_train(folder, base=base)
        merge(model.model)
        model.requires_grad_(False)
        return model.eval()

    @classmethod
    def load_to_train(cls, folder: Path, /, *, base: str = "") -> Self:
        """Load what `save` wrote as it was in training: adapters beside the base, which can be trained further."""
        about = read_model(folder)
        config = validate(TuningConfig, about["config"], where=str(folder))
        expected = Base(**about["base"])
        chat = load_base(base or expected.name, of=folder)
        if digest_of(chat) != expected.digest:
            raise UsageError(
                f"{base or expected.name} is not the base of the run in {folder}: its weights, tokens or chat template"
                f" have the digest {digest_of(chat)}, and not {expected.digest}.",
                hint=f"The run needs the very model that it was trained on, {expected.name}:"
                f" {folder}?base=NAME_OR_FOLDER says where it is.",
            )
        model = cls(chat, config, expected)
        load_weights(folder, model)
        return model

    def export(self, folder: Path) -> list[str]:
        """Write a plain Hugging Face model, tokenizer and chat template included, into a new or empty folder.

        It is written completely or not at all.
        """
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=folder.name, suffix=".unfinished", dir=folder.parent))
        try:
            self.chat.save(unfinished)
            if folder.exists():
                folder.rmdir()
            unfinished.chmod(0o755)
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        return sorted(file.name for file in folder.iterdir())


def load_base(name: str, *, of: Path | None = None) -> ChatModel:
    """The causal model of that name: `smollm2`, a folder, or a name on the hub."""
    hint = f"Say where it is: {of}?base=NAME_OR_FOLDER" if of else "A base is smollm2, a folder, or a name on the hub."
    try:
        chat = ChatModel.load(str(unpack()) if name == SMOLLM2 else name)
    except BotError as error:
        raise UsageError(error.message, hint=f"{error.hint}\n{hint}".strip()) from error
    if chat.seq2seq:
        raise UsageError(
            f"The base {name!r} is not a causal model: {type(chat.model).__name__} has an encoder.",
            hint="Fine-tune a causal language model, such as smollm2, GPT-2 or Llama.",
        )
    chat.name = name
    return chat


def digest_of(chat: ChatModel) -> str:
    """A digest of weights, tokens and chat template; files and formats do not matter."""
    digest = hashlib.sha256()
    for part in _identity(chat):
        digest.update(part)
    return digest.hexdigest()[:16]


def _identity(chat: ChatModel) -> Iterator[bytes]:
    for name, parameter in sorted(chat.model.named_parameters()):
        yield f"{name} {tuple(parameter.shape)}\n".encode()
        yield parameter.detach().float().contiguous().cpu().numpy().tobytes()
    for token, i in sorted(chat.tokenizer.get_vocab().items(), key=lambda pair: int(pair[1])):
        yield f"{i} {token}\n".encode()
    yield str(chat.tokenizer.chat_template or "").encode()
