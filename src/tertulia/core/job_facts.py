"""Occupations in a clause: "i am a nurse", "i work at a bank", "i teach", "i am retired"; also those of relatives."""

import re
from collections.abc import Iterator

from tertulia.core.clauses import ADVERBS, FIRST, is_negated, noun_phrase
from tertulia.core.english import STOP_WORDS, stem
from tertulia.core.fact_words import Fact, find_term

_ME = rf"{FIRST} {ADVERBS}"
_AS = re.compile(
    rf"{_ME}(?:am|are|(?:am )?(?:work|working|employed|moonlight|freelance) (?:part time |full time )?as"
    r"|have (?:an? )?(?:\w+ )?job as|started (?:working )?as|became) (.*)"
)
_MY_JOB = re.compile(r"\bmy (?:\w+ )?(?:job|profession|occupation|career|work) is (?:as |in |being )?(.*)")
_WORK_AT = re.compile(
    rf"{_ME}(?:am )?(?:work|working|employed|slave away|have a (?:\w+ ){{0,3}}job) (?:\w+ )?(?:part time |full time )?"
    r"(?:at|in|for|by) (.*)"
    r"|\bmy (?:new )?job (?:at|in|for) (.*)"
)
_IN = re.compile(rf"{_ME}(?:am (?:in|at)|work) (.*)")
_LIVING = re.compile(rf"{_ME}(\w+(?: \w+){{0,3}}) for a living")
_OWN = re.compile(
    rf"{_ME}(?:own|run|manage|have) (?:an?|my|our|the)(?: own| small| local| little)* ((?:\w+ ){{0,2}}(?:shop|store"
    r"|restaurant|bar|company|business|service|bakery|salon|studio|farm|firm|cafe))\b"
)
_NONE = re.compile(
    rf"{_ME}(?:do not|no longer|can not) work(?! (?:on|out|well|with|in|at|for|the|much|as|weekends))"
    rf"|{_ME}(?:do not have a job|have no job|lost my job|quit my jobs?)"
    rf"|{_ME}am (?:still )?(?:looking|searching) for (?:a job|work)"
    rf"|{_ME}(?:am )?(?:an? )?(?:retired|unemployed|jobless|between jobs|out of work|house ?wife|homemaker"
    r"|stay at home|stay home with)"
)
_VERBS = (
    (re.compile(rf"{_ME}teach\b(?! (?:myself|my|him|her|them|you|people to))"), ("teacher", "school")),
    (re.compile(rf"{_ME}sell (?:cars|insurance|houses|shoes|clothes)"), ("salesman", "retail")),
    (re.compile(rf"{_ME}drive (?:an? )?(?:big |semi )*trucks? for"), ("truck driver", "transport")),
    (re.compile(rf"{_ME}(?:wait tables|waitress)\b"), ("waitress", "food")),
    (re.compile(rf"{_ME}play (?:professional )?\w+ for (?:the|a) \w+"), ("football player", "sports")),
    (re.compile(rf"{_ME}deliver (?:the )?mail"), ("mail carrier", "transport")),
    (re.compile(rf"{_ME}serve in the (?:army|military|navy|marines)"), ("soldier", "law")),
)
_HEADS = frozenset(
    """worker manager assistant planner coordinator officer instructor director operator technician agent dealer
    specialist inspector supervisor foreman representative attendant maker zoologist geologist archaeologist
    cartographer stripper acrobat preacher pastor priest landlord businessman gamer guard driver trainer designer
    """.split()
)
"""Words that end names of occupations which no list has."""
_NO_EMPLOYER = frozenset("home days hard night nights weekends morning field group team life online myself".split())
_RELATIVES = {
    "mother": "mother", "mom": "mother", "mum": "mother", "momma": "mother", "father": "father", "dad": "father",
    "husband": "spouse", "wife": "spouse", "brother": "brother", "sister": "sister", "son": "son",
    "daughter": "daughter", "parents": "parents", "girlfriend": "partner", "boyfriend": "partner",
}  # fmt: skip
_RELATIVE = re.compile(rf"\bmy ({'|'.join(_RELATIVES)}) (?:is|works as|work as|are|works at|works in|works for) (.*)")


def find_jobs(clause: str) -> Iterator[Fact]:
    """The speaker's own occupation, and those of relatives.

    >>> [fact.value for fact in find_jobs("i work at a bank")], [fact.holder for fact in find_jobs("my dad is a cop")]
    (['bank'], ['father'])
    """
    yield from _of_relative(clause)
    if _NONE.search(clause):
        yield Fact("job", "none", field="none")
        return
    if (own := _named(clause)) or (own := _practised(clause)) or (own := _employer(clause)):
        yield own


def _named(clause: str) -> Fact | None:
    """What somebody is: "i am a truck driver", "my job is nursing"."""
    for match in (_AS.search(clause), _MY_JOB.search(clause)):
        if not match or not (phrase := noun_phrase(match[1])):
            continue
        positive = not match[1].startswith("not ")
        if (term := find_term("job", phrase, last=True)) and not term.place:
            return Fact("job", term.value, positive, field=term.field)
        if phrase[-1] in _HEADS and len(phrase) < 5:
            return Fact("job", " ".join(map(stem, phrase)), positive)
    return None


def _practised(clause: str) -> Fact | None:
    """What somebody does: "i teach", "i bake cakes for a living", "i own a coffee shop"."""
    if is_negated(clause):
        return None
    for pattern, (value, field) in _VERBS:
        if pattern.search(clause):
            return Fact("job", value, field=field)
    if match := _LIVING.search(clause):
        return Fact("job", " ".join(stem(word) for word in match[1].split() if word not in STOP_WORDS))
    if match := _OWN.search(clause):
        listed = match[1].split()
        term = find_term("job", listed)
        return Fact("job", term.value if term else stem(listed[-1]), field=term.field if term else "", place=True)
    return None


def _employer(clause: str) -> Fact | None:
    """Where somebody works: "i work for a bank", "i am in sales"."""
    if is_negated(clause):
        return None
    if (match := _WORK_AT.search(clause)) and (phrase := noun_phrase(match[1] or match[2])):
        if term := find_term("job", phrase):
            return Fact("job", term.value, field=term.field, place=term.place)
        if not _NO_EMPLOYER & set(phrase):
            return Fact("job", " ".join(map(stem, phrase)), place=True)
    phrase = noun_phrase(match[1]) if (match := _IN.search(clause)) else []
    term = find_term("job", phrase) if len(phrase) < 4 else None
    return Fact("job", term.value, field=term.field) if term and not term.place else None


def _of_relative(clause: str) -> Iterator[Fact]:
    match = _RELATIVE.search(clause)
    if match and not is_negated(clause) and (term := find_term("job", noun_phrase(match[2]), last=True)):
        yield Fact("job", term.value, field=term.field, holder=_RELATIVES[match[1]], place=term.place)
