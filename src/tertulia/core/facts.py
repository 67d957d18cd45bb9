"""Facts that people state about themselves, found by patterns: occupation, family, pets, age, place, likes and so on.

"I'm a nurse" states an occupation; "we have two kids" that there are two children; "no pets" that there are none. A
fact has a kind, whom it is about, a value, and whether it is denied. What is wished, past, conditional or asked is no
fact: "I used to be a chef", "I want a dog", "do you smoke?".

English, first person, in any case, with or without apostrophes and commas, as people type in chats. What the patterns
do not know they do not see: facts make for precise rules rather than complete ones.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from tertulia.core.clauses import ADVERBS, FIRST, clauses, is_negated, noun_phrase
from tertulia.core.english import STOP_WORDS, stem
from tertulia.core.fact_words import MANY, NUMBERS, TRAITS, Fact, Kind, Term, find_place, find_term, number
from tertulia.core.job_facts import find_jobs

_ME = rf"{FIRST} {ADVERBS}"
_UNREAL = re.compile(
    r"\b(?:wish|want|wants|wanted|would|could|if|used to|hope|hoping|dream|dreaming|someday|one day|when i was|as a kid"
    r"|was|were|had|grew up|might|maybe|going to be|plan to|planning|looking to|will be|studying to|training to"
    r"|almost|ex|late|died|dead|passed|previously|formerly|ago|wanna|like a|thought about|pretend|aspiring|rather"
    r"|should|until|supposed|in school to|lost my|left me|without my)\b"
)
_UNREAL_LIKE = re.compile(r"\b(?:would|used to|wish|if|when i was|could|as a kid|will|least favorite)\b")
_CONSUMED: tuple[Kind, ...] = ("meat", "alcohol")
_FAMILY: tuple[Kind, ...] = ("child", "sibling", "pet")
_HAVE = re.compile(rf"{_ME}(do not |never )?{ADVERBS}(?:have|own|raise|adopted|am raising)\b (.*)")
_NOT_HAVING = re.compile(r"(?:to|been|never|not|always|had|a (?:good|great|hard|bad|blast)|fun|\w+ed)\b")
_ASIDE = re.compile(r"\b(?:at home|in total|of my own|as well|total|a pair of|a lot of|lots of)\b")
_WITH = re.compile(
    rf"{FIRST} .*\bwith ((?:an?|no|\d+|one|two|three|four|five|six) (?:\w+ )?(?:kids?|children|dogs?|cats?|sons?"
    r"|daughters?|pets|siblings))\b"
)
_NO = re.compile(
    r"(?:^|\b(?:have|with|but|nope|no|sorry) )no (kids?|children|child|pets?|siblings?|brothers|sisters|dogs?|cats?"
    r"|husband|wife|boyfriend|girlfriend)\b"
)
_MY = re.compile(r"\b(?:my|our) ((?:\w+ ){1,4})")
_PETS = re.compile(r"pets?|animals")
_BE = re.compile(rf"{_ME}(?:am|are) {ADVERBS}(not )?(.*)")
_MARRIED = re.compile(rf"{_ME}(?:am|just|recently|have|got|have been) {ADVERBS}(?:happily |newly |recently )?married\b")
_NEVER_MARRIED = re.compile(rf"{FIRST} (?:have )?never (?:been )?married\b")
_COLOURS = "blonde|blond|brown|red|black|grey|gray|chestnut"
_HAIR = re.compile(
    rf"(?:{_ME}have |my )(?:\w+ ){{0,3}}?({_COLOURS})(?: \w+)? hair"
    rf"|my (?:hair|locks) (?:is|are) (?:\w+ ){{0,2}}?({_COLOURS})\b"
)
_PARENTS = frozenset("mother mom father dad parent grandmother grandfather".split())
_PLACES: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (
        re.compile(
            rf"{_ME}(?:am )?(?:live|reside|living|located|stay|based)\b (?:alone |right |here |out |close |down |up "
            r"|with \w+ \w+ )*(?:in|on|at|near|by|outside) (.*)"
        ),
        "home",
    ),
    (re.compile(rf"{_ME}(?:moved|relocated) (?:here )?to (.*)"), "home"),
    (re.compile(rf"{_ME}am {ADVERBS}(?:over |down |up |out |here |located )?in (.*)"), "home"),
    (re.compile(rf"{_ME}(?:am|come|hail) (?:originally )?from (.*)"), "origin"),
)
_AGE = re.compile(
    rf"{_ME}(?:am|turned|just turned) {ADVERBS}(?:about |almost )?(?P<age>[a-z]+(?:[- ][a-z]+)?|\d{{1,3}})"
    r"(?:[- ](?:years?[- ]old|years? of age|yrs? old|yo)\b| of age| and | now\b| this year\b| today\b|$)"
    rf"|(?:^|{_ME}am {ADVERBS})(?:an? )?(?:[a-z]+ )?(?P<old>\d{{1,2}}|[a-z]+(?:[- ][a-z]+)?)"
    r"[- ](?:years?|yrs?)[- ]old (?:man|woman|male|female|guy|girl|boy|person)"
)
_NAME = re.compile(r"\bmy name is (\w+)|\bcall me (\w+)")
_LIKE = re.compile(
    rf"{_ME}(?P<verb>love|like|enjoy|adore|prefer|hate|dislike|despise|detest|am obsessed with|am addicted to"
    rf"|(?:can not|do not) stand|(?:do not|never) {ADVERBS}(?:like|love|enjoy|care for)"
    rf"|am (?:not )?{ADVERBS}(?:an? )?(?:big |huge |great )?(?:fan|lover) of"
    r"|am (?:not )?(?:really |big |very |so |too )*into"
    r"|eat(?: no)?|(?:do not|never) eat|drink(?: no)?|(?:do not|never) drink) (?P<what>.*)"
)
_MOST = "(?:all time |absolute |very )?"
_FAVORITE = re.compile(rf"\bmy {_MOST}favorite (?P<kind>[\w ]+?) (?:is|are|would be|has to be) (?P<what>.*)")
_IS_FAVORITE = re.compile(rf"^(?P<what>[\w ]+?) (?:is|are) my {_MOST}favorites?(?: (?P<kind>[\w ]+))?$")
_DISLIKE = re.compile(r"\b(?:hate|dislike|despise|detest|not|never|no)\b")
_SOBER = re.compile(rf"{_ME}(?:do not|never) drink$|\bi am sober\b")
_FILLERS = frozenset(
    """eat eating play playing watch watching read reading listen listening go going drink drinking do doing make making
    be being get have having see take lot lots much anything everything things stuff time way ever really all most kind
    type thing one good great big new especially like love also food old""".split()
)
_OBJECT_ENDS = frozenset("with because when but who that i my at for and or you on than as since after before".split())
_PRONOUNS = frozenset("it them him her this those these".split())


@lru_cache(maxsize=50_000)  # a persona is compared with every candidate, and a candidate with every sentence
def facts(text: str) -> tuple[Fact, ...]:
    """What a text states, questions left out.

    >>> [(f.kind, f.value, f.positive, f.amount) for f in facts("I'm a nurse. We have two kids, no pets!")]
    [('job', 'nurse', True, None), ('child', 'child', True, 2), ('pet', 'any', False, None)]
    >>> facts("I used to be a chef. Do you like tea?")
    ()
    """
    return tuple(dict.fromkeys(fact for clause in clauses(text) for fact in _facts_of(clause)))


def _facts_of(clause: str) -> Iterator[Fact]:
    if not _UNREAL_LIKE.search(clause):
        yield from _likes(clause)
    yield from _denials(clause)
    if not _UNREAL.search(clause):
        for find in (find_jobs, _possessions, _spoken_of, _traits, _places, _age_and_name):
            yield from find(clause)


def _possessions(clause: str) -> Iterator[Fact]:
    """Relatives, pets and things that one has or does not have."""
    if match := _WITH.search(clause):
        listed = match[1].split()
        yield from _having([word for word in listed if word != "no"], negative=listed[0] == "no")
    if not (match := _HAVE.search(clause)) or _NOT_HAVING.match(rest := _ASIDE.sub("", match[2]).strip()):
        return
    for part in rest.split(" and "):
        listed = part.split()
        negative = bool(match[1]) or listed[:1] in (["no"], ["zero"])
        phrase = noun_phrase(" ".join(w for w in listed if w not in ("any", "no", "zero")), articles=True)
        if not phrase:
            return
        yield from _having(phrase, negative=negative)
        if len(listed) > len(phrase) + 1:
            return  # what follows belongs to a clause of its own


def _having(phrase: list[str], *, negative: bool) -> Iterator[Fact]:
    head = phrase[-1]
    vague = negative or phrase[0] in MANY or phrase[0] in ("a", "an")
    count = None if vague else number(phrase[:-1])
    if term := _first_term(_FAMILY, phrase):
        total = term.value in ("child", "sibling") and phrase[0] not in ("a", "an")
        yield Fact(term.kind, term.value, not negative, count, total=total or (negative and term.value == "child"))
    elif _PETS.fullmatch(head):
        yield Fact("pet", "any", not negative, count, total=True)
    elif term := find_term("marital", phrase, last=True):
        yield Fact("marital", term.value, not negative, field=term.field)
    elif head not in _FILLERS and head not in STOP_WORDS and not head.isdigit():
        yield Fact("have", stem(head), not negative, count)


def _denials(clause: str) -> Iterator[Fact]:
    """Bare denials: "no kids", "sorry no pets"."""
    for match in _NO.finditer(clause):
        if _PETS.fullmatch(match[1]):
            yield Fact("pet", "any", False)
        elif term := _first_term((*_FAMILY, "marital"), [match[1]]):
            field = term.field if term.kind == "marital" else ""
            yield Fact(term.kind, term.value, False, field=field, total=term.kind in ("child", "sibling"))
    if "only child" in clause and re.search(FIRST, clause):
        yield Fact("sibling", "sibling", False, total=True)


def _spoken_of(clause: str) -> Iterator[Fact]:
    """Relatives and pets that are there because one speaks of them: "my wife", "my two dogs"."""
    if re.search(r"\bmy (?:\w+ )?friend|\bin law\b", clause):
        return
    for match in _MY.finditer(f"{clause} "):
        listed = match[1].split()
        for size in range(1, len(listed) + 1):
            phrase = listed[:size]
            if not noun_phrase(phrase[-1], articles=True) or listed[size : size + 1] == ["s"]:
                break
            if term := _first_term((*_FAMILY, "marital"), phrase):
                field = term.field if term.kind == "marital" else ""
                count = number(phrase[:-1])
                yield Fact(term.kind, term.value, True, count, field=field, total=term.value in ("child", "sibling"))
                break


def _traits(clause: str) -> Iterator[Fact]:
    if (match := _HAIR.search(clause)) and (term := find_term("hair", [match[1] or match[2]])):
        yield Fact("hair", term.value)
    if _NEVER_MARRIED.search(clause):
        yield Fact("marital", "single", field="alone")
    elif _MARRIED.search(clause):
        yield Fact("marital", "married", "not" not in clause.split(), field="together")
    if not (match := _BE.search(clause)) or not (phrase := noun_phrase(match[2])):
        return
    positive = not match[1]
    if (term := find_term("marital", phrase, last=True)) and term.value != "married":
        yield Fact("marital", term.value, positive, field=term.field)
    for kind in TRAITS:
        term = find_term(kind, phrase, last=True)
        if term and not (kind == "hair" and term.value not in ("blonde", "brunette", "bald")):
            yield Fact(kind, term.value, positive)
    if phrase[-1] in _PARENTS:
        yield Fact("child", "child", positive, total=True)


def _places(clause: str) -> Iterator[Fact]:
    for pattern, kind in _PLACES:
        if match := pattern.search(clause):
            positive = not is_negated(clause[: match.start(1)])
            listed = match[1].split()[:6]
            if path := find_place(listed):
                yield Fact(kind, "/".join(path), positive)
            if kind == "home" and (term := find_term("setting", listed)):
                yield Fact("setting", term.value, positive)


def _age_and_name(clause: str) -> Iterator[Fact]:
    if match := _AGE.search(clause):
        listed = (match["age"] or match["old"]).replace("-", " ").split()
        age = number(listed) if listed[0] not in ("a", "an", "no", "only", "single", "couple") else None
        if age is not None and 3 < age < 110:
            yield Fact("age", str(age), amount=age)
    if match := _NAME.search(clause):
        yield Fact("name", match[1] or match[2])


def _likes(clause: str) -> Iterator[Fact]:
    if (match := _FAVORITE.search(clause)) and (what := liked_thing(match["what"])):
        yield Fact("favorite", what, field=stem(match["kind"].split()[-1]))
        yield Fact("like", what)
    elif (match := _IS_FAVORITE.search(clause)) and (what := liked_thing(match["what"])):
        if match["kind"]:
            yield Fact("favorite", what, field=stem(match["kind"].split()[0]))
        yield Fact("like", what)
    elif match := _LIKE.search(clause):
        positive = not _DISLIKE.search(match["verb"])
        if not re.search(r"\b(?:eat|drink)\b", match["verb"]) and (what := liked_thing(match["what"])):
            yield Fact("like", what, positive)
        objects = match["what"].split()[:6]
        for kind in _CONSUMED:
            if find_term(kind, objects) and (positive or kind in objects):
                yield Fact(kind, kind, positive)
    if _SOBER.search(clause):
        yield Fact("alcohol", "alcohol", False)


def liked_thing(text: str) -> str:
    """What is liked, as stems of its first content words; empty if a pronoun stands for it.

    >>> liked_thing("listening to country music with my dad"), liked_thing("it a lot")
    ('country music', '')
    """
    kept: list[str] = []
    for word in text.split()[:8]:
        if word in _PRONOUNS:
            return ""
        if word in _OBJECT_ENDS:
            if kept or word not in ("at", "my", "on", "for"):
                break
        elif word not in STOP_WORDS and word not in _FILLERS and word not in NUMBERS:
            kept.append(stem(word))
    return " ".join(kept[:3])


def _first_term(kinds: tuple[Kind, ...], phrase: list[str]) -> Term | None:
    return next((term for kind in kinds if (term := find_term(kind, phrase, last=True))), None)
