"""What tests of generators share: a reply's likelihood token by token, and what must hold for every model.

Comparisons are made with models in double precision: float32 rounds differently from processor to processor.
"""

from collections.abc import Sequence

import torch

from tertulia.models.generator import DialogueView, Generator, LatentGenerator, Nll, TargetTurns
from tertulia.models.tokenizer import END, WordTokenizer

VIEWS = [
    DialogueView(("hi", "hello , who are you ?", "a baker", "i like bread"), (False, True, False, True)),
    DialogueView(("do you like tea ?", "no , i like coffee !"), (False, True)),
    DialogueView(("hello",), (True,)),
]
WORDS = WordTokenizer.learn(text for view in VIEWS for text in view.turns)
TOLERANCE = 1e-9
"""Of sums of log-probabilities in double precision."""


def assert_close(actual: torch.Tensor, expected: torch.Tensor, atol: float = TOLERANCE) -> None:
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0, check_dtype=False)


def mean_nll(model: Generator, views: Sequence[DialogueView], target_turns: TargetTurns = "all") -> Nll:
    """Of any generator, without randomness: latent variables are at their means."""
    if isinstance(model, LatentGenerator):
        return model.nll(views, target_turns=target_turns, latent="mean")
    return model.nll(views, target_turns=target_turns)


def stepwise_nll(
    model: Generator, views: Sequence[DialogueView], replies: Sequence[str], *, copies: int
) -> torch.Tensor:
    """Negative log-likelihood of replies, token by token; `copies` rows per reply, and rows leave as they end."""
    targets = [(*model.tokenizer.encode(reply), END) for reply in replies for _ in range(copies)]
    total = torch.zeros(len(targets), dtype=torch.float64)
    rows, state, last = torch.arange(len(targets)), model.start(views).expand(copies), None
    for position in range(max(map(len, targets))):
        logits, state = model.step(state, last)
        tokens = torch.tensor([targets[row][position] for row in rows.tolist()])
        total[rows] -= logits.double().log_softmax(-1).gather(1, tokens[:, None])[:, 0]
        going = [i for i, row in enumerate(rows.tolist()) if position + 1 < len(targets[row])][::-1]  # any order works
        kept = torch.tensor(going, dtype=torch.long)
        rows, state, last = rows[kept], state.select(kept), tokens[kept]
    return total.reshape(len(replies), copies)


@torch.no_grad()
def assert_steps_match_full_pass(model: Generator, views: Sequence[DialogueView], replies: Sequence[str]) -> None:
    """Single steps give the same likelihoods as the full pass, over the same number of tokens."""
    assert isinstance(model, Generator)
    full = mean_nll(model, [view.with_turn(reply) for view, reply in zip(views, replies, strict=True)], "last")
    assert_close(stepwise_nll(model, views, replies, copies=3), full.total[:, None].expand(-1, 3))
    assert full.tokens.tolist() == [len(model.tokenizer.encode(reply)) + 1 for reply in replies]


@torch.no_grad()
def assert_batch_independent(model: Generator, views: Sequence[DialogueView]) -> None:
    """A dialogue has the same likelihood alone and in a batch."""
    modes: tuple[TargetTurns, ...] = ("all", "own", "last")
    for target_turns in modes:
        together = mean_nll(model, views, target_turns)
        alone = [mean_nll(model, [view], target_turns) for view in views]
        assert_close(together.total, torch.cat([one.total for one in alone]))
        assert together.tokens.tolist() == [int(one.tokens) for one in alone]
