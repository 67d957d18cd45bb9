"""The table of bots: the rows below, one for each architecture, and those of plugins (group `tertulia.bots`)."""

from collections.abc import Iterator

from tertulia.core.registry import Registry, Row
from tertulia.models.registry import ARCHITECTURES, ModelKind

_BOTS: dict[ModelKind, str] = {
    "generator": "tertulia.talk.bots.generative:GenerativeBot",
    "ranker": "tertulia.talk.bots.ranker:RankerBot",
    "reranker": "tertulia.talk.bots.ranker:RankerBot",
}
"""The bot that talks with a trained model of each kind."""


def _trained_models() -> Iterator[Row]:
    return (Row(row.name, row.bot or _BOTS[row.kind], f"a trained {row.kind}: {row.summary}") for row in ARCHITECTURES)


BOTS = Registry("bot", "tertulia.bots", derived=_trained_models)

BOTS.add(
    "generic", "tertulia.talk.bots.generic:GenericBot", 'says "I don\'t know." to questions and "ok" to statements'
)
BOTS.add("tfidf", "tertulia.talk.bots.tfidf:TfidfBot", "retrieves the reply to the most similar message (TF-IDF)")
BOTS.add("blend", "tertulia.talk.bots.blend:BlendBot", "several ranking bots whose scores are added up")
BOTS.add("openai", "tertulia.talk.bots.openai:OpenAIBot", "a model behind any OpenAI-compatible endpoint")
BOTS.add("hf", "tertulia.talk.bots.huggingface:HuggingFaceBot", "a Hugging Face chat model, by name or folder")
BOTS.add(
    "smollm2",
    "tertulia.talk.bots.smollm2:SmolLM2Bot",
    "SmolLM2-135M-Instruct, a small language model that runs offline",
)
BOTS.add("gguf", "tertulia.talk.bots.gguf:GGUFBot", "a chat model in a GGUF file, by llama.cpp or torch")
BOTS.add(
    "companion",
    "tertulia.talk.bots.companion:CompanionBot",
    "SmolLM2 fine-tuned on the sample's dialogues, with a character of its own; runs offline",
)
BOTS.add("human", "tertulia.talk.bots.human:HumanBot", "a person at this terminal")
