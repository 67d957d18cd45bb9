import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tertulia.core.dialogue import Dialogue, Turn, exchanges
from tertulia.core.errors import DataError, UsageError
from tertulia.corpus.filter import FilterConfig, filter_corpus
from tertulia.corpus.load import load_dialogues, load_exchanges
from tertulia.corpus.tag import TagConfig, make_taggers, tag_corpus
from tertulia.corpus.write import save_dialogues, save_exchanges
from tertulia.judge.reply_resources import language_model

from .conftest import make_dialogues

ENGLISH = "I have been thinking about what you said the other day, and I think that you are right."
GERMAN = "Ich habe darüber nachgedacht, was du neulich gesagt hast, und ich glaube, dass du recht hast."
SPANISH = "He estado pensando en lo que dijiste el otro día y creo que tienes toda la razón, amigo."
RUDE = "You are a stupid idiot and I will kill you."


def dialogue(name: str, *texts: str) -> Dialogue:
    return Dialogue(name, tuple(Turn("ab"[i % 2], text) for i, text in enumerate(texts)))


CORPUS = [
    dialogue("english", ENGLISH, "Thank you, I am very glad to hear that from you."),
    dialogue("german", GERMAN, "Danke, das freut mich wirklich sehr zu hören."),
    dialogue("spanish", SPANISH),
    dialogue("rude", ENGLISH, RUDE),
    dialogue("repeated", ENGLISH, ENGLISH, ENGLISH),
    dialogue("mail", "Please write to ana@example.org, or see www.example.org, when you find the time."),
    dialogue("empty"),
]


def tag(tmp_path: Path, **options: object) -> dict[str, dict]:
    save_dialogues(CORPUS, tmp_path / "in.jsonl")
    config = TagConfig(target=str(tmp_path / "in.jsonl"), out=tmp_path / "tagged", **options)
    assert tag_corpus(config).kept == len(CORPUS)
    return {d.id: d.meta["tags"] for d in load_dialogues(tmp_path / "tagged")}


def test_tags_measure_what_they_say(tmp_path: Path) -> None:
    tags = tag(tmp_path)
    assert [tags[name]["language"] for name in ("english", "german", "spanish")] == ["en", "de", "es"]
    assert tags["english"]["language_confidence"] > 0.5
    assert (tags["english"]["turns"], tags["english"]["words"]) == (2, 29)
    assert (tags["english"]["longest_turn"], tags["english"]["shortest_turn"]) == (18, 11)
    assert (tags["rude"]["safety"], tags["english"]["safety"]) == (1.0, 0.0)
    assert tags["rude"]["safety_reason"].startswith("unsafe")
    assert tags["repeated"]["repetition"] == pytest.approx(2 / 3, abs=0.01)
    assert tags["repeated"]["repeated_turns"] == 2
    assert (tags["mail"]["pii"], tags["mail"]["links"], tags["english"]["pii"]) == (1, 1, 0)
    assert tags["empty"]["words"] == 0
    assert 0.7 < tags["english"]["letters"] < 1


def test_tags_are_columns_and_stay_through_other_commands(tmp_path: Path) -> None:
    tags = tag(tmp_path)
    table = pq.read_table(next((tmp_path / "tagged").glob("*.parquet")))
    assert table["tag_language"].to_pylist() == [own["language"] for own in tags.values()]
    assert str(table.schema.field("tag_words").type) == "int64"
    kept = FilterConfig(target=str(tmp_path / "tagged"), out=tmp_path / "kept", where=("turns > 1",))
    filter_corpus(kept)
    table = pq.read_table(next((tmp_path / "kept").glob("*.parquet")))
    assert table["tag_safety"].to_pylist() == [own["safety"] for own in tags.values() if own["turns"] > 1]
    tag_corpus(TagConfig(target=str(tmp_path / "kept"), out=tmp_path / "again", taggers=("safety:swearing=true",)))
    again = {d.id: d.meta["tags"] for d in load_dialogues(tmp_path / "again")}
    assert again == {name: own for name, own in tags.items() if own["turns"] > 1}


def test_removals_are_counted_by_the_clause_that_failed(tmp_path: Path) -> None:
    tag(tmp_path)
    config = FilterConfig(
        target=str(tmp_path / "tagged"), out=tmp_path / "kept", where=("language == 'en' and safety < .5", "words > 0")
    )
    counts = filter_corpus(config)
    kept = [d.id for d in load_dialogues(tmp_path / "kept")]
    assert set(kept) >= {"english", "repeated", "mail"}
    assert not {"german", "spanish", "rude", "empty"} & set(kept)
    assert counts.removed["not language == 'en'"] + counts.removed["not words > 0"] == 3
    assert counts.removed["not safety < .5"] == 1
    assert counts.read == counts.kept + sum(counts.removed.values()) == len(CORPUS)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("workers", [None, 1])
def test_untagged_corpora_are_tagged_as_needed_and_parts_do_not_matter(tmp_path: Path, workers: int | None) -> None:
    dialogues = make_dialogues(150)
    save_dialogues(dialogues, tmp_path / "in.jsonl")
    config = FilterConfig(
        target=str(tmp_path / "in.jsonl"),
        out=tmp_path / "out",
        where=("words >= 20",),
        workers=workers,
        ending=".jsonl",
    )
    counts = filter_corpus(config)
    expected = [d for d in dialogues if sum(len(t.text.split()) for t in d.turns) >= 20]
    assert list(load_dialogues(tmp_path / "out")) == expected
    assert counts.removed == Counter({"not words >= 20": 150 - len(expected)})


def test_unknown_tags_conditions_and_nothing_to_do_are_errors_that_leave_nothing(tmp_path: Path) -> None:
    save_dialogues(CORPUS, tmp_path / "in.jsonl")
    options = {"target": str(tmp_path / "in.jsonl"), "out": tmp_path / "out"}
    with pytest.raises(UsageError, match="no tag called 'langauge'"):
        filter_corpus(FilterConfig(**options, where=("langauge == 'en'",)))
    with pytest.raises(UsageError, match="cannot contain"):
        filter_corpus(FilterConfig(**options, where=("open('x')",)))
    with pytest.raises(UsageError, match="nothing to filter"):
        filter_corpus(FilterConfig(**options))
    with pytest.raises(UsageError, match="no tagger called 'lenght'"):
        tag_corpus(TagConfig(**options, taggers=("lenght",)))
    with pytest.raises(UsageError, match="needs a language model"):
        make_taggers(["perplexity"])[0](CORPUS)
    some = [CORPUS[0], Dialogue("tagged", CORPUS[0].turns, meta={"tags": {"mine": 3}})]
    save_dialogues(some[::-1], tmp_path / "in.jsonl")
    with pytest.raises(DataError, match="'english' has no tag 'mine'"):
        filter_corpus(FilterConfig(**options, where=("mine > 2",)))
    assert not (tmp_path / "out").exists()


def test_personal_data_are_replaced_and_counted(tmp_path: Path) -> None:
    save_dialogues(CORPUS, tmp_path / "in.jsonl")
    config = FilterConfig(target=str(tmp_path / "in.jsonl"), out=tmp_path / "out", scrub=True, ending=".jsonl.gz")
    counts = filter_corpus(config)
    assert (counts.changed, counts.kept) == (Counter({"email": 1}), len(CORPUS))
    assert "ana@example.org" not in repr(list(load_dialogues(tmp_path / "out")))
    history = json.loads((tmp_path / "out" / "history.json").read_text())["steps"][-1]
    assert history["changed"] == {"email": 1}


def test_exchanges_are_tagged_and_filtered_too(tmp_path: Path) -> None:
    save_exchanges([e for d in CORPUS for e in exchanges(d)], tmp_path / "in.jsonl")
    tag_corpus(TagConfig(target=str(tmp_path / "in.jsonl"), out=tmp_path / "tagged"))
    config = FilterConfig(target=str(tmp_path / "tagged"), out=tmp_path / "out", where=("safety < .5",))
    filter_corpus(config)
    assert [e.id for e in load_exchanges(tmp_path / "out")] == ["english#1", "german#1", "repeated#1", "repeated#2"]


def test_perplexity_and_safety_by_models(tiny_models: Any) -> None:
    texts = ("What do you like to drink?", "A cup of coffee.", "Me too!")
    model, classifier = tiny_models.make("perplexity"), tiny_models.make_classifier("unsafe", ["fine", "bad"])
    taggers = make_taggers([f"perplexity:model=hf%3A{model}", f"safety:classifier={classifier}:label=bad"])
    first, alone = taggers[0]([dialogue("a", *texts), dialogue("b", texts[0])])
    scored = language_model(f"hf:{model}").log_likelihoods([texts[:1], texts[:2]], texts[1:])
    nats, tokens = -sum(one.logprob for one in scored), sum(one.tokens for one in scored)
    assert first["perplexity"] == pytest.approx(math.exp(nats / tokens), rel=1e-3)
    assert alone["perplexity"] is None
    safe, rude = (own["safety"] for own in taggers[1]([dialogue("a", *texts), dialogue("b", RUDE)]))
    assert 0 < safe < 1 == rude
