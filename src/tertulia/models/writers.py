"""The table of models that write, by the name that a run's manifest has under "model"; loading them, asking them.

A row points at the model's class, which has `load(folder)`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from tertulia.core.registry import Registry
from tertulia.models.checkpoint import Manifest, read_manifest
from tertulia.models.generator import Generator, Talk
from tertulia.models.tokenizer import END

WRITERS = Registry("model that writes", "tertulia.writers")

WRITERS.add("seq2seq", "tertulia.models.seq2seq:Seq2Seq", "an LSTM, with or without an encoder (Persona-Chat)")
WRITERS.add(
    "profile-memory-writer",
    "tertulia.models.profile_memory_writer:GenerativeProfileMemory",
    "attends to the persona's sentences as it writes (Persona-Chat)",
)
WRITERS.add("hred", "tertulia.models.hred:HRED", "utterances, and the conversation over them")
WRITERS.add("vhred", "tertulia.models.vhred:VHRED", "HRED that imagines each utterance before it writes it")
WRITERS.add("vhcr", "tertulia.models.vhcr:VHCR", "VHRED with an idea of the whole conversation above")
WRITERS.add("transformer", "tertulia.models.transformer:Transformer", "the vanilla Transformer, Meena's baseline")
WRITERS.add("evolved", "tertulia.models.evolved_transformer:EvolvedTransformer", "the Evolved Transformer (Meena)")

AT_ONCE = 64
"""Talks whose likelihood is asked for at once."""
ROWS_AT_ONCE = 512
"""Replies that are gone through side by side."""
SHARED = 4
"""So many replies to one conversation, and it is read once for all of them."""


def load_writer(folder: Path) -> tuple[Generator, Manifest]:
    """The model of a whole folder, and what the folder says of itself."""
    manifest = read_manifest(folder)
    model: Generator = WRITERS.get(manifest.model).load(folder)
    return model, manifest


@torch.inference_mode()
def log_likelihoods(model: Generator, talks: Sequence[Talk], *, score: Literal["mean", "sum"] = "mean") -> list[float]:
    """How probable the last turn of each talk is, given all before it: log P of a token, or of the whole turn.

    Talks that are alike but for their last turn are read once, and the turns gone through side by side. Of the others
    those of like length go together. Latent variables are taken at their means: the same talk has the same value in any
    batch (for such models it is a bound's estimate, not the likelihood itself).
    """
    found = [(0.0, 0)] * len(talks)
    alike: dict[Talk, list[int]] = {}
    for i, talk in enumerate(talks):
        if talk.own[-1] and not hasattr(model, "draws"):  # step by step, a latent variable knows nothing of the turn
            alike.setdefault(replace(talk, turns=talk.turns[:-1], own=talk.own[:-1]), []).append(i)
    shared = {context: places for context, places in alike.items() if len(places) >= SHARED}
    for some in _groups(shared):
        places = [i for _, part in some for i in part]
        rows = [row for row, (_, part) in enumerate(some) for _ in part]
        contexts, replies = [context for context, _ in some], [talks[i].turns[-1] for i in places]
        for i, told in zip(places, _stepped(model, contexts, rows, replies), strict=True):
            found[i] = told
    done = {i for places in shared.values() for i in places}
    order = sorted((i for i in range(len(talks)) if i not in done), key=lambda i: sum(map(len, talks[i].texts)))
    with _at_means(model):
        for start in range(0, len(order), AT_ONCE):
            part = order[start : start + AT_ONCE]
            nll = model.nll([talks[i] for i in part], scored="last")
            for i, total, count in zip(part, nll.total.tolist(), nll.tokens.tolist(), strict=True):
                found[i] = (total, count)
    return [-total / (max(1, count) if score == "mean" else 1) for total, count in found]


def _groups(shared: Mapping[Talk, Sequence[int]]) -> Iterator[list[tuple[Talk, Sequence[int]]]]:
    """Conversations of like length, each with some of its replies, as many as can be gone through side by side."""
    some: list[tuple[Talk, Sequence[int]]] = []
    for context in sorted(shared, key=lambda talk: sum(map(len, talk.texts))):
        for start in range(0, len(shared[context]), ROWS_AT_ONCE):
            part = shared[context][start : start + ROWS_AT_ONCE]
            if sum(len(places) for _, places in some) + len(part) > ROWS_AT_ONCE:
                yield some
                some = []
            some.append((context, part))
    if some:
        yield some


def _stepped(
    model: Generator, contexts: Sequence[Talk], rows: Sequence[int], replies: Sequence[str]
) -> list[tuple[float, int]]:
    """How improbable each reply is in its context, and how many tokens it has; a reply leaves at its end."""
    targets = [(*model.tokenizer.encode(reply), END) for reply in replies]
    totals = torch.zeros(len(replies), dtype=torch.double)
    logits, state = model.step(model.start(contexts), None)
    kept = torch.tensor(rows, device=logits.device)
    logits, state, left = logits[kept], state.keep(kept), list(range(len(replies)))
    for place in range(max(map(len, targets))):
        tokens = torch.tensor([targets[row][place] for row in left], device=logits.device)
        totals[left] -= logits.float().log_softmax(-1).gather(1, tokens[:, None])[:, 0].double().cpu()
        still = [k for k, row in enumerate(left) if place + 1 < len(targets[row])]
        if not still:
            break
        if len(still) < len(left):
            kept = torch.tensor(still, device=logits.device)
            left, state, tokens = [left[k] for k in still], state.keep(kept), tokens[kept]
        logits, state = model.step(state, tokens)
    return list(zip(totals.tolist(), map(len, targets), strict=True))


@contextmanager
def _at_means(model: Generator) -> Iterator[None]:
    if not getattr(model, "draws", False):
        yield
        return
    model.draws = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        model.draws = True  # type: ignore[attr-defined]
