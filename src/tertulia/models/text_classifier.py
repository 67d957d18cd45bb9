"""Classifiers of text of the Hugging Face kind: from a folder or a hub name, from safetensors alone.

Weights that are pickled objects are refused, as loading those can run code.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging as hf_logging

from tertulia.core.errors import BotError, UsageError

AT_ONCE = 32
"""Texts read at once."""
LONGEST = 256
"""Tokens of a text that are read, at most."""


class TextClassifier:
    """A model with a label for each of its outputs."""

    def __init__(self, model: Any, tokenizer: Any, *, name: str) -> None:
        self.model, self.tokenizer, self.name = model.eval(), tokenizer, name
        config = model.config
        self.labels = tuple(str(config.id2label[i]) for i in range(config.num_labels))
        self.several = config.num_labels == 1 or config.problem_type == "multi_label_classification"
        """Whether each label is true or false for itself, rather than one of them true."""
        self.longest = min(LONGEST, int(getattr(config, "max_position_embeddings", 0) or LONGEST))

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
        """These labels, which must be the model's; without any, the only one or the second of two."""
        if not labels and len(self.labels) <= 2:
            return self.labels[-1:]
        if not labels or not set(labels) <= set(self.labels):
            what = f"has no label {', '.join(sorted(set(labels) - set(self.labels)))}" if labels else "has many labels"
            raise UsageError(f"The classifier {self.name} {what}.", hint=f"Choose among: {', '.join(self.labels)}.")
        return tuple(labels)

    @torch.inference_mode()
    def probabilities(self, texts: Sequence[str]) -> list[dict[str, float]]:
        """The probability of every label, for each text."""
        found: list[dict[str, float]] = []
        for start in range(0, len(texts), AT_ONCE):
            part = list(texts[start : start + AT_ONCE])
            read = self.tokenizer(part, padding=True, truncation=True, max_length=self.longest, return_tensors="pt")
            logits = self.model(**read).logits.float()  # (texts, labels)
            scores = logits.sigmoid() if self.several else logits.softmax(-1)
            found += [dict(zip(self.labels, row, strict=True)) for row in scores.tolist()]
        return found
