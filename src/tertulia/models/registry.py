"""The table of architectures: one row says where a model's class is and how it is trained.

Everything else that lists architectures is derived from it: the bots (`tertulia.talk.registry`), the recipes
(`tertulia.train.registry`) and what loads a checkpoint (`GENERATORS`, `RANKERS`, `RERANKERS`, by the name that a run's
manifest has under "model"). Rows are strings, so that reading the table imports no torch. A plugin adds a row with an
entry point of the group `tertulia.architectures` that points at an `Architecture`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Literal

from tertulia.core.errors import UnknownName
from tertulia.core.registry import Registry, Row

ModelKind = Literal["generator", "ranker", "reranker"]
"""A generator writes replies token by token; a ranker finds replies in a pool; a reranker reorders a ranker's best."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """One row."""

    name: str
    """Its name as a bot, as a recipe and in manifests."""
    kind: ModelKind
    model: str
    """Its class, as `module:attribute`."""
    recipe: str
    """How it is trained, as `module:attribute`: a `Recipe`, or a function that makes one from the row's name."""
    summary: str
    """One line of help."""
    bot: str = ""
    """The bot that talks with it, as `module:attribute`, if not the one of all models of its kind."""


class Architectures:
    """The rows by name."""

    def __init__(self) -> None:
        self._rows: dict[str, Architecture] = {}
        self._plugins_loaded = False

    def add(self, row: Architecture) -> None:
        """Add a row; a name that is taken is an error."""
        if row.name in self._rows:
            raise ValueError(f"there are two architectures called {row.name!r}")
        self._rows[row.name] = row

    def get(self, name: str) -> Architecture:
        """The row of that name."""
        if name not in (rows := {row.name: row for row in self}):
            raise UnknownName("architecture", name, rows)
        return rows[name]

    def __iter__(self) -> Iterator[Architecture]:
        if not self._plugins_loaded:
            self._plugins_loaded = True
            for point in entry_points(group="tertulia.architectures"):
                self.add(point.load())
        return iter(tuple(self._rows.values()))


ARCHITECTURES = Architectures()

_GENERATIVE = "tertulia.train.recipes.generators:generative_recipe"
_RECURRENT = "tertulia.train.recipes.generators:recurrent_recipe"
_WORD_VECTORS = "tertulia.train.recipes.rankers:word_vector_recipe"

for _row in (
    Architecture(
        "transformer",
        "generator",
        "tertulia.models.generators.transformer:Transformer",
        _GENERATIVE,
        "the vanilla Transformer, Meena's baseline",
    ),
    Architecture(
        "evolved",
        "generator",
        "tertulia.models.generators.evolved_transformer:EvolvedTransformer",
        _GENERATIVE,
        "the Evolved Transformer (Meena)",
    ),
    Architecture(
        "seq2seq",
        "generator",
        "tertulia.models.generators.seq2seq:Seq2Seq",
        _RECURRENT,
        "an LSTM, with or without an encoder (Persona-Chat)",
    ),
    Architecture(
        "generative-profile-memory",
        "generator",
        "tertulia.models.generators.generative_profile_memory:GenerativeProfileMemory",
        _RECURRENT,
        "an LSTM that attends to persona sentences as it decodes (Persona-Chat)",
    ),
    Architecture(
        "hred",
        "generator",
        "tertulia.models.generators.hred:HRED",
        "tertulia.train.recipes.hred:HRED_RECIPE",
        "a hierarchical recurrent encoder-decoder: utterances, and the conversation over them",
    ),
    Architecture(
        "vhred",
        "generator",
        "tertulia.models.generators.vhred:VHRED",
        "tertulia.train.recipes.hred:VHRED_RECIPE",
        "HRED with a latent variable for each utterance",
    ),
    Architecture(
        "vhcr",
        "generator",
        "tertulia.models.generators.vhcr:VHCR",
        "tertulia.train.recipes.hred:VHCR_RECIPE",
        "HRED with latent variables for each utterance and for the conversation",
    ),
    Architecture(
        "finetune",
        "generator",
        "tertulia.models.hf.finetuned:FinetunedGenerator",
        "tertulia.train.recipes.finetune:RECIPE",
        "a Hugging Face language model fine-tuned on dialogues, with low-rank adapters or as a whole",
        "tertulia.talk.bots.finetuned:FinetunedBot",
    ),
    Architecture(
        "starspace",
        "ranker",
        "tertulia.models.rankers.starspace:Starspace",
        _WORD_VECTORS,
        "sums of word vectors, the persona in the sum (Persona-Chat)",
    ),
    Architecture(
        "profile-memory",
        "ranker",
        "tertulia.models.rankers.profile_memory:ProfileMemory",
        _WORD_VECTORS,
        "Starspace with attention to persona sentences (Persona-Chat)",
    ),
    Architecture(
        "kv-memory",
        "ranker",
        "tertulia.models.rankers.kv_memory:KVProfileMemory",
        "tertulia.train.recipes.kv_memory:RECIPE",
        "Profile Memory with a second hop over replies to similar messages in training (Persona-Chat)",
    ),
    Architecture(
        "dual-encoder",
        "ranker",
        "tertulia.models.rankers.dual_encoder:DualEncoder",
        "tertulia.train.recipes.dual_encoder:RECIPE",
        "a tied RNN or LSTM for context and reply (Ubuntu)",
    ),
    Architecture(
        "minilm",
        "ranker",
        "tertulia.models.rankers.sentence_ranker:SentenceRanker",
        "tertulia.train.recipes.rankers:sentence_recipe",
        "a fine-tuned sentence encoder that attends to persona sentences: the best ranker",
    ),
    Architecture(
        "cross-encoder",
        "reranker",
        "tertulia.models.rankers.cross_encoder:CrossEncoder",
        "tertulia.train.recipes.cross_encoder:RECIPE",
        "reads query and reply together; reorders the best replies of another bot: RANKER?rerank=RUN",
    ),
):
    ARCHITECTURES.add(_row)


def _models(kind: ModelKind) -> Callable[[], Iterator[Row]]:
    return lambda: (Row(row.name, row.model, row.summary) for row in ARCHITECTURES if row.kind == kind)


GENERATORS = Registry("generative model", derived=_models("generator"))
RANKERS = Registry("ranker", derived=_models("ranker"))
RERANKERS = Registry("re-ranker", derived=_models("reranker"))
