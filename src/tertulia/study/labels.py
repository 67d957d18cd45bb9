"""Labels sorted by what they say: ratings of bots, votes between two, SSA and BEGIN labels, recognised personas, texts.

Labels come as values (rows of the study store, or of an importer) together with the payloads of their units. Every
label of a number (yes, a scale, an up vote) becomes a rating of a bot; every choice between two bots becomes a vote;
BEGIN's answers become labels, and the choice between two personas is right or wrong. Only submitted assignments belong
here: pass what `StudyStore.rows` yields.
"""

import json
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from tertulia.core.dialogue import Json
from tertulia.core.grounding import GroundingLabel
from tertulia.metrics.agreement import UnitRating
from tertulia.metrics.begin_labels import QUESTIONS, begin_label, is_cooperative, response_label
from tertulia.metrics.preference import PairwiseVote, Winner
from tertulia.metrics.ratings import SsaLabel, SubjectRating, ssa_ratings
from tertulia.study.assignment import chosen_index
from tertulia.study.config import StudyConfig
from tertulia.study.export import (
    BOT,
    REPLIES,
    TURN,
    ExportedLabel,
    LabelledTurn,
    chosen_bot,
    judged_bot,
    value_as_number,
)
from tertulia.study.questions import Question

T = TypeVar("T")
SENSIBLE, SPECIFIC = "sensible", "specific"
NUMERIC = ("yes-no", "scale", "vote")


class Rated(NamedTuple):
    """One number that one rater gave one bot."""

    rating: SubjectRating
    unit: str
    """Id of the rating: its assignment and target."""
    item: str
    """What was rated; other raters may have rated it too."""


@dataclass(frozen=True, slots=True)
class LabelSet:
    """The labels of a study by what they say; every mapping is by question."""

    config: StudyConfig
    bots: tuple[str, ...]
    ratings: Mapping[str, Sequence[Rated]] = field(default_factory=dict)
    votes: Mapping[str, Sequence[PairwiseVote]] = field(default_factory=dict)
    ssa: Sequence[tuple[SsaLabel, str]] = ()
    """With the id of the rating."""
    detections: Sequence[Rated] = ()
    """1 where the bot's persona was recognised."""
    begin: Sequence[tuple[GroundingLabel, Rated]] = ()
    """The label of each response; the rating is 1."""
    cooperative: Sequence[Rated] = ()
    """1 for sentences that help the conversation along."""
    agreement: Mapping[str, Sequence[UnitRating]] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)
    """The conversation or context of each rated item."""
    contents: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    """By rating id: its rater, unit and target, and the texts it is about."""
    texts: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    """What participants wrote, with their pseudonyms."""
    labels: int = 0
    missing: int = 0
    """Optional questions left open are not counted; answers that are no numbers where numbers are wanted are."""
    checkpoints: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By bot, the digests of the weights or the index that its replies came from, as far as they are recorded."""

    def subject_ratings(self, question: str) -> list[SubjectRating]:
        """The ratings of one question; of SSA for the question "ssa".

        For a choice between two bots, the subject is the pair, and a vote is 1 for the first bot, 0.5 for a tie.
        """
        if question == "ssa":
            return ssa_ratings([label for label, _ in self.ssa])
        if question in self.votes:
            worth = {"first": 1.0, "tie": 0.5, "second": 0.0}
            return [
                SubjectRating(f"{v.first} : {v.second}", self.clusters[v.item], v.rater, worth[v.winner])
                for v in self.votes[question]
            ]
        return [one.rating for one in self.ratings.get(question, ())]

    def in_order(self, figures: Mapping[str, T]) -> dict[str, T]:
        """Figures by bot, in the order of the study."""
        return {bot: figures[bot] for bot in self.bots if bot in figures}

    def bounds(self, question: str) -> tuple[float, float]:
        """The ends of a question's scale."""
        asked = self.config.question(question)
        if asked is not None and asked.kind == "scale":
            return (asked.low, asked.high)
        return (-1, 1) if asked is not None and asked.kind == "vote" else (0, 1)


def read_labels(
    config: StudyConfig,
    rows: Iterable[ExportedLabel],
    payloads: Mapping[str, Mapping[str, Json]] | None = None,
    chats: Mapping[str, Sequence[LabelledTurn]] | None = None,
) -> LabelSet:
    """Sort labels by what they say. Labels of questions that the study does not have (attention checks) are left out.

    `payloads` are those of the units, by id: contexts shared by several bots are recognised by their `source`. `chats`
    are the conversations that were held for the study, by id.
    """
    ratings: defaultdict[str, list[Rated]] = defaultdict(list)
    votes: defaultdict[str, list[PairwiseVote]] = defaultdict(list)
    agreement: defaultdict[str, list[UnitRating]] = defaultdict(list)
    clusters: dict[str, str] = {}
    contents: dict[str, Mapping[str, Json]] = {}
    detections: list[Rated] = []
    texts: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    answers: defaultdict[tuple[str, str], dict[str, Json]] = defaultdict(dict)
    rated: dict[tuple[str, str], Rated] = {}
    bots: dict[str, None] = dict.fromkeys(bot.name for bot in config.bots)
    rows = list(rows)
    count = missing = 0
    for row in rows:
        question = config.question(row.question)
        if question is None:
            continue
        count += 1
        if question.kind == "text":
            texts[question.id].append((row.participant, str(row.value)))
            continue
        bots |= dict.fromkeys(row.bots)
        item, unit = f"{row.unit}/{row.target}", f"{row.assignment}/{row.target}"
        payload = (payloads or {}).get(row.unit, {})
        clusters[item] = cluster = cluster_of(row, payload)
        contents[unit] = _content(row, payload, chats or {})
        if question.kind == "side" and len(row.bots) == 2:
            vote = pairwise_vote(question, row, item)
            votes[question.id].append(vote)
            contents[f"{item}/{row.participant}"] = contents[unit]
            agreement[question.id].append(UnitRating(item, row.participant, vote.winner))
            continue
        subject = judged_bot(row)
        if subject is None:
            continue
        if question.kind == "side":
            correct = float(chosen_index(str(row.value), row.side_order) == 0)
            detections.append(Rated(SubjectRating(subject, cluster, row.participant, correct), unit, item))
            continue
        answers[row.assignment, row.target][question.id] = row.value
        value = value_as_number(question, row.value)
        rated.setdefault(
            (row.assignment, row.target), Rated(SubjectRating(subject, cluster, row.participant, 1.0), unit, item)
        )
        label: Hashable = row.value if value is None else value
        agreement[question.id].append(UnitRating(item, row.participant, label))
        if question.kind in NUMERIC:
            if value is None:
                missing += 1
                continue
            ratings[question.id].append(Rated(SubjectRating(subject, cluster, row.participant, value), unit, item))
    begin, cooperative = _begin_labels(config, answers, rated)
    contents |= {one.unit: {"rater": one.rating.rater} for _, one in begin}
    return LabelSet(
        config,
        tuple(bots) if config.bots else tuple(sorted(bots)),
        dict(ratings),
        dict(votes),
        _ssa_labels(answers, rated),
        detections,
        begin,
        cooperative,
        dict(agreement),
        clusters,
        contents,
        dict(texts),
        count,
        missing,
        _checkpoints(rows, payloads or {}),
    )


def _content(
    row: ExportedLabel, payload: Mapping[str, Json], chats: Mapping[str, Sequence[LabelledTurn]]
) -> dict[str, Json]:
    """Who gave a rating, about what; with all texts of the unit, so that an automatic judge can be asked the same."""
    content: dict[str, Json] = {
        "rater": row.participant,
        "unit": row.unit,
        "target": row.target,
        "bots": list(row.bots),
    }
    responses, context = payload.get("responses", ()), payload.get("context", ())
    if row.turn_text is not None:
        content["reply"] = row.turn_text
    elif len(responses) == 1:
        content["reply"] = responses[0]
    elif responses:
        content["responses"] = list(responses)
    elif payload.get("conversations"):
        content["conversations"] = payload["conversations"]
    if context:
        content["context"] = [turn["text"] for turn in context]
        content["speakers"] = [turn["speaker"] for turn in context]
    return content | _chat_content(row, [chats.get(conversation, ()) for conversation in row.conversations])


def _chat_content(row: ExportedLabel, sides: Sequence[Sequence[LabelledTurn]]) -> dict[str, Json]:
    """What was said in the chats that a label is about: up to the labelled turn, or to the end."""
    if not row.bots or not any(sides):
        return {}
    ids = [[turn.id for turn in side] for side in sides]
    labelled = row.target.removeprefix(TURN) if row.target.startswith(TURN) else None
    own = next((side for side in ids if labelled in side), None)
    if labelled is not None and own is None:
        return {}
    end = None if own is None else own.index(str(labelled))
    if len(sides) == 2:
        shown = [side if end is None else side[: end + 1] for side in sides]
        by_bot = [shown[row.side_order.index(bot)] for bot in range(2)]
        return {"conversations": [_transcript(side) for side in by_bot]}
    if end is None:
        return _transcript(sides[0])
    before = sides[0][:end]
    return {"context": [turn.text for turn in before], "speakers": [turn.speaker for turn in before]}


def _transcript(turns: Sequence[LabelledTurn]) -> dict[str, Json]:
    return {"turns": [{"speaker": turn.speaker, "text": turn.text} for turn in turns], "judged": BOT}


def _checkpoints(
    rows: Iterable[ExportedLabel], payloads: Mapping[str, Mapping[str, Json]]
) -> dict[str, tuple[str, ...]]:
    """The bots whose replies the labels are about, with the digests of what these came from."""
    digests: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for row in rows:
        replies = zip(row.bots, payloads.get(row.unit, {}).get(REPLIES) or (), strict=False)
        for bot, reply in (*replies, *([(judged_bot(row), row.reply)] if row.reply else [])):
            digest = ((reply or {}).get("provenance") or {}).get("checkpoint")
            if bot and digest:
                digests[bot][str(digest)] = None
    return {bot: tuple(own) for bot, own in digests.items()}


def cluster_of(row: ExportedLabel, payload: Mapping[str, Json]) -> str:
    """What a label is not independent within: its conversation, or the context that several bots reply to."""
    if row.conversations:
        return row.conversations[0]
    source = payload.get("source")
    if source and not row.conversation and "personas" not in payload:
        return source if isinstance(source, str) else json.dumps(source)
    return row.conversation or row.unit


def pairwise_vote(question: Question, row: ExportedLabel, item: str) -> PairwiseVote:
    """A choice between two bots, in the order of the unit; everything but A and B is a tie."""
    winner = chosen_bot(question, row)
    outcome: Winner = "tie" if winner is None else "first" if winner == row.bots[0] else "second"
    return PairwiseVote(row.bots[0], row.bots[1], outcome, item, row.participant)


def _ssa_labels(
    answers: Mapping[tuple[str, str], Mapping[str, Json]], rated: Mapping[tuple[str, str], Rated]
) -> list[tuple[SsaLabel, str]]:
    """Targets with an answer to both questions; a missing answer to the second means no."""
    labels = []
    for key, given in answers.items():
        if isinstance(given.get(SENSIBLE), bool) and (SPECIFIC in given or not given[SENSIBLE]):
            rating = rated[key].rating
            specific = given.get(SPECIFIC) is True
            label = SsaLabel(rating.subject, rating.conversation, rating.rater, given[SENSIBLE], specific)
            labels.append((label, rated[key].unit))
    return labels


def _begin_labels(
    config: StudyConfig,
    answers: Mapping[tuple[str, str], Mapping[str, Json]],
    rated: Mapping[tuple[str, str], Rated],
) -> tuple[list[tuple[GroundingLabel, Rated]], list[Rated]]:
    """Labels of responses from the answers about their sentences, if the study asks BEGIN's questions."""
    if not all(config.question(name) for name in QUESTIONS):
        return [], []
    sentences: defaultdict[str, list[GroundingLabel]] = defaultdict(list)
    responses: dict[str, Rated] = {}
    cooperative = []
    for (assignment, target), given in answers.items():
        one = rated[assignment, target]
        responses.setdefault(assignment, one._replace(unit=assignment, item=one.item.rpartition("/")[0]))
        sentences[assignment].append(begin_label(given))
        value = float(is_cooperative(given))
        cooperative.append(one._replace(rating=one.rating._replace(value=value)))
    return [(response_label(labels), responses[key]) for key, labels in sentences.items()], cooperative
