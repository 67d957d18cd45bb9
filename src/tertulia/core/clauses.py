"""Statements in the way people type them in chats: contractions written out, questions left out, cut into clauses."""

import re

from tertulia.core.english import attach

MAX_TEXT = 2000
"""Characters of a text that are looked at."""
FIRST = r"\b(?:i|we)\b"
"""A pattern of the subject."""
ADVERBS = (
    r"(?:(?:also|really|just|only|still|now|currently|do|actually|always|absolutely|definitely|very|even|so|much|mostly"
    r"|both|kind of|kinda|pretty|personally|quite|too|a bit|rather) )*"
)
"""A pattern of words between subject and verb."""
_NEGATABLE = "do|does|did|is|are|was|were|have|has|had|could|would|should"
_CONTRACTIONS = (
    (re.compile(r"\bi ?'? ?m\b"), "i am"),
    (re.compile(r"\b(i|we|you|they) ?'? ?ve\b"), r"\1 have"),
    (re.compile(r"\b(we|you|they) ?'? ?re\b"), r"\1 are"),
    (re.compile(r"\b(i|we|you|he|she|they|it) ?' ?ll\b"), r"\1 will"),
    (re.compile(r"\b(i|we|you|they) ?' ?d\b"), r"\1 would"),
    (re.compile(r"\b(?:can ?'?t|cannot|can t)\b"), "can not"),
    (re.compile(r"\b(?:won'?t|won t)\b"), "will not"),
    (re.compile(rf"\b({_NEGATABLE})(?:n'?t| ?n '?t|n t)\b"), r"\1 not"),
    (re.compile(r"\bgot\b(?! (?:married|divorced|engaged))"), "have"),
    (re.compile(r"\bhave have\b"), "have"),
    (re.compile(r"\bfavourite\b"), "favorite"),
)
_WORD = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_SENTENCE = re.compile(r"[^.!?;\n]+[.!?;\n]*")
_CLAUSE = re.compile(
    r",| but | because | so i | while | although | though | and (?=(?:i|we|my|he|she|they|live|work|love|hate|like)\b)"
    r"| (?=(?:i am|i have|i work|i live|my name is|how about you|what about you|and you)\b)"
)
_NEGATION = re.compile(r"\b(?:not|never|no|without|nor|neither|hardly|none|zero)\b")
_BREAKS = frozenset(
    """who that which with in at for of from to and or on when where because named called as since by about near than
    after before while not i we my is are was so but though together anymore right now you they it this during what how
    do has have had does did will can lol haha yes no if then yet either""".split()
)
_SKIPPED = frozenset("not the my our actually just also currently now".split())


def plain(text: str) -> str:
    """Lower case, with contractions written out.

    >>> plain("I'm sure I don't, I've 2 kids")
    'i am sure i do not, i have 2 kids'
    """
    text = attach(text[:MAX_TEXT].lower().replace("’", "'"))
    for pattern, replacement in _CONTRACTIONS:
        text = pattern.sub(replacement, text)
    return text


def clauses(text: str) -> list[str]:
    """The statements of a text, cut at commas and conjunctions, as plain words without punctuation.

    Of a question its last clause is left out: what stands before it is often a statement.

    >>> clauses("I'm a nurse, and you? My dog is old but i love him.")
    ['i am a nurse', 'my dog is old', 'i love him']
    """
    stated = []
    for match in _SENTENCE.finditer(plain(text)):
        parts = _CLAUSE.split(sentence := match.group())
        for part in parts[:-1] if sentence.rstrip().endswith("?") else parts:
            if cleaned := " ".join(_WORD.findall(part)):
                stated.append(cleaned)
    return stated


def is_negated(text: str) -> bool:
    """Whether plain words contain a negation."""
    return _NEGATION.search(text) is not None


def noun_phrase(text: str, *, articles: bool = False) -> list[str]:
    """The words of the noun phrase that a clause begins with.

    >>> noun_phrase("a high school teacher in ohio"), noun_phrase("not a nurse")
    (['high', 'school', 'teacher'], ['nurse'])
    """
    phrase: list[str] = []
    for word in text.split()[:9]:
        if word in _SKIPPED or (word in ("a", "an") and not articles):
            if phrase and word in ("my", "the", "not", "now"):
                break
            continue
        if word in _BREAKS:
            break
        phrase.append(word)
    return phrase
