"""Features of candidate links: how likely an utterance replies to each earlier one, by itself.

The candidates of an utterance are those of the `window` utterances before it that are near, of a related speaker or
similar, and the utterance itself, which means starting a conversation (Kummerfeld et al. 2019 use the same
convention). Each candidate gets one row of features. Logs are read after the fact, so features may also look ahead: who
addresses whom next says much about now.

In feature names, `my` and `i` refer to the utterance that is being linked, `their` and `they` to the candidate.
Distances in lines count utterances, and are FAR where there is nothing to measure to.

A block of utterances is computed at once, a column at a time: what depends on the past or the future of a user is a
search in sorted arrays (`events`), what counts between two utterances a difference of sums.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tertulia.corpus.chatlogs.encoded_log import CUES, NOBODY, EncodedLog, Floats, Ints
from tertulia.corpus.chatlogs.events import Events, Longs, next_of_same
from tertulia.corpus.chatlogs.similarity import SimilarityBands

FAR = 999.0
"""Stands for never: larger than any distance that is measured."""
MAX_COUNT = 50
"""Counts are capped here: beyond it they say nothing more."""
RATE_LINES = 20
"""How many utterances back the activity of the room is measured."""
NEAR, RECENT, SIMILAR = 15, 6, 0.1
"""Candidates within this many utterances, among a related speaker's last ones, or with this cosine are scored."""
_CUE_NAMES = tuple(name for name, _ in CUES)
PAIR_FEATURES = (
    "is_self lines_apart minutes_apart same_speaker i_address_them i_mention_them they_address_me they_mention_me "
    "same_addressee mentions_my_addressee their_lines_since after_my_last is_my_last my_lines_between "
    "people_between they_were_addressed_since addressed_between cosine shared_idf embedding cosine_rank "
    "shared_idf_is_max embedding_is_max they_address_other last_addressed_by_me last_to_address_me "
    "i_last_addressed_them_ago they_last_addressed_me_ago they_address_me_in i_address_them_in talked_before "
    "their_first_line their_lines_since_join they_are_bot their_words they_speak_in same_minute "
    "others_address_them_in is_last_mention_of_me"
).split()
OWN_FEATURES = (
    "my_last_line_ago my_last_minutes_ago my_first_line my_lines_since_join i_address_somebody my_mentions my_words "
    "i_am_bot max_cosine max_shared_idf max_embedding recent_minutes recent_people my_line_count "
    "last_mention_of_me_ago addressee_last_line_ago i_address_somebody_in i_am_addressed_in i_speak_in "
    "addressee_line_count minutes_of_silence"
).split()
NAMES = (
    *PAIR_FEATURES,
    *OWN_FEATURES,
    *(f"my_{cue}" for cue in _CUE_NAMES),
    *(f"their_{cue}" for cue in _CUE_NAMES),
)
"""The columns of the feature matrix, in order."""
_COLUMN = {name: k for k, name in enumerate(NAMES)}
_BLOCK = 256
"""Utterances that are computed at once."""


@dataclass(frozen=True, slots=True)
class CandidateBlock:
    """The candidates of some utterances and their features; the rows of an utterance are consecutive."""

    indices: Ints
    """(utterances,) indices of the utterances in the encoded log."""
    sizes: Ints
    """(utterances,): how many rows each has."""
    candidates: Ints
    """(rows,) indices, of each utterance from the nearest back, the utterance itself last."""
    features: Floats
    """(rows, NAMES)"""


@dataclass(frozen=True, slots=True)
class LogHistory:
    """A log with who spoke, addressed and mentioned whom, and where."""

    log: EncodedLog
    similarity: SimilarityBands
    lookahead: int
    users: int
    """More than any user's id."""
    spoken: Events
    """Utterances by speaker."""
    addressed: Events
    """Utterances by addressee."""
    addresses: Events
    """Utterances that address somebody, by speaker."""
    exchanges: Events
    """Utterances by speaker and addressee (`pair`)."""
    mentions: Events
    """Utterances by every user they mention."""
    ordinal: Longs
    """How many utterances the speaker had made before each."""
    addressed_before: Longs
    """How often the speaker had been addressed before each."""
    previous_own: Longs
    """The speaker's previous utterance, or NOBODY."""
    last_addressee: Longs
    """Whom the speaker addressed last before each, or NOBODY."""
    next_own: Longs
    """The speaker's next utterance; the log's length if there is none."""
    recent_until: Longs
    """Up to which utterance each is among the speaker's last RECENT."""
    address_count: Longs
    """(utterances + 1,): how many of the utterances before address somebody."""
    word_counts: Ints

    def pair(self, speaker: Longs | Ints, addressee: Longs | Ints) -> Longs:
        """The key of an exchange; addressing nobody has a key that no exchange has."""
        return np.where(addressee == NOBODY, -1, speaker.astype(np.int64) * self.users + addressee)


def read_history(log: EncodedLog, similarity: SimilarityBands, *, lookahead: int) -> LogHistory:
    """Index the events of a log."""
    n, every = len(log), np.arange(len(log))
    users = 1 + int(max(log.speaker.max(initial=0), log.addressee.max(initial=0)))
    speaker, addressee = log.speaker.astype(np.int64), log.addressee.astype(np.int64)
    addressing = np.flatnonzero(addressee != NOBODY)
    mentions = [(user, i) for i, named in enumerate(log.mentioned) for user in named]
    mentioned, mentioned_at = zip(*mentions, strict=True) if mentions else ((), ())
    spoken = Events(speaker, every, length=n)
    addressed = Events(addressee[addressing], addressing, length=n)
    addresses = Events(speaker[addressing], addressing, length=n)
    last_addressing = addresses.last_before(speaker, every)
    return LogHistory(
        log=log,
        similarity=similarity,
        lookahead=lookahead,
        users=users,
        spoken=spoken,
        addressed=addressed,
        addresses=addresses,
        exchanges=Events(speaker[addressing] * users + addressee[addressing], addressing, length=n),
        mentions=Events(mentioned, mentioned_at, length=n),
        ordinal=spoken.count_before(speaker, every),
        addressed_before=addressed.count_before(speaker, every),
        previous_own=spoken.last_before(speaker, every),
        last_addressee=np.where(last_addressing == NOBODY, NOBODY, addressee[last_addressing]) if n else every,
        next_own=next_of_same(speaker),
        recent_until=next_of_same(speaker, steps=RECENT),
        address_count=np.concatenate(([0], np.cumsum(addressee != NOBODY))),
        word_counts=np.array([len(words) for words in log.words], np.int32),
    )


def candidate_blocks(
    history: LogHistory, *, window: int, indices: Collection[int] | None = None
) -> Iterator[CandidateBlock]:
    """The candidates of every utterance of a log (or only of the given indices), in order, block by block."""
    wanted = np.arange(len(history.log)) if indices is None else np.array(sorted(indices), np.int64)
    for start in range(0, len(wanted), _BLOCK):
        yield _candidate_block(history, wanted[start : start + _BLOCK], window)


def _candidate_block(history: LogHistory, block: Longs, window: int) -> CandidateBlock:
    plausible, between = _plausible(history, block, window)
    rows, columns = np.nonzero(plausible)  # row by row, from the nearest back, the utterance itself last
    i = block[rows]
    is_self = columns == window
    j = np.where(is_self, i, i - 1 - columns)
    named = _NamedColumns(len(rows))
    _fill_pairs(named, history, i, j)
    _fill_addresses(named, history, i, j)
    _fill_lookahead(named, history, i, j)
    named["people_between"] = between[rows, np.minimum(columns, window - 1)]
    _fill_similarity(named, history.similarity, block, rows, np.minimum(columns, window - 1))
    features = named.values
    own_start, cues_start = len(PAIR_FEATURES), len(PAIR_FEATURES) + len(OWN_FEATURES)
    their_cues = cues_start + len(CUES)
    features[own_start:cues_start] = _own_features(history, block, window)[:, rows]
    features[cues_start:their_cues] = history.log.cues[i].T
    features[their_cues:] = history.log.cues[j].T
    features[:own_start, is_self] = 0
    features[their_cues:, is_self] = 0
    named["is_self"] = is_self
    sizes = np.bincount(rows, minlength=len(block)).astype(np.int32)
    return CandidateBlock(block.astype(np.int32), sizes, j.astype(np.int32), np.ascontiguousarray(features.T))


def _plausible(history: LogHistory, block: Longs, window: int) -> tuple[NDArray[np.bool_], Longs]:
    """(utterances, window + 1): the candidates worth scoring, near ones, recent ones of a related speaker, and similar
    ones, with the utterance itself last. Also (utterances, window): how many people speak between.

    On #ubuntu this leaves a quarter of the candidates and loses one true link in 2,400.
    """
    i, j = block[:, None], block[:, None] - 1 - np.arange(window)
    exists = j >= 0
    j = np.maximum(j, 0)
    latest = (history.next_own[j] >= i) & exists  # the last of their speakers before the utterance
    between = np.cumsum(latest, axis=1) - latest
    plausible = exists & ((i - j <= NEAR) | (history.similarity.cosine[block] > SIMILAR))
    rows, columns = np.nonzero(exists & ~plausible & (history.recent_until[j] >= i))
    plausible[rows, columns] = _related(history, block[rows], j[rows, columns])
    return np.concatenate((plausible, np.ones((len(block), 1), np.bool_)), axis=1), between


def _related(history: LogHistory, i: Longs, j: Longs) -> NDArray[np.bool_]:
    """Whether the speakers are the same, or one named the other here, or addressed the other before."""
    me, they = history.log.speaker[i], history.log.speaker[j]
    related: NDArray[np.bool_] = (me == they) | history.mentions.holds(they, i) | history.mentions.holds(me, j)
    rest = np.flatnonzero(~related)
    mine = history.exchanges.last_before(history.pair(me[rest], they[rest]), i[rest])
    theirs = history.exchanges.last_before(history.pair(they[rest], me[rest]), i[rest])
    related[rest] = (mine != NOBODY) | (theirs != NOBODY)
    return related


def _own_features(history: LogHistory, i: Longs, window: int) -> Floats:
    """(OWN_FEATURES, utterances): the same for all candidates; trees combine them with those of the pair."""
    log, similarity = history.log, history.similarity
    me, addressee = log.speaker[i], log.addressee[i]
    minutes, my_last = log.minutes, history.previous_own[i]
    recent = np.minimum(np.minimum(i, window), RATE_LINES)
    back = i[:, None] - 1 - np.arange(min(window, RATE_LINES))
    own: dict[str, NDArray[Any]] = {
        "my_last_line_ago": _ago(i, my_last),
        "my_last_minutes_ago": np.where(my_last != NOBODY, np.minimum(minutes[i] - minutes[my_last], FAR), FAR),
        "my_first_line": my_last == NOBODY,
        "my_lines_since_join": _ago(i, log.joined[i]),
        "i_address_somebody": addressee != NOBODY,
        "my_mentions": np.array([len(log.mentioned[k]) for k in i.tolist()]),
        "my_words": history.word_counts[i],
        "i_am_bot": log.is_bot[i],
        "max_cosine": similarity.cosine[i].max(axis=1, initial=0),
        "max_shared_idf": similarity.shared_idf[i].max(axis=1, initial=0),
        "max_embedding": similarity.embedding[i].max(axis=1, initial=0),
        "recent_minutes": np.where(recent > 0, np.minimum(minutes[i] - minutes[i - recent], FAR), FAR),
        "recent_people": ((history.next_own[np.maximum(back, 0)] >= i[:, None]) & (back >= 0)).sum(axis=1),
        "my_line_count": np.minimum(history.ordinal[i], MAX_COUNT),
        "last_mention_of_me_ago": _ago(i, history.mentions.last_before(me, i)),
        "addressee_last_line_ago": _ago(i, history.spoken.last_before(addressee, i)),
        "i_address_somebody_in": _soon(history, i, history.addresses.next_after(me, i)),
        "i_am_addressed_in": _soon(history, i, history.addressed.next_after(me, i)),
        "i_speak_in": _soon(history, i, history.spoken.next_after(me, i)),
        "addressee_line_count": np.where(
            addressee != NOBODY, np.minimum(history.spoken.count_before(addressee, i), MAX_COUNT), -1
        ),
        "minutes_of_silence": np.where(i > 0, np.minimum(minutes[i] - minutes[i - 1], FAR), FAR),
    }
    return np.array([own[name] for name in OWN_FEATURES], np.float32)


def _ago(i: Longs, earlier: Longs | Ints) -> NDArray[Any]:
    return np.where(earlier != NOBODY, i - earlier, FAR)


def _soon(history: LogHistory, i: Longs, later: Longs) -> NDArray[Any]:
    """In how many utterances something happens, if within those that the features look ahead to."""
    return np.where((later != NOBODY) & (later - i <= history.lookahead), later - i, FAR)


def _fill_pairs(columns: "_NamedColumns", history: LogHistory, i: Longs, j: Longs) -> None:
    """Features of the utterance i and the candidate j."""
    log = history.log
    me, they, my_last = log.speaker[i], log.speaker[j], history.previous_own[i]
    columns["lines_apart"] = i - j
    columns["minutes_apart"] = np.minimum(log.minutes[i] - log.minutes[j], FAR)
    columns["same_minute"] = log.minutes[i] == log.minutes[j]
    columns["same_speaker"] = they == me
    lines_since = history.spoken.count_before(they, i) - 1 - history.ordinal[j]
    columns["their_lines_since"] = np.minimum(lines_since, MAX_COUNT)
    columns["after_my_last"] = np.where(my_last != NOBODY, np.clip(j - my_last, -MAX_COUNT, MAX_COUNT), 99)
    columns["is_my_last"] = j == my_last
    columns["my_lines_between"] = history.ordinal[i] - history.spoken.count_before(me, j + 1)
    columns["they_were_addressed_since"] = history.addressed.count_before(they, i) - history.addressed_before[j]
    columns["addressed_between"] = history.address_count[i] - history.address_count[np.minimum(j + 1, i)]
    columns["their_first_line"] = history.ordinal[j] == 0
    columns["their_lines_since_join"] = _ago(j, log.joined[j])
    columns["they_are_bot"] = log.is_bot[j]
    columns["their_words"] = history.word_counts[j]


def _fill_addresses(columns: "_NamedColumns", history: LogHistory, i: Longs, j: Longs) -> None:
    """Who addresses or mentions whom, in the two utterances and before them."""
    log = history.log
    me, they, my_addressee, addressee = log.speaker[i], log.speaker[j], log.addressee[i], log.addressee[j]
    i_addressed_them = history.exchanges.last_before(history.pair(me, they), i)
    they_addressed_me = history.exchanges.last_before(history.pair(they, me), i)
    columns["i_address_them"] = they == my_addressee
    columns["i_mention_them"] = history.mentions.holds(they, i)
    columns["they_address_me"] = addressee == me
    columns["they_mention_me"] = history.mentions.holds(me, j)
    columns["same_addressee"] = (addressee == my_addressee) & (my_addressee != NOBODY)
    columns["mentions_my_addressee"] = history.mentions.holds(my_addressee, j)
    columns["they_address_other"] = (addressee != NOBODY) & (addressee != me) & (they != me)
    columns["last_addressed_by_me"] = they == history.last_addressee[i]
    columns["last_to_address_me"] = j == history.addressed.last_before(me, i)
    columns["is_last_mention_of_me"] = j == history.mentions.last_before(me, i)
    columns["i_last_addressed_them_ago"] = _ago(i, i_addressed_them)
    columns["they_last_addressed_me_ago"] = _ago(i, they_addressed_me)
    columns["talked_before"] = (i_addressed_them != NOBODY).astype(np.float32) + (they_addressed_me != NOBODY)


def _fill_similarity(
    columns: "_NamedColumns", similarity: SimilarityBands, block: Longs, rows: Longs, at: Longs
) -> None:
    """How similar the two utterances are, in absolute terms and relative to the other candidates."""
    cosine, shared_idf = similarity.cosine[block], similarity.shared_idf[block]
    embedding = similarity.embedding[block]
    missing = np.arange(cosine.shape[1]) >= block[:, None]  # before the start of the log
    columns["cosine"], columns["shared_idf"] = cosine[rows, at], shared_idf[rows, at]
    columns["embedding"] = embedding[rows, at]
    columns["cosine_rank"] = ranks(np.where(missing, -np.inf, cosine))[rows, at]
    for name, values in (("shared_idf_is_max", shared_idf), ("embedding_is_max", embedding)):
        highest = np.where(missing, -np.inf, values).max(axis=1, keepdims=True)
        columns[name] = (values >= np.maximum(highest, np.float32(1e-6)))[rows, at]


def _fill_lookahead(columns: "_NamedColumns", history: LogHistory, i: Longs, j: Longs) -> None:
    """In how many lines the candidates' speakers speak, and who addresses whom, after the utterance."""
    me, they = history.log.speaker[i], history.log.speaker[j]
    columns["they_address_me_in"] = _soon(history, i, history.exchanges.next_after(history.pair(they, me), i))
    columns["i_address_them_in"] = _soon(history, i, history.exchanges.next_after(history.pair(me, they), i))
    columns["they_speak_in"] = _soon(history, i, history.spoken.next_after(they, i))
    by_another = history.addressed.next_after(they, i)
    mine = np.flatnonzero(_is_mine(history, i, me, by_another))
    while len(mine):  # I address them myself: look further
        by_another[mine] = history.addressed.next_after(they[mine], by_another[mine])
        mine = mine[_is_mine(history, i[mine], me[mine], by_another[mine])]
    columns["others_address_them_in"] = _soon(history, i, by_another)


def _is_mine(history: LogHistory, i: Longs, me: Ints, later: Longs) -> NDArray[np.bool_]:
    """Whether a later utterance is the speaker's own, among those that are looked ahead to."""
    is_mine: NDArray[np.bool_] = (
        (later != NOBODY) & (later - i <= history.lookahead) & (history.log.speaker[later] == me)
    )
    return is_mine


def ranks(values: Floats) -> Longs:
    """The rank of each value in its row, 0 for the largest; ties keep their order.

    >>> ranks(np.array([0.5, 2.0, 0.5], np.float32)).tolist()
    [1, 0, 2]
    """
    order = np.argsort(-values, axis=-1, kind="stable")
    positions = np.broadcast_to(np.arange(values.shape[-1]), values.shape)
    result = np.empty(values.shape, np.int64)
    np.put_along_axis(result, order, positions, axis=-1)
    return result


class _NamedColumns:
    """Assigns to features by name; they are kept as (NAMES, rows), so that each is written in one piece."""

    def __init__(self, rows: int) -> None:
        self.values = np.zeros((len(NAMES), rows), np.float32)

    def __setitem__(self, name: str, values: NDArray[Any]) -> None:
        self.values[_COLUMN[name]] = values
