import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from tertulia import sample
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import DataError
from tertulia.core.text import words
from tertulia.corpus.load import load_dialogues
from tertulia.judge.profiles import Cell, ProfileConfig, predict_profiles

THINGS = "boats horses drums maps bread chess stamps trains bees clocks".split()


def talks() -> Iterator[Dialogue]:
    """Speaker 0 talks of the own profile, and from the second utterance on; speaker 1 never says a thing of either."""
    for i, thing in enumerate(THINGS):
        other = THINGS[(i + 3) % len(THINGS)]
        yield Dialogue(
            f"d{i}",
            (Turn("a", "hello"), Turn("b", "well"), Turn("a", f"we have {thing} here"), Turn("b", "fine")),
            {
                "a": Persona((f"i love {thing}.", f"my {thing} are old."), (f"{other} no more.",)),
                "b": Persona((f"i sell {other}x.",)),
            },
        )


CONFIG = ProfileConfig(candidates=6, utterances=3)


def test_what_is_told_and_what_is_not() -> None:
    outcome = predict_profiles(list(talks()), CONFIG)
    errors = {(c.level, c.speaker, c.profile): e for c, e in outcome.errors.items() if c.utterances is None}
    assert set(errors) == {(level, s, p) for level in ("profile", "sentence") for s in (0, 1) for p in (0, 1)}
    for level in ("profile", "sentence"):
        assert errors[level, 0, 0].value == 0  # type: ignore[index]
        assert errors[level, 1, 1].value > 0.3  # type: ignore[index]
        assert errors[level, 1, 0].value > 0.3  # type: ignore[index]
        assert errors[level, 0, 1].value > 0.3  # type: ignore[index]
    assert {e.n for e in errors.values()} == {10}
    assert (outcome.candidates, outcome.profiles, outcome.dialogues) == (6, 20, 10)
    assert outcome.chance == pytest.approx(5 / 6)


def test_the_first_utterance_tells_nothing() -> None:
    errors = predict_profiles(list(talks()), CONFIG).errors
    assert errors[Cell("profile", 0, 0, 1)].value > 0.3
    assert errors[Cell("profile", 0, 0, 2)].value == errors[Cell("sentence", 0, 0, 2)].value == 0
    assert Cell("profile", 0, 0, 3) not in errors
    assert Cell("profile", 0, 1, 1) not in errors


def test_profiles_that_share_a_sentence_are_no_distractors() -> None:
    """Two of the three others say the same: they may not stand beside the true one, and three are too few for four."""
    shared = [("i sail.", "i cook."), ("i sail.", "i read."), ("i cook.", "i sail."), ("i dance.",), ("i run.",)]
    found = [
        Dialogue(f"d{i}", (Turn("a", sentences[0]), Turn("b", "so")), {"a": Persona(sentences)})
        for i, sentences in enumerate(shared)
    ]
    outcome = predict_profiles(found, ProfileConfig())
    assert (outcome.profiles, outcome.candidates) == (4, 3)
    assert outcome.errors[Cell("profile", 0, 0)].value == 0
    assert outcome.errors[Cell("profile", 0, 0)].n == 5


def test_against_a_naive_count() -> None:
    """With all profiles as candidates nothing is drawn: a plain loop must find the same errors."""
    dialogues = sample.dialogues("valid")
    outcome = predict_profiles(dialogues, ProfileConfig(candidates=10, utterances=1))
    assert outcome.candidates == outcome.profiles == 10
    personas = list({p.sentences: p for d in dialogues for p in d.personas.values()})
    lines = [s.lower() for sentences in personas for s in sentences]
    said = list(dict.fromkeys(t.text for d in dialogues for t in d.turns))
    tfidf = TfidfVectorizer(analyzer=words, sublinear_tf=True).fit(said + list(dict.fromkeys(lines)))
    whole = [tfidf.transform([" ".join(p)]).toarray()[0] for p in personas]
    each = [tfidf.transform(p).toarray() for p in personas]
    profile, sentence = [], []
    for dialogue in dialogues:
        query = tfidf.transform([" ".join(t.text for t in dialogue.turns if t.speaker == "a")]).toarray()[0]
        truth = personas.index(dialogue.personas["a"].sentences)
        profile.append(np.argmax([vector @ query for vector in whole]) != truth)
        sentence.append(np.argmax([np.mean(vectors @ query) for vectors in each]) != truth)
    assert outcome.errors[Cell("profile", 0, 0)].value == pytest.approx(np.mean(profile))
    assert outcome.errors[Cell("sentence", 0, 0)].value == pytest.approx(np.mean(sentence))


def test_the_revised_wording_is_another_task() -> None:
    revised = predict_profiles(list(talks()), ProfileConfig(wording="revised", utterances=1))
    assert revised.profiles == 10
    assert set(revised.errors) == {
        Cell(level, s, 0, count) for level in ("profile", "sentence") for s, count in ((0, None), (1, None), (0, 1))
    }
    assert revised.errors[Cell("profile", 0, 0)].value > 0.3


def test_the_same_seed_gives_the_same_errors() -> None:
    dialogues = sample.dialogues("valid")
    one, same, other = (
        predict_profiles(dialogues, ProfileConfig(candidates=4, utterances=1, seed=seed)) for seed in (0, 0, 1)
    )
    assert one == same
    assert one.errors != other.errors


def test_without_personas_there_is_nothing_to_tell() -> None:
    bare = [Dialogue("d", (Turn("a", "hi"), Turn("b", "ho")))]
    alike = [Dialogue("d", (Turn("a", "hi"), Turn("b", "ho")), {"a": Persona(("i sail.",))})] * 3
    for dialogues in ([], bare, alike):
        with pytest.raises(DataError, match="no original personas to tell apart"):
            predict_profiles(dialogues, ProfileConfig())


def test_as_json() -> None:
    told = json.loads(json.dumps(predict_profiles(list(talks()), CONFIG).as_json(), allow_nan=False))
    assert told["errors"][0] == {
        "level": "profile",
        "speaker": 0,
        "profile": 0,
        "utterances": None,
        "error": {"value": 0.0, "low": 0.0, "high": 0.0, "n": 10},
    }


def test_real_profiles(shared_data: Path) -> None:
    dialogues = list(load_dialogues(shared_data / "personachat", split="valid"))[:150]
    outcome = predict_profiles(dialogues, ProfileConfig(utterances=1))
    assert outcome.candidates == 101
    assert outcome.errors[Cell("sentence", 0, 0)].high < 0.35
    assert outcome.errors[Cell("sentence", 0, 1)].low > 0.8
