from tertulia.models.prefix_cache import PrefixCache


def test_the_longest_common_prefix_is_found() -> None:
    cache: PrefixCache[str] = PrefixCache(100)
    cache.put([1, 2, 3], "short", 10)
    cache.put([1, 2, 4, 5, 6], "long", 10)
    match = cache.longest([1, 2, 4, 5, 9])
    assert match == (4, "long")
    assert cache.longest([2]) is None
    assert cache.longest([]) is None


def test_a_longer_sequence_replaces_its_beginning() -> None:
    cache: PrefixCache[str] = PrefixCache(100)
    cache.put([1, 2], "turn 1", 40)
    cache.put([1, 2, 3], "turn 2", 60)
    assert (len(cache), cache.bytes) == (1, 60)
    cache.put([1, 2, 3], "again", 50)
    assert (len(cache), cache.bytes, [1, 2, 3] in cache) == (1, 50, True)


def test_the_least_recently_used_leave_and_bytes_are_bounded() -> None:
    cache: PrefixCache[str] = PrefixCache(100)
    for token in (1, 2, 3):
        cache.put([token], str(token), 33)
    assert cache.longest([1, 9]) == (1, "1")
    cache.put([4], "4", 33)
    assert cache.longest([2]) is None
    assert cache.longest([1]) is not None
    cache.put([5], "too large", 101)
    assert (len(cache), cache.bytes) == (3, 99)
