"""From a generator to replies, the same for every generative bot: candidates are generated, filtered and chosen from.

A bot turns each ask into a `GenerationRequest` and says how to decode it (`DecodingConfig`) and which replies to reject
(`FilterPolicy`). A batch of asks is replied to by `complete_replies`. In a `GenerationSession`, asks come and go:
without filters, a single sample or a greedy reply is streamed; with filters a reply is complete before any of it is
shown, as shown text cannot be taken back.

If filters find no candidate good enough, as many are drawn again, up to `FilterPolicy.redraws` times: the samples that
come next for the same seed. So the first ones are the same with and without redraws, and a reply is a function of its
ask and seed in either way of replying.

What filters drop for one of its sentences is also a candidate up to the sentence before (`tertulia.talk.shortening`).
"""

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from tertulia.core.reply import Ask, Candidate, FinishReason, Piece, Provenance, Reply, TokenLogprob, Usage
from tertulia.models.decoding import DecodingConfig, DecodingSession, decode
from tertulia.models.generated import Generation
from tertulia.models.generator import DialogueView, Generator
from tertulia.models.sampling import TopTokens
from tertulia.models.token_logprobs import INCOMPLETE_CHARACTER, token_logprobs
from tertulia.models.tokenizer import END, Tokenizer
from tertulia.talk.filters.base import Choice, Filter, FilteredCandidate, apply_filters, choose, suffices
from tertulia.talk.logprobs import align
from tertulia.talk.shortening import can_shorten, shorten
from tertulia.talk.stop_sequences import CutText, StopSequences, cut_at_stop, stops_of

MAX_ROWS = 512
"""Samples and beams that one session decodes side by side: with 8,000 tokens the logits of a step take 16 MB."""
MAX_TOKENS = 2**15
"""Tokens of prompts and replies that one session keeps in memory: 1.5 GB for a model like SmolLM2 (46 KB a token)."""
CUT = "cut off before its end"
K = TypeVar("K", bound=Hashable)


class GenerationRequest(NamedTuple):
    """An ask as a generator gets it."""

    ask: Ask
    view: DialogueView
    prompt_tokens: int
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class FilterPolicy:
    """Which candidates are rejected, and what replaces them."""

    filters: tuple[Filter, ...]
    fallback: str
    """Said if every candidate is rejected for a serious reason."""
    max_candidates: int
    """How many candidates are listed with a reply."""
    redraws: int = 0
    """How often candidates are drawn again if filters find none good enough."""
    shorten: bool = True
    """Whether what filters drop for a sentence is also a candidate up to the sentence before."""

    @property
    def shortens(self) -> bool:
        """Whether candidates are shortened: if there is a filter that judges sentences."""
        return self.shorten and can_shorten(self.filters)


class PreparedAsk(NamedTuple):
    """Everything that is needed to reply to an ask."""

    request: GenerationRequest
    config: DecodingConfig
    policy: FilterPolicy


def group_equal(keys: Sequence[K]) -> list[tuple[K, list[int]]]:
    """The indices of equal keys, such as requests with the same decoding config.

    >>> group_equal(["greedy", "beam", "greedy"])
    [('greedy', [0, 2]), ('beam', [1])]
    """
    groups: dict[K, list[int]] = {}
    for i, key in enumerate(keys):
        groups.setdefault(key, []).append(i)
    return list(groups.items())


def complete_replies(
    model: Generator, requests: Sequence[GenerationRequest], config: DecodingConfig, policy: FilterPolicy
) -> list[Reply]:
    """For each request the best candidate that no filter rejects."""
    start = time.perf_counter()
    drawn = [DrawnCandidates(request, config, policy, model.tokenizer) for request in requests]
    waiting = drawn
    while waiting:  # all have been drawn for equally often
        generations = decode(
            model,
            [one.request.view for one in waiting],
            config,
            [_seed(one.request.ask, config) for one in waiting],
            prompt_tokens=[one.request.prompt_tokens for one in waiting],
            top_logprobs=[one.request.ask.top_logprobs or 0 for one in waiting],
            first_sample=waiting[0].next_sample,
        )
        for one, new in zip(waiting, generations, strict=True):
            one.add(new)
        waiting = [one for one in waiting if one.wants_more]
    seconds = time.perf_counter() - start
    return [one.choose_reply(seconds) for one in drawn]


class FilteredGeneration(NamedTuple):
    """What a model generated, and what filters say of it."""

    generation: Generation
    cut: CutText
    """Its text up to a stop sequence, or as far as it was shortened."""
    filtered: FilteredCandidate
    shortened: bool = False
    """Whether it is the beginning of what was generated."""

    @property
    def rank(self) -> tuple[bool, float]:
        """The best is the least. A shortened one is scored without an end, so it comes after all that have theirs."""
        return self.shortened, -(self.filtered.candidate.score or 0.0)

    @property
    def ended(self) -> bool:
        """Whether it is complete, rather than cut off."""
        return self.generation.finished or self.cut.stopped


class DrawnCandidates:
    """What was drawn for one ask so far, and whether it is enough."""

    def __init__(
        self, request: GenerationRequest, config: DecodingConfig, policy: FilterPolicy, tokenizer: Tokenizer
    ) -> None:
        self.request, self.config, self.policy, self._tokenizer = request, config, policy, tokenizer
        self._candidates: list[FilteredGeneration] = []  # best first
        self._rounds = 0

    @property
    def next_sample(self) -> int:
        """The number of the sample that is drawn next."""
        return self._rounds * self.config.draws

    @property
    def wants_more(self) -> bool:
        """Whether to draw again: filters find no candidate good enough, and others can be had."""
        if self._rounds > self.policy.redraws or not self.config.is_random or not self._candidates:
            return False
        return not suffices(self.policy.filters, self.request.ask, [one.filtered for one in self._candidates])

    def add(self, generations: Sequence[Generation]) -> None:
        """Filter what was drawn, shorten what is not good enough, and rank all among what was drawn before."""
        drawn = {one.generation.text for one in self._candidates if not one.shortened}
        new = [one for one in generations if one.text not in drawn]
        cuts = [cut_at_stop(one.text, stops_of(self.request.ask), strip=True) for one in new]
        candidates = [
            Candidate(cut.text, one.score, CUT if self.policy.filters and not (one.finished or cut.stopped) else None)
            for one, cut in zip(new, cuts, strict=True)
        ]
        filtered = apply_filters(self.policy.filters, self.request.ask, candidates)
        added = list(map(FilteredGeneration, new, cuts, filtered))
        every = [*self._candidates, *added, *(self._shorten(added) if self.policy.shortens else ())]
        self._candidates = list(_each_once(sorted(every, key=lambda one: one.rank)))
        self._rounds += 1

    def _shorten(self, candidates: Sequence[FilteredGeneration]) -> Iterator[FilteredGeneration]:
        """What filters keep of those that they drop, scored by the tokens that are left."""
        for generation, _, whole, _ in candidates:
            if (kept := shorten(self.policy.filters, self.request.ask, whole)) is None:
                continue
            cut, score = CutText(kept.filtered.candidate.text, stopped=True), generation.score
            if generation.logprobs:
                own = [one.logprob for one in _generation_logprobs(self._tokenizer, generation, cut)]
                score = self.config.reduce(sum(own), len(own))
            candidate = replace(kept.filtered.candidate, score=score, note=kept.note)
            yield FilteredGeneration(generation, cut, kept.filtered._replace(candidate=candidate), shortened=True)

    def cancelled_reply(self, seconds: float) -> Reply:
        """The reply if nobody waits for it any more: nothing was chosen."""
        return Reply("", self.request.provenance, seconds=seconds, finish="cancelled")

    def choose_reply(self, seconds: float) -> Reply:
        """The reply; nothing was generated for a cancelled one."""
        ask, policy = self.request.ask, self.policy
        if not self._candidates:
            return self.cancelled_reply(seconds)
        filtered = [one.filtered for one in self._candidates]
        choice = choose(filtered, fallback=policy.fallback, attempt=ask.attempt)
        # None for the fallback
        chosen = None if choice.candidate_index is None else self._candidates[choice.candidate_index]
        logprobs = None
        if chosen is not None and ask.top_logprobs is not None:
            logprobs = _generation_logprobs(self._tokenizer, chosen.generation, chosen.cut)
        return Reply(
            choice.text,
            self.request.provenance,
            choice.score,
            _list_candidates(filtered, choice, policy.max_candidates),
            seconds=seconds,
            finish="stop" if chosen is None or chosen.ended else "length",
            usage=Usage(self.request.prompt_tokens, 0 if chosen is None else chosen.generation.count),
            note=choice.note,
            logprobs=logprobs,
            redraws=self._rounds - 1,
        )


def _each_once(candidates: Iterable[FilteredGeneration]) -> Iterator[FilteredGeneration]:
    """Without shortened candidates that others equal."""
    seen: set[str] = set()
    for one in candidates:
        if not one.shortened or one.cut.text not in seen:
            yield one
        seen.add(one.cut.text)


def _generation_logprobs(tokenizer: Tokenizer, generation: Generation, cut: CutText) -> tuple[TokenLogprob, ...]:
    tokens = (*generation.tokens, *([END] if generation.finished else []))
    return align(token_logprobs(tokenizer, tokens, generation.logprobs, generation.top), cut.text, stopped=cut.stopped)


def _list_candidates(filtered: Sequence[FilteredCandidate], choice: Choice, limit: int) -> tuple[Candidate, ...]:
    """The best ones, and in any case the chosen one."""
    indices = list(range(min(limit, len(filtered))))
    if choice.candidate_index is not None and choice.candidate_index not in indices:
        indices[-1] = choice.candidate_index
    return tuple(filtered[i].candidate for i in indices)


class GenerationSession:
    """Replies to asks that come and go, decoded in one running batch; a `talk.bot.ReplySession`."""

    def __init__(self, model: Generator, prepare: Callable[[Ask], PreparedAsk]) -> None:
        self._prepare = prepare
        self._tokenizer = model.tokenizer
        self._decoding = DecodingSession(model, max_rows=MAX_ROWS, max_tokens=MAX_TOKENS, early_tokens=True)
        self._open: dict[int, _OpenReply] = {}  # by handle
        self._handles: dict[int, int] = {}  # by index of the ask
        self._cancelled: list[int] = []

    def add(self, index: int, ask: Ask, /) -> None:
        """Reply to an ask from the next step on."""
        if index in self._handles:
            raise ValueError(f"ask {index} is being replied to")
        drawn = DrawnCandidates(*self._prepare(ask), self._tokenizer)
        stream = None
        if drawn.config.method in ("sample", "greedy") and not drawn.policy.filters:
            stream = _ReplyStream(self._tokenizer, stops_of(ask), drawn.config.max_tokens)
        self._draw(_OpenReply(index, drawn, stream, time.perf_counter()))

    def _draw(self, reply: "_OpenReply") -> None:
        """Draw candidates, for the first time or again."""
        request, config = reply.drawn.request, reply.drawn.config
        handle = self._decoding.add(
            request.view,
            config,
            _seed(request.ask, config),
            prompt_tokens=request.prompt_tokens,
            top_logprobs=request.ask.top_logprobs or 0,
            first_sample=reply.drawn.next_sample,
        )
        self._open[handle] = reply
        self._handles[reply.index] = handle

    def cancel(self, index: int, /) -> None:
        """Finish a reply as "cancelled" at the next step, with what has been shown of it."""
        if index in self._handles:
            self._cancelled.append(index)

    def step(self) -> list[Piece]:
        """One more token for every reply."""
        pieces = [
            self._close(self._handles[index], cancelled=True) for index in self._cancelled if index in self._handles
        ]
        self._cancelled.clear()
        for handle, tokens, generations, logprobs, top in self._decoding.step():
            reply = self._open[handle]
            if reply.stream is None:
                if generations is not None:
                    pieces += self._add(handle, generations)
                continue
            text = reply.stream.add(tokens[0], logprobs[0], top[0] if top else None)
            if reply.stream.finish:
                last = self._close(handle)
                pieces.append(replace(last, text=text + last.text))
            elif text:
                pieces.append(Piece(reply.index, text))
        return pieces

    def _add(self, handle: int, generations: Sequence[Generation]) -> list[Piece]:
        """The last piece of a reply, now that candidates were drawn for it; none yet if it needs more of them."""
        reply = self._open[handle]
        reply.drawn.add(generations)
        if not reply.drawn.wants_more:
            return [self._close(handle)]
        del self._open[handle]
        self._draw(reply)
        return []

    def _close(self, handle: int, *, cancelled: bool = False) -> Piece:
        """The last piece of a reply: with its candidates, or as far as it was streamed."""
        reply = self._open.pop(handle)
        del self._handles[reply.index]
        self._decoding.cancel(handle)
        seconds, request = time.perf_counter() - reply.start, reply.drawn.request
        if reply.stream is None:
            complete = reply.drawn.cancelled_reply(seconds) if cancelled else reply.drawn.choose_reply(seconds)
            return Piece(reply.index, complete.text, complete)
        rest = reply.stream.rest()
        usage = Usage(request.prompt_tokens, len(reply.stream.tokens))
        finish = reply.stream.finish or "cancelled"
        complete = Reply(
            reply.stream.text,
            request.provenance,
            seconds=seconds,
            finish=finish,
            usage=usage,
            logprobs=None if request.ask.top_logprobs is None else reply.stream.token_logprobs(),
        )
        return Piece(reply.index, rest, complete)


@dataclass(frozen=True, slots=True)
class _OpenReply:
    index: int
    drawn: DrawnCandidates
    stream: "_ReplyStream | None"
    """None if the reply must be complete before any of it is shown."""
    start: float


class _ReplyStream:
    """A reply that is being generated: tokens in, text that is safe to show out."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str], max_tokens: int) -> None:
        self._tokenizer, self._max_tokens = tokenizer, max_tokens
        self._stops = StopSequences(stops, strip=True)
        self._decoded = 0  # length of the text that has been fed to the stop sequences
        self.tokens: list[int] = []
        self._logprobs: list[float] = []
        self._top: list[TopTokens] = []
        self.text = ""
        """What has been shown."""

    @property
    def finish(self) -> FinishReason | None:
        """Why it has ended, if it has."""
        if self._stops.stopped or (self.tokens and self.tokens[-1] == END):
            return "stop"
        return "length" if len(self.tokens) >= self._max_tokens else None

    def add(self, token: int, logprob: float, top: TopTokens | None) -> str:
        """Add a token; returns the new text to show: no incomplete character or stop sequence, no trailing space."""
        self.tokens.append(token)
        self._logprobs.append(logprob)
        if top is not None:
            self._top.append(top)
        if token == END:
            return ""
        decoded = self._tokenizer.decode(self.tokens)
        if decoded.endswith(INCOMPLETE_CHARACTER):
            return ""
        return self._show(self._feed(decoded))

    def rest(self) -> str:
        """What was held back."""
        decoded = self._tokenizer.decode([token for token in self.tokens if token != END])
        return self._show(self._feed(decoded) + self._stops.rest())

    def token_logprobs(self) -> tuple[TokenLogprob, ...]:
        """The tokens of what has been shown."""
        tokens = token_logprobs(self._tokenizer, self.tokens, self._logprobs, self._top)
        return align(tokens, self.text, stopped=self._stops.stopped)

    def _feed(self, decoded: str) -> str:
        new, self._decoded = decoded[self._decoded :], len(decoded)
        return self._stops.feed(new)

    def _show(self, text: str) -> str:
        self.text += text
        return text


def _seed(ask: Ask, config: DecodingConfig) -> int:
    """With a single sample there is no next best candidate to offer: another attempt is another sample."""
    return ask.seed + 1_000_003 * (ask.attempt - 1) if config.method == "sample" else ask.seed
