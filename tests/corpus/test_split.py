import random
from collections import Counter

import pytest

from tertulia.core.config import validate
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.errors import ConfigError, DataError
from tertulia.corpus.split import SplitConfig, author_overlap, split_dialogues


def corpus(n: int = 200, *, authors: int = 400, threads: int | None = None) -> list[Dialogue]:
    rng = random.Random(n)
    return [
        Dialogue(
            f"d{i}",
            tuple(Turn(f"u{rng.randrange(authors)}", " ".join(str(rng.random()) for _ in range(6))) for _ in range(4)),
            meta={"time": float((i * 7919) % n)} | ({"thread": f"t{i % threads}"} if threads else {}),
        )
        for i in range(n)
    ]


@pytest.mark.parametrize("by", ["random", "time", "author"])
def test_no_dialogue_is_lost_or_duplicated(by):
    dialogues = corpus()
    outcome = split_dialogues(dialogues, SplitConfig(by=by))
    assert Counter(d.id for part in outcome.parts.values() for d in part) == Counter(d.id for d in dialogues)


def test_splits_have_the_requested_shares():
    outcome = split_dialogues(corpus(1000), SplitConfig(shares=(0.6, 0.3, 0.1)))
    assert outcome.counts == {"train": 600, "valid": 300, "test": 100}
    assert split_dialogues(corpus(100), SplitConfig(shares=(1, 0, 0))).counts == {"train": 100, "valid": 0, "test": 0}


def test_one_conversation_stays_in_one_split():
    outcome = split_dialogues(corpus(600, threads=40), SplitConfig(seed=3))
    split_of = {}
    for name, part in outcome.parts.items():
        for dialogue in part:
            assert split_of.setdefault(dialogue.meta["thread"], name) == name
    assert len(set(split_of.values())) == 3
    assert outcome.largest_group == 15


def test_by_time_the_earliest_dialogues_are_for_training():
    parts = split_dialogues(corpus(), SplitConfig(by="time")).parts
    latest = max(d.meta["time"] for d in parts["train"])
    assert latest < min(d.meta["time"] for d in parts["valid"])
    assert max(d.meta["time"] for d in parts["valid"]) < min(d.meta["time"] for d in parts["test"])


def test_splitting_by_time_needs_times():
    with pytest.raises(DataError, match="1 dialogues have no time"):
        split_dialogues([*corpus(5), Dialogue("x", ())], SplitConfig(by="time"))


def test_by_author_no_speaker_is_in_two_splits():
    dialogues = corpus(120, authors=3000)
    assert author_overlap(split_dialogues(dialogues, SplitConfig(by="author")).parts) == 0
    assert author_overlap(split_dialogues(dialogues, SplitConfig(by="random")).parts) > 0


def test_the_split_depends_on_the_seed():
    dialogues = corpus()
    first, again, other = (split_dialogues(dialogues, SplitConfig(seed=s)).parts["test"] for s in (1, 1, 2))
    assert first == again != other
    assert split_dialogues(dialogues[::-1], SplitConfig(seed=1)).counts == {"train": 160, "valid": 20, "test": 20}


def test_near_duplicates_are_counted_or_dropped():
    dialogues = corpus(300)
    copies = [Dialogue(f"copy{i}", dialogues[i].turns) for i in range(300)]
    outcome = split_dialogues(dialogues + copies, SplitConfig())
    assert outcome.near_duplicates["valid"] > 10
    clean = split_dialogues(dialogues + copies, SplitConfig(drop_near=True))
    texts = [d.turns for d in clean.parts["train"]]
    assert not any(d.turns in texts for name in ("valid", "test") for d in clean.parts[name])


def test_no_dialogues_and_bad_shares_are_errors():
    with pytest.raises(DataError):
        split_dialogues([], SplitConfig())
    with pytest.raises(ConfigError, match="add up to 1"):
        validate(SplitConfig, {"shares": (0.5, 0.1, 0.1)}, where="here")
