"""Pictures as SVG text, drawn by Vega-Altair and rendered without a browser or a network."""

from typing import Any

import altair as alt
import vl_convert

from tertulia.core.estimate import Estimate

INK = "#3b3a36"
ACCENT = "#b4532a"
QUIET = "#c9c2b4"


def funnel_plot(steps: list[tuple[str, int]]) -> str:
    """What was left after each step of mining."""
    told = [step for i, step in enumerate(steps) if i == 0 or step[1] != steps[i - 1][1] or i == len(steps) - 1]
    rows = [{"step": name, "left": count} for name, count in told]
    base = _chart(rows).encode(
        y=alt.Y("step:N", sort=None, title=None, axis=alt.Axis(labelLimit=0, ticks=False, labelPadding=6)),
        x=alt.X("left:Q", title="messages left"),
    )
    return _svg(base.mark_bar(color=ACCENT) + base.mark_text(align="left", dx=4, color=INK).encode(text="left:Q"))


def estimate_plot(figures: dict[str, Estimate], *, title: str, rule: float | None = None, rule_name: str = "") -> str:
    """Values with their intervals, and a dashed line for what chance would give."""
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


def turns_plot(by_turns: dict[int, int]) -> str:
    """Dialogues against their number of turns, both axes logarithmic: figure 1 of the Ubuntu Dialogue Corpus."""
    rows = [{"turns": turns, "dialogues": count} for turns, count in sorted(by_turns.items())]
    base = _chart(rows).encode(
        x=alt.X("turns:Q", scale=alt.Scale(type="log"), title="turns per dialogue"),
        y=alt.Y("dialogues:Q", scale=alt.Scale(type="log"), title="dialogues"),
    )
    return _svg(base.mark_line(color=QUIET) + base.mark_point(color=ACCENT, filled=True, size=40))


def curve_plot(curves: dict[str, list[tuple[float, float]]], *, x: str, log_x: bool = False) -> str:
    """Curves, each in a picture of its own, one below the other: what they measure differs."""
    scale = alt.Scale(type="log") if log_x else alt.Scale(zero=False)
    drawn = [
        _chart([{"x": at, "y": value} for at, value in points])
        .mark_line(color=ACCENT, point=alt.OverlayMarkDef(color=ACCENT, size=25) if len(points) < 60 else False)
        .encode(x=alt.X("x:Q", title=x, scale=scale), y=alt.Y("y:Q", title=name, scale=alt.Scale(zero=False)))
        .properties(width=520, height=200)
        for name, points in curves.items()
    ]
    return _render(alt.vconcat(*drawn))


def band_plot(points: list[tuple[float, Estimate]], *, x: str, y: str, log_x: bool = True) -> str:
    """A curve of estimates with the band of their intervals."""
    rows = [{"x": at, **e.as_json()} for at, e in points]
    base = _chart(rows).encode(
        x=alt.X("x:Q", title=x, scale=alt.Scale(type="log" if log_x else "linear", zero=False, nice=False, padding=12))
    )
    axis = alt.Y("value:Q", title=y, scale=alt.Scale(zero=False))
    band = base.mark_area(color=QUIET, opacity=0.6).encode(y=alt.Y("low:Q", title=y), y2="high:Q")
    spans = base.mark_rule(color=QUIET, strokeWidth=2).encode(y=alt.Y("low:Q", title=y), y2="high:Q")
    line = base.mark_line(color=ACCENT).encode(y=axis)
    dots = base.mark_point(color=ACCENT, filled=True, size=50).encode(y=axis)
    return _svg(band + spans + line + dots)


def _chart(rows: list[dict[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.Data(values=rows))  # type: ignore[no-untyped-call]


def _svg(chart: alt.LayerChart) -> str:
    return _render(chart.properties(width=520))


def _render(chart: alt.LayerChart | alt.VConcatChart) -> str:
    chart = chart.configure_view(stroke=None).configure(font="DejaVu Sans, system-ui, sans-serif", padding=12)
    return str(vl_convert.vegalite_to_svg(chart.to_json(), vl_version="5.20"))
