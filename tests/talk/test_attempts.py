"""A rejected reply is not offered again by a bot that has other candidates."""

from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.reply import Ask
from tertulia.talk.spec import make_bot


def test_another_attempt_is_another_reply():
    bot = make_bot("tfidf:sample")
    dialogue = Dialogue("d", (Turn("user", "do you have any pets?"),))
    replies = bot.reply([Ask(dialogue, attempt=n) for n in (1, 2, 3)])
    assert len({reply.text for reply in replies}) == 3
    scores = [reply.score for reply in replies]
    assert scores == sorted(scores, reverse=True)


def test_attempts_start_over_after_the_last_candidate():
    bot = make_bot("tfidf:sample?candidates=2")
    dialogue = Dialogue("d", (Turn("user", "what do you do for fun?"),))
    first, second, third = bot.reply([Ask(dialogue, attempt=n) for n in (1, 2, 3)])
    assert first.text == third.text != second.text
