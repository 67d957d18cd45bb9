"""Hugging Face text classifiers, from a folder or a hub name.

Only safetensors are accepted: loading pickled weights can run code.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging as hf_logging

from tertulia.core.errors import BotError, UsageError

BATCH_SIZE = 32
MAX_LENGTH = 256
"""Tokens after which a text is truncated."""


class TextClassifier:
    """A sequence classification model with its tokenizer and labels."""

    def __init__(self, model: Any, tokenizer: Any, *, name: str) -> None:
        self.model, self.tokenizer, self.name = model.eval(), tokenizer, name
        config = model.config
        self.labels = tuple(str(config.id2label[i]) for i in range(config.num_labels))
        self.several = config.num_labels == 1 or config.problem_type == "multi_label_classification"
        """Whether labels are independent of each other (multi-label), rather than exclusive."""
        self.max_length = min(MAX_LENGTH, int(getattr(config, "max_position_embeddings", 0) or MAX_LENGTH))

    @classmethod
    def load(cls, name: str) -> Self:
        """From a folder or a hub name."""
        hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        try:
            tokenizer = AutoTokenizer.from_pretrained(name)
            model = AutoModelForSequenceClassification.from_pretrained(name, use_safetensors=True, dtype=torch.float32)
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            where = "folder" if Path(name).exists() else "hub name or folder"
            raise BotError(
                f"No text classifier could be loaded from the {where} {name!r}: {str(error).splitlines()[0]}",
                hint="Give a folder with a Hugging Face model and its weights as safetensors, or check the hub name.",
            ) from error
        return cls(model, tokenizer, name=name)

    def chosen(self, labels: Sequence[str]) -> tuple[str, ...]:
        """Check that the model has these labels; if none are given, the only one or the second of two."""
        if not labels and len(self.labels) <= 2:
            return self.labels[-1:]
        if not labels or not set(labels) <= set(self.labels):
            missing = ", ".join(sorted(set(labels) - set(self.labels)))
            problem = f"has no label {missing}" if labels else "has many labels"
            raise UsageError(f"The classifier {self.name} {problem}.", hint=f"Choose from: {', '.join(self.labels)}.")
        return tuple(labels)

    @torch.inference_mode()
    def probabilities(self, texts: Sequence[str], second: Sequence[str] | None = None) -> list[dict[str, float]]:
        """The probability of every label, for each text, or for each pair of a text and its second text."""
        results: list[dict[str, float]] = []
        for start in range(0, len(texts), BATCH_SIZE):
            batch = [list(part[start : start + BATCH_SIZE]) for part in (texts, second) if part is not None]
            inputs = self.tokenizer(
                *batch, padding=True, truncation=True, max_length=self.max_length, return_tensors="pt"
            )
            logits = self.model(**inputs).logits.float()  # (texts, labels)
            probabilities = logits.sigmoid() if self.several else logits.softmax(-1)
            results += [dict(zip(self.labels, row, strict=True)) for row in probabilities.tolist()]
        return results
