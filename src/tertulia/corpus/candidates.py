"""Ranking tasks: each true reply among distractors drawn from the same set, seeded.

The true reply has a random position, and no distractor has its text or comes from its dialogue. Distractors are
drawn at random or, for hard tasks, from the replies most similar to the true one. Training validates on the same tasks
that `judge rank` evaluates on.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tertulia.core.dialogue import Dialogue, Exchange, Persona, PersonaScope, exchanges
from tertulia.core.errors import DataError
from tertulia.core.text import squash, words

HARD_POOL = 50
"""Hard distractors are drawn from this many of the most similar replies."""
FEW, MAX_SHARE = 1000, 0.1
"""Among more texts than FEW, words that occur in a larger share of the texts are ignored."""
SAME_WORDS = 0.999
"""Replies more similar than this have the same words, so they would not be fair distractors."""


@dataclass(frozen=True, slots=True)
class RankTask:
    """One true reply among its distractors."""

    exchange: Exchange
    candidates: tuple[str, ...]
    truth: int
    """Index of the true reply among the candidates."""
    dialogue: str
    """Id of the dialogue it comes from."""


class CandidateReply(NamedTuple):
    """A true reply, and the dialogue it comes from."""

    dialogue: str
    exchange: Exchange

    @property
    def text(self) -> str:
        """The text of the reply."""
        return self.exchange.response.text


def rank_tasks(
    dialogues: Sequence[Dialogue],
    *,
    candidates: int = 20,
    speaker: str | None = None,
    seed: int = 0,
    hard: bool = False,
) -> list[RankTask]:
    """Every reply (or those of one speaker) with distractors from other dialogues of the same set."""
    replies = [CandidateReply(d.id, e) for d in dialogues for e in exchanges(d, speaker=speaker)]
    return reply_tasks(replies, candidates=candidates, seed=seed, hard=hard)


def reply_tasks(
    replies: Sequence[CandidateReply], *, candidates: int = 20, seed: int = 0, hard: bool = False
) -> list[RankTask]:
    """Each reply with distractors from other dialogues of the same replies."""
    rng = random.Random(seed)
    if len({squash(reply.text).lower() for reply in replies}) < candidates * 2:
        raise DataError(
            f"{len(replies)} replies are too few to rank among {candidates} candidates.",
            hint="Use more dialogues or fewer --candidates. If there are none, check --split and --speaker.",
        )
    near = nearest([r.text for r in replies], [r.dialogue for r in replies], HARD_POOL) if hard else None
    tasks = []
    for name, exchange in replies:
        similar = next(near).tolist() if near else []
        rng.shuffle(similar)
        others = _distractors(rng, replies, similar, name, exchange.response.text, candidates - 1)
        truth = rng.randrange(candidates)
        texts = (*others[:truth], exchange.response.text, *others[truth:])
        tasks.append(RankTask(exchange, texts, truth, name))
    return tasks


def shown(exchange: Exchange, scope: PersonaScope, *, revised: bool = False) -> Exchange:
    """The exchange with only the personas in scope, in their original or revised form."""
    own = exchange.persona if scope in ("own", "both") else None
    their = exchange.partner if scope in ("their", "both") else None
    return replace(exchange, persona=_version(own, revised), partner=_version(their, revised))


def nearest(
    texts: Sequence[str], owners: Sequence[str], count: int, *, block: int = 256
) -> Iterator[NDArray[np.int64]]:
    """For each text the indices of the most similar ones of other owners by tf-idf, computed block by block.

    Texts without a common word do not count as similar; texts with the same words are excluded. In large sets, words
    that occur in every tenth text ("i", "the") are ignored: they say little and cost most.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer  # a second to import

    max_share = MAX_SHARE if len(texts) > FEW else 1.0
    vectorizer = TfidfVectorizer(analyzer=words, sublinear_tf=True, max_df=max_share, dtype=np.float32)
    try:
        vectors = vectorizer.fit_transform(texts)
    except ValueError:  # not a single word is left
        raise DataError("These replies have no words to compare.", hint="Omit --hard.") from None
    _, owner = np.unique(np.asarray(owners), return_inverse=True)
    for start in range(0, len(texts), block):
        rows = (vectors[start : start + block] @ vectors.T).tocsr()  # (block, texts), sparse
        for i in range(rows.shape[0]):
            indices, scores = (part[rows.indptr[i] : rows.indptr[i + 1]] for part in (rows.indices, rows.data))
            fair = (owner[indices] != owner[start + i]) & (scores < SAME_WORDS)
            indices, scores = indices[fair], scores[fair]
            if len(indices) > count:
                best = np.argpartition(-scores, count)[:count]
                indices, scores = indices[best], scores[best]
            yield indices[np.lexsort((indices, -scores))].astype(np.int64)


def _version(persona: Persona | None, revised: bool) -> Persona | None:
    if persona is None or not revised:
        return persona
    return replace(persona, sentences=persona.revised, revised=()) if persona.revised else None


def _distractors(
    rng: random.Random, pool: Sequence[CandidateReply], first: Sequence[int], dialogue: str, text: str, count: int
) -> list[str]:
    """Distinct texts from other dialogues; an error if there are too few.

    Those at the indices in `first` come before the ones drawn at random.
    """
    taken = {squash(text).lower()}
    distractors: list[str] = []
    for attempt in range(1000 * count):
        other = pool[first[attempt] if attempt < len(first) else rng.randrange(len(pool))]
        key = squash(other.text).lower()
        if other.dialogue != dialogue and key not in taken:
            taken.add(key)
            distractors.append(other.text)
            if len(distractors) == count:
                return distractors
    raise DataError(
        f"Only {len(distractors)} replies from other dialogues are available as distractors for {dialogue}."
    )
