"""The learned disentangler on the sample's room: what its parts see, and what becomes of a model on disk."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.core.errors import DataError
from tertulia.corpus.rooms import pairs
from tertulia.corpus.rooms.address import address, aliases, mentions
from tertulia.corpus.rooms.boost import Choices, Trees, fit
from tertulia.corpus.rooms.disentangler import FIRST, Disentangler, Reach
from tertulia.corpus.rooms.folder import load_disentangler, read_manifest
from tertulia.corpus.rooms.gold import read_gold
from tertulia.corpus.rooms.likeness import Lexicon, count_idf, likeness
from tertulia.corpus.rooms.line import RoomLine
from tertulia.corpus.rooms.measure import agreement
from tertulia.corpus.rooms.vectors import parse_vectors, read_vectors, save_vectors
from tertulia.corpus.rooms.view import NOBODY, view

ROOM = (
    RoomLine(0, 0, "ann", "how do i mount a disk?"),
    RoomLine(1, 60, "", "cyd_ is now known as cyd", "system"),
    RoomLine(2, 60, "bob", "anyone for tea"),
    RoomLine(3, 120, "cyd", "ann: mount the disk with sudo"),
    RoomLine(4, 120, "ann", "cyd, thanks"),
)
COLUMN = {name: k for k, name in enumerate(pairs.NAMES)}


def rows_of(lines: Sequence[RoomLine]) -> list[pairs.Row]:
    seen = view(lines)
    return list(pairs.rows(seen, likeness(seen.words, Lexicon({}, 2.0), window=10), window=10, ahead=5))


def test_a_view_leaves_system_lines_out_and_knows_who_is_addressed() -> None:
    seen = view(ROOM)
    ann, bob, cyd, _ = seen.speaker.tolist()
    assert seen.numbers.tolist() == [0, 2, 3, 4]
    assert len({ann, bob, cyd}) == 3
    assert seen.addressee.tolist() == [NOBODY, NOBODY, ann, cyd]
    assert seen.words[2] == ("mount", "the", "disk", "with", "sudo")


def test_pairs_say_who_turns_to_whom() -> None:
    row = rows_of(ROOM)[2]
    assert row.candidates.tolist() == [1, 0, 2]
    bob, ann, itself = row.figures
    assert (ann[COLUMN["i_address_them"]], bob[COLUMN["i_address_them"]]) == (1, 0)
    assert ann[COLUMN["cosine"]] > bob[COLUMN["cosine"]] == 0
    assert (ann[COLUMN["they_address_me_next"]], bob[COLUMN["they_address_me_next"]]) == (1, pairs.FAR)
    assert (ann[COLUMN["minutes"]], ann[COLUMN["lines"]], ann[COLUMN["their_question"]]) == (2, 2, 1)
    assert itself[COLUMN["is_self"]] == 1


def test_only_wanted_places_get_rows_and_those_are_the_same() -> None:
    seen = view(read_gold("sample")[0].log.lines)
    alike = likeness(seen.words, Lexicon({}, 2.0), window=30)
    every = list(pairs.rows(seen, alike, window=30, ahead=5))
    (some,) = pairs.rows(seen, alike, window=30, ahead=5, wanted={100})
    assert len(every) == len(seen)
    assert np.array_equal(some.figures, every[100].figures)


def test_likeness_is_that_of_the_whole_product() -> None:
    """Worked out in blocks; here once more in one piece."""
    texts = view(read_gold("sample")[0].log.lines).words
    idf, unknown = count_idf(texts)
    vectors = {word: np.array([len(word), 1.0], np.float32) for word in idf}
    found = likeness(texts, Lexicon(idf, unknown, vectors), window=40)
    i, j = 300, 290
    shared = sum(idf.get(word, unknown) for word in set(texts[i]) & set(texts[j]))
    norm = [np.sqrt(sum(idf.get(w, unknown) ** 2 for w in set(texts[k]))) for k in (i, j)]
    squares = sum(idf.get(w, unknown) ** 2 for w in set(texts[i]) & set(texts[j]))
    assert found.shared[i, i - j - 1] == pytest.approx(shared, rel=1e-4)
    assert found.cosine[i, i - j - 1] == pytest.approx(squares / (norm[0] * norm[1]), rel=1e-4)
    assert found.cosine[5, 5:].tolist() == [0] * 35
    assert found.meaning.max() == pytest.approx(1)


def test_nicks_that_changed_are_one_person() -> None:
    assert aliases(ROOM)["cyd"] == "cyd_"
    assert mentions("ask cyd_ or old bob22", {"cyd_", "old", "bob22"}) == {"cyd_", "bob22"}
    assert address("@Bob22, hi", {"bob22"}) == ("bob22", "hi")
    assert address("", {"x"}) is None


def test_trees_learn_which_candidate_wins() -> None:
    rng = np.random.default_rng(0)
    figures = rng.random((3000, 2)).astype(np.float32)
    sizes = np.full(1000, 3, np.int32)
    right = (figures[:, 0].reshape(-1, 3) == figures[:, 0].reshape(-1, 3).max(axis=1, keepdims=True)).ravel()
    options = {"trees": 30, "leaves": 8, "rate": 0.3, "min_rows": 5, "share": 1.0, "seed": 1}
    text = fit(Choices(figures, sizes, right), names=["good", "noise"], **options)  # type: ignore[arg-type]
    model = Trees(text)
    best = model.scores(figures).reshape(-1, 3).argmax(axis=1)
    assert (best == right.reshape(-1, 3).argmax(axis=1)).mean() > 0.9
    assert model.names == ("good", "noise")
    assert fit(Choices(figures, sizes, right), names=["good", "noise"], **options) == text  # type: ignore[arg-type]


def test_a_model_read_back_links_the_same(sample_model: Path) -> None:
    gold = read_gold("sample")[-1]
    one, other = load_disentangler(sample_model), load_disentangler(sample_model)
    links = one.links(gold.log.lines)
    assert links == other.links(gold.log.lines)
    assert set(links) == {line.number for line in gold.log.lines}
    assert all(max(earlier) <= line for line, earlier in links.items())
    assert all(links[line.number] == {line.number} for line in gold.log.lines if line.kind == "system")
    found = agreement([links], [gold.links])
    assert found.links is not None
    assert found.links.f > 85


def test_what_the_source_says_is_believed(sample_model: Path) -> None:
    lines = (*ROOM, RoomLine(5, 180, "bob", "with sugar", answers=2), RoomLine(6, 180, "ann", "no", answers=1))
    links = load_disentangler(sample_model).links(lines)
    assert links[5] == {2}
    assert links[6] != {1}, "a system line cannot be answered"


def test_a_part_of_a_log_can_be_asked_for(sample_model: Path) -> None:
    gold = read_gold("sample")[-1]
    model = load_disentangler(sample_model)
    wanted = range(100, 150)
    some = model.links(gold.log.lines, wanted)
    assert list(some) == list(wanted)
    every = model.links(gold.log.lines)
    assert sum(some[n] == every[n] for n in wanted) >= 48


@pytest.mark.parametrize("name", ["first.0.txt", "idf.json", "manifest.json"])
def test_damage_is_found(sample_model: Path, tmp_path: Path, name: str) -> None:
    for file in sample_model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    load_disentangler(tmp_path)
    broken = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(broken[: len(broken) // 2])
    with pytest.raises(DataError, match="damaged"):
        load_disentangler(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(DataError, match=f"{name} is missing"):
        load_disentangler(tmp_path)


def test_other_columns_and_formats_are_refused(sample_model: Path, tmp_path: Path) -> None:
    for file in sample_model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    manifest = read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | {"format": 99}))
    with pytest.raises(DataError, match="format 99"):
        load_disentangler(tmp_path)


def test_a_model_without_a_second_pass() -> None:
    figures = np.zeros((4, len(FIRST)), np.float32)
    figures[[1, 3], COLUMN["is_self"]] = 1
    choices = Choices(np.tile(figures, (50, 1)), np.full(100, 2, np.int32), np.tile([True, False], 100))
    text = fit(choices, names=FIRST, trees=5, leaves=4, rate=0.3, min_rows=5, share=1.0, seed=0)
    model = Disentangler(Reach(window=1), Lexicon({}, 2.0), (Trees(text),))
    assert model.links(ROOM)[0] == {0}
    assert model.links(ROOM)[2] == {0}
    assert model.links(()) == {}


def test_vectors_are_read_and_written(tmp_path: Path) -> None:
    file = tmp_path / "glove.txt"
    file.write_text("the 0.1 0.2\ntea 1 2\n")
    vectors = read_vectors(file, {"tea", "milk"})
    assert vectors["tea"].tolist() == [1, 2]
    save_vectors(vectors, tmp_path / "v.npz")
    assert read_vectors(tmp_path / "v.npz", {"tea"})["tea"].tolist() == [1, 2]
    with pytest.raises(DataError, match="none of the words"):
        read_vectors(file, {"milk"})
    with pytest.raises(DataError, match="line 2"):
        parse_vectors(["a 1 2", "b 1"], {"a", "b"})
    with pytest.raises(DataError, match="cannot be read"):
        read_vectors(tmp_path / "none.npz", {"tea"})


talk = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["a: hm", "bb?", "", "c, thanks http://x"])), max_size=9
)


@settings(max_examples=30, deadline=None)
@given(talk)
def test_any_log_gets_finite_figures(said: list[tuple[str, str]]) -> None:
    lines = [RoomLine(i, 30.0 * i, nick, text) for i, (nick, text) in enumerate(said)]
    for row in rows_of(lines):
        assert np.isfinite(row.figures).all()
        assert row.candidates[-1] == row.place
