"""Preferences from what `tertulia study export` writes: one row per judgement, as CSV, JSON lines or Parquet.

- A choice between two replies (pairwise-static) is a vote on the two.
- So is a choice between two replies in a chat with two bots (arena), as long as both chats are equal up to there; after
  that, it is an up vote for one reply and a down vote for the other, each in its own chat.
- A choice between two conversations (pairwise-chat, arena) is a vote on the first replies that differ, if everything
  before them is equal.
- A label, scale or vote about one reply (SSA, Likert) is a rating of the reply.

Answers about whole conversations or single sentences, free texts and attention checks say nothing about one reply and
are counted as such. In an export, the one who is judged is always speaker "2", and texts are what the participant saw.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from tertulia.core.dialogue import Dialogue, Evidence, Json, Persona, Turn
from tertulia.corpus.preferences.judgements import Outcome, ReplyChoice, ReplyRating

JUDGED = "2"
"""The speaker who replies."""
SENTENCE = "sentence:"
"""How the target of a label names a sentence of a reply (BEGIN)."""
RATED_KINDS = ("yes-no", "scale", "vote")
NEEDED = frozenset(("question", "kind", "value", "participant", "context"))
"""Columns by which an export is recognised."""
_LISTS = ("bots", "context", "shown_a", "shown_b", "persona")
_OUTCOMES: Mapping[str, Outcome] = {"A": "first", "B": "second", "both_bad": "both bad"}
Turns = Sequence[Mapping[str, str]]


def recognises(row: Json) -> bool:
    """Whether a row is one of an export."""
    return isinstance(row, dict) and row.keys() >= NEEDED


def parsed(row: Mapping[str, Json]) -> dict[str, Json]:
    """A row of any of the formats as it is in JSON lines: CSV and Parquet have lists as text."""
    values = {name: value for name, value in row.items() if value not in (None, "")}
    for name in _LISTS:
        if isinstance(text := values.get(name), str) and text.startswith("["):
            values[name] = json.loads(text)
    if isinstance(number := values.get("value_number"), str):
        values["value_number"] = float(number)
    return values


def judgements(row: Mapping[str, Json]) -> Iterator[ReplyChoice | ReplyRating]:
    """What a parsed row says about replies; nothing if it is about something else."""
    if row.get("kind") == "side" and len(row.get("bots", ())) == 2:
        yield from _choices(row)
    elif row.get("kind") in RATED_KINDS and "value_number" in row and _is_about_a_reply(row):
        reply, value = str(row["text"]), float(row["value_number"])
        yield ReplyRating(_context(row, row["context"]), JUDGED, reply, str(row["question"]), str(row["kind"]), value)


def _is_about_a_reply(row: Mapping[str, Json]) -> bool:
    """Whether the text that was rated is a whole reply, whose context is known."""
    return bool(row.get("text") and row.get("context")) and not str(row.get("target", "")).startswith(SENTENCE)


def _choices(row: Mapping[str, Json]) -> Iterator[ReplyChoice | ReplyRating]:
    first, second = row.get("shown_a"), row.get("shown_b")
    outcome = _OUTCOMES.get(str(row["value"]), "tie")
    if isinstance(first, str) and isinstance(second, str):
        yield ReplyChoice(_context(row, row.get("context", ())), JUDGED, first, second, outcome)
    elif isinstance(first, list) and isinstance(second, list):
        if str(row.get("target", "")).startswith("turn:"):
            yield from _choice_of_turns(row, first, second, outcome)
        else:
            yield from _first_difference(row, first, second, outcome)


def _choice_of_turns(row: Mapping[str, Json], first: Turns, second: Turns, outcome: Outcome) -> Iterator[Json]:
    """A choice between the last turns of two chats that may have taken different courses."""
    if not (first and second and first[-1]["speaker"] == second[-1]["speaker"] == JUDGED):
        return
    if first[:-1] == second[:-1]:
        context = _context(row, first[:-1])
        yield ReplyChoice(context, JUDGED, first[-1]["text"], second[-1]["text"], outcome)
        return
    votes = {"first": (1.0, -1.0), "second": (-1.0, 1.0), "both bad": (-1.0, -1.0)}.get(outcome, ())
    for chat, vote in zip((first, second), votes, strict=False):
        context = _context(row, chat[:-1])
        yield ReplyRating(context, JUDGED, chat[-1]["text"], str(row["question"]), "vote", vote)


def _first_difference(row: Mapping[str, Json], first: Turns, second: Turns, outcome: Outcome) -> Iterator[ReplyChoice]:
    """A choice between two conversations, as one between the first replies that differ."""
    same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))))
    if same < min(len(first), len(second)) and first[same]["speaker"] == second[same]["speaker"] == JUDGED:
        context = _context(row, first[:same])
        yield ReplyChoice(context, JUDGED, first[same]["text"], second[same]["text"], outcome)


def _context(row: Mapping[str, Json], turns: Turns) -> Dialogue:
    sentences, passages = row.get("persona", ()), row.get("evidence", ())
    persona = Persona((sentences,) if isinstance(sentences, str) else tuple(map(str, sentences)))
    return Dialogue(
        str(row.get("conversation") or row.get("source") or row.get("unit") or ""),
        tuple(Turn(str(turn["speaker"]), str(turn["text"])) for turn in turns),
        {JUDGED: persona} if persona.sentences else {},
        tuple(Evidence(str(text)) for text in ((passages,) if isinstance(passages, str) else passages)),
    )
