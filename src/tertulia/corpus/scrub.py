"""Personal data in texts, replaced by typed placeholders: "mail me at [EMAIL]". Nothing is kept that could undo it.

Patterns find e-mail and IP addresses, phone numbers, payment cards (with a valid check digit), keys and tokens, and
postal addresses as they are written in English and German. They cannot find everything: names, user names and unusual
spellings stay. Every pattern takes linear time on any text: quantifiers are possessive or small, and none starts twice
in the same run of characters (`tests/core/test_linear_time.py`).
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import pyarrow.compute as pc

from tertulia.corpus.mining.columns import strings_to_arrow

Kind = Literal["key", "email", "card", "ip", "phone", "address"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""In the order in which they are replaced: what one kind has replaced, the next does not see."""
PLACEHOLDERS: Mapping[Kind, str] = {kind: f"[{kind.upper()}]" for kind in KINDS}
SUSPICIOUS = r"[0-9@]|[(\[](?i:at)[)\]]|-----BEGIN"
"""Every text with personal data matches this, in Python's dialect and in RE2's; most other texts do not."""

_START, _END = r"(?<![\w-])", r"(?![\w-])"
_DONE = r"(?!\w|[.-][0-9])"
"""A number does not go on."""
_KEY = "|".join(
    (
        rf"{_START}(?:AKIA|ASIA)[A-Z0-9]{{16}}{_END}",  # AWS
        rf"{_START}(?:gh[pousr]_|github_pat_)[A-Za-z0-9_]{{22,255}}",
        rf"{_START}sk-[A-Za-z0-9_-]{{20,255}}",  # OpenAI, Anthropic and others
        rf"{_START}[sr]k_(?:live|test)_[A-Za-z0-9]{{16,255}}",  # Stripe
        rf"{_START}xox[abeoprs]-[A-Za-z0-9-]{{10,255}}",  # Slack
        rf"{_START}AIza[A-Za-z0-9_-]{{35}}",  # Google
        rf"{_START}hf_[A-Za-z0-9]{{30,255}}",
        rf"{_START}eyJ[\w-]{{8,2000}}+\.[\w-]{{8,4000}}+\.[\w-]{{8,2000}}+",  # JSON web tokens
        r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-]{0,10000}+(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?",
    )
)
_ASSIGNED = re.compile(
    r"(?i)(?<![a-z])(?:password|passwd|passwort|pwd|secret|(?:api|access)[_ -]?key|(?:auth|access|bearer)?[_ -]?token)"
    r"[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?=[^\s\"',;]{0,199}[0-9])([^\s\"',;\[]{6,200})"
)
_EMAIL = (
    r"(?<![\w.+-])[\w.+-]++@(?:[A-Za-z0-9-]++\.(?=[A-Za-z0-9]))++[A-Za-z][A-Za-z0-9-]*+"
    r"|(?<![\w.+-])[\w.+-]++ ?[(\[](?i:at)[)\]] ?[A-Za-z0-9-]++ ?(?:\.|[(\[](?i:dot)[)\]]) ?[A-Za-z]{2,24}"
)
_CARD = (
    r"(?<![\w.-])(?:[0-9]{4}([ -]?)[0-9]{4}\1[0-9]{4}\1[0-9]{4}|[0-9]{4}([ -])[0-9]{6}\2[0-9]{4,5}|[0-9]{13,19})"
    rf"{_DONE}"
)
_CARD_LENGTHS = {2: (16,), 3: (14, 15, 16), 4: (13, 16, 19), 5: (16,), 6: (16, 17, 18, 19)}
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IP = (
    rf"(?<![\w.])(?:{_BYTE}\.){{3}}{_BYTE}(?!\w|\.[0-9])"
    r"|(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:])"
)
_PHONE = "|".join(
    (
        r"(?<![\w+.])(?:\+|00)[1-9][0-9]{0,2}[ ./-]?(?:\(0?[0-9]{1,4}\)[ ./-]?)?[0-9](?:[ ./-]?[0-9]){5,12}" + _DONE,
        rf"(?<![\w+.$-])(?:1[ .-])?(?:\([2-9][0-9]{{2}}\) ?|[2-9][0-9]{{2}}[ .-])[2-9][0-9]{{2}}[ .-][0-9]{{4}}{_DONE}",
        rf"(?<![\w+.$-])0[1-9][0-9]{{1,4}}[ /-][0-9]{{3,8}}(?:[ -][0-9]{{2,6}}){{0,3}}{_DONE}",
    )
)
_CALLED = re.compile(
    r"(?i)(?<![\w\[])(?:tel|telephone|phone|call|cell|mobile|fax|whatsapp|handy|telefon)(?!\w)[^0-9\n\[]{0,20}"
    r"(\+?[0-9](?:[ .()/-]{0,2}[0-9]){6,14})" + _DONE
)
_NAME = r"[^\W\d_][\w'.]{1,20}"
_CAPITALISED = r"[A-ZÄÖÜ][\w']{1,20}"
_STREETS = "street|st|avenue|ave|road|rd|boulevard|blvd|lane|ln|highway|hwy|parkway|pkwy|crescent"
_OTHER_STREETS = "Drive|Dr|Court|Ct|Place|Pl|Square|Sq|Terrace|Way|Close|Row|Mews"
"""Words with another meaning too ("4 wheel drive"): with their names, they must be capitalised."""
_BRITISH_AREAS = (
    "AB|AL|B|BA|BB|BD|BH|BL|BN|BR|BS|BT|CA|CB|CF|CH|CM|CO|CR|CT|CV|CW|DA|DD|DE|DG|"
    "DH|DL|DN|DT|DY|E|EC|EH|EN|EX|FK|FY|G|GL|GU|HA|HD|HG|HP|HR|HS|HU|HX|IG|IP|IV|"
    "KA|KT|KW|KY|L|LA|LD|LE|LL|LN|LS|LU|M|ME|MK|ML|N|NE|NG|NN|NP|NR|NW|OL|OX|PA|PE|"
    "PH|PL|PO|PR|RG|RH|RM|S|SA|SE|SG|SK|SL|SM|SN|SO|SP|SR|SS|ST|SW|SY|TA|TD|TF|TN|"
    "TQ|TR|TS|TW|UB|W|WA|WC|WD|WF|WN|WR|WS|WV|YO|ZE"
)
"""How British postcodes begin."""
_ADDRESS = "|".join(
    (
        r"(?<![\w.$:-])[0-9]{1,5}[a-zA-Z]?,? "
        rf"(?:((?:{_NAME} ){{1,3}})(?i:{_STREETS})|(?:{_CAPITALISED} ){{1,3}}(?:{_OTHER_STREETS}))(?!\w)\.?"
        r"(?:,? (?i:apt|apartment|suite|ste|unit|flat)\.? ?#?\w{1,6})?"
        rf"(?:, {_NAME}(?: {_NAME}){{0,2}},? [A-Z]{{2}}(?: [0-9]{{5}}(?:-[0-9]{{4}})?)?(?!\w))?",
        r"(?<!\w)[A-ZÄÖÜ][a-zäöüß-]{1,25}(?:straße|strasse|str\.|weg|platz|allee|gasse) [0-9]{1,4}[a-z]?(?!\w)"
        r"(?:, [0-9]{5} [A-ZÄÖÜ][a-zäöüß]{1,25})?",
        r"(?<!\w)[A-Z][A-Za-z]{1,20}(?: [A-Z][A-Za-z]{1,20}){0,2}, [A-Z]{2} [0-9]{5}(?:-[0-9]{4})?(?!\w)",
        rf"(?<!\w)(?:{_BRITISH_AREAS})[0-9][A-Z0-9]? [0-9][A-Z]{{2}}(?!\w)",
        r"(?<!\w)(?i:p\.? ?o\.? ?box) [0-9]{1,6}(?!\w)",
    )
)
_NO_STREET_NAME = frozenset(
    "a an the this that these those my your his her our their its of down up on along off in to into from across per "
    "by at and or for is was are with more less other different whole same each every any some no not minutes minute "
    "hours hour miles mile blocks block km kilometers days day years year weeks months times people guys cars feet "
    "yards meters percent bucks dollars things went go going took take walk drive drove out over there then just all "
    "i you he she it we they who which when while so but as if than only".split()
)
"""Words of which none is part of a street's name."""
_VERSION = re.compile(r"(?i)(?:version|release|firmware|kernel|ver\.?|v\.?) ?$")
_VERSION_SPAN = 10


def _is_card(match: re.Match[str]) -> bool:
    """Luhn's check digit, and a length that cards with this first digit have."""
    digits = [int(c) for c in match[0] if c.isdigit()]
    doubled = [d if i % 2 == 0 else d * 2 - 9 * (d > 4) for i, d in enumerate(reversed(digits))]
    return len(digits) in _CARD_LENGTHS.get(digits[0], ()) and len(set(digits)) > 1 and sum(doubled) % 10 == 0


def _is_phone(match: re.Match[str]) -> bool:
    """Enough digits: of a number that begins with a zero, at least nine."""
    return match[0].startswith("00") or match[0][0] != "0" or sum(c.isdigit() for c in match[0]) >= 9


def _is_ip(match: re.Match[str]) -> bool:
    """A valid address of a machine that may be somebody's; four numbers after "version" are not."""
    try:
        address = ipaddress.ip_address(match[0])
    except ValueError:
        return False
    before = match.string[max(0, match.start() - _VERSION_SPAN) : match.start()]
    return not (address.is_loopback or address.is_unspecified or _VERSION.search(before))


def _is_address(match: re.Match[str]) -> bool:
    """A house number with a name of a street, not "5 minutes down the road"."""
    return match[1] is None or not _NO_STREET_NAME & set(match[1].lower().split())


def _always(match: re.Match[str]) -> bool:
    return True


class _Pattern(NamedTuple):
    kind: Kind
    pattern: re.Pattern[str]
    accepts: Callable[[re.Match[str]], bool] = _always
    group: int = 0
    """The group to replace."""


_PATTERNS = (
    _Pattern("key", re.compile(_KEY)),
    _Pattern("key", _ASSIGNED, group=1),
    _Pattern("email", re.compile(_EMAIL)),
    _Pattern("card", re.compile(_CARD), _is_card),
    _Pattern("ip", re.compile(_IP), _is_ip),
    _Pattern("phone", re.compile(_PHONE), _is_phone),
    _Pattern("phone", _CALLED, group=1),
    _Pattern("address", re.compile(_ADDRESS), _is_address),
)
_SUSPICIOUS = re.compile(SUSPICIOUS)


class Scrubbed(NamedTuple):
    """A text without personal data, and how many there were of each kind."""

    text: str
    counts: Counter[str]


def scrub(text: str, kinds: Sequence[Kind] = KINDS) -> Scrubbed:
    """Replace personal data by placeholders.

    >>> scrub("mail ana.b@example.org or call +49 30 1234567").text
    'mail [EMAIL] or call [PHONE]'
    """
    counts: Counter[str] = Counter()
    if not _SUSPICIOUS.search(text):
        return Scrubbed(text, counts)
    for one in _PATTERNS:
        if one.kind in kinds:
            text, count = _replace(one, text)
            if count:
                counts[one.kind] += count
    return Scrubbed(text, counts)


def _replace(one: _Pattern, text: str) -> tuple[str, int]:
    pieces: list[str] = []
    end = position = 0
    while match := one.pattern.search(text, position):
        if one.accepts(match):
            pieces += (text[end : match.start(one.group)], PLACEHOLDERS[one.kind])
            end = position = match.end(one.group)
        else:
            position = match.start() + 1  # what was rejected is short, and may overlap with what is not
    if not pieces:
        return text, 0
    return "".join((*pieces, text[end:])), len(pieces) // 2


def scrub_column(texts: Any, kinds: Sequence[Kind] = KINDS) -> tuple[Any, Counter[str]]:
    """A column of texts (an Arrow string array) without personal data, and the counts by kind.

    One pass of RE2 finds the few texts to look at closely: this is how a miner calls it.
    """
    counts: Counter[str] = Counter()
    suspicious = pc.match_substring_regex(texts, SUSPICIOUS)
    changed: list[str] = []
    for text in texts.filter(suspicious).to_pylist():
        result = scrub(text, kinds)
        counts.update(result.counts)
        changed.append(result.text)
    if not counts:
        return texts, counts
    return pc.replace_with_mask(texts, suspicious, strings_to_arrow(changed).cast(texts.type)), counts
