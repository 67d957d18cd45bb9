"""Likelihoods of many replies to many prompts in a causal transformers model, with every common beginning read once.

Follow-ups of one reply share their whole prompt, replies to one context share the context, and everything shares the
system turn of the chat template. So the token sequences are merged into trees, and one pass reads a tree as a single
line of tokens: each token has the position it would have alone, and sees its ancestors and nothing else. Likelihoods
are those of separate passes; logits are computed only where a token of a reply is predicted.

A tree has at most `MAX_NODES` tokens, as attention is computed for all pairs of them, also those that are masked; a
long beginning that is shared may have as many tokens again behind it.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from tertulia.models.generators.base import full_precision
from tertulia.models.hf.state import LanguageModel

MAX_NODES = 512
Ids = tuple[int, ...]


class PromptAndReply(NamedTuple):
    """The tokens of a prompt (at least one) and of a reply, without the end of the turn."""

    prompt: Ids
    reply: Ids


class TokenTree(NamedTuple):
    """Sequences with their common beginnings merged."""

    ids: list[int]
    """The token of each node; a parent comes before its children."""
    parents: list[int]
    """-1 where a sequence begins."""
    paths: list[list[int]]
    """For each reply the nodes at which its tokens and its end are predicted, and its own nodes: the last node of the
    prompt, then those of the reply."""
    members: list[int]
    """Which of the given sequences each path belongs to."""

    def positions(self) -> list[int]:
        """How many ancestors each node has."""
        depth: list[int] = []
        for parent in self.parents:
            depth.append(depth[parent] + 1 if parent >= 0 else 0)
        return depth

    def visible(self) -> torch.Tensor:
        """Which nodes each node sees, itself and its ancestors: (nodes, nodes)."""
        sees = torch.zeros(len(self.ids), len(self.ids), dtype=torch.bool, device="cpu")
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                sees[node] = sees[parent]
            sees[node, node] = True
        return sees


def token_trees(sequences: Sequence[PromptAndReply], *, max_scored: int) -> Iterator[TokenTree]:
    """Trees that hold all sequences, with at most `max_scored` predictions each, unless a single reply has more.

    >>> one, = token_trees([PromptAndReply((1, 2), (3, 4)), PromptAndReply((1, 2), (3, 5))], max_scored=99)
    >>> one.ids, one.parents, one.paths
    ([1, 2, 3, 4, 5], [-1, 0, 1, 2, 2], [[1, 2, 3], [1, 2, 4]])
    """
    tree = TokenTree([], [], [], [])
    before: Ids = ()
    path: list[int] = []  # the nodes of `before`
    scored: set[int] = set()
    for member in sorted(range(len(sequences)), key=lambda i: sequences[i].prompt + sequences[i].reply):
        prompt, reply = sequences[member]
        ids = prompt + reply
        shared = _common(before, ids)
        wanted = scored | set(path[len(prompt) - 1 : shared])
        predictions = len(wanted) + len(ids) - max(shared, len(prompt) - 1)
        nodes = len(tree.ids) + len(ids) - shared
        if tree.paths and (nodes > max(MAX_NODES, 2 * shared) or predictions > max_scored):
            yield tree
            tree, path, scored, shared = TokenTree([], [], [], []), [], set(), 0
        path = path[:shared]
        for token in ids[shared:]:
            tree.parents.append(path[-1] if path else -1)
            path.append(len(tree.ids))
            tree.ids.append(token)
        tree.paths.append(path[len(prompt) - 1 :])
        tree.members.append(member)
        scored.update(tree.paths[-1])
        before = ids
    if tree.paths:
        yield tree


def _common(one: Ids, other: Ids) -> int:
    """How many tokens two sequences have in common at the beginning."""
    for i, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return i
    return min(len(one), len(other))


def tree_nll(
    lm: LanguageModel, sequences: Sequence[PromptAndReply], ends: torch.Tensor, *, max_scored: int
) -> torch.Tensor:
    """Negative log-likelihood of each reply, its end included if there are end tokens: (sequences,), float64."""
    total = torch.zeros(len(sequences), dtype=torch.float64, device="cpu")
    for tree in token_trees(sequences, max_scored=max_scored):
        total[tree.members] = _nll(lm, tree, ends).cpu().double()
    return total


def _nll(lm: LanguageModel, tree: TokenTree, ends: torch.Tensor) -> torch.Tensor:
    """Of each path of one tree: (paths,)."""
    device = lm.model.device
    needed = sorted({node for path in tree.paths for node in path})
    logits = full_precision(_logits(lm, tree, needed))  # (needed, vocabulary)
    normaliser = logits.logsumexp(-1)
    row = {node: i for i, node in enumerate(needed)}
    before = [row[node] for path in tree.paths for node in path[:-1]]
    tokens = [tree.ids[node] for path in tree.paths for node in path[1:]]
    owner = [i for i, path in enumerate(tree.paths) for _ in path[1:]]
    rows, ids, owners = (torch.tensor(one, dtype=torch.long, device=device) for one in (before, tokens, owner))
    nll = torch.zeros(len(tree.paths), dtype=logits.dtype, device=device)
    nll.index_add_(0, owners, normaliser[rows] - logits[rows, ids])
    if len(ends):
        last = torch.tensor([row[path[-1]] for path in tree.paths], device=device)
        nll += normaliser[last] - logits[last][:, ends].logsumexp(-1)
    return nll


def _logits(lm: LanguageModel, tree: TokenTree, needed: Sequence[int]) -> torch.Tensor:
    """What the model predicts after these nodes: (needed, vocabulary)."""
    device = lm.model.device
    bias = torch.zeros(len(tree.ids), len(tree.ids), dtype=lm.model.dtype, device=device)
    bias.masked_fill_(~tree.visible().to(device), torch.finfo(bias.dtype).min)
    kept = torch.tensor(needed, device=device)
    optional: dict[str, Any] = {"logits_to_keep": kept} if lm.capabilities.logits_to_keep else {}
    logits: torch.Tensor = lm.model(
        input_ids=torch.tensor([tree.ids], device=device),
        attention_mask=bias[None, None],
        position_ids=torch.tensor([tree.positions()], device=device),
        use_cache=False,
        **optional,
    ).logits[0]
    return logits if optional else logits[kept]
