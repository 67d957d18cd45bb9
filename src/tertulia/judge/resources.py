"""What metrics need beside texts, by name: word vectors, emotion and sentence models, language models, rankers.

A metric names what it needs (`Metric.needs`); each name is a row of `RESOURCES`, whose target is a function from a
specification to the resource. The empty specification is the default, which works offline. So that metrics import no
models, and a user chooses better ones by name: `--resource sentences=hf:NAME_OR_FOLDER`. Plugins add rows through the
entry-point group `tertulia.metric_resources`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from tertulia.core.errors import UnknownName
from tertulia.core.registry import Registry
from tertulia.metrics.metric import Metric
from tertulia.models.generators.teachers import SEMANTICS, TextTeacher, cached, make_teacher

RESOURCES = Registry("metric resource", "tertulia.metric_resources")
RESOURCES.add("sentences", "tertulia.judge.resources:sentences", "sentence vectors: minilm, or hf:NAME_OR_FOLDER")
_REPLIES = "tertulia.judge.reply_resources:"
RESOURCES.add("language_model", _REPLIES + "language_model", "smollm2, hf:NAME_OR_FOLDER, or a generative run's folder")
RESOURCES.add("ranker", _REPLIES + "ranker", "minilm (cosine of sentence vectors), or a bot that ranks, or its folder")
RESOURCES.add("idf", _REPLIES + "idf", "how rare words are: counts in the sample, or in other data")
RESOURCES.add(
    "entailment", _REPLIES + "entailment", "hf:NAME_OR_FOLDER of an inference classifier; there is no default"
)


def load_resources(metrics: Iterable[Metric], specs: Mapping[str, str]) -> dict[str, Any]:
    """What the metrics need, each loaded once; `specs` names others than the defaults."""
    for name in specs:
        if name not in RESOURCES:
            raise UnknownName("metric resource", name, RESOURCES)
    needed = dict.fromkeys(name for metric in metrics for name in metric.needs)
    return {name: RESOURCES.get(name)(specs.get(name, "")) for name in needed}


def sentences(spec: str) -> TextTeacher:
    """A function from n texts to vectors (n, d); every text is encoded once."""
    return cached(make_teacher(SEMANTICS, spec or "minilm"))
