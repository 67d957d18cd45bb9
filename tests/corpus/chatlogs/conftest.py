"""A small disentangler, trained once on the sample's chat room."""

from pathlib import Path

import pytest

from tertulia.train.recipes.disentangler import DisentanglerConfig, train


@pytest.fixture(scope="session")
def sample_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a trained model; tests must not change it."""
    folder = tmp_path_factory.mktemp("disentangler")
    train(DisentanglerConfig(out=folder, trees=25, second_trees=15, min_rows=20, window=40, learning_rate=0.15))
    return folder
