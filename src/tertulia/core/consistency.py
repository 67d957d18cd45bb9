"""Whether a speaker stays true to what is known of them: their persona, and what they said before.

A classifier of natural language inference compares a premise (a persona sentence, an own earlier turn) with a sentence
of a reply. An answer alone may say nothing ("no, I don't"): together with its question it is a statement ("I do not
have kids"), which is compared as well. The verdict on a reply is the worst that any of its sentences deserves.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, Protocol, get_args

from tertulia.core.clauses import MAX_TEXT, plain
from tertulia.core.english import content_words, has_first_person
from tertulia.core.fact_words import Kind
from tertulia.core.facts import facts
from tertulia.core.text import is_question, sentences

Relation = Literal["entailment", "neutral", "contradiction"]
RELATIONS: tuple[Relation, ...] = get_args(Relation)
THRESHOLD = 0.5
"""The probability from which a pair counts as contradicting, or as entailed."""
MAX_SENTENCES, MAX_ANSWERS = 20, 2
"""Sentences of a text that are compared, and those of them that may be answers: "I am in the States. LA."."""


class RelationProbabilities(NamedTuple):
    """Probabilities of the three relations of a premise to a hypothesis; they add up to 1."""

    entailment: float
    neutral: float
    contradiction: float


class HasRelations(Protocol):
    """What any classifier of natural language inference returns for a pair."""

    @property
    def entailment(self) -> float:
        """The probability that the premise entails the hypothesis."""
        ...

    @property
    def contradiction(self) -> float:
        """The probability that the premise contradicts the hypothesis."""
        ...


class ConsistencyClassifier(Protocol):
    """Any classifier of natural language inference."""

    def probabilities(self, premises: Sequence[str], hypotheses: Sequence[str]) -> Sequence[HasRelations]:
        """For each pair, how the premise relates to the hypothesis."""
        ...


class Claim(NamedTuple):
    """What somebody says, and what it should be consistent with."""

    text: str
    premises: tuple[str, ...]
    """Sentences about the speaker, and the speaker's earlier turns."""
    question: str = ""
    """The turn that it answers."""


class ConsistencyVerdict(NamedTuple):
    """How an utterance relates to its premises."""

    relation: Relation
    probability: float
    premise: str = ""
    """The premise that decided it; empty for a neutral one."""
    sentence: str = ""
    """The sentence of the utterance that decided it."""


NEUTRAL = ConsistencyVerdict("neutral", 1.0)


def consistency_verdicts(
    classifier: ConsistencyClassifier,
    utterances: Sequence[Claim],
    *,
    threshold: float = THRESHOLD,
    related_only: bool = False,
) -> list[ConsistencyVerdict]:
    """Compare every sentence with every premise, all in one batch; or only with those that it may bear on."""
    pairs = [related_pairs(one) if related_only else all_pairs(one) for one in utterances]
    flat = [pair for own in pairs for pair in own]
    rows = iter(classifier.probabilities([p for p, _ in flat], [s for _, s in flat]) if flat else ())
    return [_verdict(own, [next(rows) for _ in own], threshold) for own in pairs]


def all_pairs(claim: Claim) -> list[tuple[str, str]]:
    """Every premise with every statement of a claim."""
    return [(premise, sentence) for sentence in statements(claim.text, claim.question) for premise in claim.premises]


def related_pairs(claim: Claim) -> list[tuple[str, str]]:
    """Premises with the statements that may bear on them.

    Both tell the same kind of fact, or share a word with content, or the premise tells what the question asks for. A
    trained model takes milliseconds for a pair, and errs most about texts that have nothing to do with each other.

    >>> related_pairs(Claim("it is cold here", ("i am a nurse", "i hate the cold", "i ski"), "what is your job ?"))
    [('i am a nurse', 'it is cold here'), ('i hate the cold', 'it is cold here')]
    """
    asked = asked_kinds(claim.question)
    about = {text: (_kinds(text), set(content_words(text))) for text in claim.premises}
    pairs = []
    for sentence in statements(claim.text, claim.question):
        kinds, content = _kinds(sentence), set(content_words(sentence))
        for premise in claim.premises:
            its_kinds, its_content = about[premise]
            if its_kinds & (kinds | asked) or its_content & content:
                pairs.append((premise, sentence))
    return pairs


def _kinds(text: str) -> frozenset[Kind]:
    return frozenset(fact.kind for fact in facts(text))


def _verdict(pairs: Sequence[tuple[str, str]], rows: Sequence[HasRelations], threshold: float) -> ConsistencyVerdict:
    if not pairs:
        return NEUTRAL
    worst = max(range(len(rows)), key=lambda i: rows[i].contradiction)
    if rows[worst].contradiction >= threshold:
        return ConsistencyVerdict("contradiction", rows[worst].contradiction, *pairs[worst])
    best = max(range(len(rows)), key=lambda i: rows[i].entailment)
    if rows[best].entailment >= threshold:
        return ConsistencyVerdict("entailment", rows[best].entailment, *pairs[best])
    return ConsistencyVerdict("neutral", 1 - max(rows[worst].contradiction, rows[best].entailment))


def statements(text: str, question: str = "") -> list[str]:
    """The sentences of a text that are no questions, and what it says as an answer to a question.

    >>> statements("No, not yet. And you?", "Do you have kids?")
    ['No, not yet.', 'i do not have kids']
    >>> statements("i am 24 , do you like it ? texas and you ?")
    ['i am 24', 'texas']
    """
    stated = [part for sentence in sentences(text[:MAX_TEXT])[:MAX_SENTENCES] if (part := _stated(sentence))]
    answers = [answer_statement(question[-MAX_TEXT:], part) for part in stated[:MAX_ANSWERS]] if question else []
    return [*stated, *dict.fromkeys(answer for answer in answers if answer)]


def speaks_of_self(text: str, question: str = "") -> bool:
    """Whether a text states something of its speaker, be it by a bare answer.

    >>> speaks_of_self("Sales.", "What do you do for a living?"), speaks_of_self("Nice. What do you do?")
    (True, False)
    """
    return any(has_first_person(statement) for statement in statements(text, question))


def _stated(sentence: str) -> str:
    """A sentence without the question that it ends in; empty if it is all question."""
    if not is_question(sentence):
        return sentence
    before = _RETURNED.sub("", sentence)
    if before == sentence:
        before = sentence.rpartition(",")[0]
    return "" if is_question(before) else before.rstrip(" ,")


_RETURNED = re.compile(r"(?:,| ,|\b(?:and|how about|what about))\s*(?:you|yours|yourself)\s*\?+$")
"""A question that only returns another: "Texas and you?"."""


_OPENING = r"(?:(?:oh|well|um|haha|sorry|unfortunately|actually|,) ?)*"
_YES = re.compile(rf"{_OPENING}(?:yes|yeah|yep|yup|sure do|sure am|of course|absolutely|definitely)\b(?! not)")
_NO = re.compile(
    rf"{_OPENING}(?:no|nope|nah|not (?:yet|really|at all|currently|right now|anymore)|never|none)\b"
    r"(?! (?:kids|children|pets|problem|worries|way|idea|doubt|matter))"
)
_ECHO = re.compile(
    rf"{_OPENING}i (?P<verb>do|am|have|can)(?P<no> not)?"
    r"(?:,|$| (?:too|indeed|either|yet|actually|but|and|because|though)\b)"
)
_VERB_OF = re.compile(r"\b(?P<verb>do|are|have|can) you\b")
_DO = re.compile(r"\b(?:do|did) you (?:also |still |currently |really )?(?P<rest>(?!know|think|mean|want|do\b).*)")
_BE = re.compile(
    r"\bare you (?:also |still |currently |really )?(?P<rest>(?!doing|ok|sure|ready|there|today|talking).*)"
)
_HAVE = re.compile(r"\bhave you (?:ever )?(?P<rest>.*)")
_CAN = re.compile(r"\bcan you (?P<rest>.*)")
_ANY = re.compile(r"^(?:and |so |oh )*any (?P<rest>kids|children|pets|siblings|brothers or sisters|dogs|cats)\b.*")
_YOUR_JOB = "is your (?:job|work|profession|occupation|career)"
_OPEN = (
    (re.compile(rf"\bwhat (?:do you (?:do (?:for|as)|do$|work as)|kind of work|{_YOUR_JOB})|\bwhere do you work"), "job"),  # noqa: E501
    (re.compile(r"\bwhere (?:do you live|are you living|are you located|is your home)"), "i live in {}"),
    (re.compile(r"\bwhere (?:are|do) you (?:come )?from"), "i am from {}"),
    (re.compile(r"\bhow old are you|\bwhat is your age"), "i am {} years old"),
    (re.compile(r"\bwhat is your name"), "my name is {}"),
    (re.compile(r"\bwhat is your favorite (?P<of>[\w ]+)"), "my favorite {of} is {}"),
    (re.compile(r"\bhow many (?P<of>\w+) do you have"), "i have {} {of}"),
)  # fmt: skip
_MINE = {"you": "i", "your": "my", "yours": "mine", "yourself": "myself", "any": ""}
_FRAGMENT = re.compile(r"^(?:(?:i am )?(?:just )?(?:in|from|a|an|the|about) )*")
_SUBJECT = re.compile(r"\b(?:i|my|we|you|it|that|he|she|they)\b")
_ASKED: tuple[tuple[re.Pattern[str], tuple[Kind, ...]], ...] = (
    (
        re.compile(rf"\bdo for a living|\bdo you (?:work|have a job)|\bwhat do you do(?: for work)?$|{_YOUR_JOB}"),
        ("job",),
    ),
    (re.compile(r"\b(?:kids|children|son|daughter|family|a mom|a dad|a parent)\b"), ("child",)),
    (re.compile(r"\b(?:siblings|brothers?|sisters?|family)\b"), ("sibling",)),
    (re.compile(r"\b(?:pets?|animals?|dogs?|cats?)\b"), ("pet",)),
    (re.compile(r"\b(?:married|single|husband|wife|boyfriend|girlfriend|dating|relationship)\b"), ("marital",)),
    (re.compile(r"\bhow old|\byour age\b"), ("age",)),
    (
        re.compile(r"\bwhere (?:do|are) you (?:live|living|from|located|at)|\bwhere is your home"),
        ("home", "origin", "setting"),
    ),
    (re.compile(r"\byour name\b|\bwho are you\b"), ("name",)),
    (re.compile(r"\bfavorite\b"), ("favorite", "like")),
    (re.compile(r"\b(?:hobbies|hobby|for fun|free time|spare time|do you (?:like|love|enjoy)|into)\b"), ("like",)),
    (re.compile(r"\b(?:eat|meat|vegan|vegetarian|diet)\b"), ("diet", "meat")),
    (re.compile(r"\b(?:drink|beer|wine|alcohol)\b"), ("alcohol",)),
    (re.compile(r"\bhair\b|\blook like\b"), ("hair", "height")),
)
_EMPTY = re.compile(
    r"\b(?:hi|hello|hey|sorry|thanks|good|great|fine|nothing|originally|cool|nice|wow|well|lol|haha|here)\b"
)
MAX_FRAGMENT = 6
"""Words of an answer that is no sentence of its own."""


def asked_kinds(question: str) -> frozenset[Kind]:
    """The kinds of facts that a turn asks for.

    >>> sorted(asked_kinds("I have a dog. Do you have any pets?")), asked_kinds("I have two kids.")
    (['pet'], frozenset())
    """
    asked = " ".join(_words(plain(sentence)) for sentence in sentences(question) if is_question(sentence))
    if not asked or not re.search(r"\b(?:you|your|any|yours)\b", asked):
        return frozenset()
    return frozenset(kind for pattern, kinds in _ASKED for kind in kinds if pattern.search(asked))


def answer_statement(question: str, answer: str) -> str | None:
    """What a short answer states, given its question; None if it answers with a sentence of its own or not at all.

    >>> answer_statement("do you have any pets at home?", "nope !")
    'i do not have pets at home'
    >>> answer_statement("hi! what do you do for a living?", "sales"), answer_statement("how old are you?", "23")
    ('i work as sales', 'i am 23 years old')
    """
    asked = [plain(sentence) for sentence in sentences(question) if is_question(sentence)]
    if not asked:
        return None
    said = " ".join(re.findall(r"[a-z0-9-]+|,", plain(answer)))
    return next((made for made in _answers(_words(asked[-1]), said.replace(" ,", ",")) if made), None)


def _words(text: str) -> str:
    return " ".join(re.findall(r"[a-z0-9-]+", text.replace("what's", "what is").replace("where's", "where is")))


def _answers(question: str, said: str) -> Iterator[str | None]:
    positive = True if _YES.match(said) else False if _NO.match(said) else _echoed(question, said)
    if positive is not None:
        yield _closed(question, positive)
        return
    for pattern, made in _OPEN:
        if match := pattern.search(question):
            yield _open(made, match, said)


def _echoed(question: str, said: str) -> bool | None:
    """Whether an answer such as "I do" or "I am not" says yes or no; None if it does not fit its question."""
    echo, asked = _ECHO.match(said), _VERB_OF.search(question)
    if not echo or not asked or echo["verb"] != {"are": "am"}.get(asked["verb"], asked["verb"]):
        return None
    return not echo["no"]


def _closed(question: str, positive: bool) -> str | None:
    """The statement that a yes or no to a question makes."""
    forms = (
        (_ANY, "i have {}", "i do not have {}"),
        (_DO, "i {}", "i do not {}"),
        (_BE, "i am {}", "i am not {}"),
        (_HAVE, "i have {}", "i have never {}"),
        (_CAN, "i can {}", "i can not {}"),
    )
    for pattern, yes, no in forms:
        if match := pattern.search(question):
            rest = " ".join(filter(None, (_MINE.get(word, word) for word in match["rest"].split())))
            rest = rest.removesuffix(" or not")
            return (yes if positive else no).format(rest) if rest else None
    return None


def _open(made: str, match: re.Match[str], said: str) -> str | None:
    """The statement that a fragment makes as the answer to an open question."""
    fragment = said.partition(",")[0]
    if not fragment or _SUBJECT.search(fragment) or _EMPTY.search(fragment) or len(fragment.split()) > MAX_FRAGMENT:
        return None
    if made == "job":
        return f"i work {fragment}" if fragment.split()[0] in ("in", "at", "for", "as") else f"i work as {fragment}"
    of = match.groupdict().get("of") or ""
    return made.format(_FRAGMENT.sub("", fragment), of=of.strip())
