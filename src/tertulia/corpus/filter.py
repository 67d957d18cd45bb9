"""Filter a corpus by conditions on tags, by rules, and without personal data; everything removed has a reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from tertulia.core.config import Cli
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError, UsageError
from tertulia.core.progress import Progress, Silent
from tertulia.core.registry import Registry
from tertulia.corpus.custom_rules import RuleMaker
from tertulia.corpus.derived import DeriveConfig, DeriveCounts, Removed, StepMaker, derive, tags_of
from tertulia.corpus.expression import Condition, parse
from tertulia.corpus.readers.base import Item
from tertulia.corpus.scrub import KINDS, Kind, ScrubMaker
from tertulia.corpus.tag import make_taggers
from tertulia.corpus.taggers import TAGGERS, Tagger


class FilterConfig(DeriveConfig):
    """What to keep."""

    where: Annotated[tuple[str, ...], Cli("--where")] = ()
    """Keep what fulfils this condition on tags, such as "language == 'en' and safety < .5"; repeat it for more."""
    rules: Annotated[tuple[str, ...], Cli("--rule")] = ()
    """Remove what this rule has a reason to remove, such as blocklist:file=words.txt; repeat the option for more."""
    scrub: bool = False
    """Replace personal data (e-mail and IP addresses, phone numbers, keys, cards, postal addresses) by placeholders."""
    kinds: Annotated[tuple[Kind, ...], Cli("--kind")] = KINDS
    """Kind of personal data to replace with --scrub; repeat the option for more."""


def filter_corpus(config: FilterConfig, progress: Progress | None = None) -> DeriveCounts:
    """Write what is kept of a corpus."""
    steps: list[StepMaker] = []
    if config.where:
        steps.append(WhereMaker(config.where))
    if config.rules:
        steps.append(RuleMaker(config.rules))
    if config.scrub:
        steps.append(ScrubMaker(config.kinds))
    if not steps:
        raise UsageError(
            "There is nothing to filter by.", hint="Give a condition with --where, a rule with --rule, or --scrub."
        )
    return derive(config, steps, progress or Silent(), command="filter")


@dataclass(frozen=True, slots=True)
class WhereMaker:
    """Makes the step that checks conditions."""

    conditions: tuple[str, ...]

    @property
    def columns(self) -> dict[str, str]:
        """It writes no tags."""
        return {}

    def make(self) -> "WhereStep":
        """The step."""
        return WhereStep([parse(text) for text in self.conditions])


@dataclass(slots=True)
class WhereStep:
    """Removes items of which a condition does not hold. Tags that are missing are computed, if a tagger can."""

    conditions: Sequence[Condition]
    changes: Mapping[str, int] = field(default_factory=dict)

    def __call__(self, items: Sequence[Item], /) -> list[Item | Removed]:
        """The items that fulfil all conditions."""
        names = frozenset[str]().union(*(condition.names for condition in self.conditions))
        values = [dict(tags_of(item)) for item in items]
        missing = sorted(name for name in names if any(name not in own for own in values))
        for tagger in _taggers_of(missing, values[0]):
            for own, computed in zip(values, tagger(items), strict=True):
                own.update({name: value for name, value in computed.items() if name not in own})
        results: list[Item | Removed] = []
        for item, own in zip(items, values, strict=True):
            for name in missing:
                if name not in own:
                    raise DataError(
                        f"{item.id!r} has no tag {name!r}.", hint="Tag the corpus first with `tertulia corpus tag`."
                    )
            failed = next((text for c in self.conditions if (text := c.failed(own)) is not None), None)
            results.append(item if failed is None else Removed(f"not {failed}"))
        return results


def _taggers_of(names: Sequence[str], known: Mapping[str, Json]) -> list[Tagger]:
    """The taggers that compute these tags; a name that neither a tagger nor the corpus has is an error."""
    chosen: dict[str, None] = {}
    offered = _offered(TAGGERS)
    for name in names:
        if name in offered:
            chosen[offered[name]] = None
        elif name not in known:
            raise UsageError(
                f"There is no tag called {name!r}.", hint=f"Tags: {', '.join(sorted({*offered, *known}))}."
            )
    return make_taggers(list(chosen))


def _offered(taggers: Registry) -> dict[str, str]:
    """The tags that taggers write, with the tagger of each."""
    return {tag: row.name for row, tagger in taggers.usable() for tag in tagger.tags}
