"""`tertulia corpus personas`: silver data for consistency, made from personas."""

from tertulia.cli.command import command
from tertulia.cli.corpus_sets import save_silver
from tertulia.core.codec import Problems
from tertulia.core.dialogue import Exchange
from tertulia.core.progress import Progress
from tertulia.corpus.load import load_dialogues
from tertulia.corpus.silver.persona import PersonaSilverConfig, persona_pairs


@command(PersonaSilverConfig)
def personas(settings: PersonaSilverConfig, *, as_json: bool) -> None:
    """Make labelled pairs for consistency classifiers from personas: what contradicts them, and what does not."""

    def make(problems: Problems, progress: Progress) -> list[Exchange]:
        skipped = None if settings.strict else problems
        dialogues = load_dialogues(settings.target, split=settings.split, format=settings.format, problems=skipped)
        return persona_pairs(dialogues, settings, progress=progress)

    save_silver(settings, make, as_json=as_json)
