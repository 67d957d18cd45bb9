"""The one door for metrics: built-in rows, families, and plugins through a real entry point."""

import sys
from pathlib import Path

import pytest

from tertulia.core.errors import UnknownName, UsageError
from tertulia.core.registry import Registry
from tertulia.metrics.metric import Metric, MetricFamily
from tertulia.metrics.registry import METRICS, metric_named, metrics_named


@pytest.mark.parametrize("row", METRICS.rows(), ids=lambda row: row.name)
def test_every_row_is_a_metric_or_a_family_of_its_name(row) -> None:  # type: ignore[no-untyped-def]
    value = METRICS.get(row.name)
    assert isinstance(value, Metric | MetricFamily)
    assert value.name == row.name
    assert value.summary


@pytest.mark.parametrize("name", ["hits@1", "hits@20", "recall@5", "recall@2in10", "1in2", "distinct-3", "KL", "f1"])
def test_names_of_families_resolve_to_metrics_of_that_name(name: str) -> None:
    assert metric_named(name).name == name


def test_an_unknown_name_suggests_a_close_one() -> None:
    with pytest.raises(UnknownName, match="'mrr'"):
        metric_named("mmr")


def test_a_metric_of_another_unit_is_refused() -> None:
    with pytest.raises(UsageError, match="'f1' is a metric of replies; judge rank computes metrics of ranks"):
        metrics_named(("hits@1", "f1"), unit="ranks", verb="judge rank")


PLUGIN = """
from tertulia.metrics.metric import Metric

def shout(batch):
    return [float(example.reply.isupper()) for example in batch]

SHOUTING = Metric("shouting", "reply", summary="share of replies in capitals", compute=shout)
"""


def install_plugin(folder: Path) -> None:
    """What pip would leave of a package with one metric."""
    (folder / "shouting_metric.py").write_text(PLUGIN)
    info = folder / "shouting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tertulia.metrics]\nshouting = shouting_metric:SHOUTING\n")


def test_a_plugin_joins_through_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_plugin(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    table = Registry("metric", "tertulia.metrics")
    assert [(row.name, row.summary) for row in table.rows()] == [("shouting", "from the package shouting")]
    assert table.get("shouting").reduction == "mean"
    sys.modules.pop("shouting_metric")
