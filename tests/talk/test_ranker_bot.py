import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tertulia import __version__, sample
from tertulia.core.dialogue import Dialogue, Evidence, Persona, Turn
from tertulia.core.errors import BotError, ConfigError, DataError, UnknownName, UsageError
from tertulia.core.reply import Ask, Reply
from tertulia.core.text import words
from tertulia.models.checkpoint import seal
from tertulia.models.rankers.base import Floats, Queries, Query, Ranker, dot_scores
from tertulia.models.registry import ARCHITECTURES, Architecture
from tertulia.talk.bot import RankingBot
from tertulia.talk.bots import ranker as ranking
from tertulia.talk.bots.ranker import RERANKED, RankerBot, RankerOptions
from tertulia.talk.pool import ReplyPool
from tertulia.talk.registry import BOTS
from tertulia.talk.repetition import REPEAT, SAID
from tertulia.talk.spec import make_bot

DIALOGUES = [
    Dialogue("sea", (Turn("a", "hello, do you like boats"), Turn("b", "I sail my boat on the sea"))),
    Dialogue(
        "oven", (Turn("a", "tell me, what do you bake"), Turn("b", "I bake bread in my oven"), Turn("a", "on sea?"))
    ),
    Dialogue("tea", (Turn("a", "good day"), Turn("b", "tea with milk"), Turn("a", "tea, with milk!"))),
    Dialogue("cat", (Turn("a", "good evening"), Turn("b", "the cat sleeps"), Turn("a", "sleeps the cat"))),
]


class LongestFirst(nn.Module):
    """A re-ranker that prefers long replies."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Query, list[str]]] = []

    def score_pairs(self, queries: Sequence[Query], texts: Sequence[Sequence[str]], /) -> list[list[float]]:
        self.calls += [(query, list(some)) for query, some in zip(queries, texts, strict=True)]
        return [[-100.0 + len(text) for text in some] for some in texts]

    @classmethod
    def load(cls, folder: Path) -> "LongestFirst":
        return cls()


@pytest.fixture(scope="module")
def bot(ranker: Ranker) -> RankerBot:
    return RankerBot(ranker, ReplyPool.of(DIALOGUES, ranker), fingerprint="f00")


@pytest.fixture(scope="module")
def sample_bot(ranker: Ranker) -> RankerBot:
    return RankerBot(ranker, ReplyPool.of(sample.dialogues("train"), ranker))


def ask(*said: str, seed: int = 0, attempt: int = 1, own: str = "", other: str = "") -> Ask:
    turns = tuple(Turn(("ana", "bot")[i % 2], text) for i, text in enumerate(said))
    shown = {who: Persona((text,)) for who, text in (("ana", other), ("bot", own)) if text}
    return Ask(Dialogue("d", turns, shown), seed=seed, attempt=attempt)


def one(bot: RankerBot, wish: Ask) -> Reply:
    (reply,) = bot.reply([wish])
    return reply


def fresh(reply: Reply) -> list[str]:
    return [c.text for c in reply.candidates if c.dropped is None]


def with_options(bot: RankerBot, **options: object) -> RankerBot:
    return RankerBot(bot.ranker, bot.pool, RankerOptions.model_validate(options))


def test_the_best_reply_is_returned_with_its_source(bot: RankerBot) -> None:
    assert isinstance(bot, RankingBot)
    reply = one(bot, ask("what about the sea, and a boat"))
    assert reply.text == "I sail my boat on the sea"
    assert reply.candidates[0].source == "sea#1"
    assert reply.score == reply.candidates[0].score
    assert reply.note is None
    assert reply.provenance.bot == "ranker"
    assert reply.provenance.checkpoint == "f00"
    assert reply.provenance.settings == RankerOptions().model_dump()
    assert (reply.provenance.seed, reply.provenance.version) == (0, __version__)


def test_candidates_come_best_first_and_are_limited(sample_bot: RankerBot) -> None:
    wish = ask("do you have a dog?")
    scores = [c.score for c in one(sample_bot, wish).candidates if c.score is not None]
    assert scores == sorted(scores, reverse=True)
    assert len(fresh(one(sample_bot, wish))) == 10
    assert len(fresh(one(with_options(sample_bot, candidates=3), wish))) == 3
    assert len(one(with_options(sample_bot, breadth=4), wish).candidates) == 4


def test_verbatim_repetitions_are_dropped_with_a_reason(bot: RankerBot) -> None:
    reply = one(bot, ask("Tea, with milk", "no", "I sail my boat on the sea"))
    dropped = {c.text: c.dropped for c in reply.candidates if c.dropped}
    assert dropped == {"I sail my boat on the sea": SAID, "tea with milk": SAID, "tea, with milk!": SAID}
    assert reply.text not in dropped


def test_replies_similar_to_its_own_turns_are_dropped_but_not_those_similar_to_the_partners(bot: RankerBot) -> None:
    said = ("what of the sea", "I sail on the blue sea", "so you sail a boat on the sea")  # shares 5 of 6 and 7 words
    first = one(bot, ask(*said)).candidates[0]
    assert (first.text, first.dropped) == ("I sail my boat on the sea", REPEAT)
    assert one(with_options(bot, repeat_overlap=0.8), ask(*said)).candidates[0].dropped is None
    swapped = ask("hm", *said)
    assert one(bot, swapped).candidates[0].dropped is None
    same_words = one(with_options(bot, repeat_overlap=1), ask("hm", "the cat sleeps", "where is the cat"))
    assert {c.text: c.dropped for c in same_words.candidates}["sleeps the cat"] == REPEAT


def test_it_repeats_itself_when_nothing_else_is_left_and_notes_it(bot: RankerBot) -> None:
    everything = [turn.text for talk in DIALOGUES for turn in talk.turns]
    reply = one(bot, ask(*everything, "the sea, a boat"))
    assert reply.text == "I sail my boat on the sea"
    assert "every reply had been used before" in str(reply.note)
    assert all(c.dropped for c in reply.candidates)


def test_further_attempts_give_the_next_best_and_wrap_around(sample_bot: RankerBot) -> None:
    few = with_options(sample_bot, candidates=3)
    replies = [one(few, ask("do you have any pets?", attempt=n)) for n in (1, 2, 3, 4)]
    assert [r.text for r in replies[:3]] == fresh(replies[0])
    assert len({r.text for r in replies}) == 3
    assert replies[3].text == replies[0].text


def test_ties_are_broken_by_the_seed(bot: RankerBot) -> None:
    tied = [one(bot, ask("milk", seed=s)).text for s in range(60)]
    assert 10 < tied.count("tea with milk") < 50
    assert set(tied) == {"tea with milk", "tea, with milk!"}
    assert len({one(bot, ask("the sea, a boat", seed=s)).text for s in range(20)}) == 1


def test_both_personas_affect_the_choice(bot: RankerBot) -> None:
    talk = ("and what else on a good day",)
    for text, choice in (("I sail a boat on the sea", "sea#1"), ("I bake my bread in the oven", "oven#1")):
        assert one(bot, ask(*talk, own=text)).candidates[0].source == choice
        assert one(bot, ask(*talk, other=text)).candidates[0].source == choice
    assert one(bot, ask(*talk)).candidates[0].source == "tea#0"


def test_its_own_persona_comes_first_in_the_query(bot: RankerBot) -> None:
    query = bot._query(ask("hi", own="I sail.", other="I bake."))
    assert query == Query(("hi",), ("I sail.", "I bake."))
    turns = (Turn("bot", "tea ?"), Turn("ana", "yes"), Turn("ana", "please"))
    assert bot._query(Ask(Dialogue("d", turns), "bot")).own == (True, False, False)


def test_only_the_last_turns_are_read(bot: RankerBot) -> None:
    said = tuple(f"turn {i}" for i in range(30))
    assert bot._query(ask(*said)).turns == said[-20:]
    assert with_options(bot, max_turns=2)._query(ask(*said)).turns == said[-2:]


def test_it_opens_with_an_opener_of_the_pool(bot: RankerBot) -> None:
    replies = bot.reply([ask(seed=s) for s in range(40)])
    assert {r.text for r in replies} == {talk.turns[0].text for talk in DIALOGUES}
    assert {r.note for r in replies} == {"opened the conversation"}
    first, second = one(bot, ask(seed=1)), one(bot, ask(seed=1, attempt=2))
    assert first.text != second.text
    assert first.candidates == second.candidates


def test_an_opening_fits_the_persona(bot: RankerBot) -> None:
    picky = with_options(bot, candidates=1)
    assert {one(picky, ask(seed=s, own="I like boats")).text for s in range(10)} == {"hello, do you like boats"}
    assert {one(picky, ask(seed=s, own="I bake")).text for s in range(10)} == {"tell me, what do you bake"}
    drawn = {one(bot, ask(seed=s, own="I bake")).text for s in range(40)}
    assert len(drawn) == 4
    assert one(bot, ask(own="I bake")).candidates[0].text == "tell me, what do you bake"


def test_a_pool_without_openers(bot: RankerBot, ranker: Ranker) -> None:
    assert bot.pool
    bare = RankerBot(ranker, ReplyPool(bot.pool.texts, bot.pool.sources, bot.pool.vectors))
    assert one(bare, ask(own="I bake")).text in bot.pool.texts


@pytest.mark.parametrize("text", ["", "🙂", "..."])
def test_messages_without_known_words_get_random_replies(bot: RankerBot, text: str) -> None:
    replies = bot.reply([ask(text, seed=s) for s in range(30)])
    assert all("none of these words" in str(r.note) for r in replies)
    assert len({r.text for r in replies}) > 3


def test_twenty_turns_of_self_talk_have_no_repetition(sample_bot: RankerBot) -> None:
    said = ["Hi there, how are you?"]
    for turn in range(20):
        said.append(one(sample_bot, ask(*said, seed=turn)).text)
    assert len({" ".join(words(text)) for text in said}) == 21


def key(reply: Reply) -> tuple[object, ...]:
    return (reply.text, reply.score, reply.candidates, reply.note, reply.provenance)


questions = [*sorted({t.text for d in sample.dialogues("valid") for t in d.turns})[:200], "", "zzz qqq"]
asks = st.builds(
    lambda said, seed, own, other: ask(*said, seed=seed, own=own, other=other),
    st.lists(st.sampled_from(questions), max_size=3),
    st.integers(0, 5),
    st.sampled_from(["", "I love to sail and to bake."]),
    st.sampled_from(["", "I have two dogs."]),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(asks, min_size=1, max_size=5))
def test_the_same_ask_gives_the_same_reply_whatever_the_batch(sample_bot: RankerBot, batch: list[Ask]) -> None:
    together = [key(r) for r in sample_bot.reply(batch)]
    assert together == [key(one(sample_bot, wish)) for wish in batch]
    assert together[::-1] == [key(r) for r in sample_bot.reply(batch[::-1])]


def test_splitting_into_batches_changes_nothing(sample_bot: RankerBot, monkeypatch: pytest.MonkeyPatch) -> None:
    wishes = [ask(text, seed=i) for i, text in enumerate(questions[:10])]
    together = [key(r) for r in sample_bot.reply(wishes)]
    monkeypatch.setattr(ranking, "ASKS_AT_ONCE", 3)
    assert [key(r) for r in sample_bot.reply(wishes)] == together


def test_concurrent_calls_do_not_interfere(sample_bot: RankerBot) -> None:
    wishes = [ask(text, seed=i) for i, text in enumerate(questions[:40])]
    alone = [key(one(sample_bot, wish)) for wish in wishes]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda wish: key(one(sample_bot, wish)), wishes)) == alone


def test_scores_are_those_of_the_ranker(bot: RankerBot) -> None:
    texts = ["I sail my boat on the sea", "the cat sleeps", "", "a boat, a boat"]
    wishes = [ask("the sea"), ask("the sea", own="my cat sleeps")]
    plain, with_cat = bot.score(wishes, [texts, texts[:2]])
    assert plain[0] > plain[1] > plain[2] == 0
    assert (len(plain), len(with_cat)) == (4, 2)
    assert with_cat[1] > with_cat[0]
    assert bot.score(wishes[:1], [texts]) == [pytest.approx(plain, abs=1e-6)]


def test_an_empty_batch(bot: RankerBot) -> None:
    assert bot.reply([]) == []
    assert bot.score([], []) == []
    assert bot.score([ask("hi")], [[]]) == [[]]
    assert [len(s) for s in bot.score([ask("hi"), ask("ho")], [[], ["hi", "ho"]])] == [0, 2]


def test_a_bot_without_a_pool_ranks_but_does_not_talk(ranker: Ranker) -> None:
    mute = RankerBot(ranker, None, spec="minilm:run")
    assert mute.score([ask("the sea")], [["a cat", "the sea"]])[0][1] == pytest.approx(1.0, abs=1e-6)
    with pytest.raises(BotError, match="without a pool") as caught:
        mute.reply([ask("hi")])
    assert "pool=DATA" in caught.value.hint


class TestReranking:
    def test_the_best_20_are_reordered(self, sample_bot: RankerBot) -> None:
        second = LongestFirst()
        both = RankerBot(sample_bot.ranker, sample_bot.pool, reranker=second)
        wish = ask("do you have a dog?", own="I love dogs.")
        reply = one(both, wish)
        ((query, texts),) = second.calls
        assert query == Query(("do you have a dog?",), ("I love dogs.",))
        assert texts == fresh(one(with_options(sample_bot, candidates=RERANKED), wish))
        assert len(texts) == RERANKED
        longest = sorted(texts, key=lambda text: -len(text))
        assert fresh(reply) == longest[:10]
        assert reply.text == longest[0]
        assert reply.score == -100.0 + len(longest[0])

    def test_dropped_candidates_stay_dropped(self, sample_bot: RankerBot) -> None:
        both = RankerBot(sample_bot.ranker, sample_bot.pool, reranker=LongestFirst())
        before = one(both, ask("do you have a dog?"))
        after = one(both, ask("do you have a dog?", before.text, "do you have a dog?"))
        assert {c.text: c.dropped for c in after.candidates}[before.text] == SAID
        assert after.text == after.candidates[0].text
        dropped = [c.dropped is not None for c in after.candidates]
        assert dropped == sorted(dropped)

    def test_more_candidates_than_it_reads(self, sample_bot: RankerBot) -> None:
        options = RankerOptions(candidates=30)
        both = RankerBot(sample_bot.ranker, sample_bot.pool, options, reranker=LongestFirst())
        wish = ask("do you have a dog?")
        reply = one(both, wish)
        reranked, first = fresh(reply), fresh(one(with_options(sample_bot, candidates=30), wish))
        assert set(reranked[:RERANKED]) == set(first[:RERANKED])
        assert reranked[RERANKED:] == first[RERANKED:]
        lengths = [len(text) for text in reranked[:RERANKED]]
        assert lengths == sorted(lengths, reverse=True)
        scores = [c.score for c in reply.candidates if c.score is not None and c.dropped is None]
        assert scores == sorted(scores, reverse=True)

    def test_given_candidates(self, bot: RankerBot) -> None:
        both = RankerBot(bot.ranker, bot.pool, reranker=LongestFirst())
        assert both.score([ask("sea"), ask("sea")], [["a", "abc"], []]) == [[-99.0, -97.0], []]
        texts = [f"sea {'and ' * i}" for i in range(RERANKED)] + ["nothing at all", "a long line of something else"]
        first, (scores,) = bot.score([ask("sea")], [texts])[0], both.score([ask("sea")], [texts])
        top = sorted(range(len(texts)), key=lambda i: -first[i])[:RERANKED]
        rest = [i for i in range(len(texts)) if i not in top]
        assert min(scores[i] for i in top) > max(scores[i] for i in rest)
        assert sorted(top, key=lambda i: -scores[i]) == sorted(top, key=lambda i: -len(texts[i]))
        assert [scores[i] for i in rest] == [first[i] for i in rest]


class TestBuilding:
    def test_a_run_is_a_bot_by_itself(self, ranker_run: Path) -> None:
        bot = make_bot(str(ranker_run))
        assert isinstance(bot, RankerBot)
        assert bot.spec == f"starspace:{ranker_run}"
        assert bot.max_turns == 3
        reply = one(bot, ask("do you have a dog?"))
        assert reply.provenance.checkpoint == bot.fingerprint
        assert bot.fingerprint
        assert reply.text in {turn.text for talk in sample.dialogues("train") for turn in talk.turns}
        again = make_bot(f"{ranker_run}?max_turns=5")
        assert isinstance(again, RankerBot)
        assert again.max_turns == 5

    def test_a_loaded_bot_replies_like_the_saved_one(self, ranker_run: Path, sample_bot: RankerBot) -> None:
        wishes = [ask(text, seed=i) for i, text in enumerate(questions[:20])]
        for mine, saved in zip(sample_bot.reply(wishes), make_bot(str(ranker_run)).reply(wishes), strict=True):
            assert key(mine)[:4] == key(saved)[:4]

    def test_the_pool_can_be_other_dialogues(self, ranker_run: Path, tmp_path: Path) -> None:
        file = tmp_path / "talks.jsonl"
        file.write_text('{"id": "d", "utterances": ["do you sail", "every week"]}\n')
        bot = make_bot(f"{ranker_run}?pool={file}")
        assert {r.text for r in bot.reply([ask(t) for t in ("sail", "week")])} == {"do you sail", "every week"}
        from_sample = make_bot(f"{ranker_run}?pool=sample")
        assert isinstance(from_sample, RankerBot)
        train = {d.id for d in sample.dialogues("train")}
        assert from_sample.pool
        assert {source.rpartition("#")[0] for source in from_sample.pool.sources} <= train

    def test_without_a_pool(self, ranker_run: Path) -> None:
        manifest = (ranker_run / "model.safetensors", ranker_run / "model.json")
        bare = ranker_run.parent / "bare"
        bare.mkdir()
        for file in manifest:
            shutil.copy(file, bare)
        seal(bare, bot="minilm", model="words", training={})
        bot = make_bot(str(bare))
        assert isinstance(bot, RankerBot)
        assert bot.pool is None
        assert bot.max_turns == 20

    def test_with_a_re_ranker(self, ranker_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        row = Architecture("longest", "reranker", f"{__name__}:LongestFirst", "tertulia.train:none", "")
        monkeypatch.setitem(ARCHITECTURES._rows, "longest", row)
        second = ranker_run.parent / "second"
        shutil.copytree(ranker_run, second)
        sealed = seal(second, bot="longest", model="longest", training={})
        bot = make_bot(f"{ranker_run}?rerank={second}")
        assert isinstance(bot, RankerBot)
        assert isinstance(bot.reranker, LongestFirst)
        assert str(bot.fingerprint).endswith(f"+{sealed.fingerprint}")
        with pytest.raises(UsageError, match="cannot search") as caught:
            make_bot(f"starspace:{second}")
        assert f"rerank={second}" in caught.value.hint
        with pytest.raises(UnknownName, match="re-ranker"):
            make_bot(f"{ranker_run}?rerank={ranker_run}")

    @pytest.mark.parametrize("name", ["starspace", "profile-memory", "kv-memory", "dual-encoder", "minilm"])
    def test_a_name_without_a_run_is_an_error_with_a_hint(self, name: str, tmp_path: Path) -> None:
        assert BOTS.get(name) is RankerBot
        for spec in (name, f"{name}:{tmp_path}"):
            with pytest.raises(UsageError, match="training run") as caught:
                make_bot(spec)
            assert "tertulia train" in caught.value.hint

    def test_damaged_runs_and_invalid_options_are_refused(self, ranker_run: Path) -> None:
        with pytest.raises(UsageError, match="not available"):
            make_bot(f"{ranker_run}?device={'cuda' if not torch.cuda.is_available() else 'mps'}")
        for options in ("candidates=0", "repeat_overlap=2", "breadth=0", "depth=3"):
            with pytest.raises(ConfigError):
                make_bot(f"{ranker_run}?{options}")
        (ranker_run / "pool.jsonl").write_text("[]\n")
        with pytest.raises(DataError, match="damaged"):
            make_bot(str(ranker_run))


class OneEncoder:
    """Encodes messages and replies alike, as bags of letters."""

    symmetric = True

    def queries(self, queries: Sequence[Query], /) -> Queries:
        return Queries(self.replies([query.turns[-1] for query in queries]))

    def replies(self, texts: Sequence[str], /) -> Floats:
        counts = np.array([[text.lower().count(letter) for letter in ascii_lowercase] for text in texts], np.float32)
        return np.asarray(counts / np.linalg.norm(counts, axis=1, keepdims=True), np.float32)

    def scores(self, queries: Queries, replies: Floats, /) -> Floats:
        return dot_scores(queries, replies)


def test_a_symmetric_ranker_prefers_replies_to_similar_messages() -> None:
    talks = [
        Dialogue("1", (Turn("a", "do you have pets at home"), Turn("b", "yes, a cat"))),
        Dialogue("2", (Turn("a", "which pets do you have"), Turn("b", "a cat, a dog"))),
        Dialogue("3", (Turn("a", "where were you born"), Turn("b", "far away"))),
    ]
    pool = ReplyPool.of(talks, OneEncoder())
    asked = ask("what pets do you have at all")
    plain = one(RankerBot(OneEncoder(), pool, RankerOptions(follow=0)), asked)
    assert plain.text == "which pets do you have"  # nothing is more similar to a question than another question
    bot = RankerBot(OneEncoder(), pool)
    reply = one(bot, asked)
    assert reply.text in ("yes, a cat", "a cat, a dog")
    assert bot.follow == ranking.FOLLOW_WEIGHT
    scores = [c.score for c in reply.candidates]
    assert scores == sorted(scores, reverse=True)


def test_asymmetric_rankers_do_not_use_the_preceding_turn(ranker: Ranker) -> None:
    assert RankerBot(ranker, ReplyPool.of(DIALOGUES, ranker)).follow == 0


def test_sentences_of_the_evidence_are_candidates_where_an_option_says_so(bot: RankerBot, ranker: Ranker) -> None:
    reading = RankerBot(ranker, bot.pool, RankerOptions(evidence=True, candidates=20))
    passage = Evidence("I sail my boat on the sea today. I bake.", "notes.txt")
    wish = ask("hello, do you like boats")
    wish = replace(wish, dialogue=replace(wish.dialogue, evidence=(passage,)))
    own = {c.text: c for c in one(reading, wish).candidates if c.source == "notes.txt"}
    assert set(own) == {"I sail my boat on the sea today.", "I bake."}
    scores = reading.score([wish], [list(own)])[0]
    assert [c.score for c in own.values()] == pytest.approx(scores, abs=1e-4)
    assert "notes.txt" not in {c.source for c in one(bot, wish).candidates}
    assert (reading.traits.reads_evidence, bot.traits.reads_evidence) == (True, False)
