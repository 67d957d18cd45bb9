"""Linked lines as dialogues: the connected parts of a log's links, of two people or of many."""

from collections.abc import Iterator

from tertulia.corpus.rooms.gold import Links, conversations
from tertulia.corpus.rooms.line import Log
from tertulia.corpus.rooms.turns import Extracted, KeepRules, Utterance, keep, nicks_of, utterances


def dialogues_of(log: Log, links: Links, rules: KeepRules | None = None) -> Extracted:
    """The dialogues that the links make, in the order in which they begin."""
    rules = rules or KeepRules()
    ignored = {nick.lower() for nick in rules.ignore}
    said = {u.line.number: u for u in utterances(log.lines, nicks_of(log.lines)) if u.sender not in ignored}
    return keep(_groups(log, links, said), log, rules)


def _groups(log: Log, links: Links, said: dict[int, Utterance]) -> Iterator[tuple[str, list[Utterance]]]:
    for part in sorted(conversations(links), key=min):
        spoken = [said[number] for number in sorted(part) if number in said]
        if spoken:
            yield f"{log.name}:{min(part)}", spoken
