"""A new generative architecture takes one file for the model, one row in the registry, and one TOML file."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.progress import Silent
from tertulia.core.reply import Ask
from tertulia.models.registry import ARCHITECTURES, GENERATORS, Architecture, Architectures
from tertulia.talk.registry import BOTS
from tertulia.talk.spec import make_bot
from tertulia.train.recipe import read_recipe
from tertulia.train.registry import RECIPES

MODEL = '''
"""A bigram model: the logits of the next token are a row of a table."""

from dataclasses import dataclass, replace

import torch
from pydantic import Field
from torch import nn

from tertulia.core.config import Config, validate
from tertulia.models.checkpoint import load_weights, read_model, save_weights
from tertulia.models.generator import Nll, stream
from tertulia.models.tokenizer import OWN, load_tokenizer


class BigramConfig(Config):
    """Its size."""

    rank: int = Field(8, ge=1)
    """Rank of the table."""


@dataclass(frozen=True)
class BigramState:
    rows: int

    def expand(self, count):
        return replace(self, rows=self.rows * count)

    def select(self, rows):
        return replace(self, rows=len(rows))


class Bigram(nn.Module):
    config_type = BigramConfig

    def __init__(self, config, tokenizer):
        super().__init__()
        self.config, self.tokenizer = config, tokenizer
        self.table = nn.Sequential(
            nn.Embedding(len(tokenizer), config.rank), nn.Linear(config.rank, len(tokenizer))
        )

    @classmethod
    def untrained(cls, config, tokenizer):
        return cls(config, tokenizer)

    def nll(self, views, /, *, target_turns="all"):
        total, tokens = [], []
        for view in views:
            sequence = stream(view, self.tokenizer, target_turns=target_turns)
            ids, mask = torch.tensor(sequence[0]), torch.tensor(sequence[1])
            losses = nn.functional.cross_entropy(self.table(ids[:-1]), ids[1:], reduction="none")
            total.append((losses * mask[1:]).sum())
            tokens.append(mask[1:].sum())
        return Nll(torch.stack(total), torch.stack(tokens))

    def start(self, views, /):
        return BigramState(len(views))

    def step(self, state, tokens, /):
        tokens = torch.full((state.rows,), OWN) if tokens is None else tokens
        return self.table(tokens), state

    def save(self, folder, /):
        save_weights(folder, self, {"config": self.config.model_dump()})
        return [self.tokenizer.save(folder)]

    @classmethod
    def load(cls, folder, /):
        config = validate(cls.config_type, read_model(folder)["config"], where=str(folder))
        model = cls(config, load_tokenizer(folder))
        load_weights(folder, model)
        return model.eval()
'''
ROW = Architecture(
    "bigram",
    "generator",
    "toy_bigram:Bigram",
    "tertulia.train.recipes.generators:generative_recipe",
    "a bigram model",
)
CONFIG = """
recipe = "bigram"
tokenizer = "words"
vocabulary = 200
max_dialogues = 10
valid_dialogues = 3
epochs = 2

[model]
rank = 4
"""


@pytest.fixture
def bigram(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "toy_bigram.py").write_text(MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(ARCHITECTURES._rows, ROW.name, ROW)
    yield
    sys.modules.pop("toy_bigram", None)


@pytest.mark.usefixtures("bigram")
def test_a_model_file_a_row_and_a_config_are_enough_to_train_load_and_talk(tmp_path: Path) -> None:
    config = tmp_path / "bigram.toml"
    config.write_text(CONFIG)
    recipe, settings = read_recipe(config, {"out": tmp_path / "run"})
    figures = recipe.train(settings, Silent()).figures()
    assert figures["valid"]["perplexity per token"] < 200
    assert GENERATORS.get("bigram").load(tmp_path / "run").config.rank == 4
    bot = make_bot(f"{tmp_path / 'run'}?method=sample&max_tokens=5")
    (reply,) = bot.reply([Ask(Dialogue("d", (Turn("a", "hello"),)), "b", seed=1)])
    assert reply.text
    again, same = read_recipe(tmp_path / "run" / "config.toml")
    assert (again.name, same) == ("bigram", settings)


@pytest.mark.usefixtures("bigram")
def test_the_row_appears_in_every_table() -> None:
    assert all("bigram" in table for table in (GENERATORS, BOTS, RECIPES))
    assert RECIPES.get("bigram") is RECIPES.get("bigram")


def test_a_plugin_adds_a_row_through_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy_plugin.py").write_text(
        "from tertulia.models.registry import Architecture\n"
        'ROW = Architecture("toy", "ranker", "toy:Toy", "toy:RECIPE", "a toy")\n'
    )
    info = tmp_path / "toy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tertulia.architectures]\ntoy = toy_plugin:ROW\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert [row.summary for row in Architectures() if row.name == "toy"] == ["a toy"]


def test_two_architectures_of_one_name_are_an_error() -> None:
    table = Architectures()
    table.add(ROW)
    with pytest.raises(ValueError, match="two architectures called 'bigram'"):
        table.add(ROW)
