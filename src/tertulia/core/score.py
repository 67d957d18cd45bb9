"""The one value that runs through every verdict: what a metric says about a subject in a setting, unit by unit.

Ranking, perplexity, self-play metrics, automatic judges and people's ratings all produce `Score`s; significance tests,
correlations and reports only read them. A score keeps the value of every unit, so that two scores can be compared
paired wherever their units agree, and so that a report can go from a cell of a table down to the turn behind it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Score:
    """Values of one metric for one subject in one setting; the tuples run in parallel, one entry per unit."""

    subject: str
    """What is judged, usually a bot, by its name within the run."""
    setting: str
    """What the subject saw or how it was prompted, such as "own persona, original"; empty if there is one way."""
    metric: str
    """Name of a row of the metric registry."""
    units: tuple[str, ...]
    """Ids of what was measured: replies, dialogues, conversations or ratings. No id occurs twice."""
    values: tuple[float, ...]
    """One number per unit; nan where the metric has no value for the unit."""
    clusters: tuple[str, ...]
    """What each unit belongs to (its dialogue, say): units of one cluster are not independent of each other."""
    weights: tuple[float, ...] = ()
    """Denominators of a ratio metric (words of a dialogue, for perplexity); empty if every unit weighs the same."""

    def __post_init__(self) -> None:
        lengths = {len(self.units), len(self.values), len(self.clusters), len(self.weights or self.units)}
        if len(lengths) > 1:
            raise ValueError(f"units, values, clusters and weights of {self.metric!r} must have the same length")
        if len(set(self.units)) != len(self.units):
            raise ValueError(f"a unit occurs twice in the score {self.metric!r} of {self.subject!r}")

    @property
    def key(self) -> tuple[str, str, str]:
        """Subject, setting and metric: no two scores of a run share them."""
        return (self.subject, self.setting, self.metric)
