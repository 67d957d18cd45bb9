"""Trees of token sequences: every sequence is in one of them, spelled by its path, and nothing is there twice."""

from hypothesis import given
from hypothesis import strategies as st

from tertulia.models.hf.token_tree import MAX_NODES, PromptAndReply, token_trees

IDS = st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple)
SEQUENCES = st.lists(st.builds(PromptAndReply, IDS, st.one_of(st.just(()), IDS)), max_size=20)


@given(SEQUENCES, st.integers(1, 40))
def test_trees_hold_every_sequence_once(sequences: list[PromptAndReply], max_scored: int) -> None:
    members = []
    for tree in token_trees(sequences, max_scored=max_scored):
        members += tree.members
        edges = set(zip(tree.ids, tree.parents, strict=True))
        assert len(edges) == len(tree.ids)  # siblings differ
        assert len(tree.paths) == 1 or len({node for path in tree.paths for node in path}) <= max_scored
        sees, positions = tree.visible(), tree.positions()
        for member, path in zip(tree.members, tree.paths, strict=True):
            seen = sees[path[-1]].nonzero()[:, 0].tolist()
            prompt, reply = sequences[member]
            assert tuple(tree.ids[node] for node in seen) == prompt + reply
            assert [positions[node] for node in seen] == list(range(len(seen)))
            assert path == seen[len(prompt) - 1 :]
    assert sorted(members) == list(range(len(sequences)))


def test_trees_are_small_unless_they_share_a_long_beginning() -> None:
    apart = [PromptAndReply((n,) * 100, (1, 2)) for n in range(20)]
    assert max(len(tree.ids) for tree in token_trees(apart, max_scored=9999)) <= MAX_NODES
    long = [PromptAndReply((7,) * 2000, (n,) * 90) for n in range(20)]
    assert [len(tree.ids) for tree in token_trees(long, max_scored=9999)] == [2000 + 20 * 90]
