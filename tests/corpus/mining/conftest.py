"""A corpus of generated messages, and how to compare the results of two runs."""

import hashlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from tertulia.core.dialogue import Message
from tertulia.corpus.mine import MineConfig
from tertulia.corpus.subwords import train_subwords

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def generator() -> Any:
    """The benchmarks' message generator, which is not in a package."""
    spec = importlib.util.spec_from_file_location("generate_messages", BENCHMARKS / "generate_messages.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def messages() -> list[Message]:
    return [Message(**record) for record in generator().records(20_000, seed=3)]


@pytest.fixture(scope="session")
def forum(messages: list[Message], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20,000 messages as JSON lines (4.5 MB), with a subword model beside them, so that tests need not learn one."""
    path = tmp_path_factory.mktemp("forum") / "forum.jsonl"
    names = ("id", "parent", "thread", "author", "text", "time")
    path.write_bytes(b"".join(orjson.dumps({n: getattr(m, n) for n in names}) + b"\n" for m in messages))
    train_subwords((m.text for m in messages[::10]), vocabulary=1000).save(path.with_name("subwords.model"))
    return path


def config(forum: Path, out: Path, **more: Any) -> MineConfig:
    """Small blocks, so that there is parallel work: about 20 chunks and 8 buckets."""
    small = {"block_bytes": 1 << 18, "buckets": 8, "max_repeats": 20, "whole": True}
    small |= {"subwords": forum.with_name("subwords.model")}
    return MineConfig.model_validate({"source": str(forum), "out": out} | small | more)


def fingerprint(out: Path) -> dict[str, str]:
    """Hashes of all files of a run except the settings and the card, which name the folder."""
    files = sorted(f for f in out.rglob("*") if f.is_file() and f.name not in ("config.toml", "README.md"))
    return {str(f.relative_to(out)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
