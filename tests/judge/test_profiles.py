from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from tertulia import sample
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import DataError
from tertulia.core.estimate import Estimate
from tertulia.core.text import words
from tertulia.corpus.load import load_dialogues
from tertulia.judge.config import ProfileConfig
from tertulia.judge.profiles import ProfileSetting, predict_profiles
from tertulia.judge.report import report_run
from tertulia.judge.runs import JudgedRun

THINGS = "boats horses drums maps bread chess stamps trains bees clocks".split()


def talks() -> Iterator[Dialogue]:
    """Speaker 0 mentions the own profile from the second utterance on; speaker 1 never mentions a profile."""
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


def errors_of(run: JudgedRun) -> dict[str, Estimate]:
    return {setting: figure for (_, setting, _), figure in run.estimates().items()}


def cell(level: str, speaker: int, profile: int, utterances: int | None = None) -> str:
    return str(ProfileSetting(level, speaker, profile, utterances))  # type: ignore[arg-type]


def test_only_the_profile_of_the_speaker_is_predicted() -> None:
    run = predict_profiles(list(talks()), CONFIG)
    errors = {setting: e for setting, e in errors_of(run).items() if "first" not in setting}
    assert set(errors) == {cell(level, s, p) for level in ("profile", "sentence") for s in (0, 1) for p in (0, 1)}
    for level in ("profile", "sentence"):
        assert errors[cell(level, 0, 0)].value == 0
        assert errors[cell(level, 1, 1)].value > 0.3
        assert errors[cell(level, 1, 0)].value > 0.3
        assert errors[cell(level, 0, 1)].value > 0.3
    assert {e.n for e in errors.values()} == {10}
    assert (run.details["candidates"], run.details["profiles"], run.details["dialogues"]) == (6, 20, 10)
    assert run.details["chance"] == pytest.approx(5 / 6)


def test_the_first_utterance_is_not_informative() -> None:
    errors = errors_of(predict_profiles(list(talks()), CONFIG))
    assert errors[cell("profile", 0, 0, 1)].value > 0.3
    assert errors[cell("profile", 0, 0, 2)].value == errors[cell("sentence", 0, 0, 2)].value == 0
    assert cell("profile", 0, 0, 3) not in errors
    assert errors[cell("profile", 0, 1, 2)].value > 0.3, "the other profile is no easier to tell from more utterances"


def test_profiles_that_share_a_sentence_are_never_distractors() -> None:
    """Related profiles are excluded, which leaves fewer candidates than there are profiles."""
    shared = [("i sail.", "i cook."), ("i sail.", "i read."), ("i cook.", "i sail."), ("i dance.",), ("i run.",)]
    dialogues = [
        Dialogue(f"d{i}", (Turn("a", sentences[0]), Turn("b", "so")), {"a": Persona(sentences)})
        for i, sentences in enumerate(shared)
    ]
    run = predict_profiles(dialogues, ProfileConfig())
    assert (run.details["profiles"], run.details["candidates"]) == (4, 3)
    error = errors_of(run)[cell("profile", 0, 0)]
    assert (error.value, error.n) == (0, 5)


def test_against_a_naive_count() -> None:
    """With all profiles as candidates nothing is random: a plain loop must give the same errors."""
    dialogues = sample.dialogues("valid")
    run = predict_profiles(dialogues, ProfileConfig(candidates=10, utterances=1))
    assert run.details["candidates"] == run.details["profiles"] == 10
    personas = list({p.sentences: p for d in dialogues for p in d.personas.values()})
    lines = [s.lower() for sentences in personas for s in sentences]
    utterances = list(dict.fromkeys(t.text for d in dialogues for t in d.turns))
    tfidf = TfidfVectorizer(analyzer=words, sublinear_tf=True).fit(utterances + list(dict.fromkeys(lines)))
    documents = [tfidf.transform([" ".join(p)]).toarray()[0] for p in personas]
    each = [tfidf.transform(p).toarray() for p in personas]
    profile, sentence = [], []
    for dialogue in dialogues:
        query = tfidf.transform([" ".join(t.text for t in dialogue.turns if t.speaker == "a")]).toarray()[0]
        truth = personas.index(dialogue.personas["a"].sentences)
        profile.append(np.argmax([vector @ query for vector in documents]) != truth)
        sentence.append(np.argmax([np.mean(vectors @ query) for vectors in each]) != truth)
    assert errors_of(run)[cell("profile", 0, 0)].value == pytest.approx(np.mean(profile))
    assert errors_of(run)[cell("sentence", 0, 0)].value == pytest.approx(np.mean(sentence))


def test_the_revised_wording_is_another_task() -> None:
    revised = predict_profiles(list(talks()), ProfileConfig(wording="revised", utterances=1))
    assert revised.details["profiles"] == 10
    assert set(revised.settings) == {
        cell(level, s, 0, count) for level in ("profile", "sentence") for s in (0, 1) for count in (None, 1)
    }
    assert errors_of(revised)[cell("profile", 0, 0)].value > 0.3


def test_the_same_seed_gives_the_same_errors() -> None:
    dialogues = sample.dialogues("valid")
    one, same, other = (
        predict_profiles(dialogues, ProfileConfig(candidates=4, utterances=1, seed=seed)) for seed in (0, 0, 1)
    )
    assert one == same
    assert one.scores != other.scores


def test_without_different_personas_there_is_nothing_to_predict() -> None:
    bare = [Dialogue("d", (Turn("a", "hi"), Turn("b", "ho")))]
    alike = [Dialogue("d", (Turn("a", "hi"), Turn("b", "ho")), {"a": Persona(("i sail.",))})] * 3
    for dialogues in ([], bare, alike):
        with pytest.raises(DataError, match="No original personas to distinguish"):
            predict_profiles(dialogues, ProfileConfig())


def test_the_report_has_both_tables() -> None:
    run = predict_profiles(list(talks()), CONFIG)
    thirteen, *fourteen = report_run(run, plots=False).json["tables"]
    assert thirteen["rows"][0][1].startswith(".000 [.000, .")
    assert len(fourteen) == 2, "one for each level"
    for table in fourteen:
        assert [row[0] for row in table["rows"]] == ["1", "2", "3"]
        assert [len(row) for row in table["rows"]] == [5, 5, 5], "either speaker, either profile"
        assert table["rows"][2][1] == "-"


def test_real_profiles(shared_data: Path) -> None:
    dialogues = list(load_dialogues(shared_data / "personachat", split="valid"))[:150]
    run = predict_profiles(dialogues, ProfileConfig(utterances=1))
    assert run.details["candidates"] == 101
    assert errors_of(run)[cell("sentence", 0, 0)].high < 0.35
    assert errors_of(run)[cell("sentence", 0, 1)].low > 0.8
