"""Bots that are judged on what they were built from: real indexes and a real training run."""

from pathlib import Path

import pytest

from tertulia import sample
from tertulia.core.progress import Silent
from tertulia.corpus.load import save_dialogues
from tertulia.judge.config import RankConfig
from tertulia.judge.contamination import Contamination, contamination_warnings, training_data
from tertulia.judge.document import markdown_document
from tertulia.judge.rank import run_rank
from tertulia.judge.report import identify, report_run
from tertulia.judge.runs import JudgedRun, describe_data, load_run, save_run
from tertulia.talk.tfidf_index import TfidfIndex
from tertulia.train.recipe import read_recipe

SEEN, HELD_OUT = sample.dialogues("valid"), sample.dialogues("test")
RECIPE = """
recipe = "starspace"
data = "{data}"
epochs = 1
pool = false
batch = 64
candidates = 5
valid_dialogues = 5
[model]
dim = 8
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a training split and a test split; some dialogues of the first are in the second, too."""
    folder = tmp_path_factory.mktemp("corpus")
    save_dialogues(SEEN, folder / "train.jsonl")
    save_dialogues([*HELD_OUT[:20], *SEEN[:2]], folder / "valid.jsonl")
    save_dialogues(HELD_OUT[20:], folder / "test.jsonl")
    return folder


def judge(*bots: str, data: Path, split: str | None) -> JudgedRun:
    """The identified run of these bots."""
    config = RankConfig(bots=bots, data=str(data), split=split or "", candidates=5, limit=100)
    return identify(run_rank(config), data=describe_data(str(data), split))


def test_a_retrieval_bot_is_found_out_by_files_and_by_texts(corpus: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    TfidfIndex.from_dialogues(SEEN).save(index)
    copy = tmp_path / "renamed.jsonl"
    copy.write_bytes((corpus / "train.jsonl").read_bytes())
    run = judge(f"tfidf:{corpus}", f"tfidf:{index}", f"tfidf:{copy}", "generic", data=corpus, split="train")
    by_subject = {record["subject"]: record for record in run.about["contamination"]}
    assert {name: (one["files"], one["shared"]) for name, one in by_subject.items()} == {
        f"tfidf:{corpus}": (["train.jsonl"], 100),
        f"tfidf:{index}": ([], 100),
        f"tfidf:{copy}": (["train.jsonl"], 100),
    }
    report = report_run(load_run(save_and_path(run, tmp_path / "run")))
    assert len(report.json["warnings"]) == 3
    page = tmp_path / "report.html"
    report.save_html(page)
    assert page.read_text().count('class="warning"') == 3
    assert markdown_document(report.document).count("> **Warning:**") == 3
    assert contamination_warnings(judge(f"tfidf:{corpus}", data=corpus, split="test")) == []


def save_and_path(run: JudgedRun, folder: Path) -> Path:
    save_run(run, folder)
    return folder


def test_a_training_run_is_found_out_wherever_its_data_went(corpus: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    moved = tmp_path / "moved"
    moved.mkdir()
    for file in corpus.iterdir():
        (moved / file.name).write_bytes(file.read_bytes())
    recipe.write_text(RECIPE.format(data=moved))
    trainer, config = read_recipe(recipe, {"out": tmp_path / "run"})
    trainer.train(config, Silent())
    spec = str(tmp_path / "run")
    (record,) = judge(spec, data=corpus, split="train").about["contamination"]
    assert (record["files"], record["shared"], record["serious"]) == (["train.jsonl"], 100, True)
    (few,) = judge(spec, data=corpus, split="valid").about["contamination"]
    assert few["files"] == []
    assert 0.01 < few["shared"] / few["judged"] < 0.5
    assert "are in the training data of" in Contamination(*[few[k] for k in list(few)[:6]]).warning()
    (moved / "train.jsonl").unlink()
    (gone,) = judge(spec, data=corpus, split="train").about["contamination"]
    assert (gone["files"], gone["judged"], gone["serious"]) == (["train.jsonl"], 0, True)  # by the record of the run


def test_what_bots_of_others_were_built_from_is_not_known() -> None:
    assert training_data("generic") == []
    assert training_data("openai:x?base_url=http://127.0.0.1:9/v1") == []
    assert [(one.path, one.split) for one in training_data("tfidf")] == [("sample", "train")]
