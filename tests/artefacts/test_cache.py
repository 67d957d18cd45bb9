from pathlib import Path

import pytest

from tertulia.artefacts.cache import cache_folder


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ana")
    monkeypatch.delenv("TERTULIA_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path("/home/ana/.cache/tertulia")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/ana")
    assert cache_folder() == Path("/var/cache/ana/tertulia")
    monkeypatch.setenv("TERTULIA_CACHE", "/data/models")
    assert cache_folder() == Path("/data/models")
