"""Contexts of the Ubuntu Dialogue Corpus with true and false replies, as its authors made them to train and to rank.

A row is a context, a reply and whether it is the true one (`Context,Utterance,Label`), or a context, the true reply and
distractors (`Context,Ground Truth Utterance,Distractor_0,...`); a tag ends each utterance, another each turn (Lowe et
al. 2015; the tags are those of version 2). An utterance of the context is a turn, and the two speakers are told apart
by the turns' ends; a reply of several utterances has each on a line of its own. Which of the two layouts a table has,
its first row says, whichever of the two readers was named: the published folder has both.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from tertulia.core.dialogue import Exchange, Json, Turn
from tertulia.core.text import squash
from tertulia.corpus.readers.base import TextReader, name_of, texts_of
from tertulia.corpus.readers.records import Record
from tertulia.corpus.readers.tables import columns_of, csv_line, csv_rows
from tertulia.corpus.readers.ubuntu import misfit

END_OF_UTTERANCE, END_OF_TURN = "__eou__", "__eot__"
CONTEXT, UTTERANCE, LABEL, TRUTH, DISTRACTOR = "Context", "Utterance", "Label", "Ground Truth Utterance", "Distractor_"
LABELS = {"1": "1", "1.0": "1", "0": "0", "0.0": "0"}
_SPEAKERS = ("first", "second")
_TURN_ENDS = re.compile(rf"{END_OF_TURN}|__EOS__")
"""Version 1 has a tag of its own, and tells no utterances within turns."""


def _layout(cells: Sequence[str]) -> str | None:
    """What makes a first row one of the two layouts: its second column."""
    return cells[1] if len(cells) > 1 and cells[0] == CONTEXT and cells[1] in (UTTERANCE, TRUTH) else None


def cut_table(names: tuple[str, ...]) -> Callable[[Iterable[str]], Iterator[Record]]:
    """Rows as cells by the names of their columns; `names` are those of a table that does not tell."""

    def rows(lines: Iterable[str]) -> Iterator[Record]:
        known = names
        for row in csv_rows(lines):
            cells: list[str] = row.value
            if _layout(cells) and not row.damage:
                known = tuple(cells)
                continue
            wrong = "" if len(cells) == len(known) else f"{len(cells)} columns, not {len(known)}"
            yield Record(row.line, dict(zip(known, cells, strict=False)), row.damage or wrong)

    return rows


def decode_row(row: dict[str, str]) -> Exchange:
    """One row of either layout; distractors go into the reply's `meta` as `candidates`, behind the reply itself."""
    context = _turns(row[CONTEXT])
    turns = [Turn(_SPEAKERS[i % 2], said) for i, turn in enumerate(context) for said in turn]
    label: str | None = None
    meta: dict[str, Json] = {}
    if TRUTH in row:
        texts = [_reply(cell) for name, cell in row.items() if name == TRUTH or name.startswith(DISTRACTOR)]
        text, meta = texts[0], {"candidates": texts}
    else:
        text, label = _reply(row[UTTERANCE]), LABELS.get(row[LABEL].strip())
        if label is None:
            raise ValueError(f"a label is 0 or 1, not {row[LABEL]!r}")
    return Exchange(
        id=name_of(*row.values()),
        context=tuple(turns),
        response=Turn(_SPEAKERS[len(context) % 2], text, meta=meta),
        label=label,
    )


def _turns(text: str) -> list[list[str]]:
    """Turns of utterances; the end of the text ends either as well as a tag does."""
    turns = _TURN_ENDS.split(text)
    if not turns[-1].strip():
        turns.pop()
    return [_utterances(turn) for turn in turns]


def _utterances(text: str) -> list[str]:
    said = [squash(part) for part in text.split(END_OF_UTTERANCE)]
    return said if said[-1] else said[:-1]


def _reply(text: str) -> str:
    return "\n".join(said for turn in _turns(text) for said in turn)


def encode_pair(exchange: Exchange) -> str:
    """Context, reply and label; a reply without a label is the true one."""
    label = LABELS.get(exchange.label or "1")
    if label is None:
        raise misfit(exchange.id, f"a label is 0 or 1, not {exchange.label!r}")
    return csv_line((tagged(exchange.context), _tagged(exchange.response.text), label))


def encode_ranking(exchange: Exchange) -> str:
    """Context, true reply, distractors."""
    texts = (exchange.response.text, *distractors(exchange))
    return csv_line((tagged(exchange.context), *(_tagged(text) for text in texts)))


def distractors(exchange: Exchange) -> list[str]:
    """The candidates of an exchange but for its reply."""
    hint = "`tertulia corpus testset` draws candidates for the dialogues of a corpus."
    try:
        others = list(texts_of(exchange.response.meta["candidates"], "candidates"))
        others.remove(exchange.response.text)
    except (KeyError, TypeError, ValueError):
        raise misfit(exchange.id, "its reply must stand among candidates", hint) from None
    return others


def join_ranking(exchanges: Iterable[Exchange]) -> Iterator[str]:
    """The whole table, as wide as its first row; all must have as many distractors."""
    width = -1
    for exchange in exchanges:
        found = len(distractors(exchange))
        if width < 0:
            width = found
            yield csv_line(ranking_columns(width))
        if found != width:
            raise misfit(exchange.id, f"it has {found} distractors, others have {width}")
        yield encode_ranking(exchange)
    if width < 0:
        yield csv_line(ranking_columns())


def ranking_columns(count: int = 9) -> tuple[str, ...]:
    """The first row of a table with so many distractors."""
    return (CONTEXT, TRUTH, *(f"{DISTRACTOR}{i}" for i in range(count)))


def tagged(turns: Sequence[Turn]) -> str:
    """Turns in one line, with the tags of version 2; the lines of a turn are utterances.

    >>> tagged((Turn("a", "hi"), Turn("a", "there?"), Turn("b", "yes\\nhello")))
    'hi __eou__ there? __eou__ __eot__ yes __eou__ hello __eou__ __eot__'
    """
    parts: list[str] = []
    for i, turn in enumerate(turns):
        parts.append(_tagged(turn.text))
        if i + 1 == len(turns) or turns[i + 1].speaker != turn.speaker:
            parts.append(END_OF_TURN)
    return " ".join(parts)


def _tagged(text: str) -> str:
    said = [line for part in text.splitlines() if (line := squash(part))]
    return " ".join(f"{line} {END_OF_UTTERANCE}" for line in said) or END_OF_UTTERANCE


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
