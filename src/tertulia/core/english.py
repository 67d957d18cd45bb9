"""Small facts about English that rules and features share: stop words, stems, negations, antonyms, names.

Crude on purpose: no parser, no word net, the same everywhere, and linear in the length of the text. The antonyms are a
list of our own, of adjectives, adverbs and verbs that occur in encyclopaedias, reviews and chats.
"""

import re
from functools import lru_cache

from tertulia.core.text import words

STOP_WORDS = frozenset(
    """a about all also am an and any are as at be because been but by can could did do does don't down for from get
    had has have he her him his how i i'm if im in into is it it's its just know like lot me more most my no not of oh
    ok on one or our out over really she should so some than that that's the their them then there these they think
    this those to too up us very was we well were what when where which who why will with would yeah yes you your n't
    's 're 've 'll 'd s t""".split()
)
FIRST_PERSON = frozenset("i my me i'm im we our mine i've i'd i'll myself us".split())
NEGATIONS = frozenset(
    """not no never n't isn't wasn't don't doesn't didn't aren't weren't cannot can't won't without nor neither hardly
    wouldn't couldn't shouldn't haven't hasn't nothing nobody none""".split()
)
_PAIRS = """able unable accept reject active inactive add remove admit deny adult child advance retreat agree disagree
alive dead allow forbid always never ancient modern appear disappear approve disapprove arrive depart asleep awake
attack defend attractive ugly available unavailable back front bad good beautiful ugly before after begin end
beginning end best worst better worse big small bitter sweet black white bold timid borrow lend bottom top bought sold
boring exciting brave cowardly bright dull broad narrow build destroy buy sell calm nervous careful careless cheap
expensive clean dirty clever stupid closed open cold hot common rare complete incomplete complex simple cool warm
correct wrong create destroy dangerous safe dark light day night deep shallow difficult easy domestic foreign drunk
sober dry wet dull interesting early late earlier later earliest latest east west eastern western empty full enemy
friend exclude include exit enter expand shrink extend shorten fail succeed failure success fair unfair fake real
famous unknown fast slow fat thin female male few many fewer more first last float sink follow lead forget remember
formal informal former current free occupied frequent rare fresh stale gain lose generous stingy gentle harsh
good poor guilty innocent happy sad hard soft hate love healthy sick heavy light high low higher lower highest lowest
honest dishonest huge tiny improve worsen increase decrease increased decreased indoor outdoor inner outer inside
outside junior senior kind cruel king peasant large small larger smaller largest smallest lazy hardworking left right
legal illegal less more liked hated likely unlikely long short longer shorter longest shortest loose tight loud quiet
loved hated lucky unlucky major minor majority minority married single maximum minimum merry gloomy modern traditional
most least natural artificial near far negative positive new old newer older newest oldest noisy quiet normal strange
north south northern southern obey disobey oldest youngest older younger optimistic pessimistic ordinary special
past future peace war permanent temporary plural singular polite rude popular unpopular positive critical possible
impossible powerful weak praise criticise praised criticised present absent private public professional amateur
profit loss proud ashamed pull push quick slow quickly slowly raise lower rapid slow rarely often rich poor rise fall
rough smooth rural urban safe unsafe same different save waste serious funny shallow deep sharp blunt simple
complicated start stop started stopped strength weakness strong weak stronger weaker strongest weakest successful
unsuccessful sunny rainy support oppose supported opposed tall short tame wild thick thin top bottom true false
ugly pretty upper lower urban rural useful useless usually seldom valuable worthless victory defeat voluntary
compulsory warm cool well badly wet dry wide narrow win lose wins loses winner loser winter summer wise foolish
won lost young old""".split()
ANTONYMS: dict[str, str] = {}
for _one, _other in zip(_PAIRS[::2], _PAIRS[1::2], strict=True):
    ANTONYMS.setdefault(_one, _other)
    ANTONYMS.setdefault(_other, _one)

_NAMES = re.compile(r"\b[A-Z][\w'’-]+(?:\s++(?:(?:of|the|de|van|von)\s++)?[A-Z][\w'’-]+)*")
_DETACHED = re.compile(r"(?<!\s)\s++(n't|'s|'re|'ve|'ll|'d|'m)\b", re.IGNORECASE)


def attach(text: str) -> str:
    """Some corpora are tokenised: "do n't" becomes "don't" again.

    >>> attach("I do n't think it 's true")
    "I don't think it's true"
    """
    return _DETACHED.sub(r"\1", text)


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """A word without common endings: crude, fast, and the same for evidence and response.

    >>> [stem(word) for word in ("skiing", "skis", "released", "quickly", "is")]
    ['ski', 'ski', 'releas', 'quick', 'is']
    """
    for ending in ("ing", "edly", "ied", "ies", "ed", "es", "ly", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def content_words(text: str) -> list[str]:
    """Stems of the words that are no stop words.

    >>> content_words("It is about skiing in the Alps.")
    ['ski', 'alp']
    """
    return [stem(word) for word in words(attach(text)) if word not in STOP_WORDS]


def has_first_person(text: str) -> bool:
    """Whether the speaker speaks of themselves."""
    return any(word in FIRST_PERSON for word in words(attach(text)))


def names_in(sentence: str) -> list[str]:
    """Runs of capitalised words that do not merely begin the sentence.

    >>> names_in("The band Deep Purple played in Paris with Ian Gillan.")
    ['Deep Purple', 'Paris', 'Ian Gillan']
    """
    names = []
    for match in _NAMES.finditer(sentence):
        name = match.group()
        if match.start() == 0 or sentence[: match.start()].rstrip().endswith((".", '"', "“")):
            first, _, rest = name.partition(" ")
            name = name if rest and first.lower() not in _FUNCTION else rest
        if name and name.lower() not in _FUNCTION:
            names.append(name)
    return names


_FUNCTION = frozenset(
    "the a an in on at of for by to from it he she they we i you this that these there his her its their and but or"
    " as if when while since after before although during both some many most other".split()
)
