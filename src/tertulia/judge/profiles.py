"""Profile prediction (Persona-Chat, appendix D): whose profile is it, given what one speaker said?

The true profile is ranked among others of the same set; tf-idf ranks them by what a speaker said, and the error is how
often another one comes first. A profile is scored in two ways: as one document, or by sentence, where its score is the
mean of its sentences' scores. Personas recur in a set, complete or with a sentence more or less: a profile that shares
a sentence with the true one is never its distractor.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import scipy

from tertulia.core.codec import Problems
from tertulia.core.dialogue import Dialogue
from tertulia.core.errors import DataError
from tertulia.core.progress import Progress, Silent
from tertulia.core.score import Score
from tertulia.core.text import plural, squash, words
from tertulia.corpus.load import load_dialogues
from tertulia.judge.config import ProfileConfig, Wording
from tertulia.judge.runs import JudgedItem, JudgedRun, Subject, describe_config, unique_ids
from tertulia.metrics.metric import RankBatch
from tertulia.metrics.ranking import ERROR_RATE, ranks_of_truth

Level = Literal["profile", "sentence"]
LEVELS: tuple[Level, ...] = ("profile", "sentence")
BLOCK = 256
"""Queries scored at once."""
SUBJECT = "tf-idf"


class ProfileSetting(NamedTuple):
    """One cell of the paper's tables: level, whose utterances (0 opened the dialogue), whose profile, how many."""

    level: Level
    speaker: int
    profile: int
    utterances: int | None = None
    """Only the first so many; None for all."""

    def __str__(self) -> str:
        first = "" if self.utterances is None else f", first {self.utterances}"
        return f"{self.level} level, speaker {self.speaker}, profile {self.profile}{first}"


class ProfileTask(NamedTuple):
    """What one speaker of a dialogue said, and one of the dialogue's profiles."""

    dialogue: str
    utterances: tuple[str, ...]
    speaker: int
    profile: int
    truth: int
    """Index of the true profile."""


Profile = tuple[str, ...]


def run_profiles(
    config: ProfileConfig, progress: Progress | None = None, problems: Problems | None = None
) -> JudgedRun:
    """Predict the profiles in `config.data`."""
    progress = progress or Silent()
    progress.step("Reading")
    dialogues = list(load_dialogues(config.data, split=config.selected_split, problems=problems))
    progress.step("Ranking profiles")
    return predict_profiles(dialogues, config)


def predict_profiles(dialogues: Sequence[Dialogue], config: ProfileConfig) -> JudgedRun:
    """Error rates by the utterances of either speaker, for either profile, and by the number of utterances."""
    profiles, tasks = _collect(dialogues, config.wording)
    relatives = _relatives(profiles)
    most = min((len(profiles) - len(relatives[task.truth]) + 1 for task in tasks), default=0)
    candidates = min(config.candidates, most)
    if candidates < 2:
        raise DataError(
            f"No {config.wording} personas to distinguish in {config.data}.",
            hint="Profile prediction needs dialogues with at least two different personas.",
        )
    rng = random.Random(config.seed)
    chosen = [_candidates(rng, task.truth, relatives[task.truth], len(profiles), candidates) for task in tasks]
    model = _ProfileModel(profiles, tasks)
    scores = _scores(model, tasks, chosen, None, config.seed)
    for count in range(1, config.utterances + 1):
        enough = [i for i, task in enumerate(tasks) if len(task.utterances) >= count]
        scores += _scores(model, [tasks[i] for i in enough], [chosen[i] for i in enough], count, config.seed)
    dialogue_count, chance = len({task.dialogue for task in tasks}), 1 - 1 / candidates
    fewer = f" ({config.candidates} requested; the set has no more different ones)"
    return JudgedRun(
        verb="profiles",
        config=describe_config(config),
        subjects=(Subject(SUBJECT, kind="tfidf"),),
        settings=tuple(score.setting for score in scores),
        scores=tuple(scores),
        metrics={ERROR_RATE.name: ERROR_RATE.info},
        items=tuple(_items(tasks, profiles)),
        notes=(
            f"{plural(dialogue_count, 'dialogue')}; the true profile among {candidates}"
            f"{fewer if candidates < config.candidates else ''}; {config.wording} wording; seed {config.seed}; chance"
            f" error {chance:.3f}; 95 % intervals by bootstrap over dialogues.",
        ),
        details={
            "candidates": candidates,
            "profiles": len(profiles),
            "dialogues": dialogue_count,
            "chance": chance,
        },
    )


def _collect(dialogues: Sequence[Dialogue], wording: Wording) -> tuple[list[Profile], list[ProfileTask]]:
    """All different profiles, and each speaker's utterances with each profile of the dialogue's two speakers."""
    index: dict[frozenset[str], int] = {}
    profiles: list[Profile] = []
    tasks: list[ProfileTask] = []
    for name, dialogue in zip(unique_ids(d.id for d in dialogues), dialogues, strict=True):
        two = dialogue.speakers[:2]
        utterances = [tuple(t.text for t in dialogue.turns if t.speaker == speaker) for speaker in two]
        for owner, speaker in enumerate(two):
            persona = dialogue.persona_of(speaker)
            texts = (persona.revised if wording == "revised" else persona.sentences) if persona else ()
            sentences = tuple(dict.fromkeys(squash(text).lower() for text in texts))
            if not sentences:
                continue
            truth = index.setdefault(frozenset(sentences), len(index))
            if truth == len(profiles):
                profiles.append(sentences)
            tasks += [ProfileTask(name, utterances[by], by, owner, truth) for by in range(len(two))]
    return profiles, tasks


def _relatives(profiles: Sequence[Profile]) -> list[set[int]]:
    """For each profile those that share a sentence with it, itself included."""
    having: dict[str, set[int]] = {}
    for i, profile in enumerate(profiles):
        for sentence in profile:
            having.setdefault(sentence, set()).add(i)
    return [set().union(*(having[sentence] for sentence in profile)) for profile in profiles]


def _candidates(rng: random.Random, truth: int, relatives: set[int], profiles: int, count: int) -> list[int]:
    """The true profile, then random ones that share no sentence with it."""
    drawn = rng.sample(range(profiles), min(profiles, count - 1 + len(relatives)))
    return [truth, *[i for i in drawn if i not in relatives][: count - 1]]


class _ProfileModel:
    """tf-idf of all utterances and profiles; document frequencies are over utterances and persona sentences."""

    def __init__(self, profiles: Sequence[Profile], tasks: Sequence[ProfileTask]) -> None:
        utterances = list(dict.fromkeys(text for task in tasks for text in task.utterances))
        sentences = list(dict.fromkeys(sentence for profile in profiles for sentence in profile))
        from sklearn.feature_extraction.text import TfidfVectorizer  # a second to import

        self._tfidf = TfidfVectorizer(analyzer=words, sublinear_tf=True).fit([*utterances, *sentences])
        column = {sentence: i for i, sentence in enumerate(sentences)}
        rows = [i for i, profile in enumerate(profiles) for _ in profile]
        shares = [1 / len(profile) for profile in profiles for _ in profile]
        columns = [column[sentence] for profile in profiles for sentence in profile]
        mean = scipy.sparse.csr_array((shares, (rows, columns)), shape=(len(profiles), len(sentences)))
        self._profiles = {  # (words, profiles)
            "profile": scipy.sparse.csc_array(self._tfidf.transform([" ".join(profile) for profile in profiles]).T),
            "sentence": scipy.sparse.csc_array((mean @ self._tfidf.transform(sentences)).T),
        }

    def queries(self, texts: Sequence[str]) -> "scipy.sparse.csr_array":
        """One row of unit length (or zero, for a text of unknown words) per text."""
        return scipy.sparse.csr_array(self._tfidf.transform(texts))

    def scores(
        self, queries: "scipy.sparse.csr_array", among: Sequence[Sequence[int]], level: Level
    ) -> Iterator[list[float]]:
        """The scores of each query's candidates, given as indices of profiles."""
        for start in range(0, len(among), BLOCK):
            scores = (queries[start : start + BLOCK] @ self._profiles[level]).toarray()
            yield from np.take_along_axis(scores, np.array(among[start : start + BLOCK]), axis=1).tolist()


def _scores(
    model: _ProfileModel,
    tasks: Sequence[ProfileTask],
    candidates: Sequence[Sequence[int]],
    count: int | None,
    seed: int,
) -> list[Score]:
    """Errors by level, speaker and profile, from the first `count` utterances."""
    if not tasks:
        return []
    queries = model.queries([" ".join(task.utterances[:count]) for task in tasks])
    scores = []
    for level in LEVELS:
        ranks = ranks_of_truth(list(model.scores(queries, candidates, level)), [0] * len(tasks), seed=seed)
        for speaker, profile in sorted({(task.speaker, task.profile) for task in tasks}):
            rows = [i for i, task in enumerate(tasks) if (task.speaker, task.profile) == (speaker, profile)]
            dialogues = [tasks[i].dialogue for i in rows]
            batch = RankBatch(ranks[rows], np.array([len(candidates[i]) for i in rows], dtype=np.int64))
            setting = str(ProfileSetting(level, speaker, profile, count))
            scores.append(
                ERROR_RATE.score(batch, subject=SUBJECT, setting=setting, units=dialogues, clusters=dialogues)
            )
    return scores


def _items(tasks: Sequence[ProfileTask], profiles: Sequence[Profile]) -> Iterator[JudgedItem]:
    """Utterances and profiles of each dialogue, by speaker."""
    for dialogue in dict.fromkeys(task.dialogue for task in tasks):
        own = [task for task in tasks if task.dialogue == dialogue]
        yield JudgedItem(
            dialogue,
            {
                "utterances": {str(task.speaker): list(task.utterances) for task in own},
                "profiles": {str(task.profile): list(profiles[task.truth]) for task in own},
            },
        )
