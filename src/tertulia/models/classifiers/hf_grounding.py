"""Hugging Face models as grounding classifiers: of sequences, or text-to-text models that write the label.

A classifier of sequences has BEGIN's five labels or the three of inference; it reads the evidence as the first text and
the response as the second. A text-to-text model (T5) reads the evidence and the response in one prompt; the
probabilities are those of writing each label. How it was trained cannot be seen from outside, so the name may say it:
`hf:NAME?labels=nli` (the default: "mnli hypothesis: ... premise: ...", as T5 learned it), `begin` ("evidence: ...
previous: ... response: ..." and five labels), or `binary` ("premise: ... hypothesis: ..." and 1 or 0).

Where a model only knows "neutral" or "not supported", the packaged lexical model says which kind of failure is likely.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.utils import logging as hf_logging

from tertulia.core.errors import BotError, UsageError
from tertulia.core.grounding import COARSE, COARSE_LABELS, LABELS, GroundingClassifier, GroundingInput, parse_label
from tertulia.models.classifiers.entailment import entailment_labels
from tertulia.models.classifiers.evidence_focus import focus
from tertulia.models.classifiers.grounding_models import packaged
from tertulia.models.classifiers.text_classifier import TextClassifier

BATCH_SIZE = 16
MAX_LENGTH = 384
"""Tokens of a prompt at most."""
MAX_WORDS = 150
"""Words of evidence, the nearest sentences, and of a response."""


class LabelPrompt(NamedTuple):
    """How a text-to-text model was trained."""

    template: str
    answers: tuple[str, ...]
    """What it writes; `groups` says what that means."""
    groups: tuple[tuple[int, ...], ...]
    """For each answer the indices of the labels that it may stand for."""


_NEUTRAL: Final = tuple(i for i, label in enumerate(LABELS) if COARSE[label] == "neutral")
_GROUPS: Final = ((0,), _NEUTRAL, (len(LABELS) - 1,))
PROMPTS: Final = {
    "nli": LabelPrompt("mnli hypothesis: {response} premise: {evidence}", COARSE_LABELS, _GROUPS),
    "begin": LabelPrompt(
        "evidence: {evidence} previous: {previous} response: {response}",
        LABELS,
        tuple((i,) for i in range(len(LABELS))),
    ),
    "binary": LabelPrompt(
        "premise: {evidence} hypothesis: {response}", ("1", "0"), ((0,), tuple(range(1, len(LABELS))))
    ),
}


def load_hugging_face(spec: str) -> GroundingClassifier:
    """From a hub name or folder, with or without `?labels=...`."""
    name, _, options = spec.partition("?")
    given = dict(parse_qsl(options))
    if set(given) - {"labels"} or given.get("labels", "nli") not in PROMPTS:
        raise UsageError(
            f"hf:{spec} has an option that grounding classifiers do not know.",
            hint=f"Only labels can be given, as one of {', '.join(PROMPTS)}: hf:{name}?labels=nli",
        )
    hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        config = AutoConfig.from_pretrained(name)
        if not config.is_encoder_decoder or "SequenceClassification" in str(config.architectures):
            return SequenceGrounding(TextClassifier.load(name))
        tokenizer = AutoTokenizer.from_pretrained(name)
        model = AutoModelForSeq2SeqLM.from_pretrained(name, use_safetensors=True, dtype=torch.float32)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        where = "folder" if Path(name).exists() else "hub name or folder"
        raise BotError(
            f"No grounding classifier could be loaded from the {where} {name!r}: {str(error).splitlines()[0]}",
            hint="Give a folder with a classifier or a text-to-text model, weights as safetensors, or check the name.",
        ) from error
    return TextToTextGrounding(model, tokenizer, PROMPTS[given.get("labels", "nli")], name=f"hf:{spec}")


class SequenceGrounding:
    """A classifier of sequences with BEGIN's labels, or with those of inference."""

    def __init__(self, classifier: TextClassifier) -> None:
        self.classifier, self.name = classifier, f"hf:{classifier.name}"
        own = [parse_label(label) for label in classifier.labels]
        if set(own) == set(LABELS):
            self._labels = tuple(classifier.labels[own.index(label)] for label in LABELS)
            self._groups: tuple[tuple[int, ...], ...] = tuple((i,) for i in range(len(LABELS)))
        else:
            self._labels, self._groups = entailment_labels(classifier.labels, self.name), _GROUPS

    def probabilities(self, inputs: Sequence[GroundingInput], /) -> list[tuple[float, ...]]:
        """For each input the probabilities of `LABELS`."""
        rows = self.classifier.probabilities(
            [focus(one.evidence, one.response, max_words=MAX_WORDS) for one in inputs],
            [one.response for one in inputs],
        )
        return spread(np.array([[row[label] for label in self._labels] for row in rows]), self._groups, inputs)


class TextToTextGrounding:
    """A text-to-text model that writes the label."""

    def __init__(self, model: Any, tokenizer: Any, prompt: LabelPrompt, *, name: str) -> None:
        self.model, self.tokenizer, self.prompt, self.name = model.eval(), tokenizer, prompt, name
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token

    def probabilities(self, inputs: Sequence[GroundingInput], /) -> list[tuple[float, ...]]:
        """For each input the probabilities of `LABELS`."""
        parts = [self._batch(inputs[i : i + BATCH_SIZE]) for i in range(0, len(inputs), BATCH_SIZE)]
        return spread(np.concatenate(parts), self.prompt.groups, inputs) if parts else []

    @torch.inference_mode()
    def _batch(self, inputs: Sequence[GroundingInput]) -> NDArray[Any]:
        """The probabilities of the answers, the prompts encoded once: (n, answers)."""
        texts = [
            self.prompt.template.format(
                evidence=focus(one.evidence, one.response, max_words=MAX_WORDS),
                previous=" ".join(one.previous[-4000:].split()[-MAX_WORDS:]),
                response=" ".join(one.response[:4000].split()[:MAX_WORDS]),
            )
            for one in inputs
        ]
        read = self.tokenizer(texts, padding=True, truncation=True, max_length=MAX_LENGTH, return_tensors="pt")
        encoded = self.model.get_encoder()(input_ids=read["input_ids"], attention_mask=read["attention_mask"])
        scores = []
        for answer in self.prompt.answers:
            tokens = self.tokenizer(text_target=answer, return_tensors="pt")["input_ids"].repeat(len(inputs), 1)
            logits = self.model(encoder_outputs=encoded, attention_mask=read["attention_mask"], labels=tokens).logits
            logprobs = logits.float().log_softmax(-1).gather(2, tokens.unsqueeze(-1)).squeeze(-1)  # (n, tokens)
            scores.append(logprobs.sum(1))
        return np.asarray(torch.stack(scores, dim=1).softmax(-1).numpy(), dtype=np.float64)


def spread(
    rows: NDArray[Any], groups: Sequence[tuple[int, ...]], inputs: Sequence[GroundingInput]
) -> list[tuple[float, ...]]:
    """Probabilities of groups of labels as probabilities of labels; within a group as the lexical model has them."""
    if not len(inputs):
        return []
    result = np.zeros((len(inputs), len(LABELS)))
    within = np.array(packaged().probabilities(inputs)) if any(len(g) > 1 for g in groups) else np.ones(result.shape)
    for column, group in enumerate(groups):
        part = within[:, list(group)] + 1e-9
        result[:, list(group)] += rows[:, [column]] * part / part.sum(1, keepdims=True)
    return [tuple(row) for row in (result / result.sum(1, keepdims=True)).tolist()]
