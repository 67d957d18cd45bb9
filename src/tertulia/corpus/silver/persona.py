"""Silver data for consistency: pairs of a persona sentence and a statement, labelled by the rule that made them.

Every example is an `Exchange`: its evidence is the persona sentence, its response the statement, its label
contradiction, neutral or entailment; `meta["operation"]` says what made it. Labels get the same number of examples, and
operations of a label take turns. The facts of a sentence (`tertulia.core.facts`) decide which operations fit.

- contradiction: the sentence negated; another number, occupation, home, age, favourite; family, pets or likes turned
  round; what somebody else says of the same fact
- neutral: another sentence of the persona; another hobby or pet; a question about it; the same fact of a relative, in
  the past or as a wish; a turn about something else
- entailment: the revised wording, where personas have one; the sentence reworded or said as a turn; what its speaker
  says of the same fact in the dialogue
"""

import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tertulia.core.clauses import plain
from tertulia.core.consistency import RELATIONS, Relation
from tertulia.core.dialogue import Dialogue, Evidence, Exchange, Persona, Turn
from tertulia.core.errors import DataError
from tertulia.core.fact_words import NUMBERS, TENS, Fact, Kind, place_paths, terms
from tertulia.core.facts import facts
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.silver.generate import SilverBaseConfig

EXCLUSIVE: tuple[Kind, ...] = ("job", "home", "age", "name", "marital", "diet", "hair")
"""Kinds of facts of which a person has one at a time."""
FREE: tuple[Kind, ...] = ("like", "pet", "have")
"""Kinds of which two values go together."""
MAX_WORDS = 30
"""Longest turn that is used as it is."""
TRIES = 4000
"""Sentences in a row that an operation may decline before it is given up: few personas say where they live."""
_VERBS = frozenset(
    """have own love like enjoy live work play drive eat drink collect want hate read write speak study sing dance cook
    run watch teach go know need prefer travel volunteer smoke listen make wear believe spend ride bake paint""".split()
)
_VERB = re.compile(r"^i (?P<adverb>(?:also|really|always|often|usually) )?(?P<verb>\w+) (?P<rest>.*)$")
_BE = re.compile(r"^(?P<head>i am|i can|i will|my [\w ]{2,30}? (?:is|are)) (?P<rest>(?!not\b).*)$")
_DO_NOT = re.compile(r"\b(do|am|is|are|can|will) not ")
_ENDING = re.compile(r"[ .!]+$")
_OPENINGS = ("yes , ", "well , ", "oh , ", "nice . ", "that is cool . ", "hi ! ", "i am good , thanks . ", "haha , ")
_CLOSINGS = (" what about you ?", " do you ?", " how about you ?", " and you ?")
_RELATIVES = ("brother", "sister", "mom", "dad", "best friend", "neighbor", "cousin")
_QUESTIONS: dict[Kind, tuple[str, ...]] = {
    "job": ("what do you do for a living ?", "do you like your job ?"),
    "child": ("do you have kids ?", "how old are your kids ?"),
    "pet": ("do you have any pets ?", "what is your dog called ?"),
    "home": ("where do you live ?", "have you always lived there ?"),
    "marital": ("are you married ?", "how did you two meet ?"),
    "like": ("what do you like to do ?", "do you have any hobbies ?"),
}
_TURNED: dict[Kind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "child": (
        ("i do not have any kids", "no kids", "we have no children", "i am childless"),
        ("i have two kids", "my son is five", "my daughter keeps me busy", "i am a mom of three"),
    ),
    "pet": (
        ("i do not have any pets", "no pets here", "i have no pets", "we do not own any animals"),
        ("i have a dog and a cat", "my dog is asleep beside me", "i own three cats"),
    ),
    "sibling": (
        ("i am an only child", "i do not have any siblings", "i have no brothers or sisters"),
        ("i have a brother and a sister", "my sister is older than me"),
    ),
    "meat": (
        ("i am a vegan", "i do not eat meat", "i am a vegetarian"),
        ("i love a good steak", "i eat a lot of meat"),
    ),
    "alcohol": (("i do not drink alcohol", "i never drink", "i am sober"), ("i love beer", "i drink wine every night")),
}
"""What contradicts a fact that is stated, and one that is denied."""
_MARITAL = {
    "together": ("i am single", "i am not married", "i have never been married", "i am divorced"),
    "steady": ("i am single", "i am not dating anyone", "my husband and i just bought a house"),
    "alone": ("i am married", "my wife is a great cook", "my husband works a lot", "i just celebrated my anniversary"),
}


class PersonaSilverConfig(SilverBaseConfig):
    """From which personas silver data is made, and how much."""


class PersonaSentence(NamedTuple):
    """A sentence of a persona, with what is around it."""

    text: str
    facts: tuple[Fact, ...]
    others: tuple[str, ...]
    """The other sentences of the persona."""
    revised: str = ""
    """The same in other words, if the persona has them."""
    said: tuple[str, ...] = ()
    """Turns of the speaker that state the same fact."""
    source: str = ""
    """The dialogue."""

    def fact(self, *kinds: Kind) -> Fact | None:
        """The first of its facts of one of these kinds."""
        return next((fact for fact in self.facts if fact.kind in kinds), None)


@dataclass(frozen=True, slots=True)
class _Material:
    sentences: tuple[PersonaSentence, ...]
    by_kind: dict[Kind, tuple[tuple[str, Fact], ...]]
    """Sentences and turns that state a fact of a kind."""
    turns: tuple[str, ...]


class _Made(NamedTuple):
    premise: str
    statement: str


Operation = Callable[[PersonaSentence, _Material, random.Random], str | None]


def persona_pairs(
    dialogues: Iterable[Dialogue], config: PersonaSilverConfig, *, progress: Progress | None = None
) -> list[Exchange]:
    """Labelled pairs as exchanges, the same number of each label, in random order."""
    bars = progress or Silent()
    rng = random.Random(config.seed)
    bars.step("Reading personas")
    material = _material(dialogues)
    if not material.sentences:
        raise DataError(
            "No dialogue has a persona.", hint="Give a corpus with personas, such as Persona-Chat, or `sample`."
        )
    bars.step("Making silver pairs", total=len(RELATIONS) * config.per_label)
    made: dict[_Made, Exchange] = {}
    for label, operations in OPERATIONS.items():
        _add_label(made, label, operations, material, config.per_label, rng, bars)
    shuffled = list(made.values())
    rng.shuffle(shuffled)
    return shuffled


def _material(dialogues: Iterable[Dialogue]) -> _Material:
    sentences: dict[str, PersonaSentence] = {}
    turns: dict[str, None] = {}
    for dialogue in dialogues:
        for speaker, persona in dialogue.personas.items():
            own = [turn.text for turn in dialogue.turns if turn.speaker == speaker]
            turns |= dict.fromkeys(text for text in own if 3 <= len(text.split()) <= MAX_WORDS)
            for one in _sentences_of(persona, own, dialogue.id):
                sentences.setdefault(one.text, one)
    by_kind: dict[Kind, list[tuple[str, Fact]]] = {}
    for text in (*sentences, *turns):
        for fact in facts(text):
            if fact.holder == "i" and fact.positive:
                by_kind.setdefault(fact.kind, []).append((text, fact))
    return _Material(tuple(sentences.values()), {k: tuple(v) for k, v in by_kind.items()}, tuple(turns))


def _sentences_of(persona: Persona, own: Sequence[str], source: str) -> Iterable[PersonaSentence]:
    aligned = len(persona.revised) == len(persona.sentences)
    for i, text in enumerate(persona.sentences):
        stated = tuple(fact for fact in facts(text) if fact.holder == "i")
        said = tuple(turn for turn in own if len(turn.split()) <= MAX_WORDS and set(stated) & set(facts(turn)))
        others = tuple(other for other in persona.sentences if other != text)
        yield PersonaSentence(text, stated, others, persona.revised[i] if aligned else "", said, source)


def _add_label(
    made: dict[_Made, Exchange],
    label: Relation,
    operations: dict[str, Operation],
    material: _Material,
    wanted: int,
    rng: random.Random,
    bars: Progress,
) -> None:
    """Examples of a label, its operations in turn; one that no longer succeeds is left out of the rota.

    No pair is made twice, with another label neither.
    """
    rota, count = list(operations), 0
    while count < wanted and rota:
        for name in list(rota):
            for _ in range(TRIES):
                sentence = rng.choice(material.sentences)
                statement = operations[name](sentence, material, rng)
                if statement and (pair := _Made(sentence.text, statement)) not in made:
                    break
            else:
                rota.remove(name)
                continue
            made[pair] = Exchange(
                id=f"persona-{label}-{count}",
                context=(),
                response=Turn("bot", statement, meta={"operation": name, "dialogue": sentence.source}),
                evidence=(Evidence(sentence.text),),
                label=label,
            )
            count += 1
            bars.advance()
            if count >= wanted:
                break


def negate_self(sentence: str) -> str | None:
    """A statement about oneself with the opposite meaning; None if no rule fits.

    >>> negate_self("I have two dogs."), negate_self("i'm a nurse ."), negate_self("I don't drive.")
    ('i do not have two dogs', 'i am not a nurse', 'i drive')
    """
    text = _ENDING.sub("", plain(sentence))
    if match := _DO_NOT.search(text):
        kept = "" if match[1] == "do" else f"{match[1]} "
        return text[: match.start()] + kept + text[match.end() :]
    if re.search(r"\b(?:never|no|not|nobody|nothing|hardly)\b", text):
        return None
    if match := _BE.match(text):
        return f"{match['head']} not {match['rest']}"
    if (match := _VERB.match(text)) and match["verb"] in _VERBS:
        return f"i do not {match['verb']} {match['rest']}"
    return None


def as_turn(statement: str, rng: random.Random) -> str:
    """A statement as somebody would say it in a chat."""
    text = _ENDING.sub("", plain(statement))
    if rng.random() < 0.3:
        text = rng.choice(_OPENINGS) + text
    return text + " ." + (rng.choice(_CLOSINGS) if rng.random() < 0.3 else "")


# Operations: each makes a statement of a persona sentence, or None where it does not apply.


def _negated(one: PersonaSentence, _: _Material, rng: random.Random) -> str | None:
    changed = negate_self(one.text)
    return as_turn(changed, rng) if changed else None


def _other_number(one: PersonaSentence, _: _Material, rng: random.Random) -> str | None:
    listed = plain(one.text).split()
    spots = [i for i, w in enumerate(listed) if w.isdigit() or (w in NUMBERS and NUMBERS[w] > 1) or w in TENS]
    if not spots or not re.search(r"\b(?:i|my|we)\b", plain(one.text)):
        return None
    spot = rng.choice(spots)
    old = listed[spot]
    value = int(old) if old.isdigit() else NUMBERS.get(old, TENS.get(old, 0))
    new = rng.choice([n for n in range(2, max(12, min(2 * value, 3000))) if n != value])
    words = {number: word for word, number in NUMBERS.items() if number > 1 and word != "couple"}
    listed[spot] = str(new) if old.isdigit() or new not in words else words[new]
    return as_turn(" ".join(listed), rng)


def _other_job(one: PersonaSentence, _: _Material, rng: random.Random) -> str | None:
    fact = one.fact("job")
    if fact is None or not fact.positive:
        return None
    jobs = sorted({t.value for t in terms()["job"].values() if not t.place and t.field not in (fact.field, "none", "")})
    job = rng.choice(jobs)
    article = "an" if job[0] in "aeiou" else "a"
    idle = "i am retired" if fact.field != "none" else "i work full time"
    forms = (f"i am {article} {job}", f"i work as {article} {job}", f"my job is being {article} {job}", idle)
    return as_turn(rng.choices(forms, (5, 4, 1, 1))[0], rng)


def _other_place(one: PersonaSentence, _: _Material, rng: random.Random) -> str | None:
    fact = one.fact("home")
    if fact is None or not fact.positive:
        return None
    path = tuple(fact.value.split("/"))
    level = 2 if path[0] == "usa" and len(path) > 1 else 1
    other = rng.choice(
        sorted({" ".join(p[-1:]) for p in place_paths().values() if len(p) >= level and p[:level] != path[:level]})
    )
    return as_turn(
        rng.choice((f"i live in {other}", f"i live in {other} with my family", f"i am living in {other}")), rng
    )


def _other_age(one: PersonaSentence, _: _Material, rng: random.Random) -> str | None:
    fact = one.fact("age")
    if fact is None or fact.amount is None:
        return None
    age = rng.choice([a for a in range(15, 85) if abs(a - fact.amount) > 1])
    return as_turn(rng.choice((f"i am {age} years old", f"i am {age}", f"i just turned {age}")), rng)


def _other_marital(one: PersonaSentence, _: _Material, rng: random.Random) -> str | None:
    fact = one.fact("marital")
    if fact is None or not fact.positive or fact.field not in _MARITAL:
        return None
    return as_turn(rng.choice(_MARITAL[fact.field]), rng)


def _turned_round(*kinds: Kind) -> Operation:
    def operation(one: PersonaSentence, _: _Material, rng: random.Random) -> str | None:
        fact = one.fact(*kinds)
        if fact is None or (not fact.positive and not fact.total and fact.value not in ("any", *kinds)):
            return None
        return as_turn(rng.choice(_TURNED[fact.kind][0 if fact.positive else 1]), rng)

    return operation


def _other_taste(one: PersonaSentence, _: _Material, rng: random.Random) -> str | None:
    """The same thing disliked, or liked."""
    text = _ENDING.sub("", plain(one.text))
    match = re.match(
        r"^i (?:really |also )?(?P<verb>love|like|enjoy|hate|dislike|can not stand|do not like) (?P<rest>.*)$", text
    )
    if not match:
        return None
    liked = match["verb"] in ("love", "like", "enjoy")
    verb = rng.choice(("hate", "do not like", "can not stand", "never liked") if liked else ("love", "like", "enjoy"))
    return as_turn(f"i {verb} {re.split(r' and | but |,', match['rest'])[0]}", rng)


def _other_favorite(one: PersonaSentence, material: _Material, rng: random.Random) -> str | None:
    fact = one.fact("favorite")
    if fact is None:
        return None
    others = [text for text, f in material.by_kind["favorite"] if f.field == fact.field and f.value != fact.value]
    return rng.choice(others) if others else None


def _other_speaker(one: PersonaSentence, material: _Material, rng: random.Random) -> str | None:
    """What somebody else says of a fact that has one value at a time."""
    fact = one.fact(*EXCLUSIVE)
    if fact is None or not fact.positive or fact.kind not in material.by_kind:
        return None
    text, other = rng.choice(material.by_kind[fact.kind])
    part = fact.value.startswith(other.value) or other.value.startswith(fact.value)
    apart = not part and (
        fact.kind not in ("job", "marital") or (fact.field != other.field and fact.field and other.field)
    )
    return text if apart and fact.holder == other.holder else None


def _same_persona(one: PersonaSentence, _: _Material, rng: random.Random) -> str | None:
    return (
        as_turn(rng.choice(one.others), rng) if one.others and rng.random() < 0.5 else rng.choice(one.others or ("",))
    )


def _other_free(one: PersonaSentence, material: _Material, rng: random.Random) -> str | None:
    """Another hobby, another kind of pet, another possession: they go together."""
    fact = one.fact(*FREE)
    if fact is None or fact.kind not in material.by_kind or not fact.positive:
        return None
    text, other = rng.choice(material.by_kind[fact.kind])
    kinds = {f.kind for f in facts(text)}
    shared = set(fact.value.split()) & set(other.value.split())
    clash = shared or any(f.kind in kinds for f in one.facts if f.kind not in FREE)
    return None if clash or (fact.kind == "pet" and "any" in (fact.value, other.value)) else text


def _question(one: PersonaSentence, _: _Material, rng: random.Random) -> str | None:
    fact = one.fact(*_QUESTIONS)
    return rng.choice(_QUESTIONS[fact.kind]) if fact else None


def _relative(one: PersonaSentence, _: _Material, rng: random.Random) -> str | None:
    """Somebody else's occupation or home."""
    fact, whom = one.fact("job", "home"), rng.choice(_RELATIVES)
    if fact is None:
        return None
    if fact.kind == "job":
        job = rng.choice(sorted({t.value for t in terms()["job"].values() if not t.place and t.field != "none"}))
        return as_turn(f"my {whom} is {'an' if job[0] in 'aeiou' else 'a'} {job}", rng)
    return as_turn(f"my {whom} lives in {rng.choice(sorted(place_paths()))}", rng)


def _unreal(one: PersonaSentence, _: _Material, rng: random.Random) -> str | None:
    """The past, or a wish: compatible with another present."""
    fact = one.fact("job", "home")
    if fact is None:
        return None
    if fact.kind == "job":
        job = rng.choice(sorted({t.value for t in terms()["job"].values() if not t.place and t.field != "none"}))
        article = "an" if job[0] in "aeiou" else "a"
        forms = (f"i used to be {article} {job}", f"as a kid i wanted to be {article} {job}")
        return as_turn(rng.choice(forms), rng)
    place = rng.choice(sorted(place_paths()))
    return as_turn(rng.choice(("i would love to visit", "i grew up in", "i used to live in")) + f" {place}", rng)


def _something_else(one: PersonaSentence, material: _Material, rng: random.Random) -> str | None:
    text = rng.choice(material.turns) if material.turns else ""
    return text if text and not {f.kind for f in facts(text)} & {f.kind for f in one.facts} else None


def _revised(one: PersonaSentence, _: _Material, __: random.Random) -> str | None:
    return one.revised or None


def _said(one: PersonaSentence, _: _Material, rng: random.Random) -> str | None:
    return rng.choice(one.said) if one.said else None


def _as_said(one: PersonaSentence, _: _Material, rng: random.Random) -> str | None:
    text = as_turn(one.text, rng)
    return text if len(text.split()) > len(plain(one.text).split()) + 1 else None


def _reworded(one: PersonaSentence, _: _Material, rng: random.Random) -> str | None:
    text = _ENDING.sub("", plain(one.text))
    for pattern, forms in _REWORDINGS:
        if match := pattern.match(text):
            return as_turn(rng.choice(forms).format(*match.groups()), rng)
    return None


_LIKE = "^i (?:love|like|enjoy) "
_REWORDINGS = tuple(
    (re.compile(pattern), forms)
    for pattern, forms in (
        (r"^i am (an? [\w ]+)$", ("i work as {0}", "i am {0} , you know", "being {0} is what i do")),
        (rf"{_LIKE}(\w+ing(?: [\w ]+)?)$", ("{0} is so much fun", "i am really into {0}")),
        (rf"{_LIKE}to ([\w ]+)$", ("i really love to {0}", "what i like is to {0}")),
        (rf"{_LIKE}((?!to )[\w ]+)$", ("i really enjoy {0}", "i am a big fan of {0}", "i can not get enough of {0}")),
        (r"^i (?:hate|dislike|do not like) ([\w ]+)$", ("i can not stand {0}", "i am not a fan of {0}")),
        (r"^i have (two|three|four|five|\d+|an?) ([\w ]+)$", ("i own {0} {1}", "i got {0} {1}")),
        (r"^i live in ([\w ]+)$", ("my home is in {0}", "i am living in {0}", "i reside in {0}")),
        (r"^my favorite ([\w ]+) is ([\w ]+)$", ("{1} is my favorite {0}", "the {0} i like best is {1}")),
        (r"^i work (?:at|for|in) ([\w ]+)$", ("i am employed at {0}", "my job is at {0}")),
        (r"^i am (married|single|divorced|retired|vegan)$", ("yes , {0} . that is me", "i have been {0} for a while")),
    )
)

OPERATIONS: dict[Relation, dict[str, Operation]] = {
    "entailment": {
        "revised wording": _revised,
        "said in the dialogue": _said,
        "reworded": _reworded,
        "said as a turn": _as_said,
    },
    "neutral": {
        "another sentence of the persona": _same_persona,
        "another hobby, pet or possession": _other_free,
        "a question about it": _question,
        "of a relative": _relative,
        "past or wish": _unreal,
        "about something else": _something_else,
    },
    "contradiction": {
        "negation": _negated,
        "another number": _other_number,
        "another occupation": _other_job,
        "another home": _other_place,
        "another age": _other_age,
        "another marital status": _other_marital,
        "family turned round": _turned_round("child", "sibling"),
        "pets turned round": _turned_round("pet"),
        "diet turned round": _turned_round("meat", "alcohol"),
        "opposite taste": _other_taste,
        "another favourite": _other_favorite,
        "another speaker's fact": _other_speaker,
    },
}
"""By label and name; all in the order in which they take turns."""
