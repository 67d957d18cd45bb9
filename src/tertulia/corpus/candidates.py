"""The ranking game: each true reply among others drawn from the same set, seeded.

The traps of this game, closed: the true reply stands at a random place, no distractor has its text or comes from its
dialogue. Distractors are drawn at random or, harder, from the replies that resemble the true one most. Training
validates with the same tasks that `judge rank` judges with.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer

from tertulia.core.dialogue import Dialogue, Exchange, Persona, Whose, exchanges
from tertulia.core.errors import DataError
from tertulia.core.text import squash, words

HARD_POOL = 50
"""Hard distractors are drawn from so many of the most similar replies."""
FEW, MAX_SHARE = 1000, 0.1
"""Among more texts than a few, words that a larger share of them has are passed over."""
SAME_WORDS = 0.999
"""Replies more similar than this have the same words: no fair distractor is like that."""


@dataclass(frozen=True, slots=True)
class RankTask:
    """One true reply among its distractors."""

    exchange: Exchange
    candidates: tuple[str, ...]
    truth: int
    """The place of the true reply among the candidates."""
    dialogue: str
    """The dialogue it comes from."""


class Reply(NamedTuple):
    """A true reply, and the dialogue it comes from."""

    dialogue: str
    exchange: Exchange

    @property
    def text(self) -> str:
        """What is said."""
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
    replies = [Reply(d.id, e) for d in dialogues for e in exchanges(d, speaker=speaker)]
    return reply_tasks(replies, candidates=candidates, seed=seed, hard=hard)


def reply_tasks(replies: Sequence[Reply], *, candidates: int = 20, seed: int = 0, hard: bool = False) -> list[RankTask]:
    """Each of the replies with distractors from other dialogues among them."""
    rng = random.Random(seed)
    if len({squash(reply.text).lower() for reply in replies}) < candidates * 2:
        raise DataError(
            f"{len(replies)} replies are too few to rank among {candidates}.",
            hint="Take more dialogues, or fewer candidates with --candidates.",
        )
    near = nearest([r.text for r in replies], [r.dialogue for r in replies], HARD_POOL) if hard else None
    tasks = []
    for name, exchange in replies:
        suspects = next(near).tolist() if near else []
        rng.shuffle(suspects)
        others = _distractors(rng, replies, suspects, name, exchange.response.text, candidates - 1)
        truth = rng.randrange(candidates)
        texts = (*others[:truth], exchange.response.text, *others[truth:])
        tasks.append(RankTask(exchange, texts, truth, name))
    return tasks


def shown(exchange: Exchange, whose: Whose, *, revised: bool = False) -> Exchange:
    """The exchange with only those personas a bot may see, in their own words or the revised ones."""
    own = exchange.persona if whose in ("own", "both") else None
    their = exchange.partner if whose in ("their", "both") else None
    return replace(exchange, persona=_worded(own, revised), partner=_worded(their, revised))


def nearest(
    texts: Sequence[str], owners: Sequence[str], count: int, *, block: int = 256
) -> Iterator[NDArray[np.int64]]:
    """For each text the places of the most similar ones of other owners by tf-idf, a block of rows at a time.

    Texts without a word in common do not count as similar, those with the same words not as others. In large sets the
    words of every tenth text ("i", "the") do not count: they tell little and cost most.
    """
    common = MAX_SHARE if len(texts) > FEW else 1.0
    vectorizer = TfidfVectorizer(analyzer=words, sublinear_tf=True, max_df=common, dtype=np.float32)
    try:
        vectors = vectorizer.fit_transform(texts)
    except ValueError:  # not a single word is left
        raise DataError("These replies have no words to be similar by.", hint="Leave --hard out.") from None
    _, owner = np.unique(np.asarray(owners), return_inverse=True)
    for start in range(0, len(texts), block):
        rows = (vectors[start : start + block] @ vectors.T).tocsr()
        for i in range(rows.shape[0]):
            places, scores = (part[rows.indptr[i] : rows.indptr[i + 1]] for part in (rows.indices, rows.data))
            fair = (owner[places] != owner[start + i]) & (scores < SAME_WORDS)
            places, scores = places[fair], scores[fair]
            if len(places) > count:
                best = np.argpartition(-scores, count)[:count]
                places, scores = places[best], scores[best]
            yield places[np.lexsort((places, -scores))].astype(np.int64)


def _worded(persona: Persona | None, revised: bool) -> Persona | None:
    if persona is None or not revised:
        return persona
    return replace(persona, sentences=persona.revised, revised=()) if persona.revised else None


def _distractors(
    rng: random.Random, pool: Sequence[Reply], first: Sequence[int], dialogue: str, text: str, count: int
) -> list[str]:
    """Different texts from other dialogues; dialogues with few others around fall short of that only with an error.

    Those at the places in `first` come before the ones drawn at random.
    """
    taken = {squash(text).lower()}
    found: list[str] = []
    for attempt in range(1000 * count):
        other = pool[first[attempt] if attempt < len(first) else rng.randrange(len(pool))]
        key = squash(other.text).lower()
        if other.dialogue != dialogue and key not in taken:
            taken.add(key)
            found.append(other.text)
            if len(found) == count:
                return found
    raise DataError(f"Found only {len(found)} replies from other dialogues to set beside one of {dialogue}.")
