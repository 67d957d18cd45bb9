"""The papers' tables, filled with what was measured, beside what the papers say.

Figures of the papers are those of papers alone: other data, other distractors, other training. What differs is said
below each table, and nothing is printed for what we do not know.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.core.estimate import Estimate
from tertulia.judge.rank import RankConfig, RankResult, Setting
from tertulia.talk.spec import parse_spec

PLANS: Mapping[str, Mapping[str, Any]] = {
    "personachat": {
        "persona": ("none", "own", "their", "both"),
        "wording": ("original", "revised"),
        "metrics": ("hits@1",),
    },
    "ubuntu": {"candidates": 10, "metrics": ("1in2", "recall@1in10", "recall@2in10", "recall@5in10")},
}
"""What a table needs, where nothing else is asked for."""

PERSONACHAT = {
    "tfidf": ("IR", (0.214, 0.410, 0.207)),
    "starspace": ("Starspace", (0.318, 0.491, 0.322)),
    "profile-memory": ("Profile Memory", (0.318, 0.509, 0.354)),
    "kv-memory": ("KV Profile Memory", (0.349, 0.511, 0.351)),
}
"""Zhang et al. 2018, table 3: hits@1 by bot, in the settings below."""
PERSONACHAT_SETTINGS = (Setting(), Setting("own", "original"), Setting("own", "revised"))

UBUNTU = {
    "TF-IDF, v1": (65.9, 41.0, 54.5, 70.8),
    "RNN, v1": (76.8, 40.3, 54.7, 81.9),
    "LSTM, v1": (87.8, 60.4, 74.5, 92.6),
    "TF-IDF, v2": (74.9, 48.8, 58.7, 76.3),
    "RNN, v2": (77.7, 37.9, 56.1, 83.6),
    "LSTM, v2": (86.9, 55.2, 72.1, 92.4),
}
"""Lowe et al. 2015, table 4, and version 2 of the corpus: per cent, in the rows below."""
UBUNTU_ROWS = {
    "1 in 2 R@1": "1in2",
    "1 in 10 R@1": "recall@1in10",
    "1 in 10 R@2": "recall@2in10",
    "1 in 10 R@5": "recall@5in10",
}


@dataclass(frozen=True, slots=True)
class PaperTable:
    """A table to print, with what has to be said of it."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Json]:
        """For `--json`."""
        return {"title": self.title, "head": self.head, "rows": self.rows, "notes": self.notes}


def planned(config: RankConfig) -> RankConfig:
    """The config with what its table needs, where it was not given; metrics are added to those that were."""
    if config.table is None:
        return config
    plan = {name: value for name, value in PLANS[config.table].items() if name not in config.model_fields_set}
    if "metrics" in config.model_fields_set:
        plan["metrics"] = tuple(dict.fromkeys((*config.metrics, *PLANS[config.table]["metrics"])))
    return config.model_copy(update=plan)


def paper_table(
    name: Literal["personachat", "ubuntu"], results: Sequence[Sequence[RankResult]], notes: Sequence[str]
) -> PaperTable:
    """The table of a paper; results are a row for each bot, with its settings in the same order."""
    if name == "personachat":
        return _personachat(results, notes)
    if len(results[0]) > 1:
        raise UsageError("The Ubuntu table has one setting: give one --persona and one --wording, or none.")
    return _ubuntu([row[0] for row in results], notes)


def _personachat(results: Sequence[Sequence[RankResult]], notes: Sequence[str]) -> PaperTable:
    settings = [result.setting for result in results[0]]
    rows: list[tuple[str, ...]] = []
    for row in results:
        rows.append((row[0].bot, *(short(result.figures["hits@1"]) for result in row)))
        known = PERSONACHAT.get(parse_spec(row[0].bot).name)
        if known:
            figures = dict(zip(PERSONACHAT_SETTINGS, known[1], strict=True))
            rows.append((f"  paper: {known[0]}", *(_plain(figures[s]) if s in figures else "" for s in settings)))
    return PaperTable(
        "Persona-Chat, hits@1 (Zhang et al. 2018, tables 3 and 6)",
        ("", *(str(setting) for setting in settings)),
        tuple(rows),
        ("The paper: 19 random distractors of its own draw, and bots of its own training.", *notes),
    )


def _ubuntu(results: Sequence[RankResult], notes: Sequence[str]) -> PaperTable:
    rows = []
    for i, (label, measure) in enumerate(UBUNTU_ROWS.items()):
        ours = [short(result.figures[measure], percent=True) for result in results]
        rows.append((label, *ours, *(f"{figures[i]:.1f}" for figures in UBUNTU.values())))
    return PaperTable(
        "Ubuntu, recall in per cent (Lowe et al. 2015, table 4)",
        ("", *(result.bot for result in results), *(f"paper: {name}" for name in UBUNTU)),
        tuple(rows),
        (
            "The paper: its own test sets (v1; v2 by time), a context of random length for each dialogue, 1 or 9"
            " distractors of the test set.",
            "1 in 2 and 1 in 10 are meant over all ways to choose so many of the candidates.",
            *notes,
        ),
    )


def short(estimate: Estimate, *, percent: bool = False) -> str:
    """A value and its interval in little room.

    >>> short(Estimate(0.4912, 0.478, 0.503, 7801)), short(Estimate(0.4912, 0.478, 0.503, 7801), percent=True)
    ('.491 [.478, .503]', '49.1 [47.8, 50.3]')
    >>> short(Estimate(float("nan")))
    '-'
    """
    if estimate.n == 0:
        return "-"
    cells = (estimate.value, estimate.low, estimate.high)
    value, low, high = (f"{100 * x:.1f}" if percent else _plain(x) for x in cells)
    return f"{value} [{low}, {high}]"


def _plain(value: float) -> str:
    """Three digits without the zero before the point."""
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3f}"
