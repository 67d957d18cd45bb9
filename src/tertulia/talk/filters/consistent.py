"""The consistency filter: drops candidates that contradict the bot's persona or what it said before.

A classifier of natural language inference compares every sentence of every candidate with every sentence of the
persona and of the bot's own earlier turns, all candidates of an ask in one batch. A bare "no" is read together with its
question (`tertulia.core.consistency`). Where the partner asks for something that the persona tells, candidates that
tell it are preferred. Without a persona and earlier turns there is nothing to contradict.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field, PrivateAttr

from tertulia.core.config import Config
from tertulia.core.consistency import (
    Claim,
    ConsistencyClassifier,
    ConsistencyVerdict,
    asked_kinds,
    consistency_verdicts,
    statements,
)
from tertulia.core.facts import facts
from tertulia.core.reply import Ask
from tertulia.core.text import squash
from tertulia.models.classifiers.consistency import load_consistency

MAX_HISTORY = 30
"""Own statements of earlier turns that candidates are compared with, the last ones."""
MAX_QUOTED = 80
"""Characters of a sentence that a reason quotes."""


class Consistent(Config):
    """Drops a candidate that contradicts the persona or an own earlier turn.

    >>> from tertulia.core.dialogue import Dialogue, Persona, Turn
    >>> persona = Persona(("i am a nurse.", "i have a son."))
    >>> dialogue = Dialogue("d", (Turn("ana", "do you have kids?"),), {"bot": persona})
    >>> Consistent()(Ask(dialogue), "i am in sales.")
    "contradicts 'i am a nurse.': 'i am in sales.'"
    >>> Consistent()(Ask(dialogue), "nope!")
    "contradicts 'i have a son.': 'i do not have kids'"
    >>> Consistent().bonus(Ask(dialogue), ["i love tea", "yes, my son is five."])
    [0.0, 1.0]
    """

    classifier: str = "rules"
    """`rules` (built in), the run folder of the recipe entailment, hf:NAME_OR_FOLDER of an inference classifier, or
    rules+ one of these; write %3A for a colon."""
    threshold: float = Field(0.5, gt=0, le=1)
    """Drop a candidate from this probability of contradiction on."""
    history: bool = True
    """Whether to compare with the bot's own earlier turns too, or with its persona only."""
    prefer: bool = True
    """Whether candidates that speak from the persona come first where the partner asks for it."""
    weight: ClassVar[float] = 3.0
    _classifier: ConsistencyClassifier = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Load the classifier now, so that a wrong name fails immediately."""
        self._classifier = load_consistency(self.classifier)

    def __call__(self, ask: Ask, text: str, /) -> str | None:
        """The reason to drop it, or None."""
        return self.many(ask, [text])[0]

    def many(self, ask: Ask, texts: Sequence[str], /) -> list[str | None]:
        """The reason to drop each candidate, or None to keep it."""
        premises = (*own_persona(ask), *(own_statements(ask) if self.history else ()))
        utterances = [Claim(text, premises, ask.last) for text in texts]
        verdicts = consistency_verdicts(self._classifier, utterances, threshold=self.threshold)
        return [_reason(verdict) for verdict in verdicts]

    def bonus(self, ask: Ask, texts: Sequence[str], /) -> list[float]:
        """1 for a candidate that tells what the partner asks for and the persona knows, else 0."""
        kinds = asked_kinds(ask.last) if self.prefer else frozenset()
        telling = tuple(s for s in own_persona(ask) if kinds & {fact.kind for fact in facts(s)})
        if not telling:
            return [0.0] * len(texts)
        # A bare "yes" tells nothing: only what a candidate says by itself counts.
        utterances = [Claim(text, telling) for text in texts]
        verdicts = consistency_verdicts(self._classifier, utterances, threshold=self.threshold)
        return [float(verdict.relation == "entailment") for verdict in verdicts]


def own_persona(ask: Ask) -> tuple[str, ...]:
    """The persona of the speaker who replies; a partner's persona is another person's."""
    persona = ask.dialogue.persona_of(ask.speaker)
    return persona.sentences if persona else ()


def own_statements(ask: Ask) -> tuple[str, ...]:
    """What the bot has stated so far, short answers together with their questions."""
    turns = ask.dialogue.turns
    stated = [
        statement
        for i, turn in enumerate(turns)
        if turn.speaker == ask.speaker
        for statement in statements(turn.text, turns[i - 1].text if i and turns[i - 1].speaker != ask.speaker else "")
    ]
    return tuple(dict.fromkeys(stated[-MAX_HISTORY:]))


def _reason(verdict: ConsistencyVerdict) -> str | None:
    if verdict.relation != "contradiction":
        return None
    return f"contradicts '{squash(verdict.premise)[:MAX_QUOTED]}': '{squash(verdict.sentence)[:MAX_QUOTED]}'"
