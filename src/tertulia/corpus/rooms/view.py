"""A log as the link scorer sees it: what was said, in arrays, with speakers, addressees, words and cues."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tertulia.core.text import words
from tertulia.corpus.rooms.address import address, aliases, mentions
from tertulia.corpus.rooms.line import RoomLine

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
NOBODY = -1
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
    ("tries", re.compile(r"\b(?:try|you can|you could|you need|you should|use|type|sudo|apt-get|install)\b")),
    ("mine", re.compile(r"\b(?:i|my|me|i'm|im|i've|i'll)\b")),
    ("yours", re.compile(r"\b(?:you|your|u|ur|you're)\b")),
    ("refers", re.compile(r"\b(?:it|that|this|them|those|they|he|she)\b")),
    ("link", re.compile(r"https?://|www\.")),
    ("command", re.compile(r"^[!@]\w")),
    ("goes_on", re.compile(r"^(?:and|but|or|so|then|also|because|which|\.\.\.|\*)")),
)


@dataclass(frozen=True, slots=True)
class View:
    """What people said in a log, in order; system lines are left out. Places are indices into these arrays."""

    numbers: Ints
    """Line numbers in the log."""
    minutes: Floats
    speaker: Ints
    addressee: Ints
    """Whom the first word names, or NOBODY."""
    named: tuple[frozenset[int], ...]
    """Everybody a line names, the addressee included."""
    words: tuple[tuple[str, ...], ...]
    """Without nicks."""
    cues: Floats
    """(lines, CUES)"""
    robot: NDArray[np.bool_]
    """Whether the speaker calls itself a bot."""
    joined: Ints
    """Place of the first line after the speaker last came in; NOBODY where no arrival was logged."""
    answers: tuple[int | None, ...]
    """Places of lines that the source itself says are answered."""

    def __len__(self) -> int:
        return len(self.numbers)


def view(lines: Sequence[RoomLine]) -> View:
    """Prepare a log."""
    same = aliases(lines)
    people: dict[str, int] = {}
    for nick, first in same.items():
        people[nick] = people.setdefault(first, len(people))
    said = [line for line in lines if line.said]
    place = {line.number: i for i, line in enumerate(said)}
    speaker = np.array([people[line.nick.lower()] for line in said], np.int32)
    addressee, named, spoken, cues = [], [], [], []
    for line, own in zip(said, speaker.tolist(), strict=True):
        to = address(line.text, people)
        inside = frozenset(people[nick] for nick in mentions(line.text, people)) - {own}
        target = people[to.nick] if to and people[to.nick] != own else NOBODY
        addressee.append(target)
        named.append(inside | {target} if target != NOBODY else inside)
        rest = (to.rest if to else line.text).lower()
        spoken.append(tuple(word for word in words(rest) if word not in people))
        cues.append([pattern.search(rest) is not None for _, pattern in CUES])
    start = min((line.time for line in said), default=0.0)
    return View(
        numbers=np.array([line.number for line in said], np.int32),
        minutes=np.array([(line.time - start) / 60 for line in said], np.float32),
        speaker=speaker,
        addressee=np.array(addressee, np.int32),
        named=tuple(named),
        words=tuple(spoken),
        cues=np.array(cues, np.float32).reshape(len(said), len(CUES)),
        robot=np.array(["bot" in line.nick.lower() for line in said], np.bool_),
        joined=_arrivals(lines, people),
        answers=tuple(None if line.answers is None else place.get(line.answers) for line in said),
    )


def _arrivals(lines: Sequence[RoomLine], people: dict[str, int]) -> Ints:
    """For each spoken line the place where its speaker was first heard after he came in."""
    came: dict[int, int] = {}
    found: list[int] = []
    for line in lines:
        if line.said:
            found.append(came.get(people[line.nick.lower()], NOBODY))
        elif "joined" in line.text:
            who = next((people[w] for w in line.text.lower().split()[:4] if w in people), None)
            if who is not None:
                came[who] = len(found)
    return np.array(found, np.int32)
