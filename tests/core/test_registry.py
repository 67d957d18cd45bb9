import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from tertulia.core.errors import MissingExtra, UnknownName
from tertulia.core.registry import Registry


@pytest.fixture
def table() -> Registry:
    registry = Registry("fruit", "tertulia.test_fruits")
    registry.add("decimal", "decimal:Decimal", "a number")
    registry.add("date", "datetime:date", "a day")
    return registry


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the import path of this test only."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_rows_are_imported_on_first_use(table: Registry) -> None:
    assert table.get("date") is date
    assert [(row.name, row.target, row.summary) for row in table.rows()] == [
        ("date", "datetime:date", "a day"),
        ("decimal", "decimal:Decimal", "a number"),
    ]
    assert list(table) == ["date", "decimal"]
    assert "date" in table
    assert "dates" not in table


def test_a_row_that_cannot_be_imported_fails_only_when_used(table: Registry) -> None:
    table.add("ghost", "tertulia.no_such_module:Ghost", "not there")
    table.add("limb", "datetime:NoSuchThing", "not there either")
    assert len(table.rows()) == 4
    assert table.get("decimal")
    with pytest.raises(ModuleNotFoundError):
        table.get("ghost")
    with pytest.raises(AttributeError):
        table.get("limb")


def test_a_package_that_is_not_installed_is_a_user_error(table: Registry, packages: Path) -> None:
    (packages / "heavy.py").write_text("import heavy_engine_that_nobody_has\n")
    table.add("heavy", "heavy:Thing", "needs an engine")
    with pytest.raises(MissingExtra) as caught:
        table.get("heavy")
    assert caught.value.message == (
        "The fruit 'heavy' needs the package 'heavy_engine_that_nobody_has', which is not installed."
    )
    assert caught.value.hint == "Install it with: pip install heavy_engine_that_nobody_has"


def test_a_duplicate_name_raises(table: Registry) -> None:
    with pytest.raises(ValueError, match=r"two fruits called 'date': datetime:date and datetime:datetime"):
        table.add("date", "datetime:datetime", "another")
    assert table.rows()[0].target == "datetime:date"


@pytest.mark.parametrize("target", ["datetime", "datetime:", ":date", ""])
def test_targets_name_module_and_attribute(table: Registry, target: str) -> None:
    with pytest.raises(ValueError, match="module:attribute"):
        table.add("x", target, "")


def test_unknown_names_suggest_similar_ones(table: Registry) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'decimal'"):
        table.get("decimel")


def install(folder: Path, name: str, points: str) -> None:
    """A distribution as pip leaves it: a module and its metadata."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)


def test_plugins_add_rows_through_entry_points(table: Registry, packages: Path) -> None:
    (packages / "orchard.py").write_text("class Plum:\n    ripe = True\n")
    install(packages, "orchard", "[tertulia.test_fruits]\nplum = orchard:Plum\n[other.group]\nx = orchard:X\n")
    assert list(table) == ["date", "decimal", "plum"]
    assert table.rows()[2].summary == "from the package orchard"
    assert "orchard" not in sys.modules
    assert table.get("plum").ripe
    assert "plum" in Registry("fruit", "tertulia.test_fruits")


def test_a_plugin_that_clashes_or_is_malformed_is_skipped_with_a_warning(
    table: Registry, packages: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (packages / "orchard.py").write_text("class Plum:\n    ripe = True\n")
    install(packages, "clash", "[tertulia.test_fruits]\ndate = clash:Date\nfig = clash\n")
    install(packages, "orchard", "[tertulia.test_fruits]\nplum = orchard:Plum\n")
    assert list(table) == ["date", "decimal", "plum"]
    assert table.get("date") is date
    assert table.get("plum").ripe
    warnings = sorted(record.getMessage() for record in caplog.records)
    assert [warning.partition(": ")[0] for warning in warnings] == [
        "Skipped the fruit 'date' of the plugin clash",
        "Skipped the fruit 'fig' of the plugin clash",
    ]
    assert "two fruits called 'date'" in warnings[0]
    assert "module:attribute" in warnings[1]
