"""The plots of a report, each with a caption that says the same in words."""

from tertulia.judge.document import Plot, short
from tertulia.judge.paper_tables import Figures
from tertulia.judge.runs import JudgedRun
from tertulia.metrics.plots import band_plot, curve_plot, estimate_plot

MAX_NAMED = 24
"""Figures that a caption says in words; of more, it says how many there are."""


def run_plots(run: JudgedRun, figures: Figures) -> tuple[Plot, ...]:
    """One metric by subject and setting; curves for training sizes and sweeps of samples."""
    plot = _sweep_plot(run, figures) if run.verb == "samples" else _first_metric(run, figures)
    return (plot,) if plot else ()


def _first_metric(run: JudgedRun, figures: Figures) -> Plot | None:
    metric = _worth_plotting(run, figures)
    known = {key: e for key, e in figures.items() if key[2] == metric and e.n}
    if not known:
        return None
    if run.verb == "curve":
        points = [(float(setting.split()[0]), e) for (_, setting, _), e in known.items()]
        caption = "; ".join(f"{size:g} dialogues: {e}" for size, e in points)
        return Plot("curve.svg", band_plot(points, x="training dialogues", y=metric), caption)
    several = len(run.settings) > 1
    named = {f"{subject} ({setting})" if several else subject: e for (subject, setting, _), e in known.items()}
    chance = run.details.get("chance") if metric in ("hits@1", "recall@1", "error rate") else None
    title = f"{metric}, with 95 % interval"
    svg = estimate_plot(named, title=title, rule=chance, rule_name="chance" if chance is not None else "")
    words = "; ".join(f"{name} {short(estimate)}" for name, estimate in list(named.items())[:MAX_NAMED])
    rest = f"; and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
    return Plot(f"{run.verb}.svg", svg, f"{title}: {words}{rest}.")


def _worth_plotting(run: JudgedRun, figures: Figures) -> str:
    """The first metric that has a better end and in which subjects differ, or else the first one."""
    names = run.metric_names()
    for name in names:
        values = {e.value for key, e in figures.items() if key[2] == name and e.n}
        if run.metrics[name].higher_is_better is not None and len(values) > 1:
            return name
    return names[0] if names else ""


def _sweep_plot(run: JudgedRun, figures: Figures) -> Plot | None:
    sizes = run.details.get("sweep", ())
    curves = {
        metric: [(float(n), figures[run.subjects[0].name, f"best of {n}", metric].value) for n in sizes]
        for metric in ("log-probability per token", "distinct replies", "words per reply", "seconds per reply")
        if sizes
    }
    if not curves:
        return None
    caption = "; ".join(f"N = {n:g}: {value:.2f} per token" for n, value in curves["log-probability per token"])
    return Plot("sweep.svg", curve_plot(curves, x="samples, N", log_x=True), caption)
