"""The papers' tables about models that write, filled with what was measured, beside what the papers say.

A paper's row stands below each run of the architecture it is about. Nothing is printed for what we do not know: of the
F1 in Persona-Chat's table 5 only the range, of the self-play paper's table A.1 only its columns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tertulia.core.estimate import Estimate
from tertulia.judge.perplexity import WORD, TableName, Verdict
from tertulia.judge.perplexity_count import KL
from tertulia.judge.perplexity_replies import F1
from tertulia.judge.rank import Setting, Wording
from tertulia.judge.rank_tables import PaperTable, short
from tertulia.metrics.embeddings import NAMES

HITS = "hits@1"
NONE, ORIGINAL, REVISED = Setting(), Setting("own", "original"), Setting("own", "revised")


@dataclass(frozen=True, slots=True)
class PaperRow:
    """A model of the paper: perplexity and hits@1 by setting."""

    name: str
    cells: Mapping[Setting, tuple[float, float]]


PERSONACHAT = (
    PaperRow("Seq2Seq", {NONE: (38.08, 0.092), ORIGINAL: (40.53, 0.084), REVISED: (40.65, 0.082)}),
    PaperRow("Profile Memory", {NONE: (38.08, 0.092), ORIGINAL: (34.54, 0.125), REVISED: (38.21, 0.108)}),
)
"""Zhang et al. 2018, table 3: the models that write."""
PERSONACHAT_F1 = (0.166, 0.172)
"""The lowest and the highest F1 of the paper's table 5."""


def paper_tables(
    names: Sequence[TableName], verdicts: Sequence[Sequence[Verdict]], notes: Sequence[str]
) -> tuple[PaperTable, ...]:
    """The tables that were asked for; verdicts are a row for each run, with its settings in the same order."""
    found: list[PaperTable] = []
    for name in dict.fromkeys(names):
        found += [_table_3(verdicts, notes), _table_5(verdicts, notes)] if name == "personachat" else []
        found += [_table_a1(verdicts, notes)] if name == "selfplay" else []
    return tuple(found)


def _table_3(verdicts: Sequence[Sequence[Verdict]], notes: Sequence[str]) -> PaperTable:
    """The table has no more than one's own persona; what was asked about others is in table 5."""
    kept = [[verdict for verdict in row if verdict.setting.whose in ("none", "own")] for row in verdicts]
    settings = [verdict.setting for verdict in kept[0]]
    names = [row[0].run for row in verdicts]
    cells = [[cell for verdict in row for cell in (ppl(verdict), share(verdict, HITS))] for row in kept]
    rows = [(name, *some) for name, some in zip(names, cells, strict=True)]
    rows += [(f"paper: {k.name}", *(cell for s in settings for cell in _known(k, s))) for k in PERSONACHAT]
    return PaperTable(
        "Persona-Chat, generative models (Zhang et al. 2018, table 3)",
        ("", *(f"{setting}: {what}" for setting in settings for what in ("ppl", HITS))),
        tuple(rows),
        (_DIFFERS, *notes),
    )


def _table_5(verdicts: Sequence[Sequence[Verdict]], notes: Sequence[str]) -> PaperTable:
    """A row for each persona and model, original and revised side by side; without persona there is one wording."""
    rows: list[tuple[str, ...]] = []
    for whose in dict.fromkeys(verdict.setting.whose for verdict in verdicts[0]):
        settings = [Setting(whose, wording) for wording in _wordings(whose)]
        for row in verdicts:
            by_setting = {verdict.setting: verdict for verdict in row}
            ours = [by_setting.get(setting) for setting in settings]
            rows.append((whose, row[0].run, *_padded([cell for v in ours for cell in _three(v)])))
        for known in PERSONACHAT:
            theirs = [cell for setting in settings for cell in (*_known(known, setting), "")]
            rows.append((whose, f"paper: {known.name}", *_padded(theirs)))
    low, high = (f"{x:.3f}"[1:] for x in PERSONACHAT_F1)
    return PaperTable(
        "Persona-Chat, generative models (Zhang et al. 2018, layout of table 5)",
        ("persona", "model", *(f"{wording}: {what}" for wording in _wordings("own") for what in ("ppl", HITS, F1))),
        tuple(rows),
        (
            f"The paper's F1 lie between {low} and {high}; its figures for the partner's persona and for both are not"
            " known to us.",
            "What a partner's persona is about, a model has learned only if its recipe says persona = their or both.",
            _DIFFERS,
            *notes,
        ),
    )


def _table_a1(verdicts: Sequence[Sequence[Verdict]], notes: Sequence[str]) -> PaperTable:
    several = len(verdicts[0]) > 1
    rows = [
        (
            f"{verdict.run} ({verdict.setting})" if several else verdict.run,
            ppl(verdict),
            number(verdict.figures.get(KL)),
            *(share(verdict, name) for name in NAMES),
        )
        for row in verdicts
        for verdict in row
    ]
    return PaperTable(
        "Self-play (Ghandeharioun et al. 2019, layout of table A.1)",
        ("", "ppl", KL, *NAMES),
        tuple(rows),
        (
            "The columns are the paper's, the figures ours: it trained on films and Reddit, with vectors and tokens of"
            " its own. Without --vectors the last three are empty.",
            *notes,
        ),
    )


_DIFFERS = (
    "The paper: its own dictionary and training, perplexity over its words, the second speaker's turns, 19 random"
    " distractors of its own draw."
)


def ppl(verdict: Verdict) -> str:
    """Perplexity per word and its interval."""
    return number(verdict.figures.get(WORD))


def share(verdict: Verdict, name: str) -> str:
    """A figure below 1 and its interval; nothing where it was not measured."""
    found = verdict.figures.get(name)
    return short(found) if found else ""


def number(found: Estimate | None) -> str:
    """A figure of any size and its interval.

    >>> number(Estimate(38.0812, 37.0, 39.2149, 12)), number(Estimate(float("nan"))), number(None)
    ('38.08 [37.00, 39.21]', '-', '')
    """
    if found is None:
        return ""
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]" if found.n else "-"


def _three(verdict: Verdict | None) -> tuple[str, str, str]:
    return (ppl(verdict), share(verdict, HITS), share(verdict, F1)) if verdict else ("", "", "")


def _known(row: PaperRow, setting: Setting) -> tuple[str, str]:
    if setting not in row.cells:
        return "", ""
    perplexity, hits = row.cells[setting]
    return f"{perplexity:.2f}", f"{hits:.3f}"[1:]


def _wordings(whose: str) -> tuple[Wording, ...]:
    return ("original",) if whose == "none" else ("original", "revised")


def _padded(cells: Sequence[str]) -> tuple[str, ...]:
    return (*cells, *("",) * (6 - len(cells)))
