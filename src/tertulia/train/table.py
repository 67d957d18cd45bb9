"""The table of recipes. A row points at a `Recipe`; plugins add rows through `tertulia.recipes`."""

from tertulia.core.registry import Registry

RECIPES = Registry("recipe", "tertulia.recipes")

RECIPES.add(
    "disentangler",
    "tertulia.train.recipes.disentangler:RECIPE",
    "links the lines of a chat room to those they answer (gradient-boosted trees)",
)
RECIPES.add(
    "starspace", "tertulia.train.recipes.starspace:RECIPE", "ranks replies by sums of word vectors (Persona-Chat)"
)
RECIPES.add(
    "profile-memory",
    "tertulia.train.recipes.profile_memory:RECIPE",
    "ranks replies with attention to persona sentences (Persona-Chat)",
)
RECIPES.add(
    "kv-memory",
    "tertulia.train.recipes.kv_memory:RECIPE",
    "profile memory with a second hop over training histories (Persona-Chat)",
)
RECIPES.add(
    "dual-encoder", "tertulia.train.recipes.dual_encoder:RECIPE", "tied RNN or LSTM that ranks replies (Ubuntu)"
)
RECIPES.add(
    "minilm", "tertulia.train.recipes.minilm:RECIPE", "a sentence encoder fine-tuned to rank replies: the best of them"
)
RECIPES.add(
    "cross-encoder",
    "tertulia.train.recipes.cross_encoder:RECIPE",
    "reads query and candidate together: puts the best of another ranker in order",
)
RECIPES.add("transformer", "tertulia.train.recipes.writers:TRANSFORMER", "a Transformer that writes replies")
RECIPES.add("evolved", "tertulia.train.recipes.writers:EVOLVED", "an Evolved Transformer that writes replies (Meena)")
RECIPES.add("seq2seq", "tertulia.train.recipes.writers:SEQ2SEQ", "an LSTM that writes replies (Persona-Chat)")
RECIPES.add(
    "profile-memory-writer",
    "tertulia.train.recipes.writers:PROFILE_MEMORY",
    "an LSTM that writes with attention to persona sentences (Persona-Chat)",
)
RECIPES.add("hred", "tertulia.train.recipes.hred:HRED_RECIPE", "a hierarchical recurrent model that writes replies")
RECIPES.add("vhred", "tertulia.train.recipes.hred:VHRED_RECIPE", "HRED with a latent variable for each utterance")
RECIPES.add(
    "vhcr", "tertulia.train.recipes.hred:VHCR_RECIPE", "HRED with latent variables of utterances and conversation"
)
