"""Rows grouped by context, row caches, and attention over the shared prefix and the rows' own tokens."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tertulia.models.generators.attention import (
    Attention,
    BlockCache,
    DecoderState,
    KeyValue,
    RowCache,
    RowGroups,
    column_major,
    padding_bias,
)

from ..conftest import assert_close


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30))
def test_grouping_rows_can_be_undone(contexts: list[int]) -> None:
    groups = RowGroups.from_contexts(torch.tensor(contexts), 5)
    x = torch.arange(len(contexts) * 6.0).view(-1, 2, 3) + 1
    grouped = groups.group(x)  # (contexts, heads, size, n)
    assert grouped.shape == (5, 2, max(contexts.count(c) for c in range(5)), 3)
    assert torch.equal(groups.ungroup(grouped), x)
    for context in range(5):
        rows = [i for i, c in enumerate(contexts) if c == context]
        assert torch.equal(grouped[context, :, : len(rows)].transpose(0, 1), x[rows])
        assert not grouped[context, :, len(rows) :].any()


def test_groups_without_padding_are_not_copied() -> None:
    x = torch.ones(6, 2, 3)
    assert RowGroups.from_contexts(torch.tensor([0, 0, 1, 1, 2, 2]), 3).group(x).data_ptr() == x.data_ptr()
    assert RowGroups.from_contexts(torch.tensor([0, 1, 0, 1, 2, 2]), 3).slot is not None


def test_a_row_cache_grows_in_place_and_is_copied_for_a_second_continuation() -> None:
    def key_value(number: float) -> torch.Tensor:
        return torch.full((2, 2, 1, 3), number)

    empty = RowCache.empty(KeyValue(torch.zeros(2, 1, 7, 3), torch.zeros(2, 1, 7, 3)))
    one = empty.append(key_value(1))
    two = one.append(key_value(2))
    assert two.key_values.data_ptr() == one.key_values.data_ptr()
    other = one.append(key_value(3))
    assert two.key_values[0, :, 0, 0, 0].tolist() == [1, 2]
    assert other.key_values[1, :, 1, 0, 2].tolist() == [1, 3]
    assert two.select(torch.tensor([1])).append(key_value(4)[:1]).key_values[0, :, 0, 0, 0].tolist() == [1, 2, 4]
    for number in range(3, 40):
        two = two.append(key_value(number))
    assert two.key_values[0, :, 1, 0, 1].tolist() == list(range(1, 40))


def test_a_step_attends_to_the_prefix_and_to_own_tokens() -> None:
    torch.manual_seed(1)
    attention = Attention(8, 2).double()
    read, lengths = randn(2, 5, 8), torch.tensor([5, 3])
    own = randn(3, 4, 8)  # three rows, four tokens each; rows 0 and 2 have the first context, row 1 the second
    prefix = attention.project(read)
    state = DecoderState(
        (BlockCache((prefix,), (), ()),),
        RowGroups.from_contexts(torch.tensor([0, 1, 0]), 2),
        read[:, 0],
        lengths,
        padding_bias(lengths, 5, torch.float64),
        None,
    )
    cache, residual = RowCache.empty(prefix.select(torch.tensor([0, 1, 0]))), randn(3, 8)
    for t in range(4):
        output, cache = attention.step(residual, own[:, t], prefix, cache, state)
        for row, context in enumerate((0, 1, 0)):
            seen = torch.cat([read[context, : lengths[context]], own[row, : t + 1]])[None]
            expected = attention(own[row, t][None, None], attention.project(seen))[0, 0]
            assert_close(output[row], residual[row] + expected)


def test_rows_may_own_everything_that_was_read() -> None:
    torch.manual_seed(2)
    attention = Attention(8, 2).double()
    read, own = randn(2, 1, 8), randn(3, 4, 8)
    contexts = torch.tensor([1, 0, 1])
    prefix = attention.project(read)
    nothing = KeyValue(*(part[:, :, :0] for part in prefix))
    first = BlockCache((nothing,), (), (RowCache.from_prefix(prefix),))
    groups = RowGroups.from_contexts(torch.arange(2), 2)
    state = DecoderState((first,), groups, read[:, 0], torch.tensor([1, 1]), None, None).select(contexts)
    cache, residual = state.caches[0].rows[0], randn(3, 8)
    for t in range(4):
        assert state.max_position == 1
        output, cache = attention.step(residual, own[:, t], nothing, cache, state)
        for row, context in enumerate(contexts.tolist()):
            seen = torch.cat([read[context], own[row, : t + 1]])[None]
            expected = attention(own[row, t][None, None], attention.project(seen))[0, 0]
            assert_close(output[row], residual[row] + expected)


def test_column_major_storage_changes_no_value() -> None:
    model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 3))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    assert column_major(model) is model
    assert model[1].weight.stride() == (1, 3)
    assert model[0].weight.stride() == (1, 7)
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())


def test_rows_of_one_length_need_no_padding_bias() -> None:
    assert padding_bias(torch.tensor([3, 3]), 3, torch.float32) is None
    bias = padding_bias(torch.tensor([3, 1]), 3, torch.float32)
    assert bias is not None
    assert bias.shape == (2, 1, 1, 3)
    assert bias[1, 0, 0].tolist() == [0, -torch.inf, -torch.inf]
