"""Tag a corpus: measure every dialogue once and keep the results with it, to filter by later."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from tertulia.core.config import Cli
from tertulia.core.named import make_named
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.derived import DeriveConfig, DeriveCounts, Removed, derive, with_tags
from tertulia.corpus.readers.base import Item
from tertulia.corpus.taggers import DEFAULT, TAGGERS, Tagger


class TagConfig(DeriveConfig):
    """What to measure."""

    taggers: Annotated[tuple[str, ...], Cli("--tagger")] = DEFAULT
    """A tagger, with options as in perplexity:model=smollm2 or safety:swearing=true; repeat the option for more."""


def tag_corpus(config: TagConfig, progress: Progress | None = None) -> DeriveCounts:
    """Write a corpus with tags; earlier tags of other names stay."""
    return derive(config, [TagMaker(config.taggers)], progress or Silent(), command="tag")


def make_taggers(names: Sequence[str]) -> list[Tagger]:
    """The taggers of these names, with their options."""
    return [make_named(TAGGERS, name) for name in dict.fromkeys(names)]


@dataclass(frozen=True, slots=True)
class TagMaker:
    """Makes the step that tags."""

    names: tuple[str, ...]

    @property
    def columns(self) -> dict[str, str]:
        """The tags of all taggers, with their types."""
        return {name: info.kind for tagger in make_taggers(self.names) for name, info in tagger.tags.items()}

    def make(self) -> "TagStep":
        """The step."""
        return TagStep(make_taggers(self.names))


class TagStep:
    """Adds tags to items."""

    changes: Mapping[str, int] = {}

    def __init__(self, taggers: Sequence[Tagger]) -> None:
        self.taggers = taggers

    def __call__(self, items: Sequence[Item], /) -> list[Item | Removed]:
        """The items with their tags."""
        tags: list[dict[str, Any]] = [{} for _ in items]
        for tagger in self.taggers:
            for own, more in zip(tags, tagger(items), strict=True):
                own.update(more)
        return [with_tags(item, own) for item, own in zip(items, tags, strict=True)]
