"""The bot behind every trained model that writes: it draws candidates, has them filtered, and says the best one left.

One class serves all architectures: a run's manifest says which one to load. How it writes and what it must not say are
options; an ask may override how it writes for its own reply. With filters a reply is whole before anything of it is
shown, as nothing shown can be taken back; without any, what is drawn or taken token by token is streamed so.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Self

from pydantic import Field

from tertulia import __version__
from tertulia.core.config import Config, validate
from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.core.reply import Ask, Candidate, Finish, Piece, Provenance, Reply, Usage
from tertulia.models.checkpoint import MANIFEST
from tertulia.models.decoding import PRESETS, DecodingConfig, Method, Score, Written, decode, steps
from tertulia.models.generator import Generator, Talk
from tertulia.models.threads import use_threads
from tertulia.models.tokenizer import END
from tertulia.models.writers import load_writer, log_likelihoods
from tertulia.talk.filters.sift import Choice, Sifted, choose, sift
from tertulia.talk.filters.table import ALL, make_filters

CUT = "cut off before its end"
TRAIN = "Train one with `tertulia train RECIPE.toml --out RUN` (configs/ has recipes), then talk to RUN."


class WriterOptions(Config):
    """How it writes and what it does not say; what is not given is as in the preset."""

    preset: Literal["meena-base", "meena-full"] = "meena-full"
    """Meena's sample-and-rank: 20 samples of all tokens at temperature 0.88, or of the best 40 at 1."""
    method: Method | None = None
    """`sample` (one draw), `greedy`, `beam`, or `sample-and-rank`."""
    temperature: float | None = Field(None, ge=0, le=10)
    """Below 1 is tamer, above 1 is wilder; 0 takes the most probable token."""
    top_k: int | None = Field(None, ge=0)
    """Draw from this many most probable tokens; 0 for the whole vocabulary."""
    top_p: float | None = Field(None, gt=0, le=1)
    """Draw from the most probable tokens that together have this probability."""
    samples: int | None = Field(None, ge=1, le=10_000)
    """How many turns sample-and-rank draws."""
    beams: int | None = Field(None, ge=1, le=1000)
    """How many beginnings beam search follows."""
    length_penalty: float | None = Field(None, ge=0, le=4)
    """Beam search compares log P / length ** this."""
    score: Score | None = None
    """Candidates compare by log P a token (`mean`) or in `sum`; given replies are ranked by the same."""
    min_tokens: int | None = Field(None, ge=0)
    """A reply does not end before it has so many tokens."""
    max_tokens: int | None = Field(None, ge=1, le=4096)
    """Most tokens of a reply."""
    unknown: bool | None = None
    """Whether the mark for unknown words may be written."""
    filters: str = ALL
    """What drops candidates: names with commas between, parameters behind colons (`empty,too-long:max_words=30`)."""
    fallback: str = "Sorry, I do not know what to say to that."
    """Said where no candidate may be."""
    candidates: int = Field(20, ge=1)
    """How many of the candidates are listed with a reply."""
    threads: int = Field(0, ge=0)
    """Threads to compute with, for all models of the process; 0 takes half the cores."""

    def decoding(self, wishes: dict[str, Json] | None = None) -> DecodingConfig:
        """How to write, with the wishes of one ask."""
        own = {name: value for name in DecodingConfig.model_fields if (value := getattr(self, name, None)) is not None}
        where = "the options of this reply" if wishes else "the bot's options"
        return validate(DecodingConfig, PRESETS[self.preset].model_dump() | own | (wishes or {}), where=where)


class WriterBot:
    """Writes with a trained model."""

    Options: ClassVar[type[Config]] = WriterOptions
    target_help: ClassVar[str] = "the folder of a training run"
    summary = "Writes with a trained model: draws candidates, drops some, says the most probable one left."

    def __init__(
        self,
        model: Generator,
        options: WriterOptions | None = None,
        *,
        spec: str = "writer",
        fingerprint: str | None = None,
    ) -> None:
        self.model = model
        self.options = options or WriterOptions()
        self.filters = make_filters(self.options.filters)
        self.decoding = self.options.decoding()
        self.spec, self.fingerprint = spec, fingerprint

    @classmethod
    def build(cls, target: str, options: WriterOptions, /) -> Self:
        """From a training run; its manifest says which model it is, and vouches for its files."""
        if not target:
            raise UsageError("A bot that writes needs the folder of a training run after its name.", hint=TRAIN)
        if not (Path(target) / MANIFEST).is_file():
            raise UsageError(f"{target} is not the folder of a finished training run.", hint=TRAIN)
        use_threads(options.threads)
        model, manifest = load_writer(Path(target))
        return cls(model, options, spec=f"{manifest.bot}:{target}", fingerprint=manifest.fingerprint)

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        """The best candidate of each ask that no filter dropped."""
        found = {piece.index: piece.reply for piece in self._whole(asks, lambda _: True) if piece.reply}
        return [found[i] for i in range(len(asks))]

    def stream(self, asks: Sequence[Ask], /, *, alive: Callable[[int], bool]) -> Iterator[Piece]:
        """Token by token where nothing could be taken back: one draw or none, and no filter. Else whole replies."""
        if self.filters:
            yield from self._whole(asks, alive)
            return
        for group in self._groups(asks):
            part = [asks[i] for i in group.places]
            alive_there = _at(alive, group.places)
            simple = group.config.method in ("sample", "greedy")
            pieces = self._flow(part, group.config, alive_there) if simple else self._whole(part, alive_there)
            yield from (Piece(group.places[p.index], p.text, p.reply) for p in pieces)

    def score(self, asks: Sequence[Ask], candidates: Sequence[Sequence[str]], /) -> list[list[float]]:
        """The log-likelihood of each candidate, of a token or in sum, as the option `score` has it."""
        talks = [talk_of(ask).said(text) for ask, texts in zip(asks, candidates, strict=True) for text in texts]
        scores = iter(log_likelihoods(self.model, talks, score=self.decoding.score))
        return [[next(scores) for _ in texts] for texts in candidates]

    def _groups(self, asks: Sequence[Ask]) -> list["_Group"]:
        """Asks that are written in the same way."""
        groups: dict[DecodingConfig, list[int]] = {}
        for place, ask in enumerate(asks):
            known = {k: v for k, v in ask.options.items() if k in DecodingConfig.model_fields and v is not None}
            config = self.options.decoding(known) if known else self.decoding
            groups.setdefault(config, []).append(place)
        return [_Group(config, places) for config, places in groups.items()]

    def _whole(self, asks: Sequence[Ask], alive: Callable[[int], bool]) -> Iterator[Piece]:
        for config, places in self._groups(asks):
            start = time.perf_counter()
            part = [asks[i] for i in places]
            talks, seeds = [talk_of(ask) for ask in part], [_seed(ask, config) for ask in part]
            found = decode(self.model, talks, config, seeds, alive=_at(alive, places))
            seconds = time.perf_counter() - start
            for place, ask, written in zip(places, part, found, strict=True):
                reply = self._reply(ask, config, written, seconds)
                yield Piece(place, reply.text, reply)

    def _reply(self, ask: Ask, config: DecodingConfig, written: Sequence[Written], seconds: float) -> Reply:
        if not written:  # nobody waits for it
            return Reply("", self._provenance(ask, config), seconds=seconds, finish="cancelled")
        stopped = [_until(one.text, _stops(ask)) for one in written]
        ended = [one.finished or text != one.text for one, text in zip(written, stopped, strict=True)]
        sifted = sift(
            self.filters,
            ask,
            [
                Candidate(text, one.score, CUT if self.filters and not whole else None)
                for text, one, whole in zip(stopped, written, ended, strict=True)
            ],
        )
        choice = choose(sifted, fallback=self.options.fallback, attempt=ask.attempt)
        said = choice.place
        return Reply(
            choice.text,
            self._provenance(ask, config),
            choice.score,
            self._listed(sifted, choice),
            seconds=seconds,
            finish="stop" if said is None or ended[said] else "length",
            usage=self._usage(ask, 0 if said is None else written[said].count),
            note=choice.note,
        )

    def _listed(self, sifted: Sequence[Sifted], choice: Choice) -> tuple[Candidate, ...]:
        """The best ones, and in any case the one that was said."""
        most = self.options.candidates
        places = list(range(min(most, len(sifted))))
        if choice.place is not None and choice.place not in places:
            places[-1] = choice.place
        return tuple(sifted[place].candidate for place in places)

    def _flow(self, asks: Sequence[Ask], config: DecodingConfig, alive: Callable[[int], bool]) -> Iterator[Piece]:
        """Each token as it comes."""
        start = time.perf_counter()
        rows = [_Row(self.model, _stops(ask)) for ask in asks]
        talks, seeds = [talk_of(ask) for ask in asks], [_seed(ask, config) for ask in asks]
        left = list(range(len(asks)))

        def over(places: list[int]) -> Iterator[Piece]:
            for place in places:
                left.remove(place)
                rest, finish = rows[place].rest(), rows[place].finish(config.max_tokens) or "cancelled"
                yield Piece(place, rest, self._flowed(asks[place], config, rows[place], finish, start))

        for step in steps(self.model, talks, config, seeds, alive=lambda i: not rows[i].stopped and alive(i)):
            for row, token in zip(step.rows.tolist(), step.tokens.tolist(), strict=True):
                if new := rows[row].add(token):
                    yield Piece(row, new)
            yield from over([row for row in left if rows[row].finish(config.max_tokens)])
        yield from over(list(left))  # nobody waits for these

    def _flowed(self, ask: Ask, config: DecodingConfig, row: "_Row", finish: Finish, start: float) -> Reply:
        usage, seconds = self._usage(ask, row.count), time.perf_counter() - start
        return Reply(row.sent, self._provenance(ask, config), seconds=seconds, finish=finish, usage=usage)

    def _provenance(self, ask: Ask, config: DecodingConfig) -> Provenance:
        settings = config.model_dump() | {"filters": self.options.filters, "fallback": self.options.fallback}
        return Provenance(self.spec, self.fingerprint, settings, ask.seed, __version__)

    def _usage(self, ask: Ask, written: int) -> Usage:
        talk = talk_of(ask)
        return Usage(sum(len(self.model.tokenizer.encode(text)) for text in (*talk.persona, *talk.turns)), written)


class _Group(NamedTuple):
    config: DecodingConfig
    places: list[int]


class _Row:
    """A reply on its way."""

    def __init__(self, model: Generator, stops: Sequence[str]) -> None:
        self.model, self.stops = model, stops
        self.tokens: list[int] = []
        self.sent = ""
        self.count = 0
        self.ended = self.stopped = False

    def add(self, token: int) -> str:
        """Take a token; the new text that is safe to show: no beginning of a stop, no blank at its end."""
        self.count += 1
        if token == END:
            self.ended = True
            return ""
        self.tokens.append(token)
        text = self._text()
        if not self.stopped and any(text.endswith(s[:n]) for s in self.stops for n in range(1, len(s))):
            return ""
        return self._unsent(text)

    def rest(self) -> str:
        """What was held back."""
        return self._unsent(self._text())

    def finish(self, most: int) -> Finish | None:
        """Why it is over, if it is."""
        if self.ended or self.stopped:
            return "stop"
        return "length" if self.count >= most else None

    def _text(self) -> str:
        whole = self.model.tokenizer.decode(self.tokens).strip()
        text = _until(whole, self.stops)
        self.stopped = self.stopped or text != whole
        return text

    def _unsent(self, text: str) -> str:
        new = text[len(self.sent) :]
        self.sent += new
        return new


def talk_of(ask: Ask) -> Talk:
    """The conversation as a model sees it: nobody's persona but the bot's own."""
    turns, persona = ask.dialogue.turns, ask.dialogue.persona_of(ask.speaker)
    return Talk(
        tuple(turn.text for turn in turns),
        tuple(turn.speaker == ask.speaker for turn in turns),
        persona.sentences if persona else (),
    )


def _seed(ask: Ask, config: DecodingConfig) -> int:
    """A single draw has no next best to offer: another attempt is another draw."""
    return ask.seed if config.method != "sample" else ask.seed + 1_000_003 * (ask.attempt - 1)


def _at(alive: Callable[[int], bool], places: Sequence[int]) -> Callable[[int], bool]:
    return lambda i: alive(places[i])


def _stops(ask: Ask) -> list[str]:
    value = ask.options.get("stop") or []
    return [s for s in ([value] if isinstance(value, str) else map(str, value)) if s]


def _until(text: str, stops: Sequence[str]) -> str:
    """What comes before the first stop."""
    ends = [at for stop in stops if (at := text.find(stop)) >= 0]
    return text[: min(ends)].strip() if ends else text
