"""The engine from file to folder agrees with the reference implementation on 20,000 generated messages."""

from pathlib import Path

import pytest

from tertulia.core.dialogue import Dialogue, Message
from tertulia.corpus.load import load_dialogues
from tertulia.corpus.mine import MineConfig, MineOutcome, marked, mine
from tertulia.corpus.mining.pairs import read_pairs, read_whole, shards
from tertulia.corpus.subwords import SubwordCounter
from tertulia.corpus.trees import Mined, mine_trees

from .conftest import config


@pytest.fixture(scope="module")
def mined(forum: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[MineConfig, MineOutcome]:
    settings = config(forum, tmp_path_factory.mktemp("whole"), dialogues=True)
    return settings, mine(settings)


@pytest.fixture(scope="module")
def reference(messages: list[Message], mined: tuple[MineConfig, MineOutcome]) -> Mined:
    counter = SubwordCounter((mined[0].out / "subwords.model").read_bytes())
    return mine_trees(messages, mined[0], subwords=counter, unsafe=marked)


def by_id(dialogues: list[Dialogue] | tuple[Dialogue, ...]) -> list[Dialogue]:
    return sorted(dialogues, key=lambda d: d.id)


def test_pairs_and_funnel_agree_with_the_reference(mined: tuple[MineConfig, MineOutcome], reference: Mined) -> None:
    settings, outcome = mined
    assert outcome.funnel == reference.funnel
    assert outcome.funnel.pairs > 5000
    assert all(outcome.funnel.removed[r] for r in ("no parent", "bot", "url", "letters", "repeated", "overlap"))
    assert by_id(list(read_pairs(settings.out))) == by_id(reference.pairs)


def test_the_optional_dialogue_file_has_the_same_pairs(mined: tuple[MineConfig, MineOutcome]) -> None:
    settings, outcome = mined
    assert outcome.pairs == settings.out / "pairs.parquet"
    assert list(load_dialogues(outcome.pairs)) == list(read_pairs(settings.out))


def test_no_thread_is_split_over_shards(mined: tuple[MineConfig, MineOutcome]) -> None:
    seen: dict[str, Path] = {}
    files = shards(mined[0].out)
    assert len(files) == 8
    sizes = []
    for number, shard in enumerate(files):
        threads = {row["thread"] for row in _table(shard)}
        assert not threads & set(seen), number
        seen |= dict.fromkeys(threads, shard)
        sizes.append(len(threads))
    assert min(sizes) > 0.5 * max(sizes)


def _table(shard: Path) -> list[dict[str, str]]:
    import pyarrow.parquet as pq

    rows: list[dict[str, str]] = pq.read_table(shard, columns=["thread"]).to_pylist()
    return rows


def test_complete_dialogues_run_from_root_to_leaf(mined: tuple[MineConfig, MineOutcome], reference: Mined) -> None:
    """Derived from the pairs: responses are kept messages, and those in no context are leaves."""
    parents: dict[str, str] = {}
    texts: dict[str, str] = {}
    for pair in reference.pairs:
        path = [turn.source[0] for turn in pair.turns]
        parents |= dict(zip(path[1:], path[:-1], strict=True))
        texts |= {turn.source[0]: turn.text for turn in pair.turns}
    expected = {}
    for leaf in set(parents) - set(parents.values()):
        path = [leaf]
        while path[-1] in parents:
            path.append(parents[path[-1]])
        expected[leaf] = [(name, texts[name]) for name in reversed(path)]
    dialogues = {d.id: [(t.source[0], t.text) for t in d.turns] for d in read_whole(mined[0].out)}
    assert dialogues == expected
    assert len(dialogues) == mined[1].whole > 1000
    assert max(map(len, dialogues.values())) > 8
