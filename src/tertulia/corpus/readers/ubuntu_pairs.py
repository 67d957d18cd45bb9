"""Contexts of the Ubuntu Dialogue Corpus with true and false replies, as its authors made them to train and to rank.

A row is a context, a reply and whether it is the true one (`Context,Utterance,Label`), or a context, the true reply and
distractors (`Context,Ground Truth Utterance,Distractor_0,...`); one tag ends each utterance, another each turn (Lowe et
al. 2015; the tags are those of version 2). Each utterance of the context becomes a turn, and the ends of turns tell the
two speakers apart; a reply of several utterances has one line for each. The first row of a table says which layout it
has, whichever of the two readers is asked to read it: the published folder has both.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from tertulia.core.dialogue import Exchange, Json, Turn
from tertulia.core.text import squash
from tertulia.corpus.readers.base import TextReader, content_id, misfit, texts_of, wrong_columns
from tertulia.corpus.readers.records import Record
from tertulia.corpus.readers.tables import columns_of, csv_line, csv_rows

END_OF_UTTERANCE, END_OF_TURN = "__eou__", "__eot__"
CONTEXT, UTTERANCE, LABEL, TRUTH, DISTRACTOR = "Context", "Utterance", "Label", "Ground Truth Utterance", "Distractor_"
LABELS = {"1": "1", "1.0": "1", "0": "0", "0.0": "0"}
_SPEAKERS = ("first", "second")
_TURN_ENDS = re.compile(rf"{END_OF_TURN}|__EOS__")
"""Version 1 has another tag for the end of a turn, and none for the end of an utterance."""


def _layout(cells: Sequence[str]) -> str | None:
    """The second column of a header, which identifies the layout; None if the row is not a header."""
    return cells[1] if len(cells) > 1 and cells[0] == CONTEXT and cells[1] in (UTTERANCE, TRUTH) else None


def cut_table(names: tuple[str, ...]) -> Callable[[Iterable[str]], Iterator[Record]]:
    """Split lines into rows, as cells by column name; `names` are the default for a table without a header."""

    def rows(lines: Iterable[str]) -> Iterator[Record]:
        columns = names
        for row in csv_rows(lines):
            cells: list[str] = row.value
            if _layout(cells) and not row.damage:
                columns = tuple(cells)
                continue
            damage = row.damage or wrong_columns(cells, len(columns))
            yield Record(row.line, dict(zip(columns, cells, strict=False)), damage)

    return rows


def decode_row(row: dict[str, str]) -> Exchange:
    """Decode a row of either layout; the reply's `meta` gets the reply and the distractors as `candidates`."""
    context = _turns(row[CONTEXT])
    turns = [Turn(_SPEAKERS[i % 2], utterance) for i, turn in enumerate(context) for utterance in turn]
    label: str | None = None
    meta: dict[str, Json] = {}
    if TRUTH in row:
        texts = [_reply(cell) for name, cell in row.items() if name == TRUTH or name.startswith(DISTRACTOR)]
        text, meta = texts[0], {"candidates": texts}
    else:
        text, label = _reply(row[UTTERANCE]), LABELS.get(row[LABEL].strip())
        if label is None:
            raise ValueError(f"expected label 0 or 1, got {row[LABEL]!r}")
    return Exchange(
        id=content_id(*row.values()),
        context=tuple(turns),
        response=Turn(_SPEAKERS[len(context) % 2], text, meta=meta),
        label=label,
    )


def _turns(text: str) -> list[list[str]]:
    """Turns as lists of utterances; the end of the text also ends the last turn and utterance."""
    turns = _TURN_ENDS.split(text)
    if not turns[-1].strip():
        turns.pop()
    return [_utterances(turn) for turn in turns]


def _utterances(text: str) -> list[str]:
    utterances = [squash(part) for part in text.split(END_OF_UTTERANCE)]
    return utterances if utterances[-1] else utterances[:-1]


def _reply(text: str) -> str:
    return "\n".join(utterance for turn in _turns(text) for utterance in turn)


def encode_pair(exchange: Exchange) -> str:
    """Encode context, reply and label; a reply without a label is the true one."""
    label = LABELS.get(exchange.label or "1")
    if label is None:
        raise misfit(exchange.id, f"expected label 0 or 1, got {exchange.label!r}")
    return csv_line((tag_turns(exchange.context), _tag_text(exchange.response.text), label))


def encode_ranking(exchange: Exchange) -> str:
    """Encode context, true reply and distractors."""
    texts = (exchange.response.text, *distractors(exchange))
    return csv_line((tag_turns(exchange.context), *(_tag_text(text) for text in texts)))


def distractors(exchange: Exchange) -> list[str]:
    """The candidates of an exchange except its reply."""
    hint = "`tertulia corpus testset` draws candidates for the dialogues of a corpus."
    try:
        others = list(texts_of(exchange.response.meta["candidates"], "candidates"))
        others.remove(exchange.response.text)
    except (KeyError, TypeError, ValueError):
        raise misfit(exchange.id, "its reply must be one of its candidates", hint=hint) from None
    return others


def join_ranking(exchanges: Iterable[Exchange]) -> Iterator[str]:
    """The complete table; all exchanges must have as many distractors as the first."""
    width = -1
    for exchange in exchanges:
        count = len(distractors(exchange))
        if width < 0:
            width = count
            yield csv_line(ranking_columns(width))
        if count != width:
            raise misfit(exchange.id, f"expected {width} distractors as in the first row, got {count}")
        yield encode_ranking(exchange)
    if width < 0:
        yield csv_line(ranking_columns())


def ranking_columns(count: int = 9) -> tuple[str, ...]:
    """The header of a table with this many distractors."""
    return (CONTEXT, TRUTH, *(f"{DISTRACTOR}{i}" for i in range(count)))


def tag_turns(turns: Sequence[Turn]) -> str:
    """Turns on one line, with the tags of version 2; the lines of a turn are utterances.

    >>> tag_turns((Turn("a", "hi"), Turn("a", "there?"), Turn("b", "yes\\nhello")))
    'hi __eou__ there? __eou__ __eot__ yes __eou__ hello __eou__ __eot__'
    """
    parts: list[str] = []
    for i, turn in enumerate(turns):
        parts.append(_tag_text(turn.text))
        if i + 1 == len(turns) or turns[i + 1].speaker != turn.speaker:
            parts.append(END_OF_TURN)
    return " ".join(parts)


def _tag_text(text: str) -> str:
    lines = [line for part in text.splitlines() if (line := squash(part))]
    return " ".join(f"{line} {END_OF_UTTERANCE}" for line in lines) or END_OF_UTTERANCE


_PAIRS = (CONTEXT, UTTERANCE, LABEL)
_CSV = (".csv", ".csv.gz")
PAIRS = TextReader(
    name="ubuntu-pairs",
    recognises=lambda head: _layout(columns_of(head)) == UTTERANCE,
    cut=cut_table(_PAIRS),
    decode=decode_row,
    encode=encode_pair,
    head=csv_line(_PAIRS),
    endings=_CSV,
    holds="exchanges",
)
RANKING = TextReader(
    name="ubuntu-ranking",
    recognises=lambda head: _layout(columns_of(head)) == TRUTH,
    cut=cut_table(ranking_columns()),
    decode=decode_row,
    encode=encode_ranking,
    join=join_ranking,
    endings=_CSV,
    holds="exchanges",
)
