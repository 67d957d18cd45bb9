"""Consistency by rules: do two statements of one speaker contradict each other? Works offline, without training.

Facts are read from both texts (`tertulia.core.facts`) and compared kind by kind:

- occupation, home, age, name, marital status, favourites and traits have one value at a time: two values contradict
- children, siblings, pets and possessions contradict by number, or where one text has some and the other has none
- likes contradict only where the same thing is liked and disliked; two hobbies, two kinds of pets go together
- elsewhere, statements with the same content words contradict where only one is negated or their numbers differ

The figures that the rules return are not calibrated: `SURE` stands for a clear case, `WEAK` for a likely one, and
`FAINT` for work and a place of the same field: a nurse and a hospital, but also a singer and a gallery.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from tertulia.core.clauses import clauses
from tertulia.core.consistency import Relation, RelationProbabilities
from tertulia.core.english import NEGATIONS, STOP_WORDS, stem
from tertulia.core.fact_words import NUMBERS, TENS, TRAITS, Fact, number
from tertulia.core.facts import facts
from tertulia.core.text import words

SURE, WEAK, FAINT, SHARED = 0.9, 0.65, 0.55, 0.6
"""Probabilities of a clear case, a likely one and a possible one, and the share of content words that make two
statements the same."""
_POLARITY = frozenset("not never no nor neither hardly without nothing none".split())
_SCALE = frozenset(("hate", "hates", "dislike", "despise", "detest"))
_NO_NUMBERS = frozenset(("a", "an", "no", "only", "single", "couple"))


class _Verdict(NamedTuple):
    relation: Relation
    probability: float


class ConsistencyRules:
    """Classifies pairs of statements of one speaker.

    >>> rules = ConsistencyRules()
    >>> [row] = rules.probabilities(["i am a nurse with two kids ."], ["i'm in sales , no kids ."])
    >>> row.contradiction
    0.9
    """

    name = "rules"

    def probabilities(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[RelationProbabilities]:
        """For each pair the probabilities of the three classes."""
        return [_probabilities(_compare(p, h)) for p, h in zip(premises, hypotheses, strict=True)]


def _probabilities(verdict: _Verdict) -> RelationProbabilities:
    rest = 1 - verdict.probability
    others = {"entailment": 0.0, "neutral": rest, "contradiction": 0.0}
    if verdict.relation == "neutral":
        others = {"entailment": rest / 2, "neutral": 0.0, "contradiction": rest / 2}
    return RelationProbabilities(**(others | {verdict.relation: verdict.probability}))


@lru_cache(maxsize=100_000)  # personas and candidates come again with every message
def _compare(premise: str, hypothesis: str) -> _Verdict:
    if _differ_by_number(premise, hypothesis):
        return _Verdict("contradiction", SURE)
    pairs = [(one, other) for one in facts(premise) for other in facts(hypothesis)]
    judged = [(one.kind, verdict) for one, other in pairs if (verdict := compare_facts(one, other))]
    same_job = any(kind == "job" and verdict.relation == "entailment" for kind, verdict in judged)  # of two jobs, one
    verdicts = [v for kind, v in judged if not (same_job and kind == "job" and v.relation == "contradiction")]
    contradictions = [v.probability for v in verdicts if v.relation == "contradiction"]
    if contradictions:
        return _Verdict("contradiction", max(contradictions))
    wording = _compare_words(premise, hypothesis)
    if wording is not None and wording.relation == "contradiction" and not verdicts:
        return wording
    agreements = [v.probability for v in verdicts]
    if wording is not None and wording.relation == "entailment":
        agreements.append(wording.probability)
    return _Verdict("entailment", max(agreements)) if agreements else _Verdict("neutral", 0.8)


def compare_facts(one: Fact, other: Fact) -> _Verdict | None:
    """How one fact bears on another; None if it does not.

    >>> compare_facts(Fact("pet", "dog", amount=2), Fact("pet", "cat")) is None
    True
    >>> compare_facts(Fact("pet", "dog", amount=2), Fact("pet", "any", False))
    _Verdict(relation='contradiction', probability=0.9)
    """
    if one.holder != other.holder:
        return None
    if one.kind != other.kind:
        return _across(one, other) or _across(other, one)
    if one.kind == "job":
        return _jobs(one, other)
    if one.kind in ("child", "sibling", "pet", "have"):
        return _counted(one, other)
    if one.kind in ("home", "origin"):
        return _places(one, other)
    if one.kind == "marital":
        return _marital(one, other)
    if one.kind in ("like", "favorite"):
        return _tastes(one, other)
    return _exclusive(one, other)


def _agree(probability: float = SURE) -> _Verdict:
    return _Verdict("entailment", probability)


def _oppose(probability: float = SURE) -> _Verdict:
    return _Verdict("contradiction", probability)


def _exclusive(one: Fact, other: Fact) -> _Verdict | None:
    """Age, name, traits, diet and the like: one value at a time."""
    if one.value == other.value:
        return _agree() if one.positive == other.positive else _oppose()
    if not one.positive or not other.positive:
        return None
    return _oppose(WEAK if one.kind in (*TRAITS, "setting") and one.kind not in ("gender", "hair", "diet") else SURE)


def _jobs(one: Fact, other: Fact) -> _Verdict | None:
    same = one.value == other.value
    if same or (one.field == other.field != "" and one.place != other.place):
        return _agree(SURE if same else FAINT) if one.positive == other.positive else _oppose()
    if not one.positive or not other.positive or (one.place and other.place and one.field == other.field != ""):
        return None
    if not one.field or not other.field:  # an employer that no list has
        if one.place and other.place and set(one.value.split()) & set(other.value.split()):
            return _agree(WEAK)
        return _oppose(WEAK)
    return _oppose()


def _counted(one: Fact, other: Fact) -> _Verdict | None:
    general = one.total or other.total or "any" in (one.value, other.value)
    if one.value != other.value and not (general and one.kind != "have"):
        return None
    if one.positive != other.positive:
        denied, stated = (one, other) if not one.positive else (other, one)
        return _oppose() if denied.value == stated.value or denied.total or denied.value == "any" else None
    if not one.positive:
        return _agree()
    if one.amount is None or other.amount is None or one.amount == other.amount:
        return _agree() if one.value == other.value else _agree(WEAK)
    if one.value == other.value:
        exact = one.total or one.kind != "child" or min(one.amount, other.amount) > 1
        return _oppose(SURE if exact and one.kind != "have" else WEAK)
    total, part = (one, other) if one.total else (other, one)
    return (
        _oppose(WEAK) if total.amount is not None and part.amount is not None and total.amount < part.amount else None
    )


def _places(one: Fact, other: Fact) -> _Verdict | None:
    first, second = one.value.split("/"), other.value.split("/")
    inside = all(a == b for a, b in zip(first, second, strict=False))
    if one.positive != other.positive:
        return _oppose() if first == second else None
    if not one.positive:
        return None
    return _agree() if inside else _oppose()


def _marital(one: Fact, other: Fact) -> _Verdict | None:
    if one.value == other.value or (one.field == other.field and one.positive and other.positive):
        return _agree() if one.positive == other.positive else _oppose()
    if one.positive and other.positive:
        return _oppose(SURE if {one.field, other.field} == {"together", "alone"} else WEAK)
    return None


def _tastes(one: Fact, other: Fact) -> _Verdict | None:
    first, second = set(one.value.split()), set(other.value.split())
    if one.kind == "favorite":
        if one.field != other.field:
            return None
        return _agree() if first <= second or second <= first else _oppose()
    if one.positive == other.positive:
        return _agree() if first == second or (first <= second and len(first) > 1) else None
    return _oppose(SURE if first == second else WEAK) if first <= second or second <= first else None


def _across(one: Fact, other: Fact) -> _Verdict | None:
    """Facts of different kinds that bear on each other."""
    kinds = (one.kind, other.kind)
    if kinds == ("diet", "meat"):
        eats = (one.value == "vegan") != one.positive
        return _agree() if eats == other.positive else _oppose()
    if kinds == ("home", "origin") and one.positive and other.positive:
        return _agree(WEAK) if _places(one, other) == _agree() else None
    if kinds == ("like", "pet") and not one.positive and other.positive and other.value in one.value.split():
        return _oppose(WEAK)
    return None


class _Statement(NamedTuple):
    content: frozenset[str]
    numbers: frozenset[str]
    negated: bool


@lru_cache(maxsize=50_000)
def _statements(text: str) -> tuple[_Statement, ...]:
    """The clauses of a text about the speaker that have at least two content words."""
    made = []
    for clause in clauses(text):
        listed = clause.split()
        if not {"i", "my", "we"} & set(listed):
            continue
        numbers = frozenset(w for w in listed if _is_number(w))
        negated = bool(_POLARITY & set(listed)) != bool(_SCALE & set(listed))
        kept = [w for w in listed if w not in STOP_WORDS | NEGATIONS | _SCALE and w not in numbers]
        content = frozenset(stem(w) for w in kept if w not in ("love", "enjoy", "favorite", "lot", "not"))
        if content:
            made.append(_Statement(content, numbers, negated))
    return tuple(made)


def _compare_words(premise: str, hypothesis: str) -> _Verdict | None:
    """Statements that share nearly all content words: the same, or opposite by negation or number."""
    best: _Verdict | None = None
    for one in _statements(premise):
        for other in _statements(hypothesis):
            shared = len(one.content & other.content)
            similarity = shared / len(one.content | other.content)
            if shared < 2 or similarity < SHARED:
                continue
            if one.negated != other.negated or (
                one.numbers and other.numbers and one.numbers != other.numbers and similarity > 0.75
            ):
                return _oppose(WEAK)
            best = _agree(WEAK)
    return best


def _differ_by_number(premise: str, hypothesis: str) -> bool:
    """Whether texts are the same but for a number.

    >>> _differ_by_number("i have 3 cats , you ?", "i have five cats , you ?")
    True
    """
    one, other = words(premise), words(hypothesis)
    if abs(len(one) - len(other)) > 2 or len(one) < 3:
        return False
    kept = [[word for word in listed if not _is_number(word)] for listed in (one, other)]
    numbers = [[word for word in listed if _is_number(word)] for listed in (one, other)]
    same = kept[0] == kept[1] or (len(kept[0]) > 4 and set(kept[0]) == set(kept[1]))
    return (
        same
        and bool(numbers[0] and numbers[1])
        and [number([w]) for w in numbers[0]] != [number([w]) for w in numbers[1]]
    )


def _is_number(word: str) -> bool:
    return word.isdigit() or word in TENS or (word in NUMBERS and word not in _NO_NUMBERS)
