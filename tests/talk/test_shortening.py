"""Shortened candidates: which prefix is offered, how it is scored and shown, and where nothing is shortened."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import pytest

from tertulia.core.dialogue import Dialogue, Evidence, Persona, Turn
from tertulia.core.reply import Ask, Candidate, Provenance, Reply
from tertulia.core.text import sentences
from tertulia.models.decoding import DecodingConfig
from tertulia.models.generated import Generation
from tertulia.models.generator import DialogueView
from tertulia.models.tokenizer import WordTokenizer
from tertulia.talk.filters.base import Filter, apply_filters, make_filters
from tertulia.talk.generation import CUT, DrawnCandidates, FilterPolicy, GenerationRequest
from tertulia.talk.shortening import MAX_SENTENCES, prefixes, shorten

NURSE = Persona(("i am a nurse.", "i have two kids."))
JOB = "what do you do for a living ?"
TEXTS = {
    "sales": "hello. i am in sales. i like tea.",
    "then": "i am a nurse. i like tea. i have no kids.",
    "tea": "i like tea. i am in sales.",
    "nurse": "i am a nurse.",
    "threat": "hello. i will kill you.",
}
TOKENIZER = WordTokenizer(sorted({word for text in TEXTS.values() for word in [*text.replace(".", " ").split(), "."]}))


def ask(question: str = JOB, **options: object) -> Ask:
    return Ask(Dialogue("d", (Turn("ana", question),), {"bot": NURSE}), "bot", options=options)


def generation(text: str, logprob: float = -1.0, *, finished: bool = True) -> Generation:
    """What a model wrote, each token with another probability."""
    ids = tuple(TOKENIZER.encode(text))
    text = TOKENIZER.decode(ids)
    logprobs = tuple(logprob - i / 10 for i in range(len(ids) + finished))
    total = sum(logprobs)
    return Generation(ids, text, total, len(logprobs), total / len(logprobs), finished, logprobs=logprobs)


def reply_of(
    *rounds: Sequence[Generation], one: Ask | None = None, filters: str = "empty,safety,consistent", **changed: object
) -> Reply:
    one = one or ask()
    request = GenerationRequest(one, DialogueView((), ()), 3, Provenance("bot"))
    policy = replace(FilterPolicy(make_filters(filters), "Well.", 20, len(rounds) - 1), **changed)  # type: ignore[arg-type]
    drawn = DrawnCandidates(request, DecodingConfig(), policy, TOKENIZER)
    for generations in rounds:
        if drawn.next_sample == 0 or drawn.wants_more:
            drawn.add(generations)
    return drawn.choose_reply(0.0)


def test_the_longest_prefix_that_is_kept_is_a_candidate() -> None:
    reply = reply_of([generation(TEXTS["then"])])
    reason = "contradicts 'i have two kids.': 'i have no kids.'"
    note = f"cut after sentence 2 of 3; with the next one: {reason}"
    assert (reply.text, reply.note, reply.finish) == ("i am a nurse. i like tea.", note, "stop")
    whole, cut = reply.candidates
    assert (whole.text, whole.dropped, whole.note) == (TEXTS["then"], reason, None)
    assert (cut.text, cut.dropped, cut.note) == (reply.text, None, note)


def test_the_score_is_that_of_the_tokens_that_are_left() -> None:
    written = generation(TEXTS["then"])
    reply = reply_of([written], one=ask(logprobs=True))
    left = written.logprobs[:9]
    assert reply.score == pytest.approx(sum(left) / 9)
    assert reply.score != pytest.approx(written.score)
    assert reply.logprobs is not None
    assert [one.logprob for one in reply.logprobs] == list(left)
    assert "".join(one.text for one in reply.logprobs) == reply.text
    unknown = replace(written, logprobs=())
    assert reply_of([unknown]).score == written.score  # nothing better is known


def test_the_preference_decides_and_whole_replies_come_first() -> None:
    # To tell what is asked for beats a greeting; a greeting beats other things about oneself.
    telling = reply_of([generation(TEXTS["sales"]), generation(TEXTS["then"], -3.0)])
    assert telling.text == "i am a nurse. i like tea."
    assert reply_of([generation(TEXTS["sales"], -3.0), generation(TEXTS["tea"])]).text == "hello."
    # Among equals, the one that the model ended, although the other scores higher.
    equal = reply_of([generation(TEXTS["nurse"], -5.0), generation(TEXTS["then"])])
    assert (equal.text, equal.note) == (TEXTS["nurse"], None)
    assert [one.note is None for one in equal.candidates] == [True, True, False]


def test_nothing_is_drawn_again_if_a_prefix_is_good_enough() -> None:
    again = [generation(TEXTS["nurse"])]
    assert reply_of([generation(TEXTS["then"])], again).redraws == 0
    better = reply_of([generation(TEXTS["sales"])], again)  # a greeting is not what the partner asks for
    assert (better.text, better.redraws) == (TEXTS["nurse"], 1)
    whole = reply_of([generation(TEXTS["then"])], again, shorten=False)
    assert (whole.text, whole.redraws) == (TEXTS["nurse"], 1)


def test_equal_prefixes_are_one_candidate() -> None:
    reply = reply_of([generation(TEXTS["sales"]), generation("hello. i am in sales.", -2.0), generation("hello.")])
    assert [one.text for one in reply.candidates].count("hello.") == 1
    assert (reply.text, reply.note) == ("hello.", None)


def test_what_was_cut_off_ends_with_a_sentence() -> None:
    reply = reply_of([generation("i am a nurse. i like", finished=False)])
    assert (reply.text, reply.finish) == ("i am a nurse.", "stop")
    assert reply.note == f"cut after sentence 1 of 2; with the next one: {CUT}"


def test_what_leads_up_to_a_threat_is_not_said() -> None:
    reply = reply_of([generation(TEXTS["threat"])])
    assert (reply.text, len(reply.candidates)) == ("Well.", 1)


@pytest.mark.parametrize("changed", [{"shorten": False}, {"filters": "empty,safety,too-long:max_words=3"}])
def test_nothing_is_shortened_without_a_filter_that_judges_sentences(changed: dict[str, object]) -> None:
    reply = reply_of([generation(TEXTS["then"])], **changed)  # type: ignore[arg-type]
    assert reply.text == TEXTS["then"]
    assert [one.note for one in reply.candidates] == [None]


class Doubtful:
    """Keeps everything, and wants replies that tell something and nothing else."""

    weight: ClassVar[float] = 1.0
    by_sentence: ClassVar[Literal[True]] = True

    def __call__(self, ask: Ask, text: str, /) -> str | None:
        return None

    def bonus(self, ask: Ask, texts: Sequence[str], /) -> list[float]:
        return [1.0 if text.endswith("nurse.") else 0.5 for text in texts]

    def wanted_bonus(self, ask: Ask, /) -> float:
        return 1.0


def test_a_kept_reply_is_shortened_only_to_what_filters_want() -> None:
    filters: tuple[Filter, ...] = (Doubtful(),)

    def shortened(text: str) -> str | None:
        (whole,) = apply_filters(filters, ask(), [Candidate(text)])
        made = shorten(filters, ask(), whole)
        return made and f"{made.filtered.candidate.text} ({made.note})"

    assert (
        shortened("Hi! I am a nurse. Tea? No.")
        == "Hi! I am a nurse. (cut after sentence 2 of 4; filters prefer it to the whole)"
    )
    assert shortened("Hi! I like tea. No.") is None
    assert shortened("Hi! I am a nurse.") is None


def test_only_so_many_prefixes_are_tried() -> None:
    text = " ".join(f"It is {i}." for i in range(15))
    assert [len(sentences(one)) for one in prefixes(text)] == list(range(MAX_SENTENCES, 0, -1))
    (whole,) = apply_filters(make_filters("consistent"), ask(), [Candidate(f"{text} I am in sales.")])
    made = shorten(make_filters("consistent"), ask(), whole)
    assert made is not None
    assert "cut after sentence 10 of 16; with the others: contradicts 'i am a nurse.'" in made.note


def test_a_reply_is_shortened_to_what_the_evidence_supports() -> None:
    club = Dialogue(
        "d", (Turn("ana", "tell me about the club"),), evidence=(Evidence("The club was founded in 1982."),)
    )
    text = "The club was founded in 1982. It was founded by monks in Peru."
    one = GenerationRequest(Ask(club), DialogueView((), ()), 3, Provenance("bot"))
    drawn = DrawnCandidates(one, DecodingConfig(), FilterPolicy(make_filters("grounded"), "", 9), TOKENIZER)
    drawn.add([Generation((), text, -1.0, 9, -1.0, finished=True)])
    assert drawn.choose_reply(0.0).text == "The club was founded in 1982."
