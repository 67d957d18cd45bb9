"""Training on preferences: the loss of pairs (DPO) or labelled replies (KTO) against the frozen reference.

The reference is the model before training. What it says about the given replies is computed once, when training starts,
and kept beside the state of the run; so no second model is in memory, and a resumed run compares with the same numbers.
Where the reference itself is needed later (the KL divergence on new replies), the first weights are put back for a
moment.

An example is two replies in two `Chain`s: for DPO the chosen and the rejected one, for KTO the labelled reply and, for
the estimate of the KL divergence, the reply to another context. Everything is laid out as when the model talks.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from pydantic import Field

from tertulia.artefacts.files import read_json, write_json
from tertulia.core.dialogue import Dialogue
from tertulia.core.errors import UsageError
from tertulia.core.progress import Progress
from tertulia.corpus.load import load_dialogues
from tertulia.corpus.preferences.values import AnyPreference, LabelledReply, PreferencePair, context_key, groups, split
from tertulia.models.generator import DialogueView, eval_mode
from tertulia.models.hf.finetuned import SMOLLM2, FinetunedGenerator
from tertulia.models.hf.generator import Chain
from tertulia.models.hf.lora import TuningConfig
from tertulia.models.likelihood import batches_of, likelihoods, perplexity, view_as, views_of
from tertulia.train.loop import Loss, TrainingTask
from tertulia.train.preference_losses import dpo_loss, kto_kl, kto_loss
from tertulia.train.runs import TrainingConfig, subsample

REFERENCE = "reference.json"
"""What the reference says, in the folder of the run's state."""


class PreferenceConfig(TrainingConfig):
    """What is improved, by which preferences, and how."""

    data: str = "preferences.jsonl"
    """A file of preferences, or a folder of such files (.jsonl, .csv, .parquet): pairs or labels in the JSON lines of
    TRL and others, what `tertulia study export` wrote, or what `tertulia store export` wrote."""
    start: str = SMOLLM2
    """What is improved, and what it is compared with: the folder of a fine-tuned run, `smollm2`, the folder of a
    Hugging Face model, or its name on the hub."""
    base: str = ""
    """Where the base of the run in `start` is, if not where it was in training."""
    model: TuningConfig | None = None
    """What is trained of a base; a run has its adapters already, which are trained further."""
    loss: Literal["dpo", "kto"] = "dpo"
    """DPO learns from pairs of replies to one context, KTO from single replies that are wanted or not."""
    beta: float = Field(default=0.1, gt=0)
    """How strongly the model is held to the reference; lower lets it move further away."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=0.5)
    """DPO: the assumed share of wrong labels."""
    sft_weight: float = Field(default=0.0, ge=0)
    """Weight of the mean negative log-likelihood per token of chosen or desirable replies, added to the loss."""
    desirable_weight: float = Field(default=1.0, gt=0)
    """KTO: weight of desirable replies."""
    undesirable_weight: float = Field(default=1.0, gt=0)
    """KTO: weight of undesirable replies."""
    questions: tuple[str, ...] = ()
    """Questions of a study whose answers count; by default all that are about replies."""
    thresholds: dict[str, float] = Field(default_factory=dict)
    """By question of a study: a reply that is in no pair with another one to its context is desirable above this mean
    rating, and undesirable below it. By default 0.5 for yes-no questions and 0 for votes; scales need one."""
    withdrawn: tuple[str, ...] = ()
    """Pseudonyms of people who withdrew after the file was written: their judgements are left out."""
    held_out: float = Field(default=0.2, gt=0, lt=1)
    """Share of the preferences to validate on; those of one conversation or context stay together."""
    perplexity_data: str = "sample"
    """Dialogues whose perplexity is measured before and after, so that a model that wins by breaking is seen."""
    perplexity_split: str = "valid"
    """The split of these dialogues."""
    perplexity_dialogues: int = Field(default=10, ge=0)
    """How many of them, drawn by the seed; 0 for none."""
    max_perplexity_ratio: float = Field(default=1.1, gt=1)
    """A warning is given if perplexity rises by more than this factor."""
    kl_samples: int = Field(default=16, ge=0)
    """Replies sampled from the model at the end, to held-out contexts, on which the KL divergence to the reference is
    measured; 0 for none."""
    kl_tokens: int = Field(default=24, ge=1)
    """Most tokens of these replies."""
    batch_tokens: int = Field(default=1024, ge=32)
    """Tokens per batch, padding and both replies of an example included. Memory grows with it."""
    epochs: int = Field(default=2, ge=1)
    """Passes over the data, at most."""
    learning_rate: float = Field(default=1e-4, gt=0)
    """Peak learning rate."""
    warmup: int = Field(default=5, ge=0)
    """Updates of linear warm-up."""


class PreferenceExample(NamedTuple):
    """Two replies whose log-probabilities make a loss."""

    chains: tuple[Chain, Chain]
    """DPO: chosen and rejected. KTO: the labelled reply, and a reply to another context."""
    desirable: bool
    """The label of KTO."""
    view: DialogueView
    """The context."""
    group: int
    """Examples of one group are not independent."""
    context: int
    """The same number is the same context."""


class PreferenceData(NamedTuple):
    """What a model is trained and validated on."""

    train: list[PreferenceExample]
    valid: list[PreferenceExample]
    too_long: int
    """Preferences left out because context and reply do not fit into `max_length`."""
    dialogues: list[DialogueView]
    """Whose perplexity is measured."""


def prepare_examples(
    preferences: Sequence[PreferencePair] | Sequence[LabelledReply], model: FinetunedGenerator, config: PreferenceConfig
) -> PreferenceData:
    """Divide preferences, and lay them out as the model reads them."""
    train, valid = split(preferences, config.held_out, config.seed)
    if not valid:
        raise UsageError(
            f"All {len(preferences)} preferences are about one context, so none can be held out to validate on.",
            hint="Give preferences about several conversations.",
        )
    group_of = {id(one): group for one, group in zip(preferences, groups(preferences), strict=True)}
    parts = [_lay_out(part, model, config.seed, group_of) for part in (train, valid)]
    too_long = len(preferences) - sum(map(len, parts))
    if not all(parts):
        missing = "validate" if parts[0] else "train"
        raise UsageError(
            f"{too_long} of {len(preferences)} preferences have a context and replies of more than the"
            f" {model.max_length} tokens that fit, and nothing is left to {missing} on.",
            hint="Raise max_length in the recipe (or fine-tune with a larger one), or give shorter contexts.",
        )
    return PreferenceData(parts[0], parts[1], too_long, _dialogues(config))


def _lay_out(
    part: Sequence[AnyPreference], model: FinetunedGenerator, seed: int, group_of: Mapping[int, int]
) -> list[PreferenceExample]:
    others = _other_replies(part, seed, group_of)
    contexts: dict[object, int] = {}
    examples = []
    for one in part:
        view = view_as(one.context, one.speaker)
        texts = (one.chosen, one.rejected) if isinstance(one, PreferencePair) else (one.reply, others[id(one)])
        if chains := model.chains(view, texts):
            desirable = not isinstance(one, LabelledReply) or one.desirable
            context = contexts.setdefault(context_key(one), len(contexts))
            examples.append(PreferenceExample((chains[0], chains[1]), desirable, view, group_of[id(one)], context))
    return examples


def _other_replies(part: Sequence[AnyPreference], seed: int, group_of: Mapping[int, int]) -> dict[int, str]:
    """For each labelled reply the reply to another context, in a random order; the same ones in every epoch."""
    order = [one for one in part if isinstance(one, LabelledReply)]
    random.Random(f"{seed} mismatched").shuffle(order)
    others = {}
    for i, one in enumerate(order):
        later = (order[(i + step) % len(order)] for step in range(1, len(order)))
        other = next((two for two in later if group_of[id(two)] != group_of[id(one)]), order[(i + 1) % len(order)])
        others[id(one)] = other.reply
    return others


def _dialogues(config: PreferenceConfig) -> list[DialogueView]:
    if not config.perplexity_dialogues:
        return []
    every: list[Dialogue] = list(load_dialogues(config.perplexity_data, split=config.perplexity_split))
    some = subsample(every, config.perplexity_dialogues, config.seed)
    return [view for dialogue in some for view in views_of(dialogue, "own") if any(view.turns)]


class Rewards(NamedTuple):
    """What the model says about some examples, compared with the reference."""

    policy: torch.Tensor  # (n, 2)
    reference: torch.Tensor  # (n, 2)

    @property
    def ratios(self) -> torch.Tensor:
        """Log-probability under the model minus that under the reference: (n, 2)."""
        return self.policy - self.reference


class PreferenceTask(TrainingTask):
    """Preferences against a frozen reference."""

    goal = "-loss"
    unit = "preferences"

    def __init__(
        self,
        model: FinetunedGenerator,
        data: PreferenceData,
        config: PreferenceConfig,
        *,
        run_id: str,
        folder: Path,
        progress: Progress,
    ) -> None:
        self.module = self.model = model
        self.data, self.config = data, config
        self._run_id, self._file, self._progress = run_id, folder / REFERENCE, progress
        self._first_weights = {name: value.cpu().clone() for name, value in model.state_dict().items()}
        self._sizes = [2 * max(len(chain.ids) for chain in example.chains) for example in data.train]
        self.reference = torch.zeros(0, 2, device="cpu")
        """Log-probabilities under the reference: of the examples to train on, then of the held-out ones (n, 2)."""
        self.first_perplexity: Mapping[str, float] = {}

    def to(self, device: torch.device) -> None:
        """Move the model, and ask it what the reference says, as long as it still is the reference."""
        super().to(device)
        saved = read_json(self._file) if self._file.is_file() else {}
        if saved.get("run_id") != self._run_id:
            self._progress.step("Asking the reference")
            saved = {
                "run_id": self._run_id,
                "log_probs": self.log_probs([*self.data.train, *self.data.valid]).tolist(),
                "perplexity": dict(self.perplexity()),
            }
            write_json(self._file, saved)
        self.reference = torch.tensor(saved["log_probs"], dtype=torch.float32, device=device)
        self.first_perplexity = saved["perplexity"]

    def batches(self, epoch: int) -> Sequence[list[int]]:
        """Indices of examples of similar length, batches in a random order."""
        return batches_of(self._sizes, self.config.batch_tokens, random.Random(f"{self.config.seed} {epoch}"))

    def loss(self, batch: list[int]) -> Loss:
        """Mean over the examples."""
        examples = [self.data.train[i] for i in batch]
        chains = [example.chains[0] for example in examples], [example.chains[1] for example in examples]
        if self.config.loss == "dpo":
            policy = self.model.log_probs([*chains[0], *chains[1]]).view(2, -1).T
        else:  # the second one is only a point of comparison
            with torch.no_grad():
                others = self.model.log_probs(chains[1])
            policy = torch.stack([self.model.log_probs(chains[0]), others], 1)
        losses = self.losses(Rewards(policy, self.reference[batch]), examples)
        if self.config.sft_weight:
            losses = losses + self.config.sft_weight * _nll_per_token(policy[:, 0], examples)
        return Loss(losses.mean(), len(batch))

    def losses(self, rewards: Rewards, examples: Sequence[PreferenceExample]) -> torch.Tensor:
        """The preference loss of each example."""
        config = self.config
        if config.loss == "dpo":
            return dpo_loss(*rewards, beta=config.beta, label_smoothing=config.label_smoothing)
        desirable = torch.tensor([one.desirable for one in examples], device=rewards.policy.device)
        return kto_loss(
            rewards.policy[:, 0],
            rewards.reference[:, 0],
            desirable,
            kto_kl(rewards.policy[:, 1], rewards.reference[:, 1]),
            beta=config.beta,
            desirable_weight=config.desirable_weight,
            undesirable_weight=config.undesirable_weight,
        )

    def validate(self) -> Mapping[str, float]:
        """Loss, accuracy and margin on held-out preferences, and how far replies became likelier than before."""
        rewards = self.held_out()
        correct, margins = self.outcomes(rewards)
        better, worse = self._sides(rewards)
        return {
            "loss": float(self.losses(rewards, self.data.valid).mean()),
            "accuracy": float(correct.mean()),
            "margin": float(margins.mean()),
            "log-ratio of better replies": float(better.mean()),
            "log-ratio of worse replies": float(worse.mean()),
        }

    def held_out(self) -> Rewards:
        """What the model says about the held-out preferences now."""
        return Rewards(self.log_probs(self.data.valid), self.reference[len(self.data.train) :])

    def outcomes(self, rewards: Rewards) -> tuple[torch.Tensor, torch.Tensor]:
        """Of each held-out pair, or of each label if there are no pairs: whether it is right, and its margin.

        A pair is right if the implicit reward of the better reply is higher; a label is right if the reward is on its
        side of the estimated KL divergence. A tie is half right.
        """
        pairs = self.held_out_pairs()
        if pairs:
            first, second = self._pair_ratios(rewards.ratios, pairs)
            differences = first - second
        else:
            kl = kto_kl(rewards.policy[:, 1], rewards.reference[:, 1])
            signs = [1.0 if one.desirable else -1.0 for one in self.data.valid]
            differences = (rewards.ratios[:, 0] - kl) * torch.tensor(signs, device=kl.device)
        return (differences.sign() + 1) / 2, self.config.beta * differences

    def held_out_pairs(self) -> list[tuple[int, int]]:
        """DPO: every example. KTO: each desirable reply with each undesirable one to the same context."""
        if self.config.loss == "dpo":
            return [(i, i) for i in range(len(self.data.valid))]
        by_context: dict[int, tuple[list[int], list[int]]] = {}
        for i, one in enumerate(self.data.valid):
            by_context.setdefault(one.context, ([], []))[0 if one.desirable else 1].append(i)
        return [(i, j) for wanted, unwanted in by_context.values() for i in wanted for j in unwanted]

    def likelier(self, log_probs: torch.Tensor) -> torch.Tensor | None:
        """Of each held-out pair, whether its better reply is the likelier one (n, 2 log-probabilities of examples)."""
        if not (pairs := self.held_out_pairs()):
            return None
        first, second = self._pair_ratios(log_probs, pairs)
        return ((first - second).sign() + 1) / 2

    def _pair_ratios(self, values: torch.Tensor, pairs: Sequence[tuple[int, int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """The values of the better and of the worse reply of each pair."""
        column = 1 if self.config.loss == "dpo" else 0
        return values[[i for i, _ in pairs], 0], values[[j for _, j in pairs], column]

    def _sides(self, rewards: Rewards) -> tuple[torch.Tensor, torch.Tensor]:
        """The log-ratios of the chosen or desirable replies, and of the others."""
        if self.config.loss == "dpo":
            return rewards.ratios[:, 0], rewards.ratios[:, 1]
        desirable = torch.tensor([one.desirable for one in self.data.valid], device=rewards.policy.device)
        return rewards.ratios[desirable, 0], rewards.ratios[~desirable, 0]

    @torch.no_grad()
    def log_probs(self, examples: Sequence[PreferenceExample]) -> torch.Tensor:
        """Of both replies of each example: (n, 2)."""
        sizes = [2 * max(len(chain.ids) for chain in example.chains) for example in examples]
        result = torch.zeros(len(examples), 2, device=self.model.model.device)
        with eval_mode(self.model):
            for batch in batches_of(sizes, self.config.batch_tokens, None) if examples else []:
                chains = [examples[i].chains[side] for side in (0, 1) for i in batch]
                result[batch] = self.model.log_probs(chains).view(2, -1).T.float()
        return result

    def perplexity(self) -> Mapping[str, float]:
        """Of the dialogues that were set aside for it; nothing if there are none."""
        if not self.data.dialogues:
            return {}
        with eval_mode(self.model):
            return perplexity(likelihoods(self.model, self.data.dialogues))

    @contextmanager
    def as_reference(self) -> Iterator[None]:
        """The model as it was before training, for a moment."""
        trained = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(self._first_weights)
        try:
            yield
        finally:
            self.model.load_state_dict(trained)


def _nll_per_token(log_probs: torch.Tensor, examples: Sequence[PreferenceExample]) -> torch.Tensor:
    """Mean negative log-likelihood per token of chosen and desirable replies (n,); undesirable ones have none."""
    lengths = [turn.stop - turn.start + 1 for example in examples for turn in example.chains[0].turns]
    wanted = [float(example.desirable) for example in examples]
    scale = torch.tensor([w / n for w, n in zip(wanted, lengths, strict=True)], device=log_probs.device)
    return -log_probs * scale
