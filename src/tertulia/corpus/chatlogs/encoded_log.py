"""A log as the disentangler sees it: the utterances as arrays, with speakers, addressees, words and lexical cues.

System lines are left out, so the index of an utterance in these arrays differs from its line number in the log.
Throughout the disentangler, an *index* refers to these arrays and a *number* to the log.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tertulia.core.text import words
from tertulia.corpus.chatlogs.log import LogLine
from tertulia.corpus.chatlogs.nicks import aliases, mentions, parse_address

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
NOBODY = -1
"""No user, or no utterance, where an id or an index is expected."""
CUES = (
    ("question", re.compile(r"\?")),
    ("asks", re.compile(r"^(?:how|what|where|why|who|when|which|is|are|can|could|does|do|did|has|have|any|will)\b")),
    ("help", re.compile(r"\b(?:anyone|anybody|someone|somebody|everyone|all|guys|help)\b")),
    ("greets", re.compile(r"^(?:hi|hello|hey|hiya|yo|greetings|good|morning|evening)\b")),
    ("thanks", re.compile(r"\b(?:thanks|thank|thx|ty|cheers|tnx)\b")),
    (
        "yes_no",
        re.compile(r"^(?:yes|yeah|yep|yup|no|nope|nah|ok|okay|k|ah|oh|right|sure|true|hmm+|well|lol|heh|haha)\b"),
    ),
    ("advises", re.compile(r"\b(?:try|you can|you could|you need|you should|use|type|sudo|apt-get|install)\b")),
    ("first_person", re.compile(r"\b(?:i|my|me|i'm|im|i've|i'll)\b")),
    ("second_person", re.compile(r"\b(?:you|your|u|ur|you're)\b")),
    ("pronoun", re.compile(r"\b(?:it|that|this|them|those|they|he|she)\b")),
    ("url", re.compile(r"https?://|www\.")),
    ("command", re.compile(r"^[!@]\w")),
    ("continues", re.compile(r"^(?:and|but|or|so|then|also|because|which|\.\.\.|\*)")),
)
"""Lexical cues, each one binary feature: name and pattern, matched against the lower-case text without the address."""


@dataclass(frozen=True, slots=True)
class EncodedLog:
    """The utterances of a log, in order. Arrays have one entry per utterance; users are small integers."""

    numbers: Ints
    """Line numbers in the log."""
    minutes: Floats
    """Minutes since the first utterance."""
    speaker: Ints
    addressee: Ints
    """The user whom the first word names, or NOBODY."""
    mentioned: tuple[frozenset[int], ...]
    """All users the line names, including the addressee."""
    words: tuple[tuple[str, ...], ...]
    """Without nicks."""
    cues: Floats
    """(utterances, CUES)"""
    is_bot: NDArray[np.bool_]
    """Whether the speaker's nick contains "bot"."""
    joined: Ints
    """Index of the first utterance after the speaker last joined; NOBODY if the log reports no join."""
    reply_to: tuple[int | None, ...]
    """Index of the utterance replied to, where the source records it."""

    def __len__(self) -> int:
        return len(self.numbers)


def encode_log(lines: Sequence[LogLine]) -> EncodedLog:
    """Encode the utterances of a log. Nicks of one person (nick changes) share one user id."""
    users: dict[str, int] = {}
    for nick, first_nick in aliases(lines).items():
        users[nick] = users.setdefault(first_nick, len(users))
    utterances = [line for line in lines if line.is_utterance]
    index_of = {line.number: i for i, line in enumerate(utterances)}
    speaker = np.array([users[line.nick.lower()] for line in utterances], np.int32)
    addressees, mentioned, tokens, cues = [], [], [], []
    for line, own_id in zip(utterances, speaker.tolist(), strict=True):
        address = parse_address(line.text, users)
        named = frozenset(users[nick] for nick in mentions(line.text, users)) - {own_id}
        addressee = users[address.nick] if address and users[address.nick] != own_id else NOBODY
        addressees.append(addressee)
        mentioned.append(named | {addressee} if addressee != NOBODY else named)
        text = (address.rest if address else line.text).lower()
        tokens.append(tuple(word for word in words(text) if word not in users))
        cues.append([pattern.search(text) is not None for _, pattern in CUES])
    start = min((line.time for line in utterances), default=0.0)
    return EncodedLog(
        numbers=np.array([line.number for line in utterances], np.int32),
        minutes=np.array([(line.time - start) / 60 for line in utterances], np.float32),
        speaker=speaker,
        addressee=np.array(addressees, np.int32),
        mentioned=tuple(mentioned),
        words=tuple(tokens),
        cues=np.array(cues, np.float32).reshape(len(utterances), len(CUES)),
        is_bot=np.array(["bot" in line.nick.lower() for line in utterances], np.bool_),
        joined=_join_indices(lines, users),
        reply_to=tuple(None if line.reply_to is None else index_of.get(line.reply_to) for line in utterances),
    )


def _join_indices(lines: Sequence[LogLine], users: Mapping[str, int]) -> Ints:
    """For each utterance the index of the first utterance after its speaker joined."""
    joined: dict[int, int] = {}
    indices: list[int] = []
    for line in lines:
        if line.is_utterance:
            indices.append(joined.get(users[line.nick.lower()], NOBODY))
        elif "joined" in line.text:
            user = next((users[word] for word in line.text.lower().split()[:4] if word in users), None)
            if user is not None:
                joined[user] = len(indices)
    return np.array(indices, np.int32)
