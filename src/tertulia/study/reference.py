"""Published figures of human studies, for comparison: other bots, other raters, other years.

They are drawn as lines and printed as rows beside a study's own bots. Each has the figure as the paper prints it, as a
share between 0 and 1 or on the paper's scale.
"""

from collections.abc import Mapping
from typing import NamedTuple

MEENA = "Adiwardana et al. 2020"
PERSONA_CHAT = "Zhang et al. 2018"


class PublishedSsa(NamedTuple):
    """A row of Meena's tables."""

    ssa: float
    sensibleness: float
    specificity: float


SSA_INTERACTIVE: Mapping[str, PublishedSsa] = {
    "human": PublishedSsa(0.86, 0.97, 0.75),
    "Meena full": PublishedSsa(0.79, 0.87, 0.70),
    "Meena base": PublishedSsa(0.72, 0.80, 0.64),
    "Mitsuku": PublishedSsa(0.56, 0.72, 0.40),
    "Cleverbot": PublishedSsa(0.56, 0.68, 0.45),
    "DialoGPT": PublishedSsa(0.48, 0.57, 0.39),
    "XiaoIce": PublishedSsa(0.31, 0.45, 0.17),
}
"""Adiwardana et al. 2020: people chat with the bot for 14 to 28 turns and label each of its turns."""
SSA_STATIC: Mapping[str, PublishedSsa] = {
    "human": PublishedSsa(0.82, 0.94, 0.69),
    "Meena full": PublishedSsa(0.78, 0.86, 0.70),
    "Meena base": PublishedSsa(0.72, 0.81, 0.63),
    "DialoGPT": PublishedSsa(0.51, 0.62, 0.39),
    "Cleverbot": PublishedSsa(0.44, 0.59, 0.28),
    "GenericBot": PublishedSsa(0.35, 0.70, 0.00),
}
"""Adiwardana et al. 2020: responses to the 1,477 contexts of the Mini-Turing Benchmark, five labels each."""
SSA_AGREEMENT = {"sensible": (0.76, 0.42), "specific": (0.66, 0.30)}
"""Adiwardana et al. 2020: percent agreement and Krippendorff's alpha of the static evaluation."""
PERSONA_CHAT_HUMAN = {"fluency": 4.31, "engagingness": 4.25, "consistency": 4.36, "persona": 0.95}
"""Zhang et al. 2018: people in the place of the bot; 1 to 5, and the share of personas recognised."""
PERSONA_CHAT_KV = {
    "fluency": (3.81, 3.97),
    "engagingness": (3.50, 3.88),
    "consistency": (3.36, 3.44),
    "persona": (0.59, 0.81),
}
"""Zhang et al. 2018: the range of the paper's best bots (KV Profile Memory with and without persona)."""
CAUTION = (
    "Published figures come from other bots' conversations, other raters and other instructions: a line to look at,"
    " not a baseline to test against. No public release holds the SSA labels behind them."
)


def published_ssa(preset: str) -> Mapping[str, PublishedSsa]:
    """Meena's table for a study of this preset; empty for others.

    >>> published_ssa("ssa-static")["GenericBot"].ssa
    0.35
    """
    return {"ssa-static": SSA_STATIC, "ssa-interactive": SSA_INTERACTIVE}.get(preset, {})
