"""People's ratings of replies and conversations, from published sets and from judged runs, as one value: `RatedSet`.

| format | file | what people rated |
|---|---|---|
| `fed` | fed_data.json (Mehri and Eskenazi 2020, "FED") | 375 replies, 125 conversations; five unnamed raters |
| `usr` | pc_usr_data.json, tc_usr_data.json (Mehri and Eskenazi 2020, "USR") | replies with persona or facts |
| `gupta` | gupta_ratings.csv (Gupta et al. 2019) | replies with several references; one mean rating |
| `dstc` | JSON: a list, or an object per line | any set in the fields of DSTC's tasks on dialogue evaluation |
| `run` | the folder of a judged run | a study of our own, or a set that `judge meta` saved |

Fields of `dstc`: `dialogid` (or dialogue_id, dialog_id, id), `model` (or system), `context` (lines, a list of texts, or
a list of {"speaker", "text"}), `response`, `reference` or `references`, `persona` or `facts`, and `annotations`:
numbers by aspect, or lists of one number per rater. An entry without a response is a whole conversation; `judged` names
the speaker whose turns are judged (by default the second one).

All readers are pure: text in, values out. An answer that is no number ("N/A") is nan and is counted.
"""

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from tertulia.core.dialogue import Json, Turn
from tertulia.core.errors import DataError, MissingFile
from tertulia.core.score import Score
from tertulia.judge.runs import JudgedItem, JudgedRun, load_run
from tertulia.metrics.human import RATING
from tertulia.metrics.intervals import Floats

RatingFormat = Literal["fed", "usr", "gupta", "dstc", "run"]
Ratings = Mapping[str, tuple[float, ...]]
"""By aspect, one value per rater; nan where a rater has none. The same position is the same rater within a unit."""
_SPEAKER = re.compile(r"(User|System):\s*")
_GUPTA_TURN, _GUPTA_REFERENCE = "||||", "\t"
_IDS = ("dialogid", "dialogue_id", "dialog_id", "id")


@dataclass(frozen=True, slots=True)
class RatedReply:
    """A reply that people rated."""

    unit: str
    system: str
    """Who replied."""
    cluster: str
    """The conversation or context it belongs to."""
    context: tuple[Turn, ...]
    response: str
    references: tuple[str, ...] = ()
    persona: tuple[str, ...] = ()
    """What the reply may draw on: the speaker's persona, or facts."""
    ratings: Ratings = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RatedConversation:
    """A conversation that people rated as a whole."""

    unit: str
    system: str
    """Whose turns are judged."""
    cluster: str
    turns: tuple[Turn, ...]
    judged: str
    """The speaker that is the system."""
    persona: tuple[str, ...] = ()
    ratings: Ratings = field(default_factory=dict)


RatedUnit = RatedReply | RatedConversation


@dataclass(frozen=True, slots=True)
class RatedSet:
    """What people said about replies and conversations of some systems."""

    name: str
    replies: tuple[RatedReply, ...] = ()
    conversations: tuple[RatedConversation, ...] = ()
    skipped: int = 0
    """Answers that are no numbers."""
    notes: tuple[str, ...] = ()

    @property
    def units(self) -> tuple[RatedUnit, ...]:
        """Replies and conversations."""
        return (*self.replies, *self.conversations)

    @property
    def systems(self) -> tuple[str, ...]:
        """In order of appearance."""
        return tuple(dict.fromkeys(one.system for one in self.units))


def aspects_of(rated: Sequence[RatedUnit]) -> tuple[str, ...]:
    """The aspects that were rated, in order of appearance."""
    return tuple(dict.fromkeys(aspect for one in rated for aspect in one.ratings))


def mean_rating(one: RatedUnit, aspect: str) -> float:
    """The mean over raters; nan if nobody rated the aspect.

    >>> mean_rating(RatedReply("u", "bot", "c", (), "hi", ratings={"overall": (3.0, math.nan, 4.0)}), "overall")
    3.5
    """
    values = [value for value in one.ratings.get(aspect, ()) if not math.isnan(value)]
    return sum(values) / len(values) if values else math.nan


def rating_table(rated: Sequence[RatedUnit], aspect: str) -> Floats:
    """All ratings of an aspect (units, raters), nan where there is none."""
    width = max((len(one.ratings.get(aspect, ())) for one in rated), default=0)
    table = np.full((len(rated), width), np.nan)
    for row, one in zip(table, rated, strict=True):
        values = one.ratings.get(aspect, ())
        row[: len(values)] = values
    return table


def rating_scores(rated: Sequence[RatedUnit]) -> list[Score]:
    """People's verdicts as scores: subject is the system, setting the aspect, values are means over raters."""
    scores = []
    for aspect in aspects_of(rated):
        for system in dict.fromkeys(one.system for one in rated):
            own = [one for one in rated if one.system == system and aspect in one.ratings]
            if own:
                units, clusters = [one.unit for one in own], [one.cluster for one in own]
                batch = [mean_rating(one, aspect) for one in own]
                scores.append(RATING.score(batch, subject=system, setting=aspect, units=units, clusters=clusters))
    return scores


def rated_items(rated: Sequence[RatedUnit]) -> list[JudgedItem]:
    """The texts and all ratings behind the scores; `read_run` reads them back."""
    items = []
    for one in rated:
        content: dict[str, Json] = {
            "system": one.system,
            "cluster": one.cluster,
            "ratings": {aspect: _nulls(values) for aspect, values in one.ratings.items()},
            "persona": list(one.persona),
        }
        if isinstance(one, RatedReply):
            content |= {"context": [turn.text for turn in one.context], "reply": one.response}
            content |= {"reference": one.references[0] if one.references else "", "references": list(one.references)}
            content["speakers"] = [turn.speaker for turn in one.context]
        else:
            content["turns"] = [{"speaker": turn.speaker, "text": turn.text} for turn in one.turns]
            content["judged"] = one.judged
        items.append(JudgedItem(one.unit, content, one.system))
    return items


def read_ratings(path: Path, format_: RatingFormat) -> RatedSet:
    """The ratings in a file, or in the folder of a judged run."""
    if format_ == "run":
        return read_run(load_run(path), name=path.name)
    if not path.is_file():
        raise MissingFile(f"File not found: {path}", hint="Give a file of human ratings, as it was published.")
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    if format_ == "gupta":
        return read_gupta(text, source=str(path))
    return _JSON_READERS[format_](parse_json(text, str(path)), str(path))


def parse_json(text: str, source: str) -> Json:
    """JSON, or one JSON value per line."""
    try:
        return json.loads(text)
    except ValueError as error:
        try:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError:
            raise DataError(f"{source} is not JSON ({error}).", hint="Give the file as it was published.") from None


def read_fed(entries: Json, source: str = "fed_data.json") -> RatedSet:
    """FED: replies and conversations of Meena, Mitsuku and people. Most aspects are 0 to 2, overall 0 to 4.

    Replies of one conversation form a cluster with it: a reply belongs to the dialogue of its system of which one is
    the other's beginning (a rated dialogue may end before a rated reply of the same conversation).
    """

    def decode(number: int, entry: Mapping[str, Json]) -> list[RatedUnit]:
        unit, system, turns = f"fed-{number:04}", str(entry["system"]), fed_turns(entry["context"])
        text = _fed_text(entry)
        complete = [_fed_text(e) for e in entries if "response" not in e and e["system"] == entry["system"]]
        whole = next((d for d in complete if d.startswith(text) or text.startswith(d)), text)
        cluster = hashlib.sha256(f"{system}\n{whole}".encode()).hexdigest()[:12]
        level = "turn" if "response" in entry else "dialogue"
        ratings = {f"{level} {aspect.lower()}": _numbers(values) for aspect, values in entry["annotations"].items()}
        if level == "dialogue":
            return [RatedConversation(unit, system, cluster, turns, "System", ratings=ratings)]
        response = _SPEAKER.sub("", str(entry["response"]), count=1)
        return [RatedReply(unit, system, cluster, turns, response, ratings=ratings)]

    return _decode("FED", entries, source, decode, "Give FED's fed_data.json.")


def fed_turns(text: str) -> tuple[Turn, ...]:
    """Turns of a dialogue in which every turn begins with "User:" or "System:"; other lines continue a turn."""
    turns: list[Turn] = []
    for line in text.split("\n"):
        match = _SPEAKER.match(line)
        if match:
            turns.append(Turn(match[1], line[match.end() :]))
        elif turns:
            turns[-1] = Turn(turns[-1].speaker, f"{turns[-1].text}\n{line}")
    return tuple(turns)


def _fed_text(entry: Mapping[str, Json]) -> str:
    return "\n".join(str(entry[name]) for name in ("context", "response") if entry.get(name))


def read_usr(entries: Json, source: str = "pc_usr_data.json") -> RatedSet:
    """USR: several systems' replies to each context; the reference is the original reply, which is rated too."""

    def decode(number: int, entry: Mapping[str, Json]) -> list[RatedUnit]:
        context = _alternating([line for line in entry["context"].splitlines() if line.strip()])
        lines = [line.removeprefix("your persona:").strip() for line in str(entry["fact"]).splitlines()]
        facts = tuple(line for line in lines if line)
        responses = [(str(one["model"]), str(one["response"]).strip(), one) for one in entry["responses"]]
        original = next((text for model, text, _ in responses if "Ground Truth" in model), "")
        replies: list[RatedUnit] = []
        for position, (model, text, one) in enumerate(responses):
            ratings = {aspect.lower(): _numbers(v) for aspect, v in one.items() if isinstance(v, list)}
            references = (original,) if original and "Ground Truth" not in model else ()
            unit, cluster = f"usr-{number:04}-{position}", f"usr-{number:04}"
            replies.append(RatedReply(unit, model, cluster, context, text, references, facts, ratings))
        return replies

    return _decode("USR", entries, source, decode, "Give USR's pc_usr_data.json or tc_usr_data.json.")


def read_gupta(text: str, source: str = "gupta_ratings.csv") -> RatedSet:
    """Gupta et al.: one mean rating per reply; the first reference is the original reply."""

    def decode(number: int, row: Mapping[str, str]) -> list[RatedUnit]:
        context = _alternating(row["context"].split(_GUPTA_TURN))
        references = [r.strip() for r in (row["prevgt"], *row["all_references"].split(_GUPTA_REFERENCE))]
        references = list(dict.fromkeys(r for r in references if r))
        ratings = {"overall": (float(row["human_average_rating"]),)}
        unit, model, cluster = f"{row['context_id']}/{row['model']}", row["model"], row["context_id"]
        return [RatedReply(unit, model, cluster, context, row["response"], tuple(references), (), ratings)]

    rows = list(csv.DictReader(io.StringIO(text)))
    return _decode("Gupta et al.", rows, source, decode, "Give gupta_ratings.csv as it was published.")


def read_dstc(entries: Json, source: str = "ratings.json") -> RatedSet:
    """Any set in the fields that the head of this module names."""

    def decode(number: int, entry: Mapping[str, Json]) -> list[RatedUnit]:
        name = str(next((entry[key] for key in _IDS if key in entry), f"{number:04}"))
        system = str(entry.get("model", entry.get("system", "system")))
        turns = _dstc_turns(entry["context"] if "context" in entry else entry["dialogue"])
        references = _texts(entry.get("references", entry.get("reference", ())))
        persona = _texts(entry.get("persona", entry.get("facts", ())))
        annotations = entry["annotations"].items()
        ratings = {str(a).lower(): _numbers(v if isinstance(v, list) else [v]) for a, v in annotations}
        if "response" in entry:
            unit, response = f"{name}/{system}/{number}", str(entry["response"])
            return [RatedReply(unit, system, name, turns, response, references, persona, ratings)]
        speakers = list(dict.fromkeys(turn.speaker for turn in turns))
        judged = str(entry.get("judged", speakers[min(1, len(speakers) - 1)]))
        return [RatedConversation(f"{name}/{system}", system, name, turns, judged, persona, ratings)]

    hint = "`docs/meta-evaluation.md` has the accepted fields."
    return _decode(Path(source).stem, entries, source, decode, hint)


_JSON_READERS: Mapping[str, Callable[[Json, str], RatedSet]] = {"fed": read_fed, "usr": read_usr, "dstc": read_dstc}


def read_run(run: JudgedRun, name: str = "run") -> RatedSet:
    """The ratings in a judged run: of a study, whose units are single ratings, or of a set that `judge meta` saved.

    In a study's run, a unit of the result is the unit that was shown, or one of its turns (`unit/target`). Whether it
    is a reply or a conversation depends on whether the run has the text of a reply.
    """
    scores = [s for s in run.scores if run.metrics[s.metric].unit == "rating" and s.metric not in ("wins", "ties")]
    if not scores:
        raise DataError("The judged run has no ratings by people.", hint="Give the run of a study or of `judge meta`.")
    content = {item.unit: item.content for item in run.items}
    rows: dict[tuple[str, str], list[tuple[str, str, str, float]]] = {}
    for score in scores:
        aspect = score.setting or score.metric
        for unit, value, cluster in zip(score.units, score.values, score.clusters, strict=True):
            about = content.get(unit, {})
            rated, target = str(about.get("unit", unit)), str(about.get("target", "unit"))
            key = rated if target == "unit" else f"{rated}/{target}"
            rows.setdefault((key, score.subject), []).append((unit, aspect, cluster, value))
    return _rated_set(name, [_from_run(key, system, ratings, content) for (key, system), ratings in rows.items()])


def _from_run(
    key: str, system: str, rows: Sequence[tuple[str, str, str, float]], content: Mapping[str, Mapping[str, Json]]
) -> RatedUnit:
    about = content.get(rows[0][0], {})
    if "ratings" in about:  # saved by `judge meta`, with all raters
        ratings = {aspect: _numbers(values) for aspect, values in about["ratings"].items()}
    else:
        raters = list(dict.fromkeys(str(content.get(unit, {}).get("rater", unit)) for unit, _, _, _ in rows))
        table: dict[str, list[float]] = {}
        for unit, aspect, _, value in rows:
            position = raters.index(str(content.get(unit, {}).get("rater", unit)))
            table.setdefault(aspect, [math.nan] * len(raters))[position] = value
        ratings = {aspect: tuple(values) for aspect, values in table.items()}
    cluster, persona = rows[0][2], tuple(about.get("persona", ()))
    if "reply" in about:
        texts = about.get("context", ())
        context = tuple(Turn(s, t) for s, t in zip(about.get("speakers", _speakers(len(texts))), texts, strict=True))
        references = tuple(about.get("references", ()))
        return RatedReply(key, system, cluster, context, str(about["reply"]), references, persona, ratings)
    shown = about.get("conversations") or []
    chat = shown[0] if len(shown) == 1 else about  # an item of the study, or what was said in it
    turns = tuple(Turn(turn["speaker"], turn["text"]) for turn in chat.get("turns") or ())
    return RatedConversation(key, system, cluster, turns, str(chat.get("judged", "")), persona, ratings)


def _decode(
    name: str, entries: Json, source: str, decode: Callable[[int, Json], list[RatedUnit]], hint: str
) -> RatedSet:
    """All entries of a file; whatever is wrong with one of them is an error that names it."""
    if not isinstance(entries, list) or not entries:
        raise DataError(f"{source} is not a list of rated responses.", hint=hint)
    rated: list[RatedUnit] = []
    for number, entry in enumerate(entries):
        try:
            rated += decode(number, entry)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise DataError(f"{source}: entry {number + 1} is damaged ({error}).", hint=hint) from None
    return _rated_set(name, rated)


def _rated_set(name: str, rated: Sequence[RatedUnit]) -> RatedSet:
    replies = tuple(one for one in rated if isinstance(one, RatedReply))
    conversations = tuple(one for one in rated if isinstance(one, RatedConversation))
    values = [value for one in rated for ratings in one.ratings.values() for value in ratings]
    return RatedSet(name, replies, conversations, sum(map(math.isnan, values)))


def _numbers(values: Json) -> tuple[float, ...]:
    """One number per rater; what is no number is nan."""
    return tuple(float(v) if isinstance(v, int | float) and not isinstance(v, bool) else math.nan for v in values)


def _nulls(values: Sequence[float]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values]


def _speakers(count: int) -> list[str]:
    return ["AB"[i % 2] for i in range(count)]


def _texts(value: Json) -> tuple[str, ...]:
    """A text, its lines, or a list of texts."""
    return tuple(value.splitlines() if isinstance(value, str) else map(str, value))


def _alternating(texts: Sequence[str]) -> tuple[Turn, ...]:
    lines = [text.strip() for text in texts]
    return tuple(Turn(speaker, line) for speaker, line in zip(_speakers(len(lines)), lines, strict=True))


def _dstc_turns(context: Json) -> tuple[Turn, ...]:
    if isinstance(context, str):
        return _alternating([line for line in context.splitlines() if line.strip()])
    if context and isinstance(context[0], Mapping):
        return tuple(Turn(str(turn["speaker"]), str(turn["text"])) for turn in context)
    return _alternating([str(text) for text in context])
