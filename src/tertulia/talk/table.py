"""The table of bots. Plugins add rows through the entry-point group `tertulia.bots`."""

from tertulia.core.registry import Registry

BOTS = Registry("bot", "tertulia.bots")

BOTS.add(
    "generic", "tertulia.talk.bots.generic:GenericBot", 'says "I don\'t know." to questions and "ok" to statements'
)
BOTS.add("tfidf", "tertulia.talk.bots.tfidf:TfidfBot", "answers with the reply to the most similar message it has read")
RANKER = "tertulia.talk.bots.ranker:RankerBot"
BOTS.add("starspace", RANKER, "a trained ranker: sums of word vectors, persona among them")
BOTS.add("profile-memory", RANKER, "a trained ranker: attends to the persona's sentences")
BOTS.add("kv-memory", RANKER, "a trained ranker: looks up what people answered to the like in training")
BOTS.add("dual-encoder", RANKER, "a trained ranker: recurrent networks for context and reply")
BOTS.add("minilm", RANKER, "a trained ranker: a sentence encoder, persona beside the conversation")
BOTS.add("cross-encoder", RANKER, "puts another ranker's best replies in order: RANKER?rerank=RUN, not a bot by itself")
BOTS.add("openai", "tertulia.talk.bots.openai:OpenAIBot", "a model behind any OpenAI-compatible endpoint")
BOTS.add("hf", "tertulia.talk.bots.huggingface:HuggingFaceBot", "a Hugging Face chat model, by name or folder")
BOTS.add(
    "smollm2",
    "tertulia.talk.bots.smollm2:SmolLM2Bot",
    "SmolLM2-135M-Instruct, a small language model that runs offline",
)
BOTS.add("human", "tertulia.talk.bots.human:HumanBot", "a person at this terminal")
WRITER = "tertulia.talk.bots.writer:WriterBot"
BOTS.add("seq2seq", WRITER, "a trained model that writes: an LSTM")
BOTS.add("profile-memory-writer", WRITER, "a trained model that writes: an LSTM that attends to the persona")
BOTS.add("hred", WRITER, "a trained model that writes: utterances, and the conversation over them")
BOTS.add("vhred", WRITER, "a trained model that writes: HRED that imagines each turn before its words")
BOTS.add("vhcr", WRITER, "a trained model that writes: VHRED that imagines the conversation, too")
BOTS.add("transformer", WRITER, "a trained model that writes: the vanilla Transformer")
BOTS.add("evolved", WRITER, "a trained model that writes: Meena's Evolved Transformer")
