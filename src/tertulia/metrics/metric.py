"""What a metric is: one value with a name, a unit, a pure function of a batch, and the way its values are reduced.

A metric measures: it gives one value for each unit of a batch. Reducing these values to a figure with an interval is
the work of `tertulia.metrics.significance` alone, by the metric's `reduction`:

- `mean`: the mean of the values; units without a value (nan) are left out.
- `ratio`: sum of the values over sum of the weights, such as nats per turn.
- `perplexity`: exp(sum of the values / sum of the weights), values in nats.
- `pooled`: a ratio of sums that depends on the set as a whole, such as distinct-n. It cannot be bootstrapped:
  resampling repeats texts, so the interval would exclude the value. It has a value and n, and no interval.
- `share`: a ratio between 0 and 1 whose values are parts of its weights, with an interval that does not collapse at the
  ends (accuracy, precision, recall). `f1` is 2 J / (1 + J) of such a share J.
- `macro-f1`, `auc`: figures of labelled sets that are no sums over sums; see `tertulia.metrics.label_draws`.

The batch that `compute` gets depends on the unit: `RankBatch` for ranks, a sequence of `ReplyExample`s for a reply, a
sequence of `DialogueLikelihood`s for a dialogue, a sequence of `ConversationExample`s for a conversation, a sequence of
a classifier's verdicts on single responses for a verdict. What else it needs is named in `needs` and passed by keyword.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.core.score import Score

Floats = NDArray[np.float64]
Unit = Literal["ranks", "reply", "dialogue", "conversation", "rating", "verdict"]
Reduction = Literal["mean", "ratio", "perplexity", "pooled", "share", "f1", "macro-f1", "auc"]


class RankBatch(NamedTuple):
    """Ranks of the true replies, one entry per exchange."""

    ranks: NDArray[np.int64]
    """1-based."""
    sizes: NDArray[np.int64]
    """How many candidates were ranked."""


class ReplyExample(NamedTuple):
    """A generated reply with what a metric may compare it to."""

    reply: str
    reference: str = ""
    """The human reply; empty if there is none."""
    context: tuple[str, ...] = ()
    """The turns before it, oldest first."""
    persona: tuple[str, ...] = ()
    """Sentences about who replies; empty if nothing is known."""


class ConversationExample(NamedTuple):
    """A conversation of which one speaker, or in self-play both, is judged."""

    turns: tuple[str, ...]
    judged: tuple[bool, ...]
    """For each turn, whether it is by whom the metric is about; all of them in self-play of a bot with itself."""
    persona: tuple[str, ...] = ()
    """Sentences about the judged speaker; empty if nothing is known."""
    speakers: tuple[str, ...] = ()
    """Who has each turn; empty if two speakers alternate."""
    personas: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Sentences about each speaker of whom something is known: in self-play of a bot with itself both are judged."""


class DialogueLikelihood(NamedTuple):
    """How improbable the target turns of a dialogue are under a model."""

    nats: float
    """Negative log-likelihood, ends of turns included."""
    words: int
    """Words, punctuation marks and ends of turns."""
    tokens: int
    """The model's own tokens."""
    turns: int
    """Target turns."""
    spelling: float = 0.0
    """What spelling the words outside the model's vocabulary costs on top, in nats."""


class LatentTerms(NamedTuple):
    """What the latent variables of a model add for a dialogue, in nats."""

    bound: float
    """Negative evidence lower bound, KL divergence included."""
    kl: float
    """KL divergence between posterior and prior."""


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """What a report needs to know about a metric; saved with every judged run."""

    name: str
    unit: Unit
    reduction: Reduction = "mean"
    summary: str = ""
    """One line of help."""
    citation: str = ""
    """The paper it comes from."""
    higher_is_better: bool | None = True
    """None if neither direction is better."""
    bounded: bool = False
    """Whether its values lie between 0 and 1, such as shares: its interval then does not collapse at either end."""

    @property
    def info(self) -> "MetricInfo":
        """This metric without its computation."""
        return MetricInfo(**{field.name: getattr(self, field.name) for field in fields(MetricInfo)})

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The ends of the scale of its figures, if it has any."""
        return (0.0, 1.0) if self.bounded or self.reduction in ("share", "f1", "macro-f1", "auc") else None

    def as_json(self) -> dict[str, Json]:
        """As it is saved with a run."""
        return asdict(self.info)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric(MetricInfo):
    """A row of the registry: what a metric is, and how its values are computed."""

    compute: Callable[..., Any]
    """A pure function of a batch: values, or (values, weights) for the reductions other than mean."""
    needs: tuple[str, ...] = ()
    """Names of resources that `compute` takes as keyword arguments, such as "word_vectors"."""
    min_candidates: int = 0
    """For ranks: how many candidates there must be at least."""

    def score(
        self,
        batch: Sequence[Any],
        *,
        subject: str,
        setting: str,
        units: Sequence[str],
        clusters: Sequence[str],
        resources: Mapping[str, Any] | None = None,
    ) -> Score:
        """Measure a batch, one value per unit."""
        values, weights = self.measure(batch, resources)
        return Score(
            subject,
            setting,
            self.name,
            tuple(units),
            tuple(values.tolist()),
            tuple(clusters),
            () if weights is None else tuple(weights.tolist()),
        )

    def measure(self, batch: Sequence[Any], resources: Mapping[str, Any] | None = None) -> tuple[Floats, Floats | None]:
        """Values and, except for means, weights."""
        missing = [name for name in self.needs if name not in (resources or {})]
        if missing:
            raise UsageError(f"The metric {self.name!r} needs {', '.join(missing)}, which is not available here.")
        computed = self.compute(batch, **{name: (resources or {})[name] for name in self.needs})
        if self.reduction == "mean":
            return np.asarray(computed, dtype=np.float64), None
        values, weights = computed
        return np.asarray(values, dtype=np.float64), np.asarray(weights, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """Metrics whose names contain numbers, as one row: `hits@K` stands for hits@1, hits@2, ..."""

    name: str
    make: Callable[..., Metric | None]
    """From the name and the numbers in it to the metric; None if there is no such metric."""
    summary: str
