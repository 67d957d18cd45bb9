"""A blend ranks by standardised scores, whatever the scales of its members."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.errors import UsageError
from tertulia.core.reply import Ask, Candidate, Provenance, Reply
from tertulia.corpus.load import save_dialogues
from tertulia.talk.bot import RankingBot
from tertulia.talk.bots.blend import BlendBot, BlendOptions, Member
from tertulia.talk.spec import make_bot

ASK = Ask(Dialogue("d", (Turn("you", "what do you bake?"),)))


class Counts:
    """Scores a text by how often it has a letter."""

    summary = "counts a letter"

    def __init__(self, letter: str, scale: float, says: Sequence[Candidate]) -> None:
        self.letter, self.scale, self.says, self.spec = letter, scale, tuple(says), letter

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        first = next(candidate.text for candidate in self.says if candidate.dropped is None)
        return [Reply(first, Provenance(self.spec, f"digest-{self.letter}"), candidates=self.says) for _ in asks]

    def score(self, _asks: Sequence[Ask], candidates: Sequence[Sequence[str]], /) -> list[list[float]]:
        return [[self.scale * text.count(self.letter) - 7 for text in texts] for texts in candidates]


def test_scores_are_added_on_one_scale_and_by_weight() -> None:
    members = [Member(Counts("a", 1000.0, []), 1.0), Member(Counts("b", 0.001, []), 2.0)]
    texts = ["aab", "abb", "c", "aabb"]
    (scores,) = BlendBot(members).score([ASK], [texts])
    a, b = (np.array([text.count(letter) for text in texts], float) for letter in "ab")
    expected = (a - a.mean()) / a.std() + 2 * (b - b.mean()) / b.std()
    assert scores == pytest.approx(expected.tolist())
    assert BlendBot(members).score([ASK, ASK], [["ab", "ba"], []]) == [[0.0, 0.0], []], "no differences, no candidates"


def test_members_propose_and_all_decide() -> None:
    one = Counts("a", 1.0, [Candidate("aa", 3.0, source="corpus#1"), Candidate("aaaa", 9.0, dropped="said before")])
    two = Counts("b", 1.0, [Candidate("bb"), Candidate("aabb"), Candidate("aa")])
    (reply,) = BlendBot([Member(one, 1.0), Member(two, 1.0)], BlendOptions(candidates=2)).reply([ASK])
    assert reply.text == "aabb"
    assert [candidate.text for candidate in reply.candidates] == ["aabb", "aa"], "dropped ones stay out, ties in order"
    assert reply.candidates[1].source == "corpus#1"
    assert reply.provenance.checkpoint == "digest-a+digest-b"


def test_it_is_made_from_a_specification(tmp_path: Path) -> None:
    turns = (
        Turn("a", "what do you bake"),
        Turn("b", "bread in my oven"),
        Turn("a", "do you sail"),
        Turn("b", "rarely"),
    )
    save_dialogues([Dialogue("d", turns)], tmp_path / "train.jsonl")
    bot = make_bot(f"blend:tfidf:{tmp_path},tfidf:{tmp_path}%3Fcontext=all?weights=1,.5")
    assert isinstance(bot, RankingBot)
    assert bot.reply([ASK])[0].text == "bread in my oven"
    assert make_bot(bot.spec).spec == bot.spec
    assert bot.score([ASK], [["bread", "I bake bread"]])[0][1] > 0
    for spec, message in (
        ("blend:tfidf", "two bots or more"),
        ("blend:tfidf,openai:m%3Fbase_url=http://127.0.0.1:9/v1", "cannot score"),
        ("blend:tfidf,tfidf?weights=1", "has 2 bots"),
        ("blend:tfidf,tfidf?weights=0,0", "has 2 bots"),
    ):
        with pytest.raises(UsageError, match=message) as caught:
            make_bot(spec)
        assert caught.value.hint
