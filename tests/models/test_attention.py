"""Rows put together by context, tails that grow, and attention over what is shared and what is owned."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tertulia.models.attention import Attention, Cache, Decoding, Groups, KeyValue, Tail, by_input, filled_up


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30))
def test_rows_come_apart_as_they_were_put_together(contexts: list[int]) -> None:
    groups = Groups.by(torch.tensor(contexts), 5)
    x = torch.arange(len(contexts) * 6.0).view(-1, 2, 3) + 1
    together = groups.together(x)  # (contexts, heads, size, n)
    assert together.shape == (5, 2, max(contexts.count(c) for c in range(5)), 3)
    assert torch.equal(groups.apart(together), x)
    for context in range(5):
        rows = [i for i, c in enumerate(contexts) if c == context]
        assert torch.equal(together[context, :, : len(rows)].transpose(0, 1), x[rows])
        assert not together[context, :, len(rows) :].any()


def test_full_groups_are_not_copied() -> None:
    x = torch.ones(6, 2, 3)
    assert Groups.by(torch.tensor([0, 0, 1, 1, 2, 2]), 3).together(x).data_ptr() == x.data_ptr()
    assert Groups.by(torch.tensor([0, 1, 0, 1, 2, 2]), 3).place is not None


def test_a_tail_grows_in_place_and_is_copied_when_gone_on_from_again() -> None:
    def pair(value: float) -> torch.Tensor:
        return torch.full((2, 2, 1, 3), value)

    empty = Tail.empty(KeyValue(torch.zeros(2, 1, 7, 3), torch.zeros(2, 1, 7, 3)))
    one = empty.add(pair(1))
    two = one.add(pair(2))
    assert two.read().data_ptr() == one.read().data_ptr()
    other = one.add(pair(3))
    assert two.read()[0, :, 0, 0, 0].tolist() == [1, 2]
    assert other.read()[1, :, 1, 0, 2].tolist() == [1, 3]
    assert two.keep(torch.tensor([1])).add(pair(4)[:1]).read()[0, :, 0, 0, 0].tolist() == [1, 2, 4]
    for value in range(3, 40):
        two = two.add(pair(value))
    assert two.read()[0, :, 1, 0, 1].tolist() == list(range(1, 40))


def test_stepping_is_attention_over_what_was_read_and_written() -> None:
    torch.manual_seed(1)
    attention = Attention(8, 2)
    read, lengths = torch.randn(2, 5, 8), torch.tensor([5, 3])
    own = torch.randn(3, 4, 8)  # three rows, four tokens each; rows 0 and 2 read the first text, row 1 the second
    prefix = attention.remember(read)
    state = Decoding(
        (Cache((prefix,), (), ()),),
        Groups.by(torch.tensor([0, 1, 0]), 2),
        read[:, 0],
        lengths,
        filled_up(lengths, 5),
        None,
    )
    tail, onto = Tail.empty(KeyValue(*(part[[0, 1, 0]] for part in prefix))), torch.randn(3, 8)
    for t in range(4):
        found, tail = attention.step(onto, own[:, t], prefix, tail, state)
        for row, context in enumerate((0, 1, 0)):
            seen = torch.cat([read[context, : lengths[context]], own[row, : t + 1]])[None]
            expected = attention(own[row, t][None, None], attention.remember(seen))[0, 0]
            assert torch.allclose(found[row], onto[row] + expected, atol=1e-5)


def test_rows_may_own_all_that_was_read() -> None:
    torch.manual_seed(2)
    attention = Attention(8, 2)
    read, own = torch.randn(2, 1, 8), torch.randn(3, 4, 8)
    of = torch.tensor([1, 0, 1])
    prefix = attention.remember(read)
    nothing = KeyValue(*(part[:, :, :0] for part in prefix))
    cache = Cache((nothing,), (), (Tail.of(prefix),))
    rows = Groups.by(torch.arange(2), 2)
    state = Decoding((cache,), rows, read[:, 0], torch.tensor([1, 1]), None, None).keep(of)
    tail, onto = state.caches[0].tails[0], torch.randn(3, 8)
    for t in range(4):
        assert state.reach == 1
        found, tail = attention.step(onto, own[:, t], nothing, tail, state)
        for row, context in enumerate(of.tolist()):
            seen = torch.cat([read[context], own[row, : t + 1]])[None]
            expected = attention(own[row, t][None, None], attention.remember(seen))[0, 0]
            assert torch.allclose(found[row], onto[row] + expected, atol=1e-5)


def test_laying_matrices_out_changes_nothing_that_can_be_seen() -> None:
    model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 3))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    found = by_input(model)
    assert found is model
    assert model[1].weight.stride() == (1, 3)
    assert model[0].weight.stride() == (1, 7)
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())


def test_nothing_is_hidden_where_all_are_of_one_length() -> None:
    assert filled_up(torch.tensor([3, 3]), 3) is None
    bias = filled_up(torch.tensor([3, 1]), 3)
    assert bias is not None
    assert bias.shape == (2, 1, 1, 3)
    assert bias[1, 0, 0].tolist() == [0, -torch.inf, -torch.inf]
