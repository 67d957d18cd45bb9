"""The bot that writes, on a tiny model made here: a table of which word follows which, saved and loaded like any."""

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
from tertulia.models.generator import Nll, Scored, Talk
from tertulia.models.tokenizer import END, Tokenizer, WordTokenizer, load_tokenizer
from tertulia.models.writers import WRITERS, load_writer
from tertulia.talk.bot import RankingBot, StreamingBot
from tertulia.talk.bots.writer import WriterBot, WriterOptions, talk_of
from tertulia.talk.bots.writing import CUT
from tertulia.talk.spec import make_bot
from tertulia.talk.table import BOTS

WORDS = "i have a dog cat hello . you like tea ? yes".split()


class TableState:
    def __init__(self, said: torch.Tensor) -> None:
        self.said = said  # (rows,)

    def fan(self, count: int, /) -> "TableState":
        return TableState(self.said.repeat_interleave(count))

    def keep(self, rows: torch.Tensor, /) -> "TableState":
        return TableState(self.said[rows])


class Table(nn.Module):
    """The next word by the last one; the first one by the last word of the persona and turns."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        made = torch.Generator().manual_seed(4)
        self.table = nn.Parameter(torch.randn(len(tokenizer), len(tokenizer), generator=made) * 2)
        self.batches: list[int] = []

    def start(self, talks: Sequence[Talk], /) -> TableState:
        self.batches.append(len(talks))
        return TableState(torch.tensor([self.last(talk) for talk in talks]))

    def last(self, talk: Talk) -> int:
        return (0, *(i for text in (*talk.persona, *talk.turns) for i in self.tokenizer.encode(text)))[-1]

    def step(self, state: TableState, tokens: torch.Tensor | None, /) -> tuple[torch.Tensor, TableState]:
        said = state.said if tokens is None else tokens
        return self.table[said], TableState(said)

    def nll(self, talks: Sequence[Talk], /, *, scored: Scored = "all") -> Nll:
        assert scored == "last"
        self.batches.append(len(talks))
        found = [self.one(replace(t, turns=t.turns[:-1], own=t.own[:-1]), t.turns[-1]) for t in talks]
        return Nll(torch.tensor([total for total, _ in found]), torch.tensor([count for _, count in found]))

    def one(self, context: Talk, text: str) -> tuple[float, int]:
        ids = [self.last(context), *self.tokenizer.encode(text), END]
        table = self.table.detach().double().log_softmax(-1)
        return -sum(float(table[a, b]) for a, b in itertools.pairwise(ids)), len(ids) - 1

    def save(self, folder: Path, /) -> list[str]:
        save_weights(folder, self, {})
        return [self.tokenizer.save(folder)]

    @classmethod
    def load(cls, folder: Path, /) -> Self:
        read_model(folder)
        made = cls(load_tokenizer(folder))
        load_weights(folder, made)
        return made.eval()


@pytest.fixture
def model() -> Table:
    return Table(WordTokenizer(WORDS)).eval()


def ask(*texts: str, seed: int = 1, attempt: int = 1, **options: object) -> Ask:
    turns = tuple(Turn("bot" if i % 2 else "ana", text) for i, text in enumerate(texts))
    return Ask(Dialogue("d", turns), "bot", seed, options, attempt)


ASKS = [ask("hello ."), ask("you like tea ?", seed=2), ask("hello .", "yes", "you have a cat ?", seed=3), ask(seed=4)]


def whole(pieces: list[Piece], count: int) -> list[tuple[str, Reply]]:
    """The texts that came piece by piece, and the replies that came at last."""
    replies = {p.index: p.reply for p in pieces if p.reply}
    return [("".join(p.text for p in pieces if p.index == i), replies[i]) for i in range(count)]


def test_it_is_a_bot_that_streams_and_ranks(model: Table) -> None:
    bot = WriterBot(model)
    assert isinstance(bot, StreamingBot)
    assert isinstance(bot, RankingBot)
    assert bot.decoding == PRESETS["meena-full"]


def test_a_model_tells_whose_personas_it_is_shown() -> None:
    personas = {"bot": Persona(("i have a cat .",)), "ana": Persona(("i have a dog .",))}
    there = Ask(Dialogue("d", (Turn("ana", "hello"), Turn("bot", "yes")), personas), "bot")
    assert talk_of(there) == Talk(("hello", "yes"), (False, True), ("i have a cat .",), ("i have a dog .",))
    assert talk_of(Ask(Dialogue("d", ()), "bot")) == Talk((), ())


def test_a_reply_tells_how_it_came_about(model: Table) -> None:
    bot = WriterBot(model, WriterOptions(max_tokens=12), spec="seq2seq:run", fingerprint="abc")
    for there, reply in zip(ASKS, bot.reply(ASKS), strict=True):
        fit = [c for c in reply.candidates if c.dropped is None]
        assert reply.text == fit[0].text
        assert reply.score == fit[0].score
        scores = [c.score or 0.0 for c in reply.candidates]
        assert scores == sorted(scores, reverse=True)
        total, count = model.one(talk_of(there), reply.text)
        assert reply.score == pytest.approx(-total / count, abs=1e-5)
        assert reply.provenance.bot == "seq2seq:run"
        assert reply.provenance.checkpoint == "abc"
        assert reply.provenance.seed == there.seed
        assert reply.provenance.settings["samples"] == 20
        assert reply.provenance.settings["filters"] == bot.options.filters
        assert (reply.finish, reply.note) == ("stop", None)
        assert reply.usage is not None
        assert reply.usage.completion == count
        assert reply.usage.prompt == sum(len(model.tokenizer.encode(t.text)) for t in there.dialogue.turns)
    assert any(c.dropped for reply in bot.reply(ASKS) for c in reply.candidates)


@pytest.mark.parametrize("method", ["sample", "greedy", "beam", "sample-and-rank"])
def test_a_reply_depends_on_its_ask_alone(model: Table, method: str) -> None:
    bot = WriterBot(model, WriterOptions(method=method, max_tokens=12))  # type: ignore[arg-type]
    together = bot.reply(ASKS)
    alone = [bot.reply([one])[0] for one in ASKS]
    assert [replace(r, seconds=0) for r in together] == [replace(r, seconds=0) for r in alone]
    assert bot.reply([]) == []


def test_an_ask_may_wish_otherwise_and_like_asks_go_together(model: Table) -> None:
    bot = WriterBot(model, WriterOptions(max_tokens=12))
    asks = [*ASKS, ask("hello .", temperature=0.1, top_k=None, colour="red"), ask("hello .", max_tokens=1)]
    replies = bot.reply(asks)
    assert model.batches == [4, 1, 1]
    assert [replace(r, seconds=0) for r in replies[:4]] == [replace(r, seconds=0) for r in bot.reply(ASKS)]
    assert replies[4].provenance.settings["temperature"] == 0.1
    assert replies[4].provenance.settings["top_k"] == 40
    assert replies[5].finish == "length"
    assert replies[5].note == f"every candidate was dropped: used the least bad one ({CUT})"
    with pytest.raises(ConfigError, match="In the options of this reply: temperature"):
        bot.reply([ask("hello .", temperature=-1)])


def test_another_attempt_is_another_reply(model: Table) -> None:
    ranked = WriterBot(model, WriterOptions(max_tokens=12))
    first = ranked.reply([ask("hello .")])[0]
    second = ranked.reply([ask("hello .", attempt=2)])[0]
    assert [c.text for c in first.candidates if not c.dropped][1] == second.text
    drawn = WriterBot(model, WriterOptions(method="sample", max_tokens=12, filters="none"))
    assert len({drawn.reply([ask("hello .", attempt=n)])[0].text for n in range(1, 9)}) > 4


def test_what_was_said_is_not_said_again(model: Table) -> None:
    bot = WriterBot(model, WriterOptions(max_tokens=12, min_tokens=4))
    said = bot.reply([ask("hello .")])[0].text
    again = bot.reply([ask("hello .", said, "hello .")])[0]
    dropped = {c.text: c.dropped for c in again.candidates}
    assert again.text != said
    assert "repeats itself" in (dropped[said] or "")


def test_where_nothing_may_be_said_the_fallback_is(model: Table, tmp_path: Path) -> None:
    every = tmp_path / "every.txt"
    every.write_text("\n".join(w for w in WORDS if w.isalpha()), encoding="utf-8")
    options = WriterOptions(max_tokens=12, filters=f"empty,safety:lexicon={every}", fallback="Well.")
    reply = WriterBot(model, options).reply([ask("hello .")])[0]
    assert (reply.text, reply.score, reply.finish) == ("Well.", None, "stop")
    assert reply.note == "no candidate could be said: used the fallback text"
    assert all(c.dropped for c in reply.candidates)


def test_the_list_of_candidates_is_as_long_as_asked_for_and_holds_what_was_said(model: Table) -> None:
    bot = WriterBot(model, WriterOptions(max_tokens=12, candidates=2, samples=100, top_k=0))
    for attempt in (1, 9):
        reply = bot.reply([ask("hello .", attempt=attempt)])[0]
        assert len(reply.candidates) == 2
        assert reply.text in [c.text for c in reply.candidates]


def test_without_filters_tokens_come_one_by_one(model: Table) -> None:
    for method in ("sample", "greedy"):
        bot = WriterBot(model, WriterOptions(method=method, max_tokens=12, filters="none"))  # type: ignore[arg-type]
        pieces = list(bot.stream(ASKS, alive=lambda _: True))
        for (text, streamed), reply in zip(whole(pieces, len(ASKS)), bot.reply(ASKS), strict=True):
            assert text == streamed.text == reply.text
            assert (streamed.finish, streamed.usage) == (reply.finish, reply.usage)
            assert streamed.provenance == reply.provenance
        assert len(pieces) > 2 * len(ASKS)


def test_with_filters_nothing_is_shown_before_it_is_whole(model: Table) -> None:
    bot = WriterBot(model, WriterOptions(method="sample", max_tokens=12))
    pieces = list(bot.stream(ASKS, alive=lambda _: True))
    assert len(pieces) == len(ASKS)
    assert [r.text for _, r in whole(pieces, len(ASKS))] == [r.text for r in bot.reply(ASKS)]
    assert all(p.text == p.reply.text for p in pieces if p.reply)
    ranked = WriterBot(model, WriterOptions(max_tokens=12, filters="none"))
    assert len(list(ranked.stream(ASKS, alive=lambda _: True))) == len(ASKS)
    assert list(ranked.stream([], alive=lambda _: True)) == []


@pytest.mark.parametrize("filters", ["none", "empty"])
def test_a_stop_ends_a_reply_and_is_not_shown(model: Table, filters: str) -> None:
    options = WriterOptions(method="sample", max_tokens=30, min_tokens=29, filters=filters)
    there = ask("hello .", stop="e t")
    plain = WriterBot(model, options).reply([ask("hello .", seed=s) for s in range(40)])
    seed, text = next((s, r.text) for s, r in enumerate(plain) if "e t" in r.text)
    there = replace(there, seed=seed)
    ((streamed, reply),) = whole(list(WriterBot(model, options).stream([there], alive=lambda _: True)), 1)
    assert streamed == reply.text == text[: text.index("e t")].strip()
    assert reply.finish == "stop"
    assert WriterBot(model, options).reply([there])[0].text == reply.text


@pytest.mark.parametrize("filters", ["none", "empty"])
def test_what_nobody_waits_for_ends_as_cancelled(model: Table, filters: str) -> None:
    bot = WriterBot(model, WriterOptions(method="sample", max_tokens=20, min_tokens=15, filters=filters))
    heard: list[Piece] = []
    for piece in bot.stream(ASKS[:2], alive=lambda i: i == 0 or sum(p.index == 1 for p in heard) < 3):
        heard.append(piece)
        if filters == "empty":
            assert piece.reply is not None
    (_, first), (text, second) = whole(heard, 2)
    assert first.finish in ("stop", "length")
    if filters == "none":
        assert second.finish == "cancelled"
        assert second.text == text
        assert len(text.split()) <= 4
    gone = whole(list(bot.stream(ASKS[:1], alive=lambda _: False)), 1)[0][1]
    assert gone.finish == "cancelled"


@pytest.mark.parametrize("score", ["mean", "sum"])
def test_given_replies_are_ranked_by_likelihood(model: Table, score: str) -> None:
    bot = WriterBot(model, WriterOptions(score=score))  # type: ignore[arg-type]
    given = [["i have a dog .", "yes"], [], ["hello", "", "tea tea tea"], ["you like tea ?"]]
    found = bot.score(ASKS, given)
    for there, texts, scores in zip(ASKS, given, found, strict=True):
        expected = [model.one(talk_of(there), text) for text in texts]
        assert scores == pytest.approx([-t / (n if score == "mean" else 1) for t, n in expected], abs=1e-5)
    assert bot.score([], []) == []
    many = bot.score(ASKS[:1], [["i have a dog ."] * 150])
    assert many[0] == pytest.approx([found[0][0]] * 150, abs=1e-6)
    assert model.batches == [6, 1]  # many for one are read once


def test_latent_variables_are_at_their_means_while_ranking(model: Table) -> None:
    seen: list[bool] = []

    class Drawing(Table):
        draws = True

        def nll(self, talks: Sequence[Talk], /, *, scored: Scored = "all") -> Nll:
            seen.append(self.draws)
            return super().nll(talks, scored=scored)

    drawing = Drawing(model.tokenizer)
    WriterBot(drawing).score(ASKS[:1], [["yes"]])
    assert seen == [False]
    assert drawing.draws


def test_options_override_the_preset() -> None:
    made = WriterOptions(preset="meena-base", samples=3, method="beam").decoding()
    assert (made.samples, made.method, made.temperature) == (3, "beam", 0.88)
    with pytest.raises(ConfigError, match="In the bot's options: max_tokens: value error, must not be less"):
        WriterOptions(min_tokens=9, max_tokens=3).decoding()


def test_a_run_is_a_bot(model: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WRITERS._rows, "table", Row("table", f"{__name__}:Table", "for tests"))
    with torch.no_grad():
        model.table += 0.25
    seal(tmp_path, bot="seq2seq", model="table", files=model.save(tmp_path), training={})
    loaded, manifest = load_writer(tmp_path)
    assert isinstance(loaded, Table)
    bot = make_bot(f"{tmp_path}?max_tokens=12&filters=empty,too-long:max_words=9&threads=1")
    assert isinstance(bot, WriterBot)
    assert bot.spec == f"seq2seq:{tmp_path}"
    reply = bot.reply([ask("hello .")])[0]
    assert reply.provenance.checkpoint == manifest.fingerprint
    assert reply.provenance.settings["filters"] == "empty,too-long:max_words=9"
    mine = WriterBot(model, WriterOptions(max_tokens=12, filters="empty,too-long:max_words=9")).reply([ask("hello .")])[
        0
    ]
    assert (reply.text, reply.score) == (mine.text, mine.score)
    assert math.isfinite(reply.score or math.nan)


@pytest.mark.parametrize("name", list(WRITERS))
def test_every_model_that_writes_has_a_bot_of_its_name(name: str) -> None:
    assert BOTS.get(name) is WriterBot
    assert callable(WRITERS.get(name).load)


def test_what_is_no_run_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs the folder"):
        make_bot("evolved")
    with pytest.raises(UsageError, match="not the folder of a finished training run"):
        make_bot(f"evolved:{tmp_path}")
