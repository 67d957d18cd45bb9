"""Likelihood of given turns under a generator: perplexity of dialogues, scores of candidate replies.

Also how a dialogue becomes the view of one of its speakers, and how views are batched by length.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import torch

from tertulia.core.dialogue import Dialogue, PersonaScope
from tertulia.models.generator import DialogueView, Generator, LatentGenerator, Nll, target_mask
from tertulia.models.tokenizer import END, Tokenizer, count_words


class Likelihood(NamedTuple):
    """Negative log-likelihood of the target turns of one dialogue."""

    nats: float
    words: int
    """Number of words, ends of turns included."""
    tokens: int
    """Number of the model's tokens, ends of turns included."""


def views_of(dialogue: Dialogue, scope: PersonaScope, speaker: str | None = None) -> Iterator[DialogueView]:
    """The dialogue as each of its speakers sees it, or as one of them does, with the personas in scope."""
    for me in dialogue.speakers:
        if speaker is None or me == speaker:
            yield view_as(dialogue, me, scope)


def view_as(dialogue: Dialogue, speaker: str, scope: PersonaScope = "both") -> DialogueView:
    """The dialogue as one of its speakers sees it, who need not have spoken yet."""
    sentences = [(who == speaker, text) for who, persona in dialogue.personas.items() for text in persona.sentences]
    return DialogueView(
        turns=tuple(turn.text for turn in dialogue.turns),
        own=tuple(turn.speaker == speaker for turn in dialogue.turns),
        persona=tuple(text for own, text in sentences if own and scope in ("own", "both")),
        partner=tuple(text for own, text in sentences if not own and scope in ("their", "both")),
        evidence=tuple(passage.text for passage in dialogue.evidence),
    )


def view_size(view: DialogueView, tokenizer: Tokenizer) -> int:
    """Number of tokens of a view as one sequence."""
    return sum(len(tokenizer.encode(text)) + 2 for text in view.texts)


def batches_of(sizes: Sequence[int], tokens: int, rng: random.Random | None) -> list[list[int]]:
    """Indices in batches of about `tokens` tokens, padding included; items of similar size share a batch.

    Without `rng` the batches are ordered by size. With it they are random: items are shuffled, sorted by size within
    chunks of a few thousand, and the batches shuffled again.
    """
    order = list(range(len(sizes)))
    if rng:
        rng.shuffle(order)
    chunk = 4000 if rng else len(order)
    batches: list[list[int]] = []
    for start in range(0, len(order), max(1, chunk)):
        batch: list[int] = []
        for i in sorted(order[start : start + chunk], key=lambda i: sizes[i]):
            if batch and sizes[i] * (len(batch) + 1) > tokens:
                batches.append(batch)
                batch = []
            batch.append(i)
        batches.append(batch)
    if rng:
        rng.shuffle(batches)
    return batches


VIEWS_AT_ONCE = 64
"""Views whose likelihood is computed in one pass."""
ROWS_AT_ONCE = 512
"""Replies scored side by side, step by step."""
MIN_SHARED = 4
"""From this many replies to one context on, the context is encoded once for all of them."""


@torch.no_grad()
def likelihoods(
    model: Generator,
    views: Sequence[DialogueView],
    *,
    tokens: int = 3000,
    nll: Callable[[list[DialogueView]], Nll] | None = None,
) -> list[Likelihood]:
    """Of each view's own turns, by the model's `nll` or by a given one; `tokens` is the size of a batch."""
    sizes = [view_size(view, model.tokenizer) for view in views]
    results: dict[int, Likelihood] = {}
    for indices in batches_of(sizes, tokens, None):
        batch = [views[i] for i in indices]
        losses = nll(batch) if nll else model.nll(batch, target_turns="own")
        for i, view, nats, count in zip(indices, batch, losses.total.tolist(), losses.tokens.tolist(), strict=True):
            results[i] = Likelihood(nats, _count_own_words(view), count)
    return [results[i] for i in range(len(views))]


def perplexity(likelihoods: Sequence[Likelihood]) -> dict[str, float]:
    """Of several dialogues together: per word, which does not depend on the tokenizer, and per token.

    >>> perplexity([Likelihood(nats=0.0, words=4, tokens=5)])
    {'perplexity': 1.0, 'perplexity per token': 1.0}
    """
    nats = math.fsum(one.nats for one in likelihoods)
    words, tokens = sum(one.words for one in likelihoods), sum(one.tokens for one in likelihoods)
    return {"perplexity": math.exp(nats / words), "perplexity per token": math.exp(nats / tokens)}


def _count_own_words(view: DialogueView) -> int:
    targets = target_mask(view, "own")
    return sum(count_words(text) for text, is_target in zip(view.turns, targets, strict=True) if is_target)


@torch.inference_mode()
def log_likelihoods(
    model: Generator, views: Sequence[DialogueView], *, score: Literal["mean", "sum"] = "mean"
) -> list[float]:
    """Log-probability of the last turn of each view given everything before it, per token or in sum.

    Views that differ only in their last turn share one encoding of the context, and their turns are scored side by
    side. The other views are batched by length. Latent variables are taken at their posterior means, so the value does
    not depend on the batch; for such models it is an estimate of a bound, not the likelihood itself.
    """
    losses = [(0.0, 0)] * len(views)  # nats and tokens
    # Step by step a latent variable is drawn from the prior, which knows nothing of the turn.
    shared = {} if isinstance(model, LatentGenerator) else _shared_contexts(views)
    for group in _context_groups(shared):
        indices = [i for _, part in group for i in part]
        rows = [row for row, (_, part) in enumerate(group) for _ in part]
        contexts, replies = [context for context, _ in group], [views[i].turns[-1] for i in indices]
        for i, loss in zip(indices, _score_by_steps(model, contexts, rows, replies), strict=True):
            losses[i] = loss
    done = {i for indices in shared.values() for i in indices}
    order = sorted((i for i in range(len(views)) if i not in done), key=lambda i: sum(map(len, views[i].texts)))
    for start in range(0, len(order), VIEWS_AT_ONCE):
        indices = order[start : start + VIEWS_AT_ONCE]
        nll = _nll_of_last_turn(model, [views[i] for i in indices])
        for i, total, count in zip(indices, nll.total.tolist(), nll.tokens.tolist(), strict=True):
            losses[i] = (total, count)
    return [-total / (max(1, count) if score == "mean" else 1) for total, count in losses]


def _nll_of_last_turn(model: Generator, views: Sequence[DialogueView]) -> Nll:
    if isinstance(model, LatentGenerator):
        return model.nll(views, target_turns="last", latent="mean")
    return model.nll(views, target_turns="last")


def _shared_contexts(views: Sequence[DialogueView]) -> dict[DialogueView, list[int]]:
    """Contexts that several views have in common, with the indices of those views."""
    by_context: dict[DialogueView, list[int]] = {}
    for i, view in enumerate(views):
        if view.own[-1]:  # `start` encodes a context for an own turn only
            by_context.setdefault(replace(view, turns=view.turns[:-1], own=view.own[:-1]), []).append(i)
    return {context: indices for context, indices in by_context.items() if len(indices) >= MIN_SHARED}


def _context_groups(
    shared: Mapping[DialogueView, Sequence[int]],
) -> Iterator[list[tuple[DialogueView, Sequence[int]]]]:
    """Contexts of similar length, each with some of its replies, at most `ROWS_AT_ONCE` replies in a group."""
    group: list[tuple[DialogueView, Sequence[int]]] = []
    for context in sorted(shared, key=lambda view: sum(map(len, view.texts))):
        for start in range(0, len(shared[context]), ROWS_AT_ONCE):
            part = shared[context][start : start + ROWS_AT_ONCE]
            if sum(len(indices) for _, indices in group) + len(part) > ROWS_AT_ONCE:
                yield group
                group = []
            group.append((context, part))
    if group:
        yield group


def _score_by_steps(
    model: Generator, contexts: Sequence[DialogueView], rows: Sequence[int], replies: Sequence[str]
) -> list[tuple[float, int]]:
    """NLL and number of tokens of each reply; `rows` gives the context of each. A reply leaves the batch at its end."""
    targets = [(*model.tokenizer.encode(reply), END) for reply in replies]
    totals = torch.zeros(len(replies), dtype=torch.double)
    logits, state = model.step(model.start(contexts), None)
    kept = torch.tensor(rows, device=logits.device)
    logits, state, active = logits[kept], state.select(kept), list(range(len(replies)))
    for step in range(max(map(len, targets))):
        tokens = torch.tensor([targets[i][step] for i in active], device=logits.device)
        totals[active] -= logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0].cpu().double()
        unfinished = [row for row, i in enumerate(active) if step + 1 < len(targets[i])]
        if not unfinished:
            break
        if len(unfinished) < len(active):
            kept = torch.tensor(unfinished, device=logits.device)
            active, state, tokens = [active[row] for row in unfinished], state.select(kept), tokens[kept]
        logits, state = model.step(state, tokens)
    return list(zip(totals.tolist(), map(len, targets), strict=True))
