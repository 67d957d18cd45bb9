import xml.etree.ElementTree as ET

import numpy as np
import pytest

from tertulia.core.estimate import Estimate
from tertulia.metrics.plots import (
    OUTCOME_COLOURS,
    band_plot,
    confusion_plot,
    heat_map,
    outcome_plot,
    panel_plot,
    reference_plot,
    regression_plot,
)

SVG = "{http://www.w3.org/2000/svg}"


def points(svg: str) -> list[str]:
    """The places of the dots."""
    points = [e for e in ET.fromstring(svg).iter(f"{SVG}path") if e.get("aria-roledescription") == "point"]
    return [e.get("transform", "") for e in points]


def test_a_curve_with_its_band() -> None:
    curve = [(10.0, Estimate(0.2, 0.1, 0.3, 9)), (100.0, Estimate(0.4, 0.3, 0.5, 9)), (1000.0, Estimate(0.5, 0.4, 0.6))]
    svg = band_plot(curve, x="dialogues", y="hits@1")
    texts = {"".join(t.itertext()) for t in ET.fromstring(svg).iter(f"{SVG}text")}
    assert {"dialogues", "hits@1"} <= texts
    left, middle, right = (float(place.partition("(")[2].partition(",")[0]) for place in points(svg))
    assert middle - left == pytest.approx(right - middle)


def test_without_the_logarithm() -> None:
    svg = band_plot([(0.0, Estimate(0.2, 0.1, 0.3)), (10.0, Estimate(0.4, 0.3, 0.5))], x="x", y="y", log_x=False)
    assert len(points(svg)) == 2


def test_a_single_point_is_a_picture_too() -> None:
    assert len(points(band_plot([(100.0, Estimate(0.4, 0.3, 0.5, 9))], x="x", y="y"))) == 1


def words(svg: str) -> list[str]:
    return ["".join(t.itertext()) for t in ET.fromstring(svg).iter(f"{SVG}text")]


def test_published_values_are_lines_with_names_and_equal_ones_share_theirs() -> None:
    figures = {"ours": Estimate(0.6, 0.5, 0.7, 9), "theirs": Estimate(0.4, 0.3, 0.5, 9)}
    svg = reference_plot(figures, {"human": 0.86, "Mitsuku": 0.56, "Cleverbot": 0.56}, title="SSA")
    assert {"human", "Mitsuku, Cleverbot", "ours", "theirs", "SSA"} <= {*words(svg)}
    assert len(points(svg)) == 2
    assert "human" not in words(reference_plot(figures, {}, title="SSA"))


def test_every_question_has_a_panel_of_its_own() -> None:
    one, none = Estimate(3.0, 2.5, 3.5, 9), Estimate(float("nan"))
    svg = panel_plot({"fluency": {"a": one, "b": one}, "depth": {"a": one, "b": none}}, title="mean")
    assert {"fluency", "depth", "mean"} <= {*words(svg)}
    assert len(points(svg)) == 3


def test_outcomes_are_stacked_in_the_order_win_tie_loss() -> None:
    win, tie, loss = Estimate(0.5, 0.4, 0.6, 9), Estimate(0.2, n=9), Estimate(0.3, n=9)
    svg = outcome_plot({"a : b": (win, tie, loss)})
    assert {"a : b", "win", "tie", "loss"} <= {*words(svg)}
    bars = [e for e in ET.fromstring(svg).iter(f"{SVG}path") if e.get("aria-roledescription") == "bar"]
    assert [e.get("fill") for e in bars] == list(OUTCOME_COLOURS.values())


def test_a_heat_map_has_a_cell_for_every_known_value() -> None:
    cells = {("f1", "overall"): 0.3, ("f1", "fluent"): -0.75, ("mrr", "overall"): float("nan"), ("mrr", "fluent"): 0.0}
    svg = heat_map(cells, title="Spearman")
    assert {"f1", "mrr", "overall", "fluent", "Spearman", "0.30", "−0.75", "0.00"} <= {*words(svg)}
    boxes = [e for e in ET.fromstring(svg).iter(f"{SVG}path") if e.get("aria-roledescription") == "rect mark"]
    colours = [e.get("fill", "") for e in boxes]
    assert len(colours) == len(set(colours)) == 3


def test_a_regression_has_points_a_line_and_published_points() -> None:
    figures = {
        "a": (Estimate(10.0, 9.0, 11.0, 9), Estimate(0.7, 0.6, 0.8, 9)),
        "b": (Estimate(20.0, n=9), Estimate(0.4)),
    }
    svg = regression_plot(figures, (1.0, -0.03), x="perplexity", y="SSA", references={"Meena": (10.2, 0.72)})
    assert {"a", "b", "Meena", "perplexity", "SSA"} <= {*words(svg)}
    assert len(points(svg)) == 3
    assert len(points(regression_plot(figures, (1.0, -0.03), x="x", y="y"))) == 2


def test_a_confusion_matrix_says_its_numbers_without_colour() -> None:
    svg = confusion_plot(np.array([[3, 1], [0, 0]]), ("yes", "no"))
    texts = {"".join(t.itertext()) for t in ET.fromstring(svg).iter(f"{SVG}text")}
    assert {"3 (.75)", "1 (.25)", "0", "yes (4)", "no (0)", "true label (count)", "predicted label"} <= texts
    assert svg == confusion_plot(np.array([[3, 1], [0, 0]]), ("yes", "no"))
