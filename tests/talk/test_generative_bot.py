"""The generative bot with a tiny model: a table of which word follows which, saved and loaded like any other."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest
import torch
from torch import nn

from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import ConfigError, UsageError
from tertulia.core.registry import Row
from tertulia.core.reply import Ask, Piece, Reply
from tertulia.models.checkpoint import load_weights, read_model, save_weights, seal
from tertulia.models.decoding import PRESETS
from tertulia.models.generator import DialogueView, Importance, Latent, LatentGenerator, Nll, TargetTurns
from tertulia.models.loading import load_generator
from tertulia.models.registry import GENERATORS
from tertulia.models.sampling import Keys
from tertulia.models.tokenizer import END, Tokenizer, WordTokenizer, load_tokenizer
from tertulia.talk.bot import RankingBot, StreamingBot
from tertulia.talk.bots.finetuned import FinetunedBot
from tertulia.talk.bots.generative import GenerativeBot, GenerativeOptions, view_of
from tertulia.talk.generation import CUT
from tertulia.talk.registry import BOTS
from tertulia.talk.spec import make_bot

WORDS = "i have a dog cat hello . you like tea ? yes".split()


class TableState:
    def __init__(self, last: torch.Tensor) -> None:
        self.last = last  # (rows,)

    def expand(self, count: int, /) -> "TableState":
        return TableState(self.last.repeat_interleave(count))

    def select(self, rows: torch.Tensor, /) -> "TableState":
        return TableState(self.last[rows])


class Table(nn.Module):
    """The next word by the last one; the first one by the last word of the persona and turns."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        rng = torch.Generator().manual_seed(4)
        self.table = nn.Parameter(torch.randn(len(tokenizer), len(tokenizer), generator=rng).double() * 2)
        self.batches: list[int] = []

    def start(self, views: Sequence[DialogueView], /) -> TableState:
        self.batches.append(len(views))
        return TableState(torch.tensor([self.last(view) for view in views]))

    def last(self, view: DialogueView) -> int:
        return (0, *(i for text in (*view.persona, *view.turns) for i in self.tokenizer.encode(text)))[-1]

    def step(self, state: TableState, tokens: torch.Tensor | None, /) -> tuple[torch.Tensor, TableState]:
        last = state.last if tokens is None else tokens
        return self.table[last], TableState(last)

    def nll(self, views: Sequence[DialogueView], /, *, target_turns: TargetTurns = "all") -> Nll:
        assert target_turns == "last"
        self.batches.append(len(views))
        losses = [self.reply_nll(replace(v, turns=v.turns[:-1], own=v.own[:-1]), v.turns[-1]) for v in views]
        return Nll(torch.tensor([total for total, _ in losses]), torch.tensor([count for _, count in losses]))

    def reply_nll(self, context: DialogueView, text: str) -> tuple[float, int]:
        ids = [self.last(context), *self.tokenizer.encode(text), END]
        table = self.table.detach().log_softmax(-1)
        return -sum(float(table[a, b]) for a, b in itertools.pairwise(ids)), len(ids) - 1

    def save(self, folder: Path, /) -> list[str]:
        save_weights(folder, self, {})
        return [self.tokenizer.save(folder)]

    @classmethod
    def load(cls, folder: Path, /) -> Self:
        read_model(folder)
        model = cls(load_tokenizer(folder))
        load_weights(folder, model)
        return model.eval()


@pytest.fixture
def model() -> Table:
    return Table(WordTokenizer(WORDS)).eval()


def ask(*texts: str, seed: int = 1, attempt: int = 1, **options: object) -> Ask:
    turns = tuple(Turn("bot" if i % 2 else "ana", text) for i, text in enumerate(texts))
    return Ask(Dialogue("d", turns), "bot", seed, options, attempt)


ASKS = [ask("hello ."), ask("you like tea ?", seed=2), ask("hello .", "yes", "you have a cat ?", seed=3), ask(seed=4)]


def joined(pieces: list[Piece], count: int) -> list[tuple[str, Reply]]:
    """The texts as streamed, and the complete replies."""
    replies = {p.index: p.reply for p in pieces if p.reply}
    return [("".join(p.text for p in pieces if p.index == i), replies[i]) for i in range(count)]


def test_it_is_a_streaming_and_ranking_bot(model: Table) -> None:
    bot = GenerativeBot(model)
    assert isinstance(bot, StreamingBot)
    assert isinstance(bot, RankingBot)
    assert bot.decoding == PRESETS["meena-full"]


def test_a_view_has_the_personas_of_both_sides() -> None:
    personas = {"bot": Persona(("i have a cat .",)), "ana": Persona(("i have a dog .",))}
    one = Ask(Dialogue("d", (Turn("ana", "hello"), Turn("bot", "yes")), personas), "bot")
    assert view_of(one) == DialogueView(("hello", "yes"), (False, True), ("i have a cat .",), ("i have a dog .",))
    assert view_of(Ask(Dialogue("d", ()), "bot")) == DialogueView((), ())


def test_a_reply_has_candidates_provenance_and_usage(model: Table) -> None:
    bot = GenerativeBot(model, GenerativeOptions(max_tokens=12), spec="seq2seq:run", fingerprint="abc")
    for one, reply in zip(ASKS, bot.reply(ASKS), strict=True):
        fit = [c for c in reply.candidates if c.dropped is None]
        assert reply.text == fit[0].text
        assert reply.score == fit[0].score
        scores = [c.score or 0.0 for c in reply.candidates]
        assert scores == sorted(scores, reverse=True)
        total, count = model.reply_nll(view_of(one), reply.text)
        assert reply.score == pytest.approx(-total / count, abs=1e-5)
        assert reply.provenance.bot == "seq2seq:run"
        assert reply.provenance.checkpoint == "abc"
        assert reply.provenance.seed == one.seed
        assert reply.provenance.settings["samples"] == 20
        assert reply.provenance.settings["filters"] == bot.options.filters
        assert (reply.finish, reply.note) == ("stop", None)
        assert reply.usage is not None
        assert reply.usage.completion == count
        assert reply.usage.prompt == sum(len(model.tokenizer.encode(t.text)) for t in one.dialogue.turns)
    assert any(c.dropped for reply in bot.reply(ASKS) for c in reply.candidates)


@pytest.mark.parametrize("method", ["sample", "greedy", "beam", "sample-and-rank"])
def test_a_reply_depends_on_its_ask_alone(model: Table, method: str) -> None:
    bot = GenerativeBot(model, GenerativeOptions(method=method, max_tokens=12))  # type: ignore[arg-type]
    together = bot.reply(ASKS)
    alone = [bot.reply([one])[0] for one in ASKS]
    assert comparable(together) == comparable(alone)
    assert bot.reply([]) == []


def comparable(replies: list[Reply]) -> list[Reply]:
    """Without the time; scores up to rounding."""
    return [
        replace(
            r,
            seconds=0,
            score=round(r.score or 0, 9),
            candidates=tuple(replace(c, score=round(c.score or 0, 9)) for c in r.candidates),
        )
        for r in replies
    ]


def test_an_ask_may_override_decoding_and_asks_with_the_same_options_form_a_batch(model: Table) -> None:
    bot = GenerativeBot(model, GenerativeOptions(max_tokens=12))
    asks = [*ASKS, ask("hello .", temperature=0.1, top_k=None, colour="red"), ask("hello .", max_tokens=1)]
    replies = bot.reply(asks)
    assert model.batches == [4, 1, 1]
    assert comparable(replies[:4]) == comparable(bot.reply(ASKS))
    assert replies[4].provenance.settings["temperature"] == 0.1
    assert replies[4].provenance.settings["top_k"] == 40
    assert replies[5].finish == "length"
    assert replies[5].note == f"every candidate was dropped: used the least bad one ({CUT})"
    with pytest.raises(ConfigError, match="In the options of this reply: temperature"):
        bot.reply([ask("hello .", temperature=-1)])


def test_another_attempt_is_another_reply(model: Table) -> None:
    ranked = GenerativeBot(model, GenerativeOptions(max_tokens=12))
    first = ranked.reply([ask("hello .")])[0]
    second = ranked.reply([ask("hello .", attempt=2)])[0]
    assert [c.text for c in first.candidates if not c.dropped][1] == second.text
    sampled = GenerativeBot(model, GenerativeOptions(method="sample", max_tokens=12, filters="none"))
    assert len({sampled.reply([ask("hello .", attempt=n)])[0].text for n in range(1, 9)}) > 4


def test_a_reply_is_not_repeated(model: Table) -> None:
    bot = GenerativeBot(model, GenerativeOptions(max_tokens=12, min_tokens=4))
    first = bot.reply([ask("hello .")])[0].text
    again = bot.reply([ask("hello .", first, "hello .")])[0]
    dropped = {c.text: c.dropped for c in again.candidates}
    assert again.text != first
    assert "repeats itself" in (dropped[first] or "")


def test_the_fallback_is_used_where_no_candidate_is_safe(model: Table, tmp_path: Path) -> None:
    every = tmp_path / "every.txt"
    every.write_text("\n".join(w for w in WORDS if w.isalpha()), encoding="utf-8")
    options = GenerativeOptions(max_tokens=12, filters=f"empty,safety:lexicon={every}", fallback="Well.")
    reply = GenerativeBot(model, options).reply([ask("hello .")])[0]
    assert (reply.text, reply.score, reply.finish) == ("Well.", None, "stop")
    assert reply.note == "no candidate could be used: used the fallback text"
    assert all(c.dropped for c in reply.candidates)


DRAWN_AGAIN = GenerativeOptions(samples=2, max_tokens=99, filters="too-long:max_words=2", redraws=3)


def test_samples_are_drawn_again_if_all_are_rejected(model: Table) -> None:
    asks = [ask("hello .", seed=seed) for seed in range(30)]
    replies = GenerativeBot(model, DRAWN_AGAIN).reply(asks)
    assert {reply.redraws for reply in replies} > {0, 3}
    assert model.batches == [sum(reply.redraws >= n for reply in replies) for n in range(4)]
    for one, reply in zip(asks, replies, strict=True):
        assert reply.note is None or reply.redraws == 3
        # Together, the samples are those that would have been drawn at once: the last ones made the difference.
        samples = [2 * (reply.redraws + 1), 2 * reply.redraws]
        at_once, before = (
            GenerativeBot(model, DRAWN_AGAIN.model_copy(update={"samples": n, "redraws": 0})).reply([one])[0]
            for n in (samples if reply.redraws else samples[:1] * 2)
        )
        assert (reply.text, reply.score) == (at_once.text, pytest.approx(at_once.score))
        assert [c.text for c in reply.candidates] == [c.text for c in at_once.candidates]
        assert before.note is not None or not reply.redraws


def test_redraws_depend_on_the_ask_alone_and_work_in_a_running_batch(model: Table) -> None:
    bot = GenerativeBot(model, DRAWN_AGAIN)
    asks = [ask("hello .", seed=seed) for seed in range(12)]
    together = bot.reply(asks)
    assert comparable([bot.reply([one])[0] for one in asks]) == comparable(together)
    streamed = [reply for _, reply in joined(list(bot.stream(asks, alive=lambda _: True)), len(asks))]
    assert comparable(streamed) == comparable(together)
    assert len({reply.redraws for reply in streamed}) > 1
    again = bot.reply([replace(one, attempt=2) for one in asks])
    assert [reply.redraws for reply in again] == [reply.redraws for reply in together]


def test_nothing_is_drawn_again_where_that_cannot_help(model: Table) -> None:
    for options in (
        {"method": "greedy"},
        {"method": "beam"},
        {"temperature": 0.0},
        {"filters": "none"},
        {"max_tokens": 3, "min_tokens": 3},  # all are cut off
        {"redraws": 0},
    ):
        impatient = GenerativeBot(model, GenerativeOptions.model_validate(DRAWN_AGAIN.model_dump() | options))
        replies = impatient.reply([ask("hello .", seed=seed) for seed in range(5)])
        assert {reply.redraws for reply in replies} == {0}, options
    (reply,) = GenerativeBot(model, DRAWN_AGAIN.model_copy(update={"redraws": 0})).reply([ask("hello .", redraws=3)])
    assert reply.redraws == 0  # not for whoever asks
    assert reply.provenance.settings["redraws"] == 0


def test_a_reply_can_be_cancelled_while_more_is_drawn(model: Table) -> None:
    bot = GenerativeBot(model, DRAWN_AGAIN)
    seed = next(s for s in range(50) if bot.reply([ask("hello .", seed=s)])[0].redraws == 3)
    session = bot.open_session()
    session.add(0, ask("hello .", seed=seed))
    before = len(model.batches)
    while len(model.batches) < before + 2:  # the second round has begun
        assert session.step() == []
    session.cancel(0)
    (last,) = session.step()
    assert last.reply is not None
    assert (last.text, last.reply.text, last.reply.finish) == ("", "", "cancelled")
    assert session.step() == []
    session.add(0, ask("hello .", seed=seed))  # there is nothing left of it


class Nurse(Table):
    """Says that it is a nurse, in sales, or likes tea, in one to many sentences."""

    def __init__(self) -> None:
        super().__init__(WordTokenizer("how are you ? i am a nurse in sales like tea .".split()))
        following = {"?": "i", "i": "am like", "am": "a in", "a": "nurse", "in": "sales", "like": "tea", ".": "i"}
        following |= dict.fromkeys(("nurse", "sales", "tea"), ".")
        with torch.no_grad():
            self.table.fill_(-9.0)
            for word, after in following.items():
                for first in self.tokenizer.encode(word):
                    self.table[first, self.tokenizer.encode(after)] = 1.0
            self.table[self.tokenizer.encode("."), END] = 1.0


def test_what_is_dropped_for_a_sentence_is_offered_up_to_the_sentence_before() -> None:
    options = GenerativeOptions(samples=1, max_tokens=30, filters="empty,safety,consistent", redraws=0)
    personas = {"bot": Persona(("i am a nurse .",))}
    asks = [Ask(Dialogue("d", (Turn("ana", "how are you ?"),), personas), "bot", seed) for seed in range(20)]
    bot, whole = (GenerativeBot(Nurse().eval(), options.model_copy(update={"shorten": on})) for on in (True, False))
    replies, others = bot.reply(asks), whole.reply(asks)
    for reply, other in zip(replies, others, strict=True):
        # The candidates are the same; beginnings of those that were dropped come after them.
        assert reply.candidates[: len(other.candidates)] == other.candidates
        for one in reply.candidates[len(other.candidates) :]:
            assert one.note is not None
            assert "sales" not in one.text
            assert any(c.dropped and c.text.startswith(one.text) for c in other.candidates)
    assert sum("sales" in reply.text for reply in replies) < sum("sales" in reply.text for reply in others)
    streamed = [reply for _, reply in joined(list(bot.stream(asks, alive=lambda _: True)), len(asks))]
    assert comparable(streamed) == comparable(replies)
    visitor = bot.reply([replace(one, options={"shorten": False}) for one in asks])  # not for whoever asks
    assert [reply.text for reply in visitor] == [reply.text for reply in replies]
    assert replies[0].provenance.settings["shorten"] is True


def test_the_candidates_are_limited_and_include_the_reply(model: Table) -> None:
    bot = GenerativeBot(model, GenerativeOptions(max_tokens=12, candidates=2, samples=100, top_k=0))
    for attempt in (1, 9):
        reply = bot.reply([ask("hello .", attempt=attempt)])[0]
        assert len(reply.candidates) == 2
        assert reply.text in [c.text for c in reply.candidates]


def test_without_filters_replies_are_streamed(model: Table) -> None:
    for method in ("sample", "greedy"):
        bot = GenerativeBot(model, GenerativeOptions(method=method, max_tokens=12, filters="none"))  # type: ignore[arg-type]
        pieces = list(bot.stream(ASKS, alive=lambda _: True))
        for (text, streamed), reply in zip(joined(pieces, len(ASKS)), bot.reply(ASKS), strict=True):
            assert text == streamed.text == reply.text
            assert (streamed.finish, streamed.usage) == (reply.finish, reply.usage)
            assert streamed.provenance == reply.provenance
        assert len(pieces) > 2 * len(ASKS)


def test_with_filters_replies_come_as_one_piece(model: Table) -> None:
    bot = GenerativeBot(model, GenerativeOptions(method="sample", max_tokens=12))
    pieces = list(bot.stream(ASKS, alive=lambda _: True))
    assert len(pieces) == len(ASKS)
    assert [r.text for _, r in joined(pieces, len(ASKS))] == [r.text for r in bot.reply(ASKS)]
    assert all(p.text == p.reply.text for p in pieces if p.reply)
    ranked = GenerativeBot(model, GenerativeOptions(max_tokens=12, filters="none"))
    assert len(list(ranked.stream(ASKS, alive=lambda _: True))) == len(ASKS)
    assert list(ranked.stream([], alive=lambda _: True)) == []


@pytest.mark.parametrize("filters", ["none", "empty"])
def test_a_stop_sequence_ends_a_reply_and_is_not_shown(model: Table, filters: str) -> None:
    options = GenerativeOptions(method="sample", max_tokens=30, min_tokens=29, filters=filters)
    one = ask("hello .", stop="e t")
    plain = GenerativeBot(model, options).reply([ask("hello .", seed=s) for s in range(40)])
    seed, text = next((s, r.text) for s, r in enumerate(plain) if "e t" in r.text)
    one = replace(one, seed=seed)
    ((streamed, reply),) = joined(list(GenerativeBot(model, options).stream([one], alive=lambda _: True)), 1)
    assert streamed == reply.text == text[: text.index("e t")].strip()
    assert reply.finish == "stop"
    assert GenerativeBot(model, options).reply([one])[0].text == reply.text


@pytest.mark.parametrize("filters", ["none", "empty"])
def test_a_reply_can_be_cancelled(model: Table, filters: str) -> None:
    bot = GenerativeBot(model, GenerativeOptions(method="sample", max_tokens=20, min_tokens=15, filters=filters))
    received: list[Piece] = []
    for piece in bot.stream(ASKS[:2], alive=lambda i: i == 0 or sum(p.index == 1 for p in received) < 3):
        received.append(piece)
        if filters == "empty":
            assert piece.reply is not None
    (_, first), (text, second) = joined(received, 2)
    assert first.finish in ("stop", "length")
    if filters == "none":
        assert second.finish == "cancelled"
        assert second.text == text
        assert len(text.split()) <= 4
    gone = joined(list(bot.stream(ASKS[:1], alive=lambda _: False)), 1)[0][1]
    assert gone.finish == "cancelled"


@pytest.mark.parametrize("score", ["mean", "sum"])
def test_given_replies_are_scored_by_likelihood(model: Table, score: str) -> None:
    bot = GenerativeBot(model, GenerativeOptions(score=score))  # type: ignore[arg-type]
    given = [["i have a dog .", "yes"], [], ["hello", "", "tea tea tea"], ["you like tea ?"]]
    results = bot.score(ASKS, given)
    for one, texts, scores in zip(ASKS, given, results, strict=True):
        expected = [model.reply_nll(view_of(one), text) for text in texts]
        assert scores == pytest.approx([-t / (n if score == "mean" else 1) for t, n in expected], abs=1e-5)
    assert bot.score([], []) == []
    many = bot.score(ASKS[:1], [["i have a dog ."] * 150])
    assert many[0] == pytest.approx([results[0][0]] * 150, abs=1e-6)
    assert model.batches == [6, 1]  # a context with many replies is encoded once


def test_latent_variables_are_at_their_means_while_scoring(model: Table) -> None:
    used: list[Latent] = []

    class LatentTable(Table):
        def start(self, views: Sequence[DialogueView], /, *, keys: Keys | None = None) -> TableState:
            raise AssertionError("step by step, the latent variable would be drawn from the prior")

        def nll(
            self, views: Sequence[DialogueView], /, *, target_turns: TargetTurns = "all", latent: Latent = "sample"
        ) -> Nll:
            used.append(latent)
            return super().nll(views, target_turns=target_turns)

        def importance(
            self, views: Sequence[DialogueView], /, *, samples: int, seed: int, target_turns: TargetTurns = "all"
        ) -> Importance:
            raise NotImplementedError

    latent = LatentTable(model.tokenizer)
    assert isinstance(latent, LatentGenerator)
    (scores,), (expected,) = (GenerativeBot(m).score(ASKS[:1], [["yes"] * 8]) for m in (latent, model))
    assert scores == pytest.approx(expected)
    assert used == ["mean"]


def test_options_override_the_preset() -> None:
    config = GenerativeOptions(preset="meena-base", samples=3, method="beam").decoding()
    assert (config.samples, config.method, config.temperature) == (3, "beam", 0.88)
    with pytest.raises(ConfigError, match="In the bot's options: max_tokens: must not be less"):
        GenerativeOptions(min_tokens=9, max_tokens=3).decoding()


def test_a_run_is_a_bot(model: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GENERATORS._rows, "table", Row("table", f"{__name__}:Table", "for tests"))
    with torch.no_grad():
        model.table += 0.25
    seal(tmp_path, bot="seq2seq", model="table", files=model.save(tmp_path), training={})
    loaded, manifest = load_generator(tmp_path)
    assert isinstance(loaded, Table)
    bot = make_bot(f"{tmp_path}?max_tokens=12&filters=empty,too-long:max_words=9&threads=1")
    assert isinstance(bot, GenerativeBot)
    assert bot.spec == f"seq2seq:{tmp_path}"
    reply = bot.reply([ask("hello .")])[0]
    assert reply.provenance.checkpoint == manifest.fingerprint
    assert reply.provenance.settings["filters"] == "empty,too-long:max_words=9"
    mine = GenerativeBot(model, GenerativeOptions(max_tokens=12, filters="empty,too-long:max_words=9")).reply(
        [ask("hello .")]
    )[0]
    assert reply.text == mine.text
    assert reply.score == pytest.approx(mine.score)
    assert math.isfinite(reply.score or math.nan)


@pytest.mark.parametrize("name", list(GENERATORS))
def test_every_architecture_has_a_bot_of_its_name(name: str) -> None:
    assert BOTS.get(name) is (FinetunedBot if name == "finetune" else GenerativeBot)
    assert callable(GENERATORS.get(name).load)


def test_a_folder_that_is_no_training_run_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs the folder"):
        make_bot("evolved")
    with pytest.raises(UsageError, match="not the folder of a finished training run"):
        make_bot(f"evolved:{tmp_path}")
