"""The consistency filter: drops candidates that contradict the bot's persona or what it said before.

The built-in rules compare every sentence of every candidate with every sentence of the persona and of the bot's own
earlier turns. A bare "no" is read together with its question (`tertulia.core.consistency`). Where the partner asks for
something that the persona tells, candidates that tell it are preferred, then those that say nothing of the speaker.
Without a persona and earlier turns there is nothing to contradict.

A trained model of natural language inference sees more and takes milliseconds for each pair of sentences. It is asked
about pairs that may bear on each other and that the rules cannot decide, and about the best candidates that the rules
keep: it stops when enough of them have passed. Its reasons weigh less than those of the rules, which are right nearly
always: if every candidate is dropped, the one that it doubts least is used. Where the partner asks for something that
the persona tells, it also helps to rank the best ones: what is rather contradicting than not comes after the others of
its rank, and if nothing tells what is asked for by the rules, what the model finds entailed does. A candidate that
tells it, and that the model does not doubt, is worth looking for: bots draw again for it.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, PrivateAttr

from tertulia.core.config import Config
from tertulia.core.consistency import (
    Claim,
    ConsistencyVerdict,
    asked_kinds,
    consistency_verdicts,
    speaks_of_self,
    statements,
)
from tertulia.core.facts import facts
from tertulia.core.reply import Ask
from tertulia.core.text import squash
from tertulia.models.classifiers.consistency import RulesFirst, load_parts
from tertulia.talk.filters.base import Doubt

if TYPE_CHECKING:
    from tertulia.models.classifiers.consistency import ConsistencyParts

AT_ONCE = 4
"""Candidates that a trained model is asked about together."""
RANKED = 12
"""Candidates that a trained model reads at most to find one that tells what is asked for."""
TELLS, SAFE, NEAR, DOUBTFUL = 1.0, 0.5, 0.25, -0.25
"""What candidates are preferred by: they tell what is asked for, they are safe, they come near it, they are likely to
contradict."""
TOLD = 0.6
"""Probability of entailment by the rules from which a candidate tells what is asked for; below, it comes near it."""
ENTAILED, DOUBTED = 0.8, 0.5
"""Probabilities of entailment and of contradiction from which a trained model ranks a candidate higher or lower."""
MODEL_WEIGHT = 0.5
"""Weight of a trained model's reason that it is certain of, where one of the rules has 1."""
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
    >>> Consistent().bonus(Ask(dialogue), ["i love tea", "yes, my son is five.", "why do you ask?"])
    [0.0, 1.0, 0.5]
    """

    classifier: str = "rules"
    """`rules` (built in), the run folder of the recipe entailment, hf:NAME_OR_FOLDER of an inference classifier, or
    rules+ one of these; write %3A for a colon."""
    threshold: float = Field(default=0.5, gt=0, le=1)
    """Drop a candidate from this probability of contradiction on, by the rules."""
    model_threshold: float = Field(default=0.9, gt=0, le=1)
    """The same by a trained model, which is asked more often than it can be right: 0.5 would drop too much."""
    enough: int = Field(default=4, ge=1)
    """A trained model is not asked about further candidates when so many have passed."""
    history: bool = True
    """Whether to compare with the bot's own earlier turns too, or with its persona only."""
    prefer: bool = True
    """Whether candidates that speak from the persona come first where the partner asks for it, then those that say
    nothing of themselves."""
    weight: ClassVar[float] = 3.0
    by_sentence: ClassVar[Literal[True]] = True
    _parts: "ConsistencyParts" = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Load the classifier now, so that a wrong name fails immediately."""
        self._parts = load_parts(self.classifier)

    def __call__(self, ask: Ask, text: str, /) -> str | None:
        """The reason to drop it, or None."""
        return self.many(ask, [text])[0]

    def many(self, ask: Ask, texts: Sequence[str], /) -> list[str | None]:
        """The reason to drop each candidate, or None to keep it; the best candidates are expected first."""
        claims = self._claims(ask, texts)
        reasons = self._rules_reasons(claims)
        if self._parts.model is not None and any(claim.premises for claim in claims):
            for i, verdict in self._ask_model(claims, _best_first(reasons, self._rules_bonus(ask, texts))):
                reason = _reason(verdict)
                reasons[i] = None if reason is None else Doubt(reason, verdict.probability * MODEL_WEIGHT)
        return reasons

    def _claims(self, ask: Ask, texts: Sequence[str]) -> list[Claim]:
        premises = (*own_persona(ask), *(own_statements(ask) if self.history else ()))
        return [Claim(text, premises, ask.last) for text in texts]

    def _rules_reasons(self, claims: Sequence[Claim]) -> list[str | None]:
        if self._parts.rules is None:
            return [None] * len(claims)
        return list(map(_reason, consistency_verdicts(self._parts.rules, claims, threshold=self.threshold)))

    def _ask(self, claims: Sequence[Claim], threshold: float) -> list[ConsistencyVerdict]:
        """The trained model's verdicts, which the rules anticipate where they can decide."""
        rules, model = self._parts
        assert model is not None
        return consistency_verdicts(
            RulesFirst(model) if rules is not None else model, claims, threshold=threshold, related_only=True
        )

    def _ask_model(self, claims: Sequence[Claim], order: Sequence[int]) -> Iterator[tuple[int, ConsistencyVerdict]]:
        """The model's verdicts, in this order, until enough candidates have passed."""
        passed = 0
        for start in range(0, len(order), AT_ONCE):
            if passed >= self.enough:
                return
            part = order[start : start + AT_ONCE]
            verdicts = self._ask([claims[i] for i in part], self.model_threshold)
            for i, verdict in zip(part, verdicts, strict=True):
                passed += verdict.relation != "contradiction"
                yield i, verdict

    def bonus(self, ask: Ask, texts: Sequence[str], /) -> list[float]:
        """Where the partner asks for what the persona knows: 1 for telling it, 0.5 for a safe answer, else 0.

        It is safe to say "yes" where that is true, or nothing of oneself. Whoever answers in other words than the
        persona's is more often wrong than the classifier can see: what may just be the same (a nurse, and work in a
        hospital) has 0.25. What a trained model doubts has a quarter less.
        """
        bonus = self._rules_bonus(ask, texts)
        telling = self._telling(ask)
        if telling and self._parts.rules is not None and self._parts.model is not None:
            self._rank_by_model(bonus, self._claims(ask, texts), telling)
        return bonus

    def wanted_bonus(self, ask: Ask, /) -> float:
        """Where the partner asks for what the persona knows, somebody should tell it."""
        return TELLS if self._telling(ask) else 0.0

    def _telling(self, ask: Ask) -> tuple[str, ...]:
        """The sentences of the persona that tell what the partner asks for."""
        kinds = asked_kinds(ask.last) if self.prefer else frozenset()
        return tuple(s for s in own_persona(ask) if kinds & {fact.kind for fact in facts(s)})

    def _rules_bonus(self, ask: Ask, texts: Sequence[str]) -> list[float]:
        telling = self._telling(ask)
        if not telling:
            return [0.0] * len(texts)
        # A bare "yes" tells nothing: only what a candidate says by itself counts in full.
        by_itself, as_answer = (
            self._entailed([Claim(text, telling, last) for text in texts]) for last in ("", ask.last)
        )
        return [
            TELLS
            if alone >= TOLD
            else SAFE
            if agrees >= TOLD or not speaks_of_self(text, ask.last)
            else NEAR
            if agrees
            else 0.0
            for text, alone, agrees in zip(texts, by_itself, as_answer, strict=True)
        ]

    def _rank_by_model(self, bonus: list[float], claims: Sequence[Claim], telling: tuple[str, ...]) -> None:
        """Lower what the model doubts; if nothing else tells what is asked for, raise what the model finds entailed."""
        kept = _best_first(self._rules_reasons(claims), bonus)
        for ranks, most in (((TELLS,), AT_ONCE), ((NEAR, 0.0), RANKED)):
            group = [i for i in kept if bonus[i] in ranks][:most]
            doubts = self._ask([claims[i] for i in group], DOUBTED)
            answers = self._ask([claims[i]._replace(premises=telling) for i in group], ENTAILED)
            for i, doubt, answer in zip(group, doubts, answers, strict=True):
                if doubt.relation == "contradiction":
                    bonus[i] += DOUBTFUL
                elif answer.relation == "entailment":
                    bonus[i] = TELLS
            if any(bonus[i] == TELLS for i in group):
                return

    def _entailed(self, claims: Sequence[Claim]) -> list[float]:
        """The probability that the premises entail each claim, by the rules if there are any; 0 if they do not."""
        rules = self._parts.rules
        if rules is not None:
            verdicts = consistency_verdicts(rules, claims, threshold=self.threshold)
        else:
            verdicts = self._ask(claims, self.model_threshold)
        return [verdict.probability if verdict.relation == "entailment" else 0.0 for verdict in verdicts]


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


def _best_first(reasons: Sequence[str | None], bonus: Sequence[float]) -> list[int]:
    """Candidates without a reason against them, preferred ones first."""
    return sorted((i for i, reason in enumerate(reasons) if reason is None), key=lambda i: -bonus[i])


def _reason(verdict: ConsistencyVerdict) -> str | None:
    if verdict.relation != "contradiction":
        return None
    return f"contradicts '{squash(verdict.premise)[:MAX_QUOTED]}': '{squash(verdict.sentence)[:MAX_QUOTED]}'"
