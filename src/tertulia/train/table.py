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
