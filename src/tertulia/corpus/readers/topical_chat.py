"""Topical-Chat (Gopalakrishnan et al. 2019): conversations by id, and the reading sets their speakers had before them.

Reading sets are found where the publication puts them (`conversations/NAME.json`, `reading_sets/post-build/NAME.json`)
or beside the file as `reading_sets_NAME.json`. Built ones become the evidence: Wikipedia sections and fun facts of each
agent, and the article. Those not built hold references instead of texts; they stay in `meta` as they are.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from tertulia.core.dialogue import Dialogue, Evidence, Json, Turn
from tertulia.core.errors import DataError
from tertulia.corpus.readers.base import Reader, objects_of, text_of
from tertulia.corpus.readers.opening import bare, companion, either

KEY = "conversation_id"
AGENTS = ("agent_1", "agent_2")
_TURN_META = ("sentiment", "knowledge_source", "turn_rating")
_META = ("article_url", "config", "conversation_rating")


def decode(record: Json, reading_sets: dict[str, Json] | None = None) -> Dialogue:
    """One conversation, with what its reading set says."""
    name = text_of(record[KEY], KEY)
    reading = (reading_sets or {}).get(name) or {}
    evidence = tuple(read_evidence(reading))
    meta = {field: record[field] for field in _META if record.get(field) is not None}
    if reading and not evidence:
        meta["reading_set"] = {agent: reading[agent] for agent in AGENTS if agent in reading}
    turns = (
        Turn(
            text_of(said["agent"], "agent"),
            text_of(said["message"], "message"),
            meta={field: said[field] for field in _TURN_META if said.get(field) is not None},
        )
        for said in objects_of(record["content"], "content")
    )
    return Dialogue(name, tuple(turns), evidence=evidence, meta=meta)


def read_evidence(reading: dict[str, Json]) -> Iterator[Evidence]:
    """The texts of a built reading set; the id says who had it: `agent_1/FS2/fun_facts/0`, `article/AS1`."""
    for agent in AGENTS:
        for section, facts in (reading.get(agent) or {}).items():
            entity = str(facts.get("entity", ""))
            for kind in ("shortened_wiki_lead_section", "summarized_wiki_lead_section"):
                if isinstance(facts.get(kind), str) and facts[kind]:
                    yield Evidence(facts[kind], source=entity, id=f"{agent}/{section}/{kind}")
            for i, fact in enumerate(facts.get("fun_facts") or []):
                if isinstance(fact, str) and fact and not _is_reference(fact):
                    yield Evidence(fact, source=entity, id=f"{agent}/{section}/fun_facts/{i}")
    article = reading.get("article") or {}
    for section, text in article.items():
        if section != "url" and isinstance(text, str) and text:
            yield Evidence(text, source=str(article.get("url") or ""), id=f"article/{section}")


def _is_reference(fact: str) -> bool:
    """A fun fact that is still the id of a Reddit post."""
    return fact.startswith("t3_") and fact[3:].isalnum()


def beside(file: Path) -> Callable[[Json], Dialogue]:
    """A decoder that knows the reading sets of the file."""
    name = bare(file)
    places = [file.with_name(f"reading_sets_{name}.json")]
    places += [file.parent.parent / "reading_sets" / built / f"{name}.json" for built in ("post-build", "pre-build")]
    found = next((path for place in places if (path := either(place))), None)
    reading_sets = companion(found) if found else {}
    return lambda record: decode(record, reading_sets)


def encode(dialogue: Dialogue) -> dict[str, Json]:
    """The conversation alone: reading sets are another file, which is not written."""
    speakers = dialogue.speakers
    if len(speakers) > 2:
        raise DataError(f"The dialogue {dialogue.id!r} does not fit: Topical-Chat holds two agents.")
    order = speakers if set(speakers) - set(AGENTS) else AGENTS
    agents = dict(zip(order, AGENTS, strict=False))
    content = [
        {"message": turn.text, "agent": agents[turn.speaker]}
        | {field: turn.meta[field] for field in _TURN_META if field in turn.meta}
        for turn in dialogue.turns
    ]
    kept = {field: dialogue.meta[field] for field in _META if field in dialogue.meta}
    return {KEY: dialogue.id, "content": content} | kept


def recognises(record: dict[str, Json]) -> bool:
    """Whether its content is messages of agents."""
    content = record.get("content")
    return isinstance(content, list) and (not content or (isinstance(content[0], dict) and "agent" in content[0]))


READER = Reader(
    name="topical-chat",
    recognises=recognises,
    decode=decode,
    encode=encode,
    key=KEY,
    beside=beside,
    companions=("reading_sets_*",),
)
