import pytest

from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.reply import Ask
from tertulia.talk.bots.generic import GenericBot, GenericOptions


def ask(text: str | None, seed: int = 0) -> Ask:
    return Ask(Dialogue("d", (Turn("ana", text),) if text is not None else ()), seed=seed)


@pytest.mark.parametrize(
    ("message", "reply"),
    [
        ("How are you", "I don't know."),
        ("You like tea?", "I don't know."),
        ("I like tea.", "ok"),
        ("What a day!", "ok"),
        ("", "ok"),
        (None, "ok"),
    ],
)
def test_questions_and_statements_have_one_reply_each(message: str | None, reply: str) -> None:
    assert GenericBot().reply([ask(message)])[0].text == reply


def test_a_batch_is_answered_in_order_with_provenance() -> None:
    replies = GenericBot(GenericOptions(to_statements="mhm")).reply([ask("Hi."), ask("Who?", seed=4)])
    assert [r.text for r in replies] == ["mhm", "I don't know."]
    assert [r.provenance.seed for r in replies] == [0, 4]
    assert replies[0].provenance.bot == "generic"
    assert replies[0].provenance.settings == {"to_questions": "I don't know.", "to_statements": "mhm"}
    assert replies[0].finish == "stop"
    assert GenericBot().reply([]) == []


def test_ranking_prefers_what_it_would_say() -> None:
    ((to_question,), (to_statement,)) = (
        [max(scores)] for scores in GenericBot().score([ask("Why?"), ask("Hi.")], [["I don't know"], ["ok"]])
    )
    assert to_question == to_statement == 1.0
    assert GenericBot().score([ask("Hi.")], [["ok then", "never", "", "🙂"]]) == [[2 / 3, 0, 0, 0]]
