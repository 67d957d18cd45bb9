"""Silver data for grounding classifiers, from any dialogues with evidence (after Dziri et al. 2021, section 4).

Every example is an `Exchange` with one passage of evidence, the turn before, a response and a label; its response says
in `meta["operation"]` what made it. Labels get the same number of examples, and operations of a label take turns, so
that no single trick dominates. Nothing is annotated by people: that is what makes it silver.

- entailment: a human reply that rests on its evidence; the evidence shortened, opened like a reply, or retold in parts
- contradiction: negation; an antonym; the negation of a human reply that rests on its evidence
- hallucination: other names, other numbers, exchanged roles, another verb; half of one sentence with half of another;
  another fact of the topic; a human reply on the topic that its evidence does not support; a personal remark beside a
  piece of evidence (BEGIN counts experience and opinion as hallucination); on request, what a bot writes without the
  evidence or from other evidence
- off-topic: a reply from another conversation; a sentence of evidence about something else
- generic: a human reply without content of its own, or about oneself only, to its own or to another conversation
"""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from tertulia.artefacts.outputs import Force, Output
from tertulia.core.dialogue import Dialogue, Evidence, Exchange, Turn
from tertulia.core.english import STOP_WORDS, content_words, has_first_person, names_in
from tertulia.core.errors import DataError
from tertulia.core.grounding import LABELS, GroundingLabel, parse_label
from tertulia.core.progress import Progress, Silent
from tertulia.core.text import sentences, words
from tertulia.corpus.config import ReadConfig
from tertulia.corpus.silver.negation import negate
from tertulia.corpus.silver.perturb import change_names, change_numbers, change_verb, swap_roles, use_antonym
from tertulia.corpus.silver.written import ReplyGenerator, write_hallucinations

MIN_WORDS, MAX_WORDS = 6, 45
"""Lengths of sentences that serve as evidence."""
SUPPORTED, UNSUPPORTED = 0.5, 0.45
"""Overlap from which a human reply counts as resting on its evidence, and below which as not."""
TRIES = 500
"""Situations in which an operation may fail in a row before it is given up."""
OPENINGS = (
    "yes, ", "yeah, ", "yes ", "well, ", "oh yes, ", "i know that ", "did you know that ", "i think ", "actually, ",
    "i heard that ", "i believe ", "sure, ", "wow, ", "that's right, ",
)  # fmt: skip
"""How people begin when they pass on what they have read."""
FRAMES = (
    "it is ", "it was ", "they are ", "he was ", "she is ", "there is ", "it has ", "yes it is ", "he is known as ",
    "it's called ", "it means ", "it comes from ", "it's a ", "they have ",
)  # fmt: skip
FILLERS = (
    "really", "also", "actually", "called", "known", "people", "great", "famous", "main", "popular", "type", "kind of",
    "basically", "usually", "mostly", "used", "some", "very", "many", "first", "just", "around", "probably", "name",
)  # fmt: skip
"""Words that a retelling adds without adding a fact worth the name."""


class SilverBaseConfig(ReadConfig):
    """From what silver data of any kind is made, and how much."""

    out: Annotated[Path, Output("file")] = Path("silver.jsonl")
    """File to write."""
    force: Force = False
    per_label: int = Field(default=2000, ge=1)
    """Examples of each label."""
    seed: int = 0
    """Random seed."""


class SilverConfig(SilverBaseConfig):
    """Silver data for grounding, with or without a bot that writes more."""

    bot: str | None = None
    """A bot that writes more hallucinations, without the evidence or from other evidence: smollm2, for example."""
    written: int = Field(default=300, ge=1)
    """Replies that the bot writes."""


class Situation(NamedTuple):
    """A human reply and the sentence of its evidence that it resembles most."""

    evidence: str
    others: tuple[str, ...]
    """Further sentences of the same evidence."""
    previous: str
    reply: str
    overlap: float
    """The share of the reply's content words that occur in the evidence."""
    content: int
    """Content words of the reply."""
    personal: bool
    source: str
    """The dialogue."""
    label: str | None = None
    """What people say of the reply, if they were asked."""

    def may_be(self, label: GroundingLabel) -> bool:
        """Whether the reply's own label, if it has one, allows to present it as such."""
        return self.label is None or parse_label(self.label) == label


@dataclass(frozen=True, slots=True)
class _Material:
    """What operations draw from."""

    situations: tuple[Situation, ...]
    names: tuple[str, ...]


class _Made(NamedTuple):
    evidence: str
    response: str


Operation = Callable[[Situation, _Material, random.Random], _Made | None]


def silver_exchanges(
    dialogues: Iterable[Dialogue],
    config: SilverConfig,
    *,
    write: ReplyGenerator | None = None,
    progress: Progress | None = None,
) -> list[Exchange]:
    """Labelled exchanges, the same number of each label, in random order; what `write` writes comes on top."""
    bars = progress or Silent()
    rng = random.Random(config.seed)
    bars.step("Reading grounded dialogues")
    situations = tuple(situation for dialogue in dialogues for situation in _situations(dialogue, rng))
    if not situations:
        raise DataError(
            "No dialogue has evidence that its replies could rest on.",
            hint="Give a grounded corpus, such as CMU-DoG, Topical-Chat or Wizard of Wikipedia.",
        )
    names = {name for situation in situations for name in names_in(situation.evidence)}
    material = _Material(situations, tuple(sorted(names)))
    bars.step("Making silver examples", total=len(LABELS) * config.per_label)
    made: list[Exchange] = []
    for label, operations in OPERATIONS.items():
        made += _of_label(label, operations, material, config.per_label, rng, bars)
    if write is not None:
        bars.step("Writing hallucinations", total=config.written)
        for number, one in enumerate(
            write_hallucinations(situations, write, wanted=config.written, rng=rng, progress=bars)
        ):
            situation = situations[one.number]
            result = _Made(situation.evidence, one.response)
            made.append(_exchange("hallucination", one.operation, situation, result, config.per_label + number))
    rng.shuffle(made)
    return made


def _situations(dialogue: Dialogue, rng: random.Random) -> Iterator[Situation]:
    """Every reply with its best evidence; which of several equal sentences is chosen at random."""
    pool = [s for passage in dialogue.evidence for s in sentences(passage.text) if _fits(s)]
    pool = list(dict.fromkeys(pool))
    if len(pool) < 2:
        return
    contents = [set(content_words(sentence)) for sentence in pool]
    for before, turn in zip(dialogue.turns, dialogue.turns[1:], strict=False):
        content = content_words(turn.text)
        shares = [sum(word in known for word in content) / max(1, len(content)) for known in contents]
        best = max(range(len(pool)), key=lambda i: (shares[i], rng.random()))
        others = tuple(rng.sample([s for s in pool if s != pool[best]], min(3, len(pool) - 1)))
        label = turn.meta.get("label")
        yield Situation(
            evidence=pool[best],
            others=others,
            previous=before.text,
            reply=turn.text,
            overlap=shares[best],
            content=len(content),
            personal=has_first_person(turn.text),
            source=dialogue.id,
            label=label if isinstance(label, str) else None,
        )


def _fits(sentence: str) -> bool:
    return MIN_WORDS <= len(sentence.split()) <= MAX_WORDS


def _of_label(
    label: GroundingLabel,
    operations: dict[str, Operation],
    material: _Material,
    wanted: int,
    rng: random.Random,
    bars: Progress,
) -> list[Exchange]:
    """Examples of a label, its operations in turn; one that no longer succeeds is left out of the rota."""
    made: dict[tuple[str, str, str], Exchange] = {}
    rota = list(operations)
    while len(made) < wanted and rota:
        for name in list(rota):
            for _ in range(TRIES):
                situation = rng.choice(material.situations)
                result = operations[name](situation, material, rng)
                if result is not None and (*result, situation.previous) not in made:
                    break
            else:
                rota.remove(name)
                continue
            made[*result, situation.previous] = _exchange(label, name, situation, result, len(made))
            bars.advance()
            if len(made) >= wanted:
                break
    return list(made.values())


def _exchange(label: GroundingLabel, operation: str, situation: Situation, made: _Made, number: int) -> Exchange:
    return Exchange(
        id=f"silver-{label}-{number}",
        context=(Turn("user", situation.previous),),
        response=Turn("bot", made.response, meta={"operation": operation, "dialogue": situation.source}),
        evidence=(Evidence(made.evidence),),
        label=label,
    )


def share_in(text: str, evidence: str) -> float:
    """The share of a text's content words that occur in the evidence.

    >>> share_in("Anna likes red wine", "Anna drinks wine")
    0.5
    """
    content, known = content_words(text), set(content_words(evidence))
    return sum(word in known for word in content) / max(1, len(content))


# Operations: each makes evidence and response of a situation, or None where it does not apply.


def _human_supported(situation: Situation, _: _Material, __: random.Random) -> _Made | None:
    if situation.overlap < SUPPORTED or situation.personal or situation.content < 3:
        return None
    if not situation.may_be("entailment"):
        return None
    return _Made(situation.evidence, situation.reply)


def _copied(situation: Situation, _: _Material, rng: random.Random) -> _Made | None:
    return _Made(situation.others[0], as_reply(situation.others[0], rng))


def as_reply(sentence: str, rng: random.Random) -> str:
    """A sentence of evidence as a bot would pass it on: shortened, opened, in lower case at times."""
    tokens = sentence.split()
    kind = rng.random()
    if kind < 0.35:
        tokens = tokens[: max(5, int(len(tokens) * rng.uniform(0.4, 0.95)))]
    elif kind < 0.45:
        tokens = [token for token in tokens if rng.random() > 0.1]
    elif kind < 0.6 and ", " in sentence:
        tokens = max(sentence.split(", "), key=lambda part: (len(part.split()) >= 5, rng.random())).split()
    text = " ".join(tokens)
    if rng.random() < 0.35:
        text = rng.choice(OPENINGS) + text[:1].lower() + text[1:]
    return text.lower() if rng.random() < 0.3 else text


def _retold(situation: Situation, _: _Material, rng: random.Random) -> _Made | None:
    """One or two parts of the evidence with words of one's own around them, as a model that rewords its evidence."""
    return _Made(situation.others[0], retell(situation.others[0], rng))


def retell(sentence: str, rng: random.Random) -> str:
    """Parts of a sentence, some function words dropped, joined and framed by common words."""
    tokens = sentence.rstrip(".!").split()
    size = rng.randint(4, max(5, min(12, len(tokens) - 1)))
    start = rng.randint(0, max(0, len(tokens) - size))
    kept = tokens[start : start + size]
    if len(tokens) - start - size >= 4 and rng.random() < 0.4:
        second = rng.randint(start + size, len(tokens) - 3)
        kept += [rng.choice(("and", "so", "because of", "with", "which is")), *tokens[second : second + 5]]
    kept = [token for token in kept if token.lower() not in STOP_WORDS or rng.random() > 0.25]
    for _ in range(rng.choice((0, 1, 1, 2))):
        kept.insert(rng.randint(1, len(kept)), rng.choice(FILLERS))
    text = " ".join(kept)
    return (rng.choice(FRAMES) + text) if rng.random() < 0.6 else text


def _negated(situation: Situation, _: _Material, rng: random.Random) -> _Made | None:
    changed = negate(situation.others[0])
    return _Made(situation.others[0], as_reply(changed, rng) if rng.random() < 0.2 else changed) if changed else None


def _negated_reply(situation: Situation, material: _Material, rng: random.Random) -> _Made | None:
    supported = _human_supported(situation, material, rng)
    changed = negate(supported.response) if supported else None
    return _Made(situation.evidence, changed) if changed else None


def _antonym(situation: Situation, _: _Material, rng: random.Random) -> _Made | None:
    changed = use_antonym(situation.others[0], rng)
    return _Made(situation.others[0], changed) if changed else None


def _other_facts(change: str) -> Operation:
    def operation(situation: Situation, material: _Material, rng: random.Random) -> _Made | None:
        sentence = situation.others[0]
        changed = {
            "names": lambda: change_names(sentence, material.names, rng),
            "numbers": lambda: change_numbers(sentence, rng),
            "roles": lambda: swap_roles(sentence, rng),
            "verb": lambda: change_verb(sentence, rng),
        }[change]()
        return _Made(sentence, as_reply(changed, rng)) if changed else None

    return operation


def _spliced(situation: Situation, _: _Material, rng: random.Random) -> _Made | None:
    """The beginning of the evidence, continued by the end of another sentence on the same topic."""
    if len(situation.others) < 2:
        return None
    one, other = situation.others[0].split(), situation.others[1].split()
    cut = max(3, int(len(one) * rng.uniform(0.25, 0.6)))
    return _Made(situation.others[0], " ".join(one[:cut] + other[int(len(other) * 0.4) :]))


def _human_unsupported(situation: Situation, _: _Material, __: random.Random) -> _Made | None:
    if not 0.1 <= situation.overlap < UNSUPPORTED or situation.content < 4:
        return None
    if not situation.may_be("hallucination"):
        return None
    return _Made(situation.evidence, situation.reply)


def _personal_remark(situation: Situation, material: _Material, rng: random.Random) -> _Made | None:
    """What somebody said of themselves, beside a piece of the evidence: opinion and experience are not verifiable."""
    other = rng.choice(material.situations)
    if not other.personal or not 2 <= len(other.reply.split()) <= 14:
        return None
    parts = [other.reply.rstrip(" .!"), retell(situation.others[0], rng)]
    return _Made(situation.others[0], rng.choice((", ", " and ", ". ", " because ")).join(parts))


def _same_topic(situation: Situation, _: _Material, rng: random.Random) -> _Made | None:
    """Another fact of the same document: true, on topic, and not in this evidence."""
    return _Made(situation.evidence, as_reply(situation.others[-1], rng))


def _other_reply(situation: Situation, material: _Material, rng: random.Random) -> _Made | None:
    other = rng.choice(material.situations)
    if other.source == situation.source or other.content < 3 or share_in(other.reply, situation.evidence) > 0.15:
        return None
    if other.label is not None and parse_label(other.label) == "generic":
        return None
    return _Made(situation.evidence, other.reply)


def _other_evidence(situation: Situation, material: _Material, rng: random.Random) -> _Made | None:
    other = rng.choice(material.situations)
    if other.source == situation.source or share_in(other.evidence, situation.evidence) > 0.15:
        return None
    return _Made(situation.evidence, as_reply(other.evidence, rng))


def _empty_reply(situation: Situation, _: _Material, __: random.Random) -> _Made | None:
    """A human reply with hardly a content word."""
    if not words(situation.reply) or situation.content > 4 or situation.overlap > 0.25:
        return None
    if not situation.may_be("generic"):
        return None
    return _Made(situation.evidence, situation.reply)


def _personal_reply(situation: Situation, _: _Material, __: random.Random) -> _Made | None:
    """A human reply about oneself that says nothing of the evidence."""
    if not situation.personal or situation.overlap > 0.25 or situation.content > 8:
        return None
    if not situation.may_be("generic"):
        return None
    return _Made(situation.evidence, situation.reply)


def _other_generic(situation: Situation, material: _Material, rng: random.Random) -> _Made | None:
    """A generic reply fits another conversation as well; so few of them go a long way."""
    other = rng.choice(material.situations)
    made = _empty_reply(other, material, rng) or _personal_reply(other, material, rng)
    if made is None or share_in(made.response, situation.evidence) > 0.25:
        return None
    return _Made(situation.evidence, made.response)


OPERATIONS: dict[GroundingLabel, dict[str, Operation]] = {
    "entailment": {
        "human reply, supported": _human_supported,
        "evidence as a reply": _copied,
        "evidence retold": _retold,
    },
    "hallucination": {
        "other names": _other_facts("names"),
        "other numbers": _other_facts("numbers"),
        "exchanged roles": _other_facts("roles"),
        "another verb": _other_facts("verb"),
        "spliced sentences": _spliced,
        "human reply, unsupported": _human_unsupported,
        "personal remark": _personal_remark,
        "another fact of the topic": _same_topic,
    },
    "off-topic": {"reply of another conversation": _other_reply, "evidence of another conversation": _other_evidence},
    "generic": {
        "human reply without content": _empty_reply,
        "human reply about oneself": _personal_reply,
        "generic reply of another conversation": _other_generic,
    },
    "contradiction": {"negation": _negated, "negated human reply": _negated_reply, "antonym": _antonym},
}
"""By label and name; all in the order in which they take turns."""
