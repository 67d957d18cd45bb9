"""Negate an English sentence by rules, without a parser: for silver contradictions (Dziri et al. 2021, section 4).

Real sentences have relative clauses, quotes and auxiliaries that are no auxiliaries ("has a dog"). The rules therefore
look for the finite verb of the main clause from left to right, skip what stands in relative clauses and brackets, and
give up (None) rather than write nonsense. A sentence that is negated already loses its negation.
"""

import re

_BE = "is are was were am".split()
_MODAL = "can could will would shall should may might must".split()
_DO = "do does did".split()
_HAVE = "has have had".split()
_NOT = re.compile(
    r"\b(?:(?P<aux>is|are|was|were|do|does|did|has|have|had|could|would|should|must)(?:n't|n’t| not)"
    r"|(?P<can>can)(?:not|'t|’t| not)|(?P<will>wo)(?:n't|n’t)|(?P<modal>will|may|might) not)\b",
    re.IGNORECASE,
)
_NEVER = re.compile(r"\b(never|no longer|neither|nor|hardly|nobody|nothing|none|without)\b", re.IGNORECASE)
_RELATIVE = frozenset("who whom which that where when while because if although though since whose as whether".split())
_PRONOUN = frozenset("i you he she it we they this that these those there".split())
_IRREGULAR = dict(
    pair.split(":")
    for pair in """became:become began:begin broke:break brought:bring built:build bought:buy came:come chose:choose
    did:do drew:draw drove:drive ate:eat fell:fall felt:feel found:find flew:fly forgot:forget gave:give got:get
    went:go grew:grow had:have heard:hear held:hold kept:keep knew:know led:lead left:leave lost:lose made:make
    meant:mean met:meet paid:pay played:play ran:run rose:rise said:say saw:see sang:sing sold:sell sent:send
    sat:sit slept:sleep spoke:speak spent:spend stood:stand swam:swim took:take taught:teach told:tell thought:think
    threw:throw understood:understand won:win wore:wear wrote:write""".split()
)
_THIRD_PERSON = {"has": "have", "does": "do", "goes": "go"}
_PARTICIPLE = re.compile(r"(?:\w+ed|been|\w+en|had|made|won|sold|gone|become|led|held|kept|known|shown|built|found)$")
_ADVERB = frozenset("also often always usually mostly generally still only currently originally typically just".split())
_WORD = re.compile(r"[A-Za-z][\w'’-]*|[(),;:]")


def negate(sentence: str) -> str | None:
    """The sentence with the opposite meaning, or None if no rule fits.

    >>> negate("Broccoli is often boiled, but may be eaten raw.")
    'Broccoli is not often boiled, but may be eaten raw.'
    >>> negate("The band, which was formed in 1985, has sold 100 million records.")
    'The band, which was formed in 1985, has not sold 100 million records.'
    >>> negate("She wrote three novels."), negate("He doesn't like tea."), negate("Really?")
    ('She did not write three novels.', 'He does like tea.', None)
    """
    if sentence.rstrip().endswith("?"):
        return None
    if match := _NOT.search(sentence):
        kept = match["aux"] or match["can"] or match["modal"] or "will"
        return sentence[: match.start()] + kept + sentence[match.end() :]
    if _NEVER.search(sentence):
        return None
    return _insert_not(sentence)


def _insert_not(sentence: str) -> str | None:
    tokens = list(_WORD.finditer(sentence))
    for i in _main_clause(tokens):
        word = tokens[i].group().lower()
        following = tokens[i + 1].group().lower() if i + 1 < len(tokens) else ""
        if word in (*_BE, *_MODAL, *_DO) or (word in _HAVE and _is_auxiliary(tokens, i)):
            if word in _DO and following in _PRONOUN:
                return None  # a question without its mark
            end = tokens[i].end()
            return sentence[:end] + ("not" if word == "can" else " not") + sentence[end:]
        if i and (base := _base_form(word, tokens[i - 1].group().lower(), following)):
            support = "did" if base[1] == "past" else "does" if base[1] == "third" else "do"
            return sentence[: tokens[i].start()] + f"{support} not {base[0]}" + sentence[tokens[i].end() :]
    return None


def _main_clause(tokens: list[re.Match[str]]) -> list[int]:
    """Positions of words outside brackets and relative clauses; a clause ends at the next comma or semicolon."""
    positions, depth, relative = [], 0, False
    for i, token in enumerate(tokens):
        word = token.group().lower()
        if word == "(":
            depth += 1
        elif word == ")":
            depth = max(0, depth - 1)
        elif word in ",;:":
            relative = False
        elif word in _RELATIVE and i and not (word in _PRONOUN and i == 0):
            relative = True
        elif not depth and not relative:
            positions.append(i)
    return positions


def _is_auxiliary(tokens: list[re.Match[str]], i: int) -> bool:
    """Whether has, have or had is followed by a participle, perhaps after adverbs."""
    for token in tokens[i + 1 : i + 4]:
        word = token.group().lower()
        if word.endswith("ly") or word in _ADVERB:
            continue
        return bool(_PARTICIPLE.match(word))
    return False


def _base_form(word: str, before: str, following: str) -> tuple[str, str] | None:
    """Base form and tense of a word that is surely a finite verb in this place; else None."""
    determined = following in _DETERMINERS or following[:1].isdigit()
    if before in _DETERMINERS or before in _PREPOSITIONS:
        return None
    if word in _IRREGULAR and before != "," and (determined or word not in _PARTICIPLES):
        return _IRREGULAR[word], "past"
    if word in _THIRD_PERSON:
        return _THIRD_PERSON[word], "third"
    if word in ("have", "like", "love", "live", "work", "want", "need", "think") and before in _PRONOUN:
        return word, "plain"
    if word.endswith("ed") and len(word) > 4 and determined:
        return _from_past(word), "past"
    if word.endswith("s") and len(word) > 3 and determined and not word.endswith("ss"):
        return _from_third(word), "third"
    return None


_DETERMINERS = frozenset("the a an his her its their my your our".split())
_PARTICIPLES = frozenset(
    """brought built bought felt found heard held kept led left lost made meant met paid said sold sent spent stood
    taught told thought understood won""".split()
)
"""Irregular forms that may be participles ("footprints left by astronauts"): verbs only before a determiner."""
_PREPOSITIONS = frozenset("in on at to of for with by from".split())


def _from_past(word: str) -> str:
    """
    >>> [_from_past(word) for word in ("released", "stopped", "carried", "played", "visited")]
    ['release', 'stop', 'carry', 'play', 'visit']
    """
    if word.endswith("ied"):
        return word[:-3] + "y"
    stem = word[:-2]
    if len(stem) > 2 and stem[-1] == stem[-2] and stem[-1] not in "lsz":
        return stem[:-1]
    if stem[-1] in "csvzu" or stem.endswith(("at", "iz", "as", "ang", "ng", "ur", "ir", "in", "bl", "pl", "tl", "dl")):
        return stem + "e"
    return stem


def _from_third(word: str) -> str:
    """
    >>> [_from_third(word) for word in ("carries", "watches", "makes", "uses")]
    ['carry', 'watch', 'make', 'use']
    """
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "sses", "xes", "zzes", "oes")):
        return word[:-2]
    return word[:-1]
