"""Plots as SVG text, drawn by Vega-Altair and rendered without a browser or a network.

They are drawn `WIDTH` wide; a page may stretch them to its own width. They are on white; a page that is dark hides that
background and replaces the colours below wherever they occur. Texts within coloured cells are black or white, and stay
so.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import vl_convert
from numpy.typing import NDArray

from tertulia.core.estimate import Estimate
from tertulia.core.lazy import LazyModule

if TYPE_CHECKING:
    import altair as alt
else:
    alt = LazyModule("altair")  # a third of a second to import

INK = "#3b3a36"
ACCENT = "#b4532a"
QUIET = "#c9c2b4"
WIDTH = 640
"""Of the plot itself, in pixels; names of rows stand beside it."""
FONT = 11
"""Size of the texts, in pixels."""
STEP = 26
"""Height of a row, in pixels."""


def funnel_plot(steps: list[tuple[str, int]]) -> str:
    """Messages left after each step of mining; steps that change nothing are left out."""
    shown = [step for i, step in enumerate(steps) if i == 0 or step[1] != steps[i - 1][1] or i == len(steps) - 1]
    rows = [{"step": name, "left": count} for name, count in shown]
    base = _chart(rows).encode(
        y=alt.Y("step:N", sort=None, title=None, axis=alt.Axis(labelLimit=0, ticks=False, labelPadding=6)),
        x=alt.X("left:Q", title="messages left"),
    )
    return _svg(base.mark_bar(color=ACCENT) + base.mark_text(align="left", dx=4, color=INK).encode(text="left:Q"))


def estimate_plot(figures: dict[str, Estimate], *, title: str, rule: float | None = None, rule_name: str = "") -> str:
    """Values with their intervals, and a dashed line, such as the chance level."""
    rows = [{"name": name} | e.as_json() for name, e in figures.items()]
    base = _chart(rows).encode(
        y=alt.Y("name:N", sort=None, title=None, axis=alt.Axis(labelLimit=0, ticks=False, labelPadding=6))
    )
    bars = base.mark_bar(color=QUIET, height=18).encode(x=alt.X("value:Q", title=title))
    spans = base.mark_rule(color=ACCENT, strokeWidth=3).encode(x="low:Q", x2="high:Q")
    points = base.mark_point(color=ACCENT, filled=True, size=70).encode(x="value:Q")
    layers = bars + spans + points
    if rule is not None:
        chance = _chart([{"chance": rule, "label": rule_name}])
        layers = layers + chance.mark_rule(color=INK, strokeDash=[4, 4]).encode(x="chance:Q")
        layers = layers + chance.mark_text(align="left", dx=4, dy=-8, baseline="bottom", color=INK).encode(
            x="chance:Q", y=alt.value(4), text="label:N"
        )
    return _svg(layers)


def reference_plot(figures: dict[str, Estimate], references: dict[str, float], *, title: str) -> str:
    """Bars with intervals, and published values as dashed lines with their names, as Meena's figure 1 has them."""
    rows = [{"name": name} | e.as_json() for name, e in figures.items()]
    x = alt.X("name:N", sort=None, title=None, axis=alt.Axis(labelAngle=0, labelLimit=0, ticks=False, labelPadding=6))
    base = _chart(rows).encode(x=x)
    layers = base.mark_bar(color=QUIET, width=36).encode(y=alt.Y("value:Q", title=title))
    layers = layers + base.mark_rule(color=ACCENT, strokeWidth=3).encode(y="low:Q", y2="high:Q")
    layers = layers + base.mark_point(color=ACCENT, filled=True, size=70).encode(y="value:Q")
    # Names of equal or close values would overprint each other: they share a line of text.
    shared: dict[float, list[str]] = {}
    for name, value in references.items():
        shared.setdefault(value, []).append(name)
    lines = [{"reference": value, "label": ", ".join(names)} for value, names in shared.items()]
    if lines:
        published = _chart(lines)
        layers = layers + published.mark_rule(color=INK, strokeDash=[4, 4], opacity=0.6).encode(y="reference:Q")
        layers = layers + published.mark_text(align="left", dx=4, baseline="bottom", color=INK, fontSize=FONT).encode(
            x=alt.value(WIDTH), y="reference:Q", text="label:N"
        )
    return _render(layers.properties(width=WIDTH, height=320))


def panel_plot(panels: dict[str, dict[str, Estimate]], *, title: str) -> str:
    """A panel per question, one below the other, with scales of their own: a point with its interval per subject."""
    charts = [_panel(name, figures) for name, figures in panels.items()]
    return _render(
        alt.vconcat(*charts, spacing=6).properties(title=alt.TitleParams(title, fontSize=FONT, anchor="start"))
    )


def _panel(panel: str, figures: dict[str, Estimate]) -> "alt.LayerChart | alt.FacetChart":
    base = _chart([{"name": name} | e.as_json() for name, e in figures.items() if e.n]).encode(
        y=alt.Y("name:N", sort=None, title=None, axis=alt.Axis(labelLimit=0, ticks=False, labelPadding=6))
    )
    scale = alt.Scale(zero=False)
    spans = base.mark_rule(color=QUIET, strokeWidth=4).encode(x=alt.X("low:Q", title=None, scale=scale), x2="high:Q")
    points = base.mark_point(color=ACCENT, filled=True, size=60).encode(x=alt.X("value:Q", title=None, scale=scale))
    heading = alt.TitleParams(panel, anchor="start", fontSize=FONT, fontWeight="normal")
    return alt.layer(spans, points).properties(width=WIDTH, height=STEP * len(figures), title=heading)


OUTCOME_COLOURS = {"win": ACCENT, "tie": QUIET, "loss": "#5d7f8c"}


def outcome_plot(outcomes: dict[str, tuple[Estimate, Estimate, Estimate]]) -> str:
    """Wins, ties and losses as stacked bars, with the interval of the wins, in the manner of pairwise evaluations."""
    rows = [
        {"pair": pair, "outcome": outcome, "share": share.value, "order": i}
        for pair, shares in outcomes.items()
        for i, (outcome, share) in enumerate(zip(OUTCOME_COLOURS, shares, strict=True))
        if share.n
    ]
    y = alt.Y("pair:N", sort=None, title=None, axis=alt.Axis(labelLimit=0, ticks=False, labelPadding=6))
    scale = alt.Scale(domain=list(OUTCOME_COLOURS), range=list(OUTCOME_COLOURS.values()))
    bars = (
        _chart(rows)
        .mark_bar(height=18)
        .encode(
            y=y,
            x=alt.X("share:Q", title="share of votes", stack="zero", scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("outcome:N", scale=scale, title=None),
            order="order:Q",
        )
    )
    wins = _chart([{"pair": pair} | win.as_json() for pair, (win, _, _) in outcomes.items() if win.n])
    spans = wins.mark_rule(color=INK, strokeWidth=2).encode(y=y, x="low:Q", x2="high:Q")
    return _render(alt.layer(bars, spans).properties(width=WIDTH))


def turns_plot(by_turns: dict[int, int]) -> str:
    """Dialogues against their number of turns, both axes logarithmic: figure 1 of the Ubuntu Dialogue Corpus."""
    rows = [{"turns": turns, "dialogues": count} for turns, count in sorted(by_turns.items())]
    base = _chart(rows).encode(
        x=alt.X("turns:Q", scale=alt.Scale(type="log"), title="turns per dialogue"),
        y=alt.Y("dialogues:Q", scale=alt.Scale(type="log"), title="dialogues"),
    )
    return _svg(base.mark_line(color=QUIET) + base.mark_point(color=ACCENT, filled=True, size=40))


def curve_plot(curves: dict[str, list[tuple[float, float]]], *, x: str, log_x: bool = False) -> str:
    """Curves in plots of their own, one below the other, since they measure different things."""
    scale = alt.Scale(type="log") if log_x else alt.Scale(zero=False)
    charts = [
        _chart([{"x": position, "y": value} for position, value in points])
        .mark_line(color=ACCENT, point=alt.OverlayMarkDef(color=ACCENT, size=25) if len(points) < 60 else False)
        .encode(x=alt.X("x:Q", title=x, scale=scale), y=alt.Y("y:Q", title=name, scale=alt.Scale(zero=False)))
        .properties(width=WIDTH, height=200)
        for name, points in curves.items()
    ]
    return _render(alt.vconcat(*charts))


def band_plot(points: list[tuple[float, Estimate]], *, x: str, y: str, log_x: bool = True) -> str:
    """A curve of estimates with the band of their intervals."""
    rows = [{"x": position, **e.as_json()} for position, e in points]
    base = _chart(rows).encode(
        x=alt.X("x:Q", title=x, scale=alt.Scale(type="log" if log_x else "linear", zero=False, nice=False, padding=12))
    )
    axis = alt.Y("value:Q", title=y, scale=alt.Scale(zero=False))
    band = base.mark_area(color=QUIET, opacity=0.6).encode(y=alt.Y("low:Q", title=y), y2="high:Q")
    spans = base.mark_rule(color=QUIET, strokeWidth=2).encode(y=alt.Y("low:Q", title=y), y2="high:Q")
    line = base.mark_line(color=ACCENT).encode(y=axis)
    dots = base.mark_point(color=ACCENT, filled=True, size=50).encode(y=axis)
    return _svg(band + spans + line + dots)


def heat_map(cells: dict[tuple[str, str], float], *, title: str) -> str:
    """Correlations by row and column, from -1 (blue) over 0 (white) to 1 (red); nan is left empty."""
    rows = [{"row": row, "column": column, "value": value} for (row, column), value in cells.items() if value == value]
    names = [list(dict.fromkeys(key[i] for key in cells)) for i in (0, 1)]
    axis: dict[str, Any] = {"labelLimit": 0, "ticks": False, "labelPadding": 6}
    base = _chart(rows).encode(
        y=alt.Y("row:N", sort=None, title=None, scale=alt.Scale(domain=names[0]), axis=alt.Axis(**axis)),
        x=alt.X(
            "column:N",
            sort=None,
            title=None,
            scale=alt.Scale(domain=names[1]),
            axis=alt.Axis(**axis, orient="top", labelAngle=-40),
        ),
    )
    colours = alt.Scale(domain=[-1, 0, 1], range=["#3b6ea8", "#faf8f3", ACCENT], interpolate="rgb")
    boxes = base.mark_rect().encode(color=alt.Color("value:Q", scale=colours, title=title))
    texts = base.mark_text(fontSize=11).encode(
        text=alt.Text("value:Q", format=".2f"),
        color=alt.condition("abs(datum.value) > 0.6", alt.value("white"), alt.value("black")),
    )
    width, height = (max(120, size * len(side)) for size, side in ((56, names[1]), (22, names[0])))
    return _render(alt.layer(boxes, texts).properties(width=width, height=height))


def confusion_plot(matrix: NDArray[np.int64], labels: Sequence[str]) -> str:
    """A confusion matrix, true labels in rows: cells are shaded by their share of the row and have count and share.

    One hue from light to dark, so that it reads the same in grey; a frame marks what is right. The numbers are in the
    cells, so it needs no legend.
    """
    sums = matrix.sum(axis=1)
    rows = [
        {
            "true": f"{true} ({sums[i]})",
            "predicted": predicted,
            "share": float(matrix[i, j] / sums[i]) if sums[i] else 0.0,
            "text": f"{matrix[i, j]}" + (f" ({matrix[i, j] / sums[i]:.2f})".replace("0.", ".") if matrix[i, j] else ""),
            "right": i == j,
        }
        for i, true in enumerate(labels)
        for j, predicted in enumerate(labels)
    ]
    axis: dict[str, Any] = {"labelLimit": 0, "ticks": False, "labelPadding": 6, "titlePadding": 10}
    base = _chart(rows).encode(
        y=alt.Y("true:N", sort=None, title="true label (count)", axis=alt.Axis(**axis)),
        x=alt.X("predicted:N", sort=None, title="predicted label", axis=alt.Axis(**axis, orient="top", labelAngle=0)),
    )
    colours = alt.Scale(domain=[0, 1], range=["#faf8f3", "#7a3b12"], interpolate="rgb")
    boxes = base.mark_rect(stroke="white", strokeWidth=2).encode(color=alt.Color("share:Q", scale=colours, legend=None))
    frame = base.mark_rect(fill=None, stroke=INK, strokeWidth=1.5).transform_filter("datum.right")
    texts = base.mark_text(fontSize=12).encode(
        text="text:N", color=alt.condition("datum.share > 0.75", alt.value("white"), alt.value("black"))
    )
    size = {"width": 110 * len(labels), "height": 46 * len(labels)}
    return _render(alt.layer(boxes, frame, texts).properties(**size))


def regression_plot(
    points: dict[str, tuple[Estimate, Estimate]],
    line: tuple[float, float],
    *,
    x: str,
    y: str,
    references: dict[str, tuple[float, float]] | None = None,
) -> str:
    """A point per subject with intervals in both directions, and the line (intercept, slope) through them.

    References are published points, drawn without intervals and not used for the line.
    """
    rows = [
        {"name": name, "x": a.value, "y": b.value, "x1": a.low, "x2": a.high, "y1": b.low, "y2": b.high}
        for name, (a, b) in points.items()
    ]
    rows = [{key: None if value != value else value for key, value in row.items()} for row in rows]
    base = _chart(rows)
    across = alt.X("x:Q", title=x, scale=alt.Scale(zero=False))
    up = alt.Y("y:Q", title=y, scale=alt.Scale(zero=False))
    layers = base.mark_rule(color=QUIET, strokeWidth=2).encode(x=across, y=alt.Y("y1:Q", title=y), y2="y2:Q")
    layers = layers + base.mark_rule(color=QUIET, strokeWidth=2).encode(x=alt.X("x1:Q", title=x), x2="x2:Q", y=up)
    ends = [a.value for a, _ in points.values()] + [a for a, _ in (references or {}).values()]
    drawn = _chart([{"x": end, "y": line[0] + line[1] * end} for end in (min(ends), max(ends))] if ends else [])
    layers = layers + drawn.mark_line(color=INK, strokeDash=[5, 4]).encode(x=across, y=up)
    dots = base.encode(x=across, y=up)
    layers = layers + dots.mark_point(color=ACCENT, filled=True, size=70)
    layers = layers + dots.mark_text(align="left", dx=7, dy=-7, color=INK, fontSize=FONT).encode(text="name:N")
    if references:
        published = _chart([{"name": name, "x": a, "y": b} for name, (a, b) in references.items()]).encode(
            x=across, y=up
        )
        layers = layers + published.mark_point(color=INK, shape="diamond", size=70)
        layers = layers + published.mark_text(align="left", dx=7, dy=10, color=INK, fontSize=FONT).encode(text="name:N")
    return _render(layers.properties(width=WIDTH, height=380))


def _chart(rows: list[dict[str, Any]]) -> "alt.Chart":
    return alt.Chart(alt.Data(values=rows))  # type: ignore[no-untyped-call]


def _svg(chart: "alt.LayerChart") -> str:
    return _render(chart.properties(width=WIDTH))


def _render(chart: "alt.LayerChart | alt.FacetChart | alt.VConcatChart") -> str:
    chart = chart.configure(
        font="DejaVu Sans, system-ui, sans-serif",
        padding=8,
        view=alt.ViewConfig(stroke=None, discreteHeight={"step": STEP}),
        axis=alt.AxisConfig(labelFontSize=FONT, titleFontSize=FONT, titleFontWeight="normal", titlePadding=8),
        legend=alt.LegendConfig(labelFontSize=FONT, titleFontSize=FONT),
        text=alt.MarkConfig(fontSize=FONT),
    )
    return str(vl_convert.vegalite_to_svg(chart.to_json(), vl_version="5.20"))
