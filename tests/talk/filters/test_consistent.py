"""The consistency filter: reasons, history, preference; in bots that choose and in how any bot chooses."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tertulia.core.consistency import RelationProbabilities
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import UnknownName, UsageError
from tertulia.core.reply import Ask, Candidate
from tertulia.models.classifiers.consistency import ConsistencyParts, Remembering
from tertulia.models.classifiers.consistency_rules import ConsistencyRules
from tertulia.models.rankers.base import Ranker
from tertulia.talk.bots.ranker import RankerBot, RankerOptions
from tertulia.talk.bots.tfidf import TfidfBot, TfidfOptions
from tertulia.talk.filters.base import apply_filters, choose, make_filters
from tertulia.talk.filters.consistent import RANKED, Consistent, own_statements
from tertulia.talk.filters.retrieval import CONSIDERED, choose_filtered
from tertulia.talk.pool import ReplyPool
from tertulia.talk.tfidf_index import TfidfIndex

NURSE = Persona(("i am a nurse.", "i have two kids."))


def ask(*texts: str, persona: Persona | None = NURSE, attempt: int = 1) -> Ask:
    """A conversation whose last turn is the partner's."""
    turns = tuple(Turn(("ana", "bot")[(len(texts) - i + 1) % 2], text) for i, text in enumerate(texts))
    personas = {"ana": Persona(("i am in sales.", "i have no kids."))} | ({"bot": persona} if persona else {})
    return Ask(Dialogue("d", turns, personas), "bot", attempt=attempt)


def test_reasons_name_both_sentences() -> None:
    reasons = Consistent().many(ask("what do you do ?"), ["i am in sales , you ?", "i am a nurse .", "nice weather ."])
    assert reasons == ["contradicts 'i am a nurse.': 'i am in sales'", None, None]


def test_a_bare_answer_is_read_with_its_question() -> None:
    assert (
        Consistent()(ask("do you have kids ?"), "no , not yet .")
        == "contradicts 'i have two kids.': 'i do not have kids'"
    )
    assert Consistent()(ask("do you have kids ?"), "yes !") is None
    assert Consistent()(ask("do you have pets ?"), "no .") is None


def test_own_earlier_turns_count_but_not_the_partners() -> None:
    talk = ask("do you have pets ?", "no .", "i have two cats . you live alone ?", persona=None)
    assert own_statements(talk) == ("no .", "i do not have pets")
    assert (
        Consistent()(talk, "my dog keeps me company .")
        == "contradicts 'i do not have pets': 'my dog keeps me company .'"
    )
    assert Consistent(history=False)(talk, "my dog keeps me company .") is None
    assert Consistent()(talk, "i have no cats .") is None


def test_a_higher_threshold_keeps_weak_cases() -> None:
    weak = "i am quite rich ."
    broke = ask("hi", persona=Persona(("i am poor.",)))
    assert Consistent()(broke, weak) is not None
    assert Consistent(threshold=0.8)(broke, weak) is None


def test_candidates_that_tell_what_is_asked_come_first() -> None:
    texts = ["i am in sales .", "i bake a lot .", "yes !", "my two kids are five and six .", "nice question ."]
    candidates = [Candidate(text, -float(i)) for i, text in enumerate(texts)]
    filters = make_filters("consistent")
    filtered = apply_filters(filters, ask("do you have kids ?"), candidates)
    assert [one.bonus for one in filtered] == [0, 0, 0.5, 1, 0.5]  # other things about oneself may be wrong
    assert choose(filtered, fallback="").text == texts[3]
    assert [choose(filtered, fallback="", attempt=i).text for i in (2, 3, 4)] == [texts[2], texts[4], texts[1]]
    unasked = apply_filters(filters, ask("how are you ?"), candidates)
    assert choose(unasked, fallback="").text == texts[1]
    off = apply_filters(make_filters("consistent:prefer=false"), ask("do you have kids ?"), candidates)
    assert choose(off, fallback="").text == texts[1]


def test_work_in_the_same_field_is_not_what_is_asked_for() -> None:
    texts = ["i work at a hospital .", "i am a nurse .", "and you ?", "i am a nurse at a clinic ."]
    bonus = Consistent().bonus(ask("what do you do for a living ?"), texts)
    assert bonus == [0.25, 1, 0.5, 1]
    singer = ask("what do you do for a living ?", persona=Persona(("i am a country music singer.",)))
    assert Consistent().bonus(singer, ["i work at the art gallery in our town ."]) < [0.5]
    model = Sceptic("office", entailed="hospital")
    assert with_model(model).bonus(ask("what do you do for a living ?"), [texts[0], texts[2]]) == [1, 0.5]


def test_enough_candidates_reach_the_filter_and_the_chosen_one_is_listed() -> None:
    jobs = [Candidate(f"i am a plumber , take {i} .") for i in range(CONSIDERED - 1)]
    choice, listed, redraws = choose_filtered(
        make_filters("consistent"), ask("what do you do ?"), [[*jobs, Candidate("i nurse .")]], listed=3
    )
    assert (choice.text, redraws) == ("i nurse .", 0)
    assert [one.text for one in listed] == [*(one.text for one in jobs[:3]), "i nurse ."]
    assert all(one.dropped for one in listed[:3])


def test_later_candidates_are_looked_at_only_if_none_before_is_good_enough() -> None:
    jobs = [Candidate("i am a plumber ."), Candidate("it rains .")]
    looked_at = []

    def rounds(*more: list[Candidate]) -> Iterator[list[Candidate]]:
        for candidates in (jobs, *more):
            looked_at.append(candidates)
            yield candidates

    filters, nurse = make_filters("consistent"), [Candidate("i am a nurse .")]
    choice, listed, redraws = choose_filtered(filters, ask("what do you do ?"), rounds(nurse, jobs), listed=1)
    assert (choice.text, redraws, looked_at) == ("i am a nurse .", 1, [jobs, nurse])
    assert [one.text for one in listed] == ["i am a plumber .", "i am a nurse ."]
    looked_at.clear()
    choice, _, redraws = choose_filtered(filters, ask("how are you ?"), rounds(nurse), listed=1)
    assert (choice.text, redraws, looked_at) == ("it rains .", 0, [jobs])
    choice, _, redraws = choose_filtered(filters, ask("what do you do ?"), rounds([]), listed=1)
    assert (choice.text, redraws) == ("it rains .", 0)


def test_a_retrieval_bot_looks_further_down_its_pool(ranker: Ranker) -> None:
    question = "what do you do for a living ?"
    pool = [f"what do i do for a living ? i am a plumber , take {i} ." for i in range(CONSIDERED + 10)]
    dialogues = [
        Dialogue(f"d{i}", (Turn("a", question if "take" in text else f"{question} well ?"), Turn("b", text)))
        for i, text in enumerate([*pool, "i nurse ."])
    ]
    bots = (
        TfidfBot(TfidfIndex.from_dialogues(dialogues), TfidfOptions(filters="consistent", persona_weight=0)),
        RankerBot(ranker, ReplyPool.of(dialogues, ranker), RankerOptions(filters="consistent", echo=1)),
    )
    for bot in bots:
        (nurse,) = bot.reply([ask(question)])
        assert (nurse.text, nurse.redraws, nurse.note) == ("i nurse .", 1, None)
        (plumber,) = bot.reply([ask(question, persona=Persona(("i am a plumber.",)))])
        assert (plumber.text in pool, plumber.redraws) == (True, 0)


def test_a_retrieval_bot_with_the_filter() -> None:
    replies = ("i am in sales .", "i am a plumber .", "i am a nurse , it is hard work .")
    dialogues = [
        Dialogue(f"d{i}", (Turn("a", "what do you do for a living ?"), Turn("b", text)))
        for i, text in enumerate(replies)
    ]
    index = TfidfIndex.from_dialogues(dialogues)
    request = ask("what do you do for a living ?")
    (reply,) = TfidfBot(index, TfidfOptions(filters="consistent", persona_weight=0)).reply([request])
    assert reply.text == replies[2]
    assert {one.dropped for one in reply.candidates if one.text != reply.text} == {
        "contradicts 'i am a nurse.': 'i am in sales .'",
        "contradicts 'i am a nurse.': 'i am a plumber .'",
    }
    (other,) = TfidfBot(index, TfidfOptions(filters="consistent", persona_weight=0)).reply(
        [ask("what do you do for a living ?", persona=Persona(("i am a lawyer.",)))]
    )
    assert (other.note or "").startswith("every candidate was dropped")


class Sceptic:
    """A model that finds hypotheses with some words contradicting or entailed, and remembers what it was asked."""

    def __init__(self, word: str, *, doubted: str = "-", entailed: str = "-") -> None:
        self.word, self.doubted, self.entailed, self.asked = word, doubted, entailed, list[tuple[str, str]]()

    def probabilities(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[RelationProbabilities]:
        """0.95 of contradiction for the word, 0.6 for the doubted one, 0.95 of entailment for the entailed one."""
        self.asked += zip(premises, hypotheses, strict=True)
        rows = []
        for text in hypotheses:
            against = 0.95 if self.word in text else 0.6 if self.doubted in text else 0.0
            rows.append(RelationProbabilities(0.95 if self.entailed in text else 0.0, 0.05, against))
        return rows


def with_model(model: Sceptic, *, rules: bool = True, **options: Any) -> Consistent:
    """The filter with rules and a model, or with the model alone."""
    made = Consistent(**options)
    made._parts = ConsistencyParts(ConsistencyRules() if rules else None, model)
    return made


def test_a_model_is_asked_about_related_pairs_of_the_best_candidates_that_the_rules_keep() -> None:
    model = Sceptic("office")
    texts = [
        "i am in sales .",
        "just office work .",
        *(f"i find it hard , take {i} ." for i in range(20)),
        "i am a nurse .",
    ]
    reasons = with_model(model, enough=3).many(ask("what do you do for a living ?"), texts)
    assert reasons[:2] == [
        "contradicts 'i am a nurse.': 'i am in sales .'",
        "contradicts 'i am a nurse.': 'just office work .'",
    ]
    assert reasons[2:] == [None] * 21
    asked = {hypothesis for _, hypothesis in model.asked}
    assert "i am in sales ." not in asked  # the rules have dropped it
    assert "i am a nurse ." not in asked  # the rules find it entailed
    assert 1 <= len([text for text in asked if "take" in text]) < RANKED  # of twenty
    assert {premise for premise, _ in model.asked} == {"i am a nurse."}


def test_if_nothing_is_left_a_models_doubt_weighs_less_than_a_rule() -> None:
    filter_ = with_model(Sceptic("office", doubted="desk"), model_threshold=0.55)
    texts = ["i am in sales .", "just office work .", "just desk work .", "i am a plumber ."]
    filtered = apply_filters([filter_], ask("what do you do for a living ?"), [Candidate(text) for text in texts])
    assert all(one.candidate.dropped for one in filtered)
    choice = choose(filtered, fallback="")
    assert choice.text == "just desk work ."  # the model is least sure of it
    assert (choice.note or "").startswith("every candidate was dropped")


def test_a_model_ranks_what_the_rules_do_not_understand() -> None:
    model = Sceptic("office", doubted="clinics", entailed="patients")
    filters = (with_model(model),)
    texts = ["i find it hard .", "i run three clinics .", "how are you ?", "i look after patients ."]
    request = ask("what do you do for a living ?")
    filtered = apply_filters(filters, request, [Candidate(text) for text in texts])
    assert [one.bonus for one in filtered] == [0, -0.25, 0.5, 1]
    order = [choose(filtered, fallback="", attempt=i).text for i in range(1, 5)]
    assert order == [texts[i] for i in (3, 2, 0, 1)]
    clear = apply_filters(filters, request, [Candidate(text) for text in (*texts, "i am a nurse .")])
    assert [one.bonus for one in clear] == [0, 0, 0.5, 0, 1]  # the rules see the answer: the model is not needed
    doubted = apply_filters(filters, request, [Candidate("i am a nurse . clinics bore me ."), Candidate(texts[3])])
    assert [one.bonus for one in doubted] == [0.75, 1]
    unasked = apply_filters(filters, ask("how are you ?"), [Candidate(text) for text in texts])
    assert [one.bonus for one in unasked] == [0] * 4


def test_a_model_is_asked_about_a_pair_once() -> None:
    model = Sceptic("office")
    remembering = Remembering(model, size=3)
    for hypothesis, rows in (("office", 0.95), ("tea", 0.0), ("office", 0.95)):
        assert [row.contradiction for row in remembering.probabilities(["job"], [hypothesis])] == [rows]
    assert model.asked == [("job", "office"), ("job", "tea")]
    remembering.probabilities(["a", "b"], ["c", "d"])  # too many to remember: all are forgotten
    remembering.probabilities(["job"], ["tea"])
    assert model.asked[-1] == ("job", "tea")
    assert remembering.probabilities([], []) == []


def test_a_model_by_itself_decides_from_its_own_threshold_on() -> None:
    request = ask("what do you do for a living ?")
    for limit, reason in ((0.9, "contradicts 'i am a nurse.': 'just office work .'"), (0.96, None)):
        chosen = with_model(Sceptic("office"), rules=False, model_threshold=limit)
        assert chosen.many(request, ["just office work .", "i am in sales ."]) == [reason, None]


def test_a_wrong_classifier_fails_at_once() -> None:
    with pytest.raises(UsageError, match="does not name an entailment classifier"):
        make_filters("consistent:classifier=nowhere")


def test_filters_see_more_candidates_than_are_listed(ranker: Ranker) -> None:
    said = [*(f"I love my boat on the sea {word}" for word in "one two three four five six".split()), "tea with milk"]
    dialogues = [Dialogue(text, (Turn("a", "hello, do you like boats"), Turn("b", text))) for text in said]
    pool = ReplyPool.of(dialogues, ranker)
    request = ask("do you like boats on the sea", persona=Persona(("I hate my boat.",)))
    plain = RankerBot(ranker, pool, RankerOptions(candidates=2))
    assert "boat" in plain.reply([request])[0].text
    (filtered,) = RankerBot(ranker, pool, RankerOptions(candidates=2, filters="consistent")).reply([request])
    assert "love my boat" not in filtered.text
    assert len(filtered.candidates) == 3
    assert [str(c.dropped).partition(":")[0] for c in filtered.candidates[:2]] == ["contradicts 'I hate my boat.'"] * 2
    with pytest.raises(UnknownName, match="no filter called"):
        RankerBot(ranker, pool, RankerOptions(filters="consistant"))
