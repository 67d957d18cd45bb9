"""The learned disentangler on the sample's chat room: its features, its links, and a model on disk."""

import json
import random
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.core.errors import DataError
from tertulia.corpus.chatlogs import pair_features
from tertulia.corpus.chatlogs.boosted_trees import (
    PROBE_TREES,
    BoostedTrees,
    LabelledCandidates,
    fit_trees,
    hopeful_rows,
    softmax,
)
from tertulia.corpus.chatlogs.checkpoint import load_disentangler, save_disentangler
from tertulia.corpus.chatlogs.cluster_features import LinkPredictions, cluster_features, cluster_predictions
from tertulia.corpus.chatlogs.disentangler import (
    FIRST_FEATURES,
    CandidateWindow,
    Disentangler,
    ScoredCandidates,
    best_links,
)
from tertulia.corpus.chatlogs.encoded_log import NOBODY, EncodedLog, encode_log
from tertulia.corpus.chatlogs.evaluation import evaluate_links
from tertulia.corpus.chatlogs.gold import clusters_of, read_gold
from tertulia.corpus.chatlogs.log import LogLine
from tertulia.corpus.chatlogs.nicks import aliases, mentions, parse_address
from tertulia.corpus.chatlogs.pair_features import FAR, CandidateBlock, candidate_blocks, read_history
from tertulia.corpus.chatlogs.similarity import IdfTable, count_idf, similarity_bands

from . import reference_features as reference

LINES = (
    LogLine(0, 0, "ann", "how do i mount a disk?"),
    LogLine(1, 60, "", "cyd_ is now known as cyd", "system"),
    LogLine(2, 60, "bob", "anyone for tea"),
    LogLine(3, 120, "cyd", "ann: mount the disk with sudo"),
    LogLine(4, 120, "ann", "cyd, thanks"),
)
COLUMN = {name: k for k, name in enumerate(pair_features.NAMES)}
IDF = IdfTable({}, 2.0)


def block_of(log: EncodedLog, *, window: int = 10, indices: Collection[int] | None = None) -> CandidateBlock:
    history = read_history(log, similarity_bands(log.words, IDF, window=window), lookahead=5)
    (block,) = candidate_blocks(history, window=window, indices=indices)
    return block


def test_an_encoded_log_has_addressees_and_no_system_lines() -> None:
    log = encode_log(LINES)
    ann, bob, cyd, _ = log.speaker.tolist()
    assert log.numbers.tolist() == [0, 2, 3, 4]
    assert len({ann, bob, cyd}) == 3
    assert log.addressee.tolist() == [NOBODY, NOBODY, ann, cyd]
    assert log.words[2] == ("mount", "the", "disk", "with", "sudo")


def test_pair_features_say_who_addresses_whom() -> None:
    block = block_of(encode_log(LINES))
    assert block.sizes.tolist() == [1, 2, 3, 4]
    assert block.candidates[3:6].tolist() == [1, 0, 2]
    bob, ann, itself = block.features[3:6]
    assert (ann[COLUMN["i_address_them"]], bob[COLUMN["i_address_them"]]) == (1, 0)
    assert ann[COLUMN["cosine"]] > bob[COLUMN["cosine"]] == 0
    assert (ann[COLUMN["they_address_me_in"]], bob[COLUMN["they_address_me_in"]]) == (1, FAR)
    assert (ann[COLUMN["minutes_apart"]], ann[COLUMN["lines_apart"]], ann[COLUMN["their_question"]]) == (2, 2, 1)
    assert itself[COLUMN["is_self"]] == 1


def test_features_do_not_depend_on_which_indices_are_requested() -> None:
    log = encode_log(read_gold("sample")[0].log.lines[:200])
    every, single = block_of(log, window=30), block_of(log, window=30, indices={100})
    start = int(every.sizes[:100].sum())
    assert len(every.indices) == len(log)
    assert np.array_equal(single.features, every.features[start : start + int(every.sizes[100])])


def busy_room(seed: int) -> list[LogLine]:
    """Twelve people who address and mention each other, answer themselves, join, change their nicks, and are silent."""
    rng = random.Random(seed)
    lines, words = [], "disk mount sudo tea boot kernel you it thanks how yes".split()
    time = 0.0
    for number in range(400):
        time += rng.choice((0, 0, 0, 20, 60, 4000 if rng.random() < 0.02 else 5))
        nick = f"n{min(int(rng.expovariate(0.3)), 11)}{'bot' if rng.random() < 0.02 else ''}"
        named = "".join(f"n{rng.randrange(12)}{rng.choice((': ', ', ', ' '))}" for _ in range(rng.choice((0, 0, 1, 2))))
        if rng.random() < 0.05:
            lines.append(LogLine(number, time, "", f"{nick} has joined #room", "system"))
        elif rng.random() < 0.02:
            lines.append(LogLine(number, time, "", f"{nick} is now known as n{rng.randrange(12)}x", "system"))
        else:
            lines.append(LogLine(number, time, nick, named + " ".join(rng.choices(words, k=rng.randrange(8)))))
    return lines


@pytest.mark.parametrize(("seed", "window", "lookahead"), [(0, 100, 20), (1, 7, 3), (2, 30, 0)])
def test_features_of_blocks_are_those_of_single_lines(seed: int, window: int, lookahead: int) -> None:
    """All features of both passes, bit by bit, against a slow implementation that walks through the log."""
    log = encode_log(busy_room(seed))
    idf, unseen = count_idf(log.words)
    vectors = {word: np.array([len(word), 1.0, ord(word[0])], np.float32) for word in idf}
    similarity = similarity_bands(log.words, IdfTable(idf, unseen, vectors), window=window)
    indices = range(20, len(log) - 5)
    history = read_history(log, similarity, lookahead=lookahead)
    blocks = list(candidate_blocks(history, window=window, indices=indices))
    slow = list(reference.candidate_links(log, similarity, window=window, lookahead=lookahead, indices=indices))
    assert np.array_equal(np.concatenate([b.candidates for b in blocks]), np.concatenate([s.candidates for s in slow]))
    features = np.concatenate([block.features for block in blocks])
    assert np.array_equal(features, np.concatenate([links.features for links in slow]))

    rng = np.random.default_rng(seed)
    sizes = np.array([len(links.candidates) for links in slow], np.int32)
    ends = np.cumsum(sizes)
    probs = softmax(rng.normal(0, 2, int(sizes.sum())).round(1), sizes).astype(np.float32)  # rounded, so that some tie
    predictions, tops = [], []
    for links, end in zip(slow, ends.tolist(), strict=True):
        own = probs[end - len(links.candidates) : end]
        top = np.append(np.sort(np.argsort(-own[:-1], kind="stable")[:12]), len(own) - 1).astype(np.int32)
        predictions.append(reference.LinkPrediction(links.index, links.candidates, own, top, links.features[top]))
        tops.append(top + end - len(own))
    flat = LinkPredictions(
        np.array(indices, np.int32),
        sizes,
        np.concatenate([links.candidates for links in slow]),
        probs,
        np.concatenate(tops).astype(np.int32),
        np.array([len(top) for top in tops], np.int32),
        features[np.concatenate(tops)],
    )
    predicted = reference.cluster_predictions(predictions, log)
    expected = [
        reference.cluster_features(p, predicted, log, similarity, window=window, lookahead=lookahead)
        for p in predictions
    ]
    clusters = cluster_predictions(flat, history)
    assert clusters.roots.tolist() == predicted.roots.tolist()
    assert np.array_equal(cluster_features(flat, clusters, history, window=window), np.concatenate(expected))


def test_similarity_bands_equal_the_full_product() -> None:
    """The bands are computed in blocks; here one entry is computed directly."""
    texts = encode_log(read_gold("sample")[0].log.lines).words
    idf, unseen = count_idf(texts)
    vectors = {word: np.array([len(word), 1.0], np.float32) for word in idf}
    similarity = similarity_bands(texts, IdfTable(idf, unseen, vectors), window=40)
    i, j = 300, 290
    shared = sum(idf.get(word, unseen) for word in set(texts[i]) & set(texts[j]))
    norm = [np.sqrt(sum(idf.get(w, unseen) ** 2 for w in set(texts[k]))) for k in (i, j)]
    squares = sum(idf.get(w, unseen) ** 2 for w in set(texts[i]) & set(texts[j]))
    assert similarity.shared_idf[i, i - j - 1] == pytest.approx(shared, rel=1e-4)
    assert similarity.cosine[i, i - j - 1] == pytest.approx(squares / (norm[0] * norm[1]), rel=1e-4)
    assert similarity.cosine[5, 5:].tolist() == [0] * 35
    assert similarity.embedding.max() == pytest.approx(1)


def test_nicks_of_one_person_are_aliases() -> None:
    assert aliases(LINES)["cyd"] == "cyd_"
    assert mentions("ask cyd_ or old bob22", {"cyd_", "old", "bob22"}) == {"cyd_", "bob22"}
    assert parse_address("@Bob22, hi", {"bob22"}) == ("bob22", "hi")
    assert parse_address("", {"x"}) is None


def test_trees_learn_which_candidate_wins() -> None:
    rng = np.random.default_rng(0)
    features = rng.random((3000, 2)).astype(np.float32)
    sizes = np.full(1000, 3, np.int32)
    labels = (features[:, 0].reshape(-1, 3) == features[:, 0].reshape(-1, 3).max(axis=1, keepdims=True)).ravel()
    data = LabelledCandidates(features, sizes, labels)

    def fit() -> str:
        return fit_trees(
            data,
            names=["good", "noise"],
            trees=30,
            leaves=8,
            learning_rate=0.3,
            min_rows=5,
            feature_fraction=1.0,
            seed=1,
        )

    text = fit()
    model = BoostedTrees(text)
    best = model.scores(features).reshape(-1, 3).argmax(axis=1)
    assert (best == labels.reshape(-1, 3).argmax(axis=1)).mean() > 0.9
    assert model.names == ("good", "noise")
    assert fit() == text


def test_trees_after_the_first_are_trained_on_what_those_leave() -> None:
    rng = np.random.default_rng(0)
    features = rng.random((8000, 3)).astype(np.float32)
    sizes = np.full(1000, 8, np.int32)
    utility = (features[:, 0] > 0.5) * 2.0 + features[:, 1]  # one feature rules out, another decides among the rest
    labels = (utility.reshape(-1, 8) == utility.reshape(-1, 8).max(axis=1, keepdims=True)).ravel()
    data = LabelledCandidates(features, sizes, labels)
    settings = {"names": ["rules_out", "decides", "noise"], "leaves": 8, "learning_rate": 0.3, "min_rows": 5}
    probed, plain = (
        BoostedTrees(fit_trees(data, trees=60, feature_fraction=1.0, seed=1, probe=probe, **settings))
        for probe in (True, False)
    )
    first = probed.scores(features, first=PROBE_TREES)
    assert np.array_equal(first, plain.scores(features, first=PROBE_TREES))
    hopeful = hopeful_rows(first, sizes)
    assert hopeful.sum() < 0.7 * len(hopeful)
    assert hopeful[labels].mean() > 0.99
    best = np.where(hopeful, probed.scores(features), -np.inf).reshape(-1, 8).argmax(axis=1)
    assert (best == labels.reshape(-1, 8).argmax(axis=1)).mean() > 0.9


def test_a_loaded_model_predicts_the_same_links(sample_model: Path) -> None:
    gold = read_gold("sample")[-1]
    one, other = load_disentangler(sample_model), load_disentangler(sample_model)
    links = one.links(gold.log.lines)
    assert links == other.links(gold.log.lines)
    assert set(links) == {line.number for line in gold.log.lines}
    assert all(max(earlier) <= line for line, earlier in links.items())
    assert all(links[line.number] == {line.number} for line in gold.log.lines if line.kind == "system")
    measures = evaluate_links([links], [gold.links])
    assert measures.links is not None
    assert measures.links.f > 85


def scored(line: int, probs: dict[int, float]) -> ScoredCandidates:
    """The candidates of a line, which is the last of them."""
    return ScoredCandidates(line, tuple(probs), np.log(np.array(list(probs.values()))))


def test_a_line_may_reply_to_two_lines_of_one_conversation() -> None:
    lines = [LogLine(n, 0, "ann", "hm") for n in range(4)]
    starts = [scored(0, {0: 1.0}), scored(1, {0: 0.9, 1: 0.1})]
    apart = scored(2, {1: 0.1, 0: 0.1, 2: 0.8})
    likely, less_likely = {2: 0.05, 1: 0.5, 0: 0.42, 3: 0.03}, {2: 0.05, 1: 0.55, 0: 0.35, 3: 0.05}
    assert best_links([*starts, apart, scored(3, likely)], lines)[3] == {0, 1}
    assert best_links([*starts, apart, scored(3, less_likely)], lines)[3] == {1}
    other_conversation = {2: 0.45, 1: 0.5, 0: 0.02, 3: 0.03}
    assert best_links([*starts, apart, scored(3, other_conversation)], lines)[3] == {1}
    start_or_reply = {2: 0.05, 1: 0.5, 0: 0.03, 3: 0.42}
    assert best_links([*starts, apart, scored(3, start_or_reply)], lines)[3] == {1}
    assert best_links([*starts, apart, scored(3, start_or_reply)], lines, start_bias=1.0)[3] == {3}


def test_second_links_join_no_conversations() -> None:
    rng = np.random.default_rng(0)
    lines = [LogLine(n, 0, "ann", "hm") for n in range(300)]
    every = [
        scored(n, {k: float(rng.choice((1e-3, 1e-2, 0.5))) for k in (*range(max(0, n - 4), n), n)}) for n in range(300)
    ]
    links = best_links(every, lines)
    assert sum(len(earlier) == 2 for earlier in links.values()) > 10
    best = {candidates.line: frozenset({candidates.links(0.0)[0]}) for candidates in every}
    assert len(clusters_of(best)) > 10
    assert clusters_of(links) == clusters_of(best)


def test_replies_recorded_by_the_source_are_used(sample_model: Path) -> None:
    lines = (*LINES, LogLine(5, 180, "bob", "with sugar", reply_to=2), LogLine(6, 180, "ann", "no", reply_to=1))
    links = load_disentangler(sample_model).links(lines)
    assert links[5] == {2}
    assert links[6] != {1}, "nobody can reply to a system line"


def test_links_can_be_limited_to_some_lines(sample_model: Path) -> None:
    gold = read_gold("sample")[-1]
    model = load_disentangler(sample_model)
    numbers = range(100, 150)
    limited = model.links(gold.log.lines, numbers)
    assert list(limited) == list(numbers)
    every = model.links(gold.log.lines)
    assert sum(limited[n] == every[n] for n in numbers) >= 48


@pytest.mark.parametrize("name", ["first.0.txt", "idf.json", "manifest.json"])
def test_damaged_and_missing_files_are_detected(sample_model: Path, tmp_path: Path, name: str) -> None:
    for file in sample_model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    load_disentangler(tmp_path)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="damaged"):
        load_disentangler(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(DataError, match=f"{name} is missing"):
        load_disentangler(tmp_path)


def test_another_format_is_refused(sample_model: Path, tmp_path: Path) -> None:
    for file in sample_model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    record = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(record | {"format": 99}))
    with pytest.raises(DataError, match="format 99"):
        load_disentangler(tmp_path)


def test_other_features_are_refused(sample_model: Path, tmp_path: Path) -> None:
    model = load_disentangler(sample_model)
    renamed = BoostedTrees(model.first[0].text.replace("cosine", "sine"))
    save_disentangler(replace(model, first=(renamed,)), tmp_path, config=model.window, training={})
    with pytest.raises(DataError, match="other features"):
        load_disentangler(tmp_path)


def test_ten_and_more_members_are_loaded_in_their_order(sample_model: Path, tmp_path: Path) -> None:
    model = load_disentangler(sample_model)
    members = tuple(model.first[k % 2] for k in range(11))
    save_disentangler(replace(model, first=members), tmp_path, config=model.window, training={})
    assert [trees.text for trees in load_disentangler(tmp_path).first] == [trees.text for trees in members]


def test_a_model_without_a_second_pass() -> None:
    features = np.zeros((4, len(FIRST_FEATURES)), np.float32)
    features[[1, 3], COLUMN["is_self"]] = 1
    data = LabelledCandidates(np.tile(features, (50, 1)), np.full(100, 2, np.int32), np.tile([True, False], 100))
    text = fit_trees(
        data,
        names=FIRST_FEATURES,
        trees=5,
        leaves=4,
        learning_rate=0.3,
        min_rows=5,
        feature_fraction=1.0,
        seed=0,
    )
    model = Disentangler(CandidateWindow(window=1), IDF, (BoostedTrees(text),))
    assert model.links(LINES)[0] == {0}
    assert model.links(LINES)[2] == {0}
    assert model.links(()) == {}


any_lines = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["a: hm", "bb?", "", "c, thanks http://x"])), max_size=9
)


@settings(max_examples=30, deadline=None)
@given(any_lines)
def test_any_log_gets_finite_features(messages: list[tuple[str, str]]) -> None:
    lines = [LogLine(i, 30.0 * i, nick, text) for i, (nick, text) in enumerate(messages)]
    log = encode_log(lines)
    history = read_history(log, similarity_bands(log.words, IDF, window=10), lookahead=5)
    blocks = list(candidate_blocks(history, window=10))
    assert sum(len(block.indices) for block in blocks) == len(log)
    for block in blocks:
        assert np.isfinite(block.features).all()
        assert block.candidates[np.cumsum(block.sizes) - 1].tolist() == block.indices.tolist()
