"""What tests of models that write share: a reply's likelihood token by token, and what must be true of all of them."""

from collections.abc import Sequence

import torch

from tertulia.models.generator import Generator, Talk
from tertulia.models.tokenizer import END, WordTokenizer

TALKS = [
    Talk(("hi", "hello , who are you ?", "a baker", "i like bread"), (False, True, False, True)),
    Talk(("do you like tea ?", "no , i like coffee !"), (False, True)),
    Talk(("hello",), (True,)),
]
WORDS = WordTokenizer.learn(text for talk in TALKS for text in talk.turns)


def stepped(model: Generator, talks: Sequence[Talk], replies: Sequence[str], *, fan: int) -> torch.Tensor:
    """Negative log-likelihood of replies, token by token; every row `fan` times, rows leave as they end."""
    targets = [(*model.tokenizer.encode(reply), END) for reply in replies for _ in range(fan)]
    total = torch.zeros(len(targets))
    left, state, last = torch.arange(len(targets)), model.start(talks).fan(fan), None
    for place in range(max(map(len, targets))):
        logits, state = model.step(state, last)
        tokens = torch.tensor([targets[row][place] for row in left.tolist()])
        total[left] -= logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0]
        still = [i for i, row in enumerate(left.tolist()) if place + 1 < len(targets[row])][::-1]  # any order will do
        rows = torch.tensor(still, dtype=torch.long)
        left, state, last = left[rows], state.keep(rows), tokens[rows]
    return total.reshape(len(replies), fan)


@torch.no_grad()
def assert_steps_agree(model: Generator, talks: Sequence[Talk], replies: Sequence[str]) -> None:
    """What single steps give, the full pass gives, and it counts as many tokens."""
    assert isinstance(model, Generator)
    full = model.nll([talk.said(reply) for talk, reply in zip(talks, replies, strict=True)], scored="last")
    found = stepped(model, talks, replies, fan=3)
    assert torch.allclose(found, full.total[:, None].expand(-1, 3), atol=1e-4)
    assert full.tokens.tolist() == [len(model.tokenizer.encode(reply)) + 1 for reply in replies]


@torch.no_grad()
def assert_neighbours_do_not_matter(model: Generator, talks: Sequence[Talk]) -> None:
    """A talk is as probable by itself as in company."""
    for scored in ("all", "own", "last"):
        together = model.nll(talks, scored=scored)
        alone = [model.nll([talk], scored=scored) for talk in talks]
        assert torch.allclose(together.total, torch.cat([one.total for one in alone]), atol=1e-4)
        assert together.tokens.tolist() == [int(one.tokens) for one in alone]
