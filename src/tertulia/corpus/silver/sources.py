"""Where silver data comes from: dialogues with evidence, or collections of single grounded replies.

A reply that people have labelled keeps its label, and silver data then does not claim anything else about it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tertulia import sample
from tertulia.core.codec import Problems
from tertulia.core.dialogue import Dialogue, Exchange
from tertulia.corpus.config import ReadConfig
from tertulia.corpus.load import SAMPLE, holds, load_dialogues, load_exchanges


def grounded_dialogues(source: ReadConfig, problems: Problems | None = None) -> Iterator[Dialogue]:
    """The dialogues of a corpus; of one that holds exchanges, each exchange as a dialogue of its own."""
    if source.target == SAMPLE:
        return map(grounded_dialogue, sample.grounded())
    skipped = None if source.strict else problems
    if holds(source.target, split=source.split, format=source.format) == "exchanges":
        return map(
            grounded_dialogue,
            load_exchanges(source.target, split=source.split, format=source.format, problems=skipped),
        )
    return load_dialogues(source.target, split=source.split, format=source.format, problems=skipped)


def grounded_dialogue(exchange: Exchange) -> Dialogue:
    """An exchange with its evidence as a dialogue; a label is kept in the `meta` of the response."""
    response = exchange.response
    if exchange.label:
        response = replace(response, meta={**response.meta, "label": exchange.label})
    return Dialogue(exchange.id, (*exchange.context, response), evidence=exchange.evidence)


def labelled(exchanges: Iterable[Exchange]) -> list[Exchange]:
    """Exchanges that people have labelled, marked like silver data with what made them."""
    return [
        replace(one, response=replace(one.response, meta={**one.response.meta, "operation": "labelled by hand"}))
        for one in exchanges
    ]
