"""Profile prediction (Persona-Chat, appendix D): whose profile is it, told from what one speaker said?

The true profile stands among others of the same set; tf-idf ranks them by what a speaker said, and the error is how
often another one comes first. A profile is looked at in two ways: as one document, or sentence by sentence, where its
score is the mean of its sentences' scores. Personas come back in a set, whole or with a sentence more or less: a
profile that shares a sentence with the true one is no distractor for it.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from tertulia.core.config import Config
from tertulia.core.dialogue import Dialogue, Json
from tertulia.core.errors import DataError
from tertulia.core.estimate import Estimate
from tertulia.core.text import squash, words
from tertulia.judge.rank import Wording
from tertulia.metrics.ranking import ranks_of_truth
from tertulia.metrics.significance import bootstrap_means

Level = Literal["profile", "sentence"]
LEVELS: tuple[Level, ...] = ("profile", "sentence")
BLOCK = 256
"""Queries compared at once."""
PAPER: dict[str, Json] = {
    "profile": 0.057,
    "sentence": 0.173,
    "1 utterance": 0.76,
    "8 utterances": 0.17,
}
"""What Zhang et al. 2018 found for people's own profiles (tables 13 and 14)."""


class ProfileConfig(Config):
    """Which profiles are told apart, and by how much."""

    data: str = "sample"
    """A file or folder of dialogues with personas, or `sample`."""
    split: str = "valid"
    """The split to take, empty for all."""
    candidates: int = Field(101, ge=2)
    """The true profile and others together; all there are where the set has fewer."""
    wording: Wording = "original"
    """Wording of the personas, original or revised."""
    utterances: int = Field(8, ge=1)
    """Count errors for the first 1, 2, ... utterances up to so many."""
    seed: int = 0
    """For distractors and ties."""


class Cell(NamedTuple):
    """One figure's place: at which level, by whose words (0 opened the dialogue), whose profile, from how many."""

    level: Level
    speaker: int
    profile: int
    utterances: int | None = None
    """The first so many; None for all."""


@dataclass(frozen=True, slots=True)
class ProfileOutcome:
    """Error rates."""

    errors: dict[Cell, Estimate]
    candidates: int
    profiles: int
    """Different profiles in the set."""
    dialogues: int

    @property
    def chance(self) -> float:
        """The error of somebody who guesses."""
        return 1 - 1 / self.candidates

    def as_json(self) -> dict[str, Json]:
        """For `--json`."""
        rows = [cell._asdict() | {"error": figure.as_json()} for cell, figure in self.errors.items()]
        told = {"candidates": self.candidates, "profiles": self.profiles, "dialogues": self.dialogues}
        return told | {"chance": self.chance, "errors": rows}


class Task(NamedTuple):
    """One dialogue's speaker and one of its profiles."""

    dialogue: str
    said: tuple[str, ...]
    speaker: int
    profile: int
    truth: int
    """The true profile's place among all."""


Profile = tuple[str, ...]


def predict_profiles(dialogues: Sequence[Dialogue], config: ProfileConfig) -> ProfileOutcome:
    """Error rates by what either speaker said, for either profile, and by the number of utterances."""
    profiles, tasks = _collect(dialogues, config.wording)
    relatives = _relatives(profiles)
    most = min((len(profiles) - len(relatives[task.truth]) + 1 for task in tasks), default=0)
    candidates = min(config.candidates, most)
    if candidates < 2:
        raise DataError(
            f"There are no {config.wording} personas to tell apart in {config.data}.",
            hint="It takes dialogues with personas, and of more than one kind.",
        )
    rng = random.Random(config.seed)
    chosen = [_candidates(rng, task.truth, relatives[task.truth], len(profiles), candidates) for task in tasks]
    model = _Model(profiles, tasks)
    errors = _errors(model, tasks, chosen, None, config.seed)
    for count in range(1, config.utterances + 1):
        own = [i for i, task in enumerate(tasks) if task.speaker == task.profile and len(task.said) >= count]
        errors |= _errors(model, [tasks[i] for i in own], [chosen[i] for i in own], count, config.seed)
    return ProfileOutcome(errors, candidates, len(profiles), len({task.dialogue for task in tasks}))


def _collect(dialogues: Sequence[Dialogue], wording: Wording) -> tuple[list[Profile], list[Task]]:
    """All different profiles, and each speaker's words with each profile of the dialogue's two speakers."""
    places: dict[frozenset[str], int] = {}
    profiles: list[Profile] = []
    tasks: list[Task] = []
    for number, dialogue in enumerate(dialogues):
        two = dialogue.speakers[:2]
        said = [tuple(t.text for t in dialogue.turns if t.speaker == name) for name in two]
        for whose, name in enumerate(two):
            persona = dialogue.persona_of(name)
            texts = (persona.revised if wording == "revised" else persona.sentences) if persona else ()
            sentences = tuple(dict.fromkeys(squash(text).lower() for text in texts))
            if not sentences:
                continue
            truth = places.setdefault(frozenset(sentences), len(places))
            if truth == len(profiles):
                profiles.append(sentences)
            tasks += [Task(f"{number} {dialogue.id}", said[by], by, whose, truth) for by in range(len(two))]
    return profiles, tasks


def _relatives(profiles: Sequence[Profile]) -> list[set[int]]:
    """For each profile those that share a sentence with it, itself among them."""
    having: dict[str, set[int]] = {}
    for place, profile in enumerate(profiles):
        for sentence in profile:
            having.setdefault(sentence, set()).add(place)
    return [set().union(*(having[sentence] for sentence in profile)) for profile in profiles]


def _candidates(rng: random.Random, truth: int, relatives: set[int], profiles: int, count: int) -> list[int]:
    """The true profile, and others at random that have nothing of it."""
    drawn = rng.sample(range(profiles), min(profiles, count - 1 + len(relatives)))
    return [truth, *[place for place in drawn if place not in relatives][: count - 1]]


class _Model:
    """tf-idf of everything said and of every profile; words are weighed over utterances and persona sentences."""

    def __init__(self, profiles: Sequence[Profile], tasks: Sequence[Task]) -> None:
        said = list(dict.fromkeys(text for task in tasks for text in task.said))
        sentences = list(dict.fromkeys(sentence for profile in profiles for sentence in profile))
        self._tfidf = TfidfVectorizer(analyzer=words, sublinear_tf=True).fit([*said, *sentences])
        place = {sentence: i for i, sentence in enumerate(sentences)}
        owner = [i for i, profile in enumerate(profiles) for _ in profile]
        shares = [1 / len(profile) for profile in profiles for _ in profile]
        columns = [place[sentence] for profile in profiles for sentence in profile]
        mean = sparse.csr_array((shares, (owner, columns)), shape=(len(profiles), len(sentences)))
        self._by_word = {
            "profile": sparse.csc_array(self._tfidf.transform([" ".join(profile) for profile in profiles]).T),
            "sentence": sparse.csc_array((mean @ self._tfidf.transform(sentences)).T),
        }

    def queries(self, texts: Sequence[str]) -> sparse.csr_array:
        """One row of unit length (or zero, for a text of unknown words) per text."""
        return sparse.csr_array(self._tfidf.transform(texts))

    def scores(self, queries: sparse.csr_array, among: Sequence[Sequence[int]], level: Level) -> Iterator[list[float]]:
        """The score of each query's candidates, places of profiles."""
        for start in range(0, len(among), BLOCK):
            scores = (queries[start : start + BLOCK] @ self._by_word[level]).toarray()
            yield from np.take_along_axis(scores, np.array(among[start : start + BLOCK]), axis=1).tolist()


def _errors(
    model: _Model, tasks: Sequence[Task], chosen: Sequence[Sequence[int]], count: int | None, seed: int
) -> dict[Cell, Estimate]:
    """Error rates by level, speaker and profile, from the first `count` utterances."""
    if not tasks:
        return {}
    queries = model.queries([" ".join(task.said[:count]) for task in tasks])
    scores = [list(model.scores(queries, chosen, level)) for level in LEVELS]
    ranks = np.stack([ranks_of_truth(found, [0] * len(tasks), seed=seed) for found in scores], axis=1)
    wrong = (ranks > 1).astype(np.float64)
    found: dict[Cell, Estimate] = {}
    for speaker, profile in sorted({(task.speaker, task.profile) for task in tasks}):
        mine = [i for i, task in enumerate(tasks) if (task.speaker, task.profile) == (speaker, profile)]
        figures = bootstrap_means(wrong[mine], [tasks[i].dialogue for i in mine], seed=seed)
        found |= {Cell(level, speaker, profile, count): e for level, e in zip(LEVELS, figures, strict=True)}
    return found
