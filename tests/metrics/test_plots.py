import xml.etree.ElementTree as ET

import pytest

from tertulia.core.estimate import Estimate
from tertulia.metrics.plots import band_plot

SVG = "{http://www.w3.org/2000/svg}"


def points(svg: str) -> list[str]:
    """The places of the dots."""
    found = [e for e in ET.fromstring(svg).iter(f"{SVG}path") if e.get("aria-roledescription") == "point"]
    return [e.get("transform", "") for e in found]


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
