"""Grounding classifiers on labelled responses, on conversations, and beside people."""

import csv
import io
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk
from tests.judge.grounding_rules import rules as rules

from tertulia import sample
from tertulia.core.codec import Problems
from tertulia.core.dialogue import Dialogue, Evidence, Exchange, Json, Turn
from tertulia.core.errors import DataError, UnknownName, UsageError
from tertulia.core.grounding import COARSE, LABELS, GroundingLabel
from tertulia.corpus.load import save_dialogues, save_exchanges
from tertulia.judge.grounding.classify import best_threshold
from tertulia.judge.grounding.config import GroundingConfig
from tertulia.judge.grounding.export import is_export
from tertulia.judge.grounding.inputs import GroundedReplies, LabelledSet, read_inputs
from tertulia.judge.grounding.run import describe_grounding_data, run_grounding
from tertulia.judge.grounding.tables import PUBLISHED, saved_confusion
from tertulia.judge.report import report_run, save_judged
from tertulia.judge.runs import JudgedRun, load_run
from tertulia.metrics.agreement import UnitRating, krippendorff_alpha
from tertulia.models.classifiers.grounding_features import overlap
from tertulia.store import Database, StudyStore
from tertulia.study.export import EXPORT_WRITERS, export_rows
from tertulia.study.presets import study_from_toml, study_template
from tertulia.study.units import make_units, read_items

BEGIN = Path(__file__).parents[3] / "shared" / "data" / "begin"
HEAD = "evidence\tprevious turn\tresponse\tgold label\tcoarse label\tfull label set"
pytestmark = pytest.mark.usefixtures("rules")


def labelled(
    name: str, label: str | None, text: str = "Tea is hot.", evidence: str = "Tea is a hot drink."
) -> Exchange:
    return Exchange(name, (Turn("user", "Hm?"),), Turn("bot", text), evidence=(Evidence(evidence),), label=label)


def marked(folder: Path, n: int = 60) -> Path:
    """Responses that carry the label that the classifier "marks" reads: mostly the true one."""
    rng = random.Random(0)
    made = []
    for i in range(n):
        true = LABELS[i % 5]
        said = true if rng.random() < 0.7 else rng.choice(LABELS)
        words = "tea is hot" if rng.random() < (0.8 if true == "entailment" else 0.3) else "rockets fly far"
        made.append(labelled(f"r{i}", true, f"{words} [{said}]", f"tea is hot, says number {i // 3}"))
    file = folder / "marked.jsonl"
    save_exchanges(made, file)
    return file


def figures(run: JudgedRun) -> dict[tuple[str, str, str], float]:
    return {key: figure.value for key, figure in run.estimates().items()}


def test_a_run_has_the_figures_of_scikit_learn_for_every_way_to_label(tmp_path: Path) -> None:
    file = marked(tmp_path)
    run = run_grounding(GroundingConfig(files=(str(file),), classifiers=("marks", "questions")))
    given = read_inputs(GroundingConfig(files=(str(file),)))
    assert isinstance(given, LabelledSet)
    true = [str(one.label) for one in given.responses]
    said = [one.input.response.partition("[")[2].rstrip("]") for one in given.responses]
    names = [subject.name for subject in run.subjects]
    assert names == ["word overlap from .80", "always the most frequent", "marks", "questions"]
    got = figures(run)
    assert got["marks", "five labels", "label accuracy"] == pytest.approx(sk.accuracy_score(true, said))
    assert got["marks", "five labels", "macro-F1"] == pytest.approx(sk.f1_score(true, said, average="macro"))
    three = [[COARSE[label] for label in labels] for labels in (true, said)]  # type: ignore[index]
    # Neutral is three labels of .05 if another one is said: so .8 decides there too.
    assert got["marks", "three labels", "macro-F1"] == pytest.approx(sk.f1_score(*three, average="macro"))
    supported = np.array(true) == "entailment"
    support = [0.8 if label == "entailment" else 0.05 for label in said]
    assert got["marks", "attributable or not", "ROC-AUC"] == pytest.approx(sk.roc_auc_score(supported, support))
    shares = [overlap(one.input) for one in given.responses]
    baseline = "word overlap from .80"
    assert got[baseline, "attributable or not", "ROC-AUC"] == pytest.approx(sk.roc_auc_score(supported, shares))
    assert got[baseline, "five labels", "label accuracy"] == pytest.approx(
        sk.accuracy_score(true, ["entailment" if share >= 0.8 else "hallucination" for share in shares])
    )
    middle = [i for i, share in enumerate(shares) if 0.4 <= share <= 0.85]
    score = run.score("marks", "five labels, overlap .40 to .85", "label accuracy")
    assert score is not None
    assert score.units == tuple(given.responses[i].unit for i in middle)
    assert 0 < len(middle) < 60
    for i, label in enumerate(LABELS):
        expected = (f[i] for f in sk.precision_recall_fscore_support(true, said, labels=LABELS)[:3])
        names = ["label precision", "label recall", "label F1"]
        assert [got["marks", f"five labels: {label}", name] for name in names] == pytest.approx(list(expected))
    matrix = saved_confusion(run, "marks", "five labels", LABELS)
    assert matrix is not None
    assert matrix.tolist() == sk.confusion_matrix(true, said, labels=LABELS).tolist()


def test_responses_of_one_passage_are_one_cluster(tmp_path: Path) -> None:
    run = run_grounding(GroundingConfig(files=(str(marked(tmp_path)),), classifiers=("marks",)))
    score = run.score("marks", "five labels", "label accuracy")
    assert score is not None
    assert Counter(Counter(score.clusters).values()) == {3: 20}


def test_a_saved_run_is_reported_with_tables_heat_maps_and_errors(tmp_path: Path) -> None:
    config = GroundingConfig(files=(str(marked(tmp_path)),), classifiers=("marks", "questions"), examples=1)
    run = run_grounding(config)
    saved = save_judged(run, tmp_path / "run", data=describe_grounding_data(config))
    again = report_run(load_run(tmp_path / "run"))
    assert [section.title for section in again.document.sections] == [s.title for s in saved.document.sections]
    sections = {section.title: section for section in again.document.sections}
    wrong = sections["What marks gets wrong"]
    rows = [dict(zip(wrong.head, row, strict=True)) for row in wrong.rows]
    assert all(row["true label"] != row["predicted"] for row in rows)
    assert [int(str(row["errors"])) for row in rows] == sorted((int(str(row["errors"])) for row in rows), reverse=True)
    assert any("rockets fly far" in str(row["unsupported words"]) for row in rows if row["predicted"] == "off-topic")
    heat = sections["Five labels: what marks takes for what"]
    assert heat.rows[0][0] == "entailment"
    assert sum(int(str(row[-1])) for row in heat.rows) == 60
    (plot,) = heat.plots
    assert (tmp_path / "run" / plot.name).read_text() == plot.svg
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.count("<svg") == 9  # three subjects that say more than one label, three ways to label
    assert again.json["identity"]["data"]["digest"]
    compared = {(c["subject"], c["setting"]) for c in again.json["comparisons"]}
    assert ("questions", "three labels, overlap .40 to .85") in compared
    assert not any(subject.startswith("always") for subject, _ in compared)
    item = next(item for item in load_run(tmp_path / "run").items if item.unit == "r0")
    said = item.content["by marks"].removesuffix(" (0.80)")
    assert (item.content["true label"], f"[{said}]" in item.content["reply"]) == ("entailment", True)


@pytest.mark.parametrize("count", [0, 3])
def test_the_number_of_shown_errors_is_a_choice(tmp_path: Path, count: int) -> None:
    run = run_grounding(GroundingConfig(files=(str(marked(tmp_path)),), classifiers=("marks",), examples=count))
    shown = [row for table in run.details["tables"] for row in table["rows"]]
    confusions = Counter((row[0], row[1]) for row in shown)
    assert max(confusions.values(), default=0) == min(count, max((int(row[2]) for row in shown), default=0))
    assert bool(shown) == bool(count)


def test_labels_of_the_second_release_say_only_what_is_attributable(tmp_path: Path) -> None:
    labels = ("Fully attributable", "Not fully attributable", "Generic") * 4
    file = tmp_path / "v2.jsonl"
    save_exchanges([labelled(f"r{i}", label, evidence=f"Tea is hot {i}.") for i, label in enumerate(labels)], file)
    run = run_grounding(GroundingConfig(files=(str(file),), classifiers=("questions",)))
    assert {score.setting.partition(",")[0].partition(":")[0] for score in run.scores} == {"attributable or not"}
    assert figures(run)["questions", "attributable or not", "label accuracy"] == pytest.approx(4 / 12)
    wrong = next(table for table in run.details["tables"] if table["title"] == "What questions gets wrong")
    assert {row[0] for row in wrong["rows"]} == {"Not fully attributable", "Generic"}
    assert any("only say whether" in note for note in run.notes)
    cross = next(
        table for table in run.details["tables"] if table["title"].startswith("Which of five labels questions")
    )
    assert cross["rows"] == [[label, "4", "0", "0", "0", "0"] for label in labels[:3]]


def test_an_unknown_label_is_an_error_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "dev.tsv"
    rows = ("Tea is hot.\thm\tTea.\tentailment\tentailment\tx", "Tea is hot.\thm\tNo.\tmaybe\tneutral\tx")
    file.write_text("\n".join((HEAD, *rows)) + "\n")
    with pytest.raises(DataError, match=r"dev\.tsv, line 3: unknown grounding label 'maybe'") as caught:
        run_grounding(GroundingConfig(files=(str(file),)), problems=Problems())
    assert "fully attributable" in caught.value.hint


def test_what_cannot_be_judged_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "mixed.jsonl"
    bare = Exchange("bare", (), Turn("bot", "Hi"), label="generic")
    save_exchanges([labelled("a", "entailment"), labelled("b", None), bare, labelled("c", "generic")], file)
    run = run_grounding(GroundingConfig(files=(str(file),), classifiers=("questions",)))
    assert run.details["lead"] == "2 labelled responses."
    assert run.notes[:2] == (
        "Left out: 1 response without a label.",
        "Left out: 1 response without evidence.",
    )


def test_the_threshold_of_overlap_is_given_or_chosen_on_other_responses(tmp_path: Path) -> None:
    judged, other = marked(tmp_path), tmp_path / "other.jsonl"
    words = "one two three four five six seven eight nine ten".split()
    made = [
        labelled(f"o{i}", "entailment" if i > 6 else "hallucination", " ".join(words[:i] + ["zz"] * (10 - i)), evidence)
        for i in range(11)
        for evidence in (" ".join(words),)
    ]
    save_exchanges(made, other)
    chosen = run_grounding(GroundingConfig(files=(str(judged),), tune=str(other)))
    expected = best_threshold([overlap(_input(e)) for e in made], [e.label == "entailment" for e in made])
    assert chosen.details["threshold"] == expected
    assert 0.5 < expected < 0.8
    given = run_grounding(GroundingConfig(files=(str(judged),), threshold=0.9))
    assert given.subjects[0].name == "word overlap from .90"
    with pytest.raises(UsageError, match=r"\d+ responses are both judged and tuned on"):
        run_grounding(GroundingConfig(files=(str(judged),), tune=str(judged)))
    with pytest.raises(UsageError, match="exclude each other"):
        run_grounding(GroundingConfig(files=(str(judged),), tune=str(other), threshold=0.5))


def _input(exchange: Exchange) -> Any:
    from tertulia.judge.grounding.inputs import grounding_input

    return grounding_input(exchange)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"classifiers": ("nope",)}, UnknownName, "no grounding classifier called 'nope'"),
        ({"classifiers": ("short",)}, DataError, "did not give 5 probabilities"),
        ({"band": (0.8, 0.2)}, UsageError, "the first must be lower"),
        ({"tune": "nowhere.tsv"}, DataError, "File not found"),
    ],
)
def test_wrong_options_are_errors(tmp_path: Path, options: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        run_grounding(GroundingConfig(files=(str(marked(tmp_path)),), **options))


def chat(name: str, *turns: tuple[str, str], evidence: str = "Tea is a hot drink.", **meta: Json) -> Dialogue:
    passages = (Evidence(evidence, id="p0"),) if evidence else ()
    made = tuple(
        Turn(speaker, text, meta={"provenance": {"bot": speaker}} if speaker != "user" else {})
        for speaker, text in turns
    )
    return Dialogue(name, made, evidence=passages, meta=meta)


def test_replies_in_conversations_are_judged_by_bot(tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"
    dialogues = [
        chat("c1", ("user", "Hi"), ("anna", "Tea is a drink."), ("user", "And?"), ("anna", "What about you?")),
        chat("c2", ("user", "Hi"), ("anna", "Rockets fly far away.")),
        chat("c3", ("user", "Hi"), ("bert", "Tea is hot."), ("user", "Ok"), ("bert", "A hot drink!")),
        chat("c4", ("user", "Hi"), ("bert", "Tea is hot."), evidence=""),
    ]
    save_dialogues(dialogues, file)
    config = GroundingConfig(files=(str(file),), classifiers=("questions", "overlap"))
    run = run_grounding(config)
    assert [subject.name for subject in run.subjects] == ["anna", "bert"]
    got = run.estimates()
    anna = {label: got["anna", "questions", f"grounding: {label}"] for label in LABELS}
    assert [round(anna[label].value, 3) for label in LABELS] == [0.333, 0.333, 0, 0.333, 0]
    assert got["anna", "questions", "grounding: attributable claims"].value == 0.5
    bert = got["bert", "questions", "grounding: entailment"]
    assert (bert.value, bert.n, bert.high) == (1.0, 2, 1.0)
    assert bert.low < 0.5  # two replies of one conversation, so one case
    assert any("without evidence are not judged: bert 1." in note for note in run.notes)
    item = next(item for item in run.items if item.unit == "c2#1")
    assert item.content["by questions, unsupported"] == "Rockets fly far away"
    (table,) = run.details["tables"]
    assert [row[:2] for row in table["rows"]] == [["anna", "overlap"], ["bert", "overlap"]]
    report = save_judged(run, tmp_path / "run", data=describe_grounding_data(config))
    assert report.document.sections[0].title == "Labels of replies by questions"
    assert [row[0] for row in report.document.sections[0].rows] == ["anna", "bert"]


def test_evidence_of_a_turn_comes_before_that_of_the_conversation() -> None:
    turns = (
        Turn("user", "Hm?"),
        Turn("bot", "Ice is cold.", meta={"passages": ["p1"]}),
        Turn("user", "And?"),
        Turn("bot", "Iron is heavy.", meta={"evidence": [{"text": "Iron is heavy.", "source": "iron.txt"}]}),
    )
    both = Dialogue("d", turns, evidence=(Evidence("Tea is hot.", id="p0"), Evidence("Ice is cold.", id="p1")))
    retrieved = Dialogue("e", turns[2:])
    from tertulia.judge.grounding.inputs import reply_set

    got = reply_set([("f", both), ("f", retrieved), ("f", Dialogue("g", turns[:2]))])
    assert [one.input.evidence for one in got.replies] == [
        "Ice is cold.",
        "Tea is hot. Ice is cold. Iron is heavy.",
        "Iron is heavy.",
    ]
    assert got.without_evidence == {"bot": 1}
    chats = [("f", Dialogue(name, (Turn("anna", "Hm?"), Turn("bert", "Tea.")))) for name in "hi"]
    opened = reply_set(chats, by="speaker")
    assert opened.without_evidence == {"bert": 2}  # and none for who opens: there is no reply to judge


def test_conversations_without_evidence_cannot_be_judged(tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"
    save_dialogues([chat("c", ("user", "Hi"), ("anna", "Tea."), evidence="")], file)
    with pytest.raises(DataError, match="no replies with evidence"):
        run_grounding(GroundingConfig(files=(str(file),)))
    save_dialogues([chat("c", ("user", "Hi"), ("anna", "Tea."))], file)
    with pytest.raises(UsageError, match="others conversations"):
        run_grounding(GroundingConfig(files=(str(file), str(marked(tmp_path)))))
    with pytest.raises(UsageError, match="these have no labels"):
        run_grounding(GroundingConfig(files=(str(file),), threshold=0.5))


def test_labelled_responses_without_evidence_are_named_as_such(tmp_path: Path) -> None:
    file = tmp_path / "bare.jsonl"
    save_exchanges([Exchange(name, (), Turn("bot", "Hi"), label="generic") for name in "ab"], file)
    with pytest.raises(DataError, match=r"None of the 2 labelled responses in .*bare\.jsonl has evidence") as caught:
        run_grounding(GroundingConfig(files=(str(file),)))
    assert "evidence" in caught.value.hint


def test_single_replies_without_labels_are_judged_by_model(tmp_path: Path) -> None:
    file = tmp_path / "replies.jsonl"
    made = [labelled(f"r{i}", None, text) for i, text in enumerate(("Tea is hot.", "Rockets!", "Why?"))]
    save_exchanges(made, file)
    given = read_inputs(GroundingConfig(files=(str(file),)))
    assert isinstance(given, GroundedReplies)
    assert [one.subject for one in given.replies] == ["replies"] * 3


ANSWERS: dict[GroundingLabel, dict[str, Json]] = {
    "generic": {"on_topic": 1, "why_not": "generic"},
    "off-topic": {"on_topic": 2, "why_not": "off-topic"},
    "hallucination": {
        "on_topic": 5, "cooperative": 4, "personal": 1, "informs": 5, "contradicted": 1, "supported": 1
    },
    "contradiction": {
        "on_topic": 5, "cooperative": 4, "personal": 1, "informs": 5, "contradicted": 5, "supported": 1
    },
    "entailment": {
        "on_topic": 5, "cooperative": 4, "personal": 1, "informs": 5, "contradicted": 1, "supported": 5
    },
}  # fmt: skip


def study_exports(folder: Path) -> tuple[list[Path], dict[str, list[GroundingLabel]]]:
    """A study of the preset begin in a real database: three people, of whom the third one often errs."""
    exchanges = sample.grounded()[:12]
    config = study_from_toml(study_template("begin"), "begin.toml")
    bots = [bot.name for bot in config.bots]
    items = [
        json.dumps(
            {
                "id": one.id,
                "turns": [{"speaker": "a", "text": one.context[-1].text}],
                "responses": dict.fromkeys(bots[:1], one.response.text) | dict.fromkeys(bots[1:], "=Tea! I see."),
                "evidence": one.evidence[0].text,
            }
        )
        for one in exchanges
    ]
    units = make_units(config, read_items(items), {}, random.Random(0))
    label_of = {one.id: one.label for one in exchanges}
    rng = random.Random(5)
    given: dict[str, list[GroundingLabel]] = {}
    with Database.open(f"sqlite:///{folder / 'studies.db'}") as database:
        store = StudyStore(database)
        record = store.create("begin", config.model_dump(mode="json"), "begin", by="test")
        store.add_units(record.id, [(unit.id, unit.bots, unit.payload, 3) for unit in units])
        store.set_state(record.id, "open", "test")
        for person in range(3):
            participant, _ = store.enroll(record.id, "test", f"p{person}", first_step="done")
            for unit in units:
                true = label_of[str(unit.payload["source"])] if unit.bots == tuple(bots[:1]) else "generic"
                label = (
                    rng.choice(LABELS) if person == 2 and rng.random() < 0.5 else next(x for x in LABELS if x == true)
                )
                given.setdefault(unit.id, []).append(label)
                assignment = store.lease_unit(record.id, participant.id, lambda _, name=unit.id: name, 3600)  # type: ignore[misc]
                assert assignment is not None
                rows = [("sentence:0", question, value) for question, value in ANSWERS[label].items()]
                store.add_labels(assignment.id, participant.id, rows, "k")
                store.submit(assignment.id, participant.id)
        payloads = {unit.id: unit.payload for unit in store.units(record.id)}
        rows = list(export_rows(config, store.rows(record.id), payloads=payloads))  # type: ignore[assignment]
    files = []
    for ending, write in EXPORT_WRITERS.items():
        files.append(folder / f"export.{ending}")
        with files[-1].open("wb") as stream:
            write(rows, stream)  # type: ignore[arg-type]
    return files, given


def test_a_study_s_labels_are_compared_with_a_classifier_s(tmp_path: Path) -> None:
    (_, file, _), labels = study_exports(tmp_path)
    assert is_export(file)
    run = run_grounding(GroundingConfig(files=(str(file),), classifiers=("questions",)))
    table = next(table for table in run.details["tables"] if table["title"] == "Agreement with people")
    rows = {(row[0], row[1]): row for row in table["rows"]}
    ratings = [UnitRating(unit, str(i), label) for unit, own in labels.items() for i, label in enumerate(own)]
    alpha = krippendorff_alpha(ratings, resamples=0).value
    assert float(rows["five labels", "people among themselves"][2].split()[0]) == pytest.approx(alpha, abs=5e-4)
    assert 0.5 < alpha < 1
    # Two of three people say the true label, so it is the label of most; "questions" errs on it.
    got = figures(run)
    assert 0 < got["questions", "five labels", "label accuracy"] < 1
    score = run.score("questions", "five labels", "macro-F1")
    assert score is not None
    most = {unit: Counter(own).most_common(1)[0][0] for unit, own in labels.items()}
    assert [LABELS[int(weight)] for weight in score.weights] == [most[unit] for unit in score.units]
    single, clusters = [], {unit: unit for unit in labels}
    predicted = {unit: LABELS[int(value)] for unit, value in zip(score.units, score.values, strict=True)}
    for unit, own in labels.items():
        for i, label in enumerate(own):
            single += [UnitRating(f"{unit}/{i}", "p", label), UnitRating(f"{unit}/{i}", "c", predicted[unit])]
    assert len(clusters) == len(predicted)
    expected = krippendorff_alpha(single, resamples=0).value
    assert float(rows["five labels", "questions"][2].split()[0]) == pytest.approx(expected, abs=5e-4)
    assert run.notes[0].startswith(f"{len(ratings)} labels by 3 people of {len(labels)} responses")


def test_all_formats_of_an_export_say_the_same(tmp_path: Path) -> None:
    read = []
    files, _ = study_exports(tmp_path)
    assert [file.suffix for file in files] == [".csv", ".jsonl", ".parquet"]
    for file in files:
        given = read_inputs(GroundingConfig(files=(str(file),)))
        assert isinstance(given, LabelledSet)
        read.append(sorted((one.input, one.label) for one in given.people))
    assert read[0] == read[1] == read[2]
    assert any(one.response == "=Tea! I see." for one, _ in read[0])  # the quote that CSV needs is gone


def test_an_export_of_another_study_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "export.csv"
    columns = ("study", "unit", "participant", "assignment", "target", "question", "value", "evidence", "current")
    text = io.StringIO()
    csv.writer(text).writerows([columns, ("s", "u", "p", "a", "turn:1", "sensible", "true", "", "true")])
    file.write_text(text.getvalue())
    with pytest.raises(DataError, match="no answers to BEGIN's questions"):
        run_grounding(GroundingConfig(files=(str(file),)))
    text = io.StringIO()
    rows = [(*columns, "value_number"), ("s", "u", "p", "a", "sentence:0", "on_topic", "5", "x", "true", "5.0")]
    csv.writer(text).writerows(rows)
    file.write_text(text.getvalue())
    with pytest.raises(DataError, match="the assignment a has no answer to 'personal'"):
        run_grounding(GroundingConfig(files=(str(file),)))
    file.write_text(text.getvalue().replace("5.0", ""))
    with pytest.raises(DataError, match="is no number"):
        run_grounding(GroundingConfig(files=(str(file),)))


def test_a_damaged_line_of_an_export_is_named(tmp_path: Path) -> None:
    (_, file, _), _ = study_exports(tmp_path)
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:4], lines[4][:50], *lines[5:]]))
    with pytest.raises(DataError, match=r"export\.jsonl, line 5: not JSON"):
        run_grounding(GroundingConfig(files=(str(file),)))


def test_published_rows_are_those_of_the_paper() -> None:
    rows = {name: row for name, row in PUBLISHED.items() if ("five labels", "test") in row}
    best = max(rows, key=lambda name: rows[name]["five labels", "test"][0])
    assert (best, rows[best]["five labels", "test"]) == ("BERT, MNLI + silver", (0.438, 0.310))
    assert len([name for name, row in PUBLISHED.items() if ("three labels", "dev") in row]) == 7


@pytest.mark.skipif(not BEGIN.is_dir(), reason="BEGIN is not at hand")
def test_begin_is_judged_beside_the_published_rows() -> None:
    run = run_grounding(GroundingConfig(files=(str(BEGIN / "v1_dev.tsv"),), classifiers=("questions",)))
    assert run.details["published"] == "dev"
    got = figures(run)
    baseline = "word overlap from .80"
    assert got[baseline, "attributable or not", "ROC-AUC"] == pytest.approx(0.840, abs=0.002)
    assert got[baseline, "attributable or not, overlap .40 to .85", "ROC-AUC"] == pytest.approx(0.668, abs=0.002)
    assert got["always the most frequent", "five labels", "label accuracy"] == pytest.approx(282 / 836)
    three = next(s for s in report_run(run, plots=False).document.sections if s.title.startswith("Three labels: how"))
    cells = {str(row[0]): row for row in three.rows}
    assert cells["paper: T5, MNLI + silver"][1:3] == (".710", ".526")
