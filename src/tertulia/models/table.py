"""The table of rankers, by the name that a run's manifest has under "model". A row points at the ranker's class."""

from tertulia.core.registry import Registry

RANKERS = Registry("ranker", "tertulia.rankers")

RANKERS.add("starspace", "tertulia.models.starspace:Starspace", "sums of word vectors, persona in the sum")
RANKERS.add("profile-memory", "tertulia.models.profile_memory:ProfileMemory", "attends to persona sentences")
RANKERS.add(
    "kv-memory", "tertulia.models.kv_memory:KVProfileMemory", "a second hop over what people answered in training"
)
RANKERS.add("dual-encoder", "tertulia.models.dual_encoder:DualEncoder", "tied RNN or LSTM, p = sigmoid(c'Mr + b)")
RANKERS.add(
    "minilm", "tertulia.models.sentence_ranker:SentenceRanker", "sentence encoder, attends to persona sentences"
)
