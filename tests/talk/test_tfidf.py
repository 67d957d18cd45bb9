import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tertulia import __version__, sample
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import ConfigError, DamagedLine, DataError
from tertulia.core.reply import Ask, Reply
from tertulia.corpus.load import save_dialogues
from tertulia.talk.bot import RankingBot
from tertulia.talk.bots import tfidf
from tertulia.talk.bots.tfidf import TfidfBot, TfidfOptions, _best_first
from tertulia.talk.repetition import SaidTexts, text_key
from tertulia.talk.spec import make_bot
from tertulia.talk.tfidf_index import TfidfIndex

DIALOGUES = [
    Dialogue("sea", (Turn("a", "do you like the sea"), Turn("b", "I sail every week"), Turn("a", "how nice"))),
    Dialogue("bread", (Turn("a", "do you like bread"), Turn("b", "I bake my own"), Turn("a", "every morning?"))),
    Dialogue("tea", (Turn("a", "shall we have tea"), Turn("b", "with milk please"))),
    Dialogue("more tea", (Turn("a", "shall we have tea"), Turn("b", "rather some coffee"))),
]


@pytest.fixture(scope="module")
def bot() -> TfidfBot:
    return TfidfBot(TfidfIndex.from_dialogues(DIALOGUES))


@pytest.fixture(scope="module")
def sample_bot() -> TfidfBot:
    return TfidfBot.build("", TfidfOptions())


def ask(*texts: str, seed: int = 0, persona: str = "") -> Ask:
    turns = tuple(Turn(("ana", "bot")[i % 2], text) for i, text in enumerate(texts))
    return Ask(Dialogue("d", turns, {"bot": Persona((persona,))} if persona else {}), seed=seed)


def reply_to(bot: TfidfBot, request: Ask) -> Reply:
    (reply,) = bot.reply([request])
    return reply


def test_a_folder_is_indexed_by_its_training_split_unless_told_otherwise(tmp_path: Path) -> None:
    for i, name in enumerate(("train", "valid", "test")):
        save_dialogues(DIALOGUES[i : i + 1], tmp_path / f"{name}.jsonl")
    counts = {
        split: len(TfidfBot.build(str(tmp_path), TfidfOptions(split=split)).index.pairs)
        for split in ("", "test", "all")
    }
    assert counts == {"": 3, "test": 2, "all": 8}
    (tmp_path / "train.jsonl").unlink()
    assert len(TfidfBot.build(str(tmp_path), TfidfOptions()).index.pairs) == 5, "a folder without splits is read whole"


def test_it_replies_with_the_reply_to_the_most_similar_message(bot: TfidfBot) -> None:
    assert isinstance(bot, RankingBot)
    reply = reply_to(bot, ask("Do you like bread?"))
    assert reply.text == "I bake my own"
    assert reply.score == pytest.approx(1.0, abs=1e-6)
    assert reply.note is None
    assert reply.provenance.bot == "tfidf"
    assert reply.provenance.checkpoint == bot.index.fingerprint
    assert reply.provenance.settings == TfidfOptions().model_dump()
    assert reply.provenance.version == __version__


def test_candidates_come_best_first_with_their_sources(bot: TfidfBot) -> None:
    candidates = reply_to(bot, ask("do you like the sea")).candidates
    assert [(c.text, c.source, c.dropped) for c in candidates] == [
        ("I sail every week", "sea#1", None),
        ("I bake my own", "bread#1", None),
    ]
    scores = [c.score for c in candidates if c.score is not None]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 2


def test_replies_already_used_are_dropped_with_a_reason(bot: TfidfBot) -> None:
    reply = reply_to(bot, ask("do you like the sea", "I sail EVERY week!", "do you like the sea"))
    assert reply.text == "I bake my own"
    assert [(c.text, c.dropped) for c in reply.candidates] == [
        ("I sail every week", "already used in this conversation"),
        ("I bake my own", None),
    ]


def test_if_every_reply_was_used_it_repeats_one_with_a_note(bot: TfidfBot) -> None:
    texts = ("do you like the sea", "I sail every week", "I see", "I bake my own", "do you like the sea")
    reply = reply_to(bot, ask(*texts))
    assert reply.text == "I sail every week"
    assert reply.note is not None
    assert "repeated one" in reply.note
    assert all(c.dropped for c in reply.candidates)


def test_a_long_conversation_has_no_repetition(sample_bot: TfidfBot) -> None:
    texts = ["Hi there, how are you?"]
    for turn in range(30):
        texts.append(reply_to(sample_bot, ask(*texts, seed=turn)).text)
    assert len(set(texts)) == 31


def test_ties_are_broken_by_the_seed_and_not_by_the_order_of_the_data(bot: TfidfBot) -> None:
    texts = [reply_to(bot, ask("shall we have tea", seed=s)).text for s in range(60)]
    assert set(texts) == {"with milk please", "rather some coffee"}
    assert 10 < texts.count("with milk please") < 50


@pytest.mark.parametrize("size", [0, 1, 90, 400, 9000])
@pytest.mark.parametrize("values", [4, 200, 1 << 50])
def test_the_best_come_first_and_ties_in_the_order_of_the_numbers_of_the_seed(size: int, values: int) -> None:
    data = np.random.default_rng(size + values)
    scores = np.maximum(data.integers(-values, values, size) / values, 0.0)
    rows = sorted(np.flatnonzero(scores).tolist(), key=lambda row: -scores[row])
    by_hand: list[tuple[int, float]] = []
    count = 100
    while rows:  # in parts; those as good as the last one are in the same part
        part = sorted(row for row in rows if scores[row] >= scores[rows[:count][-1]])
        number_of = dict(zip(part, np.random.default_rng(7).random(len(part)).tolist(), strict=True))
        part.sort(key=lambda row: (-scores[row], number_of[row]))
        by_hand += [(row, scores[row]) for row in part]
        rows, count = rows[len(part) :], 4 * count
    assert list(_best_first(scores, 7)) == by_hand


def test_without_ties_no_random_numbers_are_drawn(bot: TfidfBot, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    generator = np.random.default_rng

    def counted(seed: int) -> np.random.Generator:
        calls.append(seed)
        return generator(seed)

    monkeypatch.setattr(np.random, "default_rng", counted)
    reply_to(bot, ask("do you like the sea", seed=3))
    assert calls == []
    reply_to(bot, ask("shall we have tea", seed=4))
    assert calls == [4]


def test_what_a_caller_does_to_the_settings_of_a_reply_stays_with_that_reply(bot: TfidfBot) -> None:
    settings: Any = reply_to(bot, ask("do you like the sea")).provenance.settings
    settings["candidates"] = 99
    assert reply_to(bot, ask("do you like the sea")).provenance.settings == TfidfOptions().model_dump()


def test_unknown_words_give_a_random_reply_and_a_note(bot: TfidfBot) -> None:
    replies = bot.reply([ask("quantum chromodynamics", seed=s) for s in range(30)])
    assert len({r.text for r in replies}) > 3
    assert all(r.note and "none of the words" in r.note and r.score == 0 for r in replies)
    assert all(len(r.candidates) == 1 and r.candidates[0].source for r in replies)


@pytest.mark.parametrize("text", ["", "🙂", "...", "\x00"])
def test_texts_without_words_give_a_random_reply(bot: TfidfBot, text: str) -> None:
    assert "none of the words" in str(reply_to(bot, ask(text)).note)


def test_it_opens_a_conversation_with_an_opener(bot: TfidfBot) -> None:
    replies = bot.reply([ask(seed=s) for s in range(30)])
    assert {r.text for r in replies} == {d.turns[0].text for d in DIALOGUES}
    assert {r.note for r in replies} == {"opened the conversation"}


def test_the_persona_is_part_of_the_query(bot: TfidfBot) -> None:
    plain, sailor, baker = (reply_to(bot, ask("do you like it", persona=p)) for p in ("", "the sea", "bread"))
    assert sailor.text == "I sail every week"
    assert baker.text == "I bake my own"
    assert plain.score != sailor.score
    no_persona = TfidfBot(bot.index, TfidfOptions(persona_weight=0))
    without, with_persona = (
        reply_to(no_persona, ask("do you like it")),
        reply_to(no_persona, ask("do you like it", persona="the sea")),
    )
    assert (without.text, without.score) == (with_persona.text, with_persona.score)


def test_the_personas_of_both_speakers_are_used(bot: TfidfBot) -> None:
    for text, reply in (("the sea", "I sail every week"), ("bread", "I bake my own")):
        for who in ("ana", "bot"):
            dialogue = Dialogue("d", (Turn("ana", "do you like it"),), {who: Persona((text,))})
            assert reply_to(bot, Ask(dialogue, "bot")).text == reply
    both = {"ana": Persona(("the sea",)), "bot": Persona(("bread",))}
    (scores,) = bot.score([Ask(Dialogue("d", (Turn("ana", "so"),), both), "bot")], [["the sea", "bread", "milk"]])
    assert min(scores[:2]) > scores[2] == 0


def test_the_full_conversation_as_the_query(bot: TfidfBot) -> None:
    full = TfidfBot(bot.index, TfidfOptions(context="all"))
    request = ask("do you like the sea", "no", "hm")
    assert "none of the words" in str(reply_to(bot, request).note)
    assert reply_to(full, request).text == "I sail every week"
    candidates = [["the sea", "bread"]]
    assert bot.score([request], candidates) == [[0, 0]]
    (scores,) = full.score([request], candidates)
    assert scores[0] > scores[1] == 0
    alone = ask("do you like the sea")
    assert full.score([alone], candidates) == bot.score([alone], candidates)
    assert reply_to(full, ask()).note == "opened the conversation"
    with pytest.raises(ConfigError, match="context"):
        make_bot("tfidf:sample?context=some")


def test_a_persona_of_weight_zero_does_not_hide_unknown_words(bot: TfidfBot) -> None:
    no_persona = TfidfBot(bot.index, TfidfOptions(persona_weight=0))
    assert "none of the words" in str(reply_to(no_persona, ask("quantum", persona="the sea")).note)


def key(reply: Reply) -> tuple[object, ...]:
    return (reply.text, reply.score, reply.candidates, reply.note, reply.provenance)


questions = [*sorted({t.text for d in sample.dialogues("valid") for t in d.turns}), "", "zzz qqq"]
asks = st.builds(
    lambda texts, seed, persona: ask(*texts, seed=seed, persona=persona),
    st.lists(st.sampled_from(questions), max_size=3),
    st.integers(0, 5),
    st.sampled_from(["", "I love to sail and to bake."]),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(asks, min_size=1, max_size=5))
def test_the_same_ask_gives_the_same_reply_whatever_the_batch(sample_bot: TfidfBot, batch: list[Ask]) -> None:
    together = [key(r) for r in sample_bot.reply(batch)]
    assert together == [key(reply_to(sample_bot, request)) for request in batch]
    assert together[::-1] == [key(r) for r in sample_bot.reply(batch[::-1])]


def test_an_empty_batch(bot: TfidfBot) -> None:
    assert bot.reply([]) == []
    assert bot.score([], []) == []
    assert bot.score([ask("hi")], [[]]) == [[]]


def test_scores_are_cosines_with_the_candidates_themselves(bot: TfidfBot) -> None:
    (scores,) = bot.score([ask("I bake bread")], [["I bake bread", "bread", "with milk please", "", "quantum"]])
    assert scores[0] == pytest.approx(1.0, abs=1e-6)
    assert 0 < scores[1] < 1
    assert scores[2:] == [0, 0, 0]


def test_scores_of_a_batch_are_those_of_each_alone(sample_bot: TfidfBot) -> None:
    requests = [ask("do you have a dog?"), ask("", persona="I love my dog."), ask("nice weather")]
    candidates = [["yes, a dog", "no"], ["my dog is lovely"], ["I love rain", "so it is", "the weather!"]]
    together = sample_bot.score(requests, candidates)
    assert [len(s) for s in together] == [2, 1, 3]
    assert together == [sample_bot.score([w], [c])[0] for w, c in zip(requests, candidates, strict=True)]


def test_the_persona_is_part_of_the_query_when_ranking(bot: TfidfBot) -> None:
    candidates = [["I sail every week", "I bake my own"]]
    (sailor,), (baker,) = (bot.score([ask("and you", persona=p)], candidates) for p in ("I sail", "I bake"))
    assert sailor[0] > sailor[1]
    assert baker[1] > baker[0]


def test_a_saved_index_gives_the_same_replies(sample_bot: TfidfBot, tmp_path: Path) -> None:
    sample_bot.index.save(tmp_path / "index")
    loaded = make_bot(f"tfidf:{tmp_path / 'index'}")
    requests = [ask(text, seed=i) for i, text in enumerate(questions[:40])]
    for one_reply, other in zip(sample_bot.reply(requests), loaded.reply(requests), strict=True):
        assert key(one_reply)[:4] == key(other)[:4]
        assert one_reply.provenance.checkpoint == other.provenance.checkpoint
    assert loaded.spec == f"tfidf:{tmp_path / 'index'}"


def test_a_damaged_index_is_refused(sample_bot: TfidfBot, tmp_path: Path) -> None:
    sample_bot.index.save(tmp_path)
    (tmp_path / "pairs.jsonl").write_text("[]\n")
    with pytest.raises(DataError, match="damaged"):
        make_bot(str(tmp_path))


def test_the_sample_bot_uses_only_the_training_split(sample_bot: TfidfBot) -> None:
    train = {d.id for d in sample.dialogues("train")}
    assert {pair.source.partition("#")[0] for pair in sample_bot.index.pairs} == train
    assert sample_bot.spec == "tfidf:sample"


def test_dialogues_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "talks.jsonl"
    file.write_text(json.dumps({"id": "d", "utterances": ["do you sail", "every week"]}) + "\n")
    assert reply_to(make_bot(f"tfidf:{file}?candidates=1"), ask("you sail?")).text == "every week"  # type: ignore[arg-type]
    file.write_text("oops\n" + file.read_text())
    with pytest.raises(DamagedLine, match="line 1"):
        make_bot(f"tfidf:{file}?candidates=1")


def test_missing_data_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"There is no|not found"):
        make_bot(f"tfidf:{tmp_path / 'gone'}")


def test_the_number_of_candidates_is_an_option(sample_bot: TfidfBot) -> None:
    few = TfidfBot(sample_bot.index, TfidfOptions(candidates=3))
    assert len(reply_to(few, ask("do you have a dog")).candidates) == 3
    assert len(reply_to(sample_bot, ask("do you have a dog")).candidates) == 10


def test_only_a_small_index_and_a_plain_search_are_instant(bot: TfidfBot, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bot.traits.instant
    for options in (TfidfOptions(context="all"), TfidfOptions(evidence=True), TfidfOptions(filters="cross-turn")):
        assert not TfidfBot(bot.index, options).traits.instant
    monkeypatch.setattr("tertulia.talk.bots.tfidf.INSTANT_ROWS", len(bot.index.pair_of) - 1)
    assert not TfidfBot(bot.index).traits.instant


def test_what_was_said_is_remembered_as_long_as_the_turns_are_the_same() -> None:
    said, turns = SaidTexts(max_conversations=1), [Turn("ana", "One."), Turn("bot", "Two.")]
    assert said.of(Dialogue("d", tuple(turns))).keys == {"one", "two"}
    assert said.of(Dialogue("d", (*turns, Turn("ana", "Three.")))).keys == {"one", "two", "three"}
    edited = (Turn("ana", "Other."), turns[1], Turn("ana", "Three."))
    assert said.of(Dialogue("d", edited)).keys == {"other", "two", "three"}
    assert said.of(Dialogue("d", (turns[0],))).keys == {"one"}
    assert said.of(Dialogue("e", (turns[1],))).keys == {"two"}
    assert said.of(Dialogue("d", tuple(turns))).keys == {"one", "two"}, "another conversation has taken its place"


def test_the_rows_of_what_was_said_are_those_of_the_turns_in_their_order() -> None:
    said, turns = SaidTexts({"one": [7, 3], "two": [5]}), (Turn("ana", "Two!"), Turn("bot", "One."))
    assert said.of(Dialogue("d", turns[:1])).rows.tolist() == [5]
    assert said.of(Dialogue("d", (*turns, Turn("ana", "one?"), Turn("bot", "Three.")))).rows.tolist() == [5, 7, 3]
    assert said.of(Dialogue("d", turns[1:])).rows.tolist() == [7, 3], "another conversation by the same name"


def test_used_replies_are_listed_only_if_they_are_as_good_as_the_others(bot: TfidfBot) -> None:
    one = TfidfBot(bot.index, TfidfOptions(candidates=1))
    listed = reply_to(one, ask("hm", "I bake my own", "do you like the sea")).candidates
    assert [(c.text, c.dropped) for c in listed] == [("I sail every week", None)]
    listed = reply_to(one, ask("hm", "with milk please", "shall we have tea")).candidates
    assert [(c.text, c.dropped is None) for c in listed] == [("rather some coffee", True), ("with milk please", False)]


def test_of_equal_replies_that_were_all_used_the_first_one_is_repeated(bot: TfidfBot) -> None:
    replies = ["rather some coffee", "with milk please"]
    for used in (replies, replies[::-1]):
        texts = {reply_to(bot, ask(used[0], "so", used[1], "shall we have tea", seed=s)).text for s in range(9)}
        assert texts == {used[0]}


class CountedKeys(list[str]):
    """The keys of a bot's replies, and how many were looked at."""

    looked_at = 0

    def __getitem__(self, index: Any) -> Any:
        self.looked_at += 1
        return super().__getitem__(index)


def test_a_long_conversation_is_not_looked_through_and_what_is_remembered_of_it_changes_no_reply(
    sample_bot: TfidfBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    bot = TfidfBot(sample_bot.index)
    turns: tuple[Turn, ...] = ()
    looked_at: list[int] = []
    split: list[int] = []
    bot._keys = keys = CountedKeys(bot._keys)

    def counted(values: NDArray[np.float64], count: int) -> NDArray[np.bool_]:
        split[-1] += len(values)
        return is_best(values, count)

    is_best = tfidf._is_best
    monkeypatch.setattr(tfidf, "_is_best", counted)
    texts = ["do you have any pets", "i burnt the rice again", "what did you do at the weekend?", "hello"]
    for number in range(600):
        # As from the server, the message is another object when it is a part of the context.
        asked = Ask(Dialogue("d", (*turns, Turn("user", f"{texts[number % 4]} ({number})"))), "bot", seed=number)
        keys.looked_at = 0
        split.append(0)
        reply = reply_to(bot, asked)
        looked_at.append(keys.looked_at)
        if number % 40 < 4:
            split.append(0)
            forgetful = reply_to(TfidfBot(sample_bot.index), asked)
            assert (reply.text, reply.candidates) == (forgetful.text, forgetful.candidates)
            split.pop()
            assert (reply.score, reply.note) == best_unused(bot, asked)
        turns += (Turn("user", asked.last), Turn("bot", reply.text))
    assert len({turn.text for turn in turns if turn.speaker == "bot"}) > 450, "few replies begin with a greeting"
    assert sum(looked_at[-100:]) < 30 * 100, "a hundred and more replies were used for each of the messages"
    assert sum(split[-100:]) <= sum(split[:100]), "the best rows are told from the others once"


def best_unused(bot: TfidfBot, asked: Ask) -> tuple[float, str | None]:
    """The score and the note of the right reply, by looking at everything."""
    used = {text_key(turn.text) for turn in asked.dialogue.turns}
    is_used = [text_key(bot.index.pairs[pair].reply) in used for pair in bot.index.pair_of]
    scores = bot.index.search(bot.index.query(asked.last))
    best = max(score for score, its_used in zip(scores.tolist(), is_used, strict=True) if not its_used)
    return (best, None) if best else (scores.max(), "every similar reply was used already: repeated one")
