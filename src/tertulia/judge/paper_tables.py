"""The papers' tables as views of a judged run: measured figures beside the published ones.

The published figures come from other data, distractors and training; notes below each table say what differs.
A cell is empty where the paper has no figure, or none that we know of: of Persona-Chat's table 5 we know perplexity for
every persona, hits@1 without one and with the bot's own, and of F1 only the range; of table 6 the partner's persona is
missing; of the self-play paper's table A.1 we know only the columns and their units.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tertulia.core.estimate import Estimate
from tertulia.judge.config import PersonaSetting, Wording
from tertulia.judge.correlation_tables import coefficient_sections, correlation_sections, proxy_sections
from tertulia.judge.document import Section, short
from tertulia.judge.runs import JudgedRun, Subject

Figures = Mapping[tuple[str, str, str], Estimate]
"""By subject, setting and metric."""

RANK_PLANS: Mapping[str, Mapping[str, Any]] = {
    "personachat": {
        "persona": ("none", "own", "their", "both"),
        "wording": ("original", "revised"),
        "metrics": ("hits@1",),
    },
    "ubuntu": {"candidates": 10, "metrics": ("1in2", "recall@1in10", "recall@2in10", "recall@5in10")},
}
"""What the table of a paper needs from `judge rank`, unless it is given."""
PERPLEXITY_PLANS: Mapping[str, Mapping[str, Any]] = {
    "personachat": {
        "persona": ("none", "own", "their", "both"),
        "wording": ("original", "revised"),
        "replies": 200,
        "ranked": 500,
    },
    "selfplay": {"persona": ("none",), "replies": 200},
}
"""What the table of a paper needs from `judge perplexity`, unless it is given."""

NONE, ORIGINAL, REVISED = (str(PersonaSetting(*s)) for s in ((), ("own", "original"), ("own", "revised")))
THEIR, BOTH = (str(PersonaSetting(scope, "original")) for scope in ("their", "both"))
PERSONACHAT_RANKERS: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "tfidf": {"IR": {NONE: 0.214, ORIGINAL: 0.410, REVISED: 0.207}},
    "starspace": {
        "Starspace, trained on original personas": {NONE: 0.318, ORIGINAL: 0.481, REVISED: 0.295},
        "Starspace, trained on revised personas": {NONE: 0.318, ORIGINAL: 0.491, REVISED: 0.322},
    },
    "profile-memory": {
        "Profile Memory, trained on original personas": {NONE: 0.318, ORIGINAL: 0.473, REVISED: 0.302},
        "Profile Memory, trained on revised personas": {NONE: 0.318, ORIGINAL: 0.509, REVISED: 0.354},
    },
    "kv-memory": {"KV Profile Memory": {NONE: 0.349, ORIGINAL: 0.511, REVISED: 0.351}},
}
"""Zhang et al. 2018, tables 3 and 6: hits@1 by setting, by name and training in the paper, by bot. Table 3 shows the
rows trained on revised personas."""
PERSONACHAT_GENERATORS: Mapping[str, Mapping[str, tuple[float, float | None]]] = {
    "Seq2Seq": {
        NONE: (38.08, 0.092),
        ORIGINAL: (40.53, 0.084),
        REVISED: (40.65, 0.082),
        THEIR: (41.48, None),
        BOTH: (40.14, None),
    },
    "Profile Memory": {
        NONE: (38.08, 0.092),
        ORIGINAL: (34.54, 0.125),
        REVISED: (38.21, 0.108),
        THEIR: (36.42, None),
        BOTH: (35.27, None),
    },
}
"""Zhang et al. 2018, tables 3 and 5: perplexity and hits@1 of the generative models by setting."""
PERSONACHAT_F1 = (0.166, 0.172)
"""The lowest and the highest F1 of the paper's table 5."""
PROFILE_ERRORS = {"profile": 0.057, "sentence": 0.173, "1 utterance": 0.76, "8 utterances": 0.17}
"""Zhang et al. 2018, tables 13 and 14: errors of predicting people's own profiles."""
UBUNTU: Mapping[str, tuple[float, ...]] = {
    "TF-IDF, v1": (65.9, 41.0, 54.5, 70.8),
    "RNN, v1": (76.8, 40.3, 54.7, 81.9),
    "LSTM, v1": (87.8, 60.4, 74.5, 92.6),
    "TF-IDF, v2": (74.9, 48.8, 58.7, 76.3),
    "RNN, v2": (77.7, 37.9, 56.1, 83.6),
    "LSTM, v2": (86.9, 55.2, 72.1, 92.4),
}
"""Lowe et al. 2015, table 4, and version 2 of the corpus: per cent, in the rows of `UBUNTU_ROWS`."""
UBUNTU_ROWS = {
    "1 in 2 R@1": "1in2",
    "1 in 10 R@1": "recall@1in10",
    "1 in 10 R@2": "recall@2in10",
    "1 in 10 R@5": "recall@5in10",
}
HITS, PERPLEXITY, F1 = "hits@1", "perplexity", "f1"
EMBEDDINGS = {"average": "embedding average", "extrema": "embedding extrema", "greedy": "embedding greedy"}
_DIFFERS = (
    "The paper: its own dictionary and training, perplexity over its words, the second speaker's turns, 19 random"
    " distractors of its own draw."
)


def paper_tables(run: JudgedRun, figures: Figures) -> list[Section]:
    """The tables that the run's config asks for, and those that its command always has."""
    requested = run.config.get("table") or ()
    tables: dict[tuple[str, str], list[Callable[[JudgedRun, Figures], list[Section]]]] = {
        ("rank", "personachat"): [table_3_rankers],
        ("rank", "ubuntu"): [ubuntu_table_4],
        ("perplexity", "personachat"): [table_3_generators, table_5],
        ("perplexity", "selfplay"): [table_a1],
        ("profiles", ""): [table_13, table_14],
        ("samples", ""): [meena_tables, meena_sweep],
        ("meta", ""): [correlation_sections],
        ("hybrid", ""): [coefficient_sections, correlation_sections],
        ("proxy", ""): [proxy_sections],
    }
    names = dict.fromkeys([requested] if isinstance(requested, str) else requested)
    views = [view for name in ("", *names) for view in tables.get((run.verb, name), ())]
    return [section for view in views for section in view(run, figures)]


def table_3_rankers(run: JudgedRun, figures: Figures) -> list[Section]:
    """Persona-Chat, tables 3 and 6: hits@1 of ranking bots."""
    rows: list[tuple[str, ...]] = []
    for subject in run.subjects:
        rows.append((subject.name, *(_cell(figures, subject, setting, HITS) for setting in run.settings)))
        if subject.kind in PERSONACHAT_RANKERS:
            for name, published in PERSONACHAT_RANKERS[subject.kind].items():
                rows.append((f"  paper: {name}", *(_published(published.get(setting)) for setting in run.settings)))
    section = Section(
        "Persona-Chat, hits@1 (Zhang et al. 2018, tables 3 and 6)",
        ("", *run.settings),
        tuple(rows),
        (
            "The paper: 19 random distractors of its own draw, and bots of its own training.",
            "The rows of the paper's table 3 are those trained on revised personas (here revised_share = 1): compare a"
            " run with the row of its training.",
        ),
    )
    return [section]


def ubuntu_table_4(run: JudgedRun, figures: Figures) -> list[Section]:
    """Ubuntu, table 4: recall in per cent."""
    setting = run.settings[0]
    rows = []
    for i, (label, metric) in enumerate(UBUNTU_ROWS.items()):
        measured = [_cell(figures, subject, setting, metric, percent=True) for subject in run.subjects]
        rows.append((label, *measured, *(f"{published[i]:.1f}" for published in UBUNTU.values())))
    section = Section(
        "Ubuntu, recall in per cent (Lowe et al. 2015, table 4)",
        ("", *(subject.name for subject in run.subjects), *(f"paper: {name}" for name in UBUNTU)),
        tuple(rows),
        (
            "The paper: its own test sets (v1; v2 by time), a context of random length for each dialogue, 1 or 9"
            " distractors of the test set.",
            "1 in 2 and 1 in 10 are computed over 2 or 10 of the candidates, averaged over all subsets.",
        ),
    )
    return [section]


def table_3_generators(run: JudgedRun, figures: Figures) -> list[Section]:
    """Persona-Chat, table 3: generative models without a persona and with their own; other settings are in table 5."""
    settings = [s for s in run.settings if s.partition(",")[0] in ("none", "own")]
    rows: list[tuple[str, ...]] = []
    for subject in run.subjects:
        cells = [_cell(figures, subject, s, metric) for s in settings for metric in (PERPLEXITY, HITS)]
        rows.append((subject.name, *cells))
    for name, published in PERSONACHAT_GENERATORS.items():
        rows.append((f"paper: {name}", *(cell for s in settings for cell in _published_pair(published.get(s)))))
    section = Section(
        "Persona-Chat, generative models (Zhang et al. 2018, table 3)",
        ("", *(f"{setting}: {column}" for setting in settings for column in ("ppl", HITS))),
        tuple(rows),
        (_DIFFERS,),
    )
    return [section]


def table_5(run: JudgedRun, figures: Figures) -> list[Section]:
    """Persona-Chat, layout of table 5: a row for each persona and model, original and revised side by side."""
    rows: list[tuple[str, ...]] = []
    for scope in dict.fromkeys(setting.partition(",")[0] for setting in run.settings):
        settings = [NONE] if scope == "none" else [f"{scope}, {wording}" for wording in _WORDINGS]
        for subject in run.subjects:
            cells = [_cell(figures, subject, s, metric) for s in settings for metric in (PERPLEXITY, HITS, F1)]
            rows.append((scope, subject.name, *_padded(cells)))
        for name, published in PERSONACHAT_GENERATORS.items():
            cells = [cell for s in settings for cell in (*_published_pair(published.get(s)), "")]
            rows.append((scope, f"paper: {name}", *_padded(cells)))
    low, high = (_published(x) for x in PERSONACHAT_F1)
    section = Section(
        "Persona-Chat, generative models (Zhang et al. 2018, layout of table 5)",
        ("persona", "model", *(f"{wording}: {column}" for wording in _WORDINGS for column in ("ppl", HITS, F1))),
        tuple(rows),
        (
            f"The paper's F1 is between {low} and {high}; with the partner's persona or both we know its perplexity"
            " alone.",
            "A model has learned to use the partner's persona only if its recipe says persona = their or both.",
            _DIFFERS,
        ),
    )
    return [section]


def table_a1(run: JudgedRun, figures: Figures) -> list[Section]:
    """Self-play, layout of table A.1: perplexity, KL divergence and embedding metrics."""
    columns = {"ppl": PERPLEXITY, "KL per word": "KL"} | EMBEDDINGS
    rows = [
        (
            f"{subject.name} ({setting})" if len(run.settings) > 1 else subject.name,
            *(_cell(figures, subject, setting, metric) for metric in columns.values()),
        )
        for subject in run.subjects
        for setting in run.settings
    ]
    section = Section(
        "Self-play (Ghandeharioun et al. 2019, layout of table A.1)",
        ("", *columns),
        tuple(rows),
        (
            "The columns are the paper's, the figures are measured here: the paper trained on films and Reddit, with"
            " its own vectors and tokens. The last three columns need --vectors.",
        ),
    )
    return [section]


def table_13(run: JudgedRun, figures: Figures) -> list[Section]:
    """Persona-Chat, table 13: error of predicting either profile from what either speaker said."""
    (subject,) = run.subjects
    rows = [
        (
            f"{level} level, speaker {speaker}",
            *(_with_n(figures, subject, f"{level} level, speaker {speaker}, profile {profile}") for profile in (0, 1)),
        )
        for level in ("profile", "sentence")
        for speaker in (0, 1)
    ]
    title = "Error of predicting a profile (Zhang et al. 2018, table 13)"
    return [Section(title, ("utterances of", "profile 0", "profile 1"), tuple(rows), (_profile_note(),))]


def table_14(run: JudgedRun, figures: Figures) -> list[Section]:
    """Persona-Chat, table 14: error of predicting either profile by the number of utterances; a section per level."""
    (subject,) = run.subjects
    who = [(speaker, profile) for speaker in (0, 1) for profile in (0, 1)]
    sections = []
    for level in ("profile", "sentence"):
        settings = [f"{level} level, speaker {speaker}, profile {profile}" for speaker, profile in who]
        rows = [
            (count, *(_with_n(figures, subject, f"{setting}, first {count}") for setting in settings))
            for count in range(1, int(run.config["utterances"]) + 1)
        ]
        head = ("utterances", *(f"speaker {speaker}, profile {profile}" for speaker, profile in who))
        title = f"Error by the number of utterances, {level} level (Zhang et al. 2018, table 14)"
        sections.append(Section(title, head, tuple(rows)))
    return sections


def meena_tables(run: JudgedRun, figures: Figures) -> list[Section]:
    """Meena, tables 2 and 3: for each prompt the best samples beside those of beam search, with their scores."""
    best = int(run.config["best"])
    replies: dict[str, dict[str, list[tuple[str, str]]]] = {}
    for item in run.items:
        if item.setting in ("sample-and-rank", "beam search"):
            text = item.content["reply"] + ("" if item.content["finished"] else " (truncated)")
            cell = (f"{item.content['score']:.2f}", text)
            replies.setdefault(item.content["prompt"], {}).setdefault(item.setting, []).append(cell)
    sections = []
    for prompt, lists in replies.items():
        samples, beams = (lists.get(setting, []) for setting in ("sample-and-rank", "beam search"))
        longest = min(best, max(len(samples), len(beams)))
        rows = [(*_nth(samples, i), *_nth(beams, i)) for i in range(longest)]
        sections.append(Section(prompt, ("score", "sample-and-rank", "score", "beam search"), tuple(rows)))
    return sections


def meena_sweep(run: JudgedRun, figures: Figures) -> list[Section]:
    """What the number of samples N changes: one row for each N."""
    columns = ("log-probability per token", "words per reply", "distinct replies", "seconds per reply")
    (subject,) = run.subjects
    rows = [
        (n, *(figures.get((subject.name, f"best of {n}", metric), "") for metric in columns))
        for n in run.details.get("sweep", ())
    ]
    return [Section("Number of samples", ("N", *columns), tuple(rows))] if rows else []


_WORDINGS: tuple[Wording, ...] = ("original", "revised")


def _cell(figures: Figures, subject: Subject, setting: str, metric: str, *, percent: bool = False) -> str:
    """A figure with its interval; empty if it was not measured."""
    figure = figures.get((subject.name, setting, metric))
    return short(figure, percent=percent) if figure else ""


def _with_n(figures: Figures, subject: Subject, setting: str) -> str:
    """An error with its n: not every dialogue has as many utterances, or both profiles."""
    figure = figures.get((subject.name, setting, "error rate"))
    return f"{short(figure)} n = {figure.n}" if figure else "-"


def _published(value: float | None) -> str:
    """A published figure, as papers print it: `.214`."""
    return "" if value is None else f"{value:.3f}".removeprefix("0")


def _published_pair(cells: tuple[float, float | None] | None) -> tuple[str, str]:
    """Perplexity and hits@1 of a paper."""
    return (f"{cells[0]:.2f}", _published(cells[1])) if cells else ("", "")


def _padded(cells: Sequence[str]) -> tuple[str, ...]:
    return (*cells, *("",) * (6 - len(cells)))


def _nth(replies: Sequence[tuple[str, str]], i: int) -> tuple[str, str]:
    return replies[i] if i < len(replies) else ("", "")


def _profile_note() -> str:
    published = "; ".join(f"{name} {value}" for name, value in PROFILE_ERRORS.items())
    return f"The paper, people's own profiles among 101: {published}."
