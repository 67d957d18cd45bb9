import gzip
from pathlib import Path

import pytest

from tertulia.core.codec import Problems
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.errors import UsageError
from tertulia.corpus.convert import ConvertConfig, convert_corpus
from tertulia.corpus.load import load_dialogues, load_exchanges
from tertulia.corpus.write import save_dialogues, save_exchanges

from .conftest import make_dialogues

pytestmark = pytest.mark.usefixtures("small_parts")


@pytest.mark.parametrize(
    ("to", "name", "workers"),
    [
        ("tertulia", "out.jsonl", 2),
        ("tertulia", "out.json", None),
        ("tertulia", "out.parquet", None),
        ("exchanges", "out.jsonl", None),
        ("dailydialog-text", "out.txt", None),
    ],
)
def test_bytes_are_those_of_a_conversion_in_one_process(
    tmp_path: Path, to: str, name: str, workers: int | None
) -> None:
    save_dialogues(load_dialogues("sample", split="valid"), tmp_path / "in.jsonl")
    (tmp_path / "one").mkdir()
    config = ConvertConfig(target=str(tmp_path / "in.jsonl"), out=tmp_path / name, to=to, workers=workers)
    converted = convert_corpus(config)
    if to == "exchanges":
        count = save_exchanges(load_exchanges(tmp_path / "in.jsonl"), tmp_path / "one" / name)
    else:
        count = save_dialogues(load_dialogues(tmp_path / "in.jsonl"), tmp_path / "one" / name, format=to)
    assert (tmp_path / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
    assert (converted.count, converted.problems.count) == (count, 0)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(["in.jsonl", "one", name, f".{name}.origin"])


def test_a_compressed_file_is_one_of_several_parts(tmp_path: Path) -> None:
    save_dialogues(make_dialogues(100), tmp_path / "in.jsonl")
    convert_corpus(ConvertConfig(target=str(tmp_path / "in.jsonl"), out=tmp_path / "out.jsonl.gz"))
    assert gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()) == (tmp_path / "in.jsonl").read_bytes()


def test_damage_is_counted_and_a_bad_target_leaves_nothing(tmp_path: Path) -> None:
    save_dialogues(make_dialogues(100), tmp_path / "in.jsonl")
    with (tmp_path / "in.jsonl").open("a") as file:
        file.write("damaged\n")
    problems = Problems()
    list(load_dialogues(tmp_path / "in.jsonl", problems=problems))
    converted = convert_corpus(ConvertConfig(target=str(tmp_path / "in.jsonl"), out=tmp_path / "out.jsonl"))
    assert (converted.count, converted.problems.examples) == (100, problems.examples)
    with pytest.raises(UsageError):
        convert_corpus(ConvertConfig(target=str(tmp_path / "in.jsonl"), out=tmp_path / "out.xyz"))
    assert sorted(file.name for file in tmp_path.iterdir()) == [".out.jsonl.origin", "in.jsonl", "out.jsonl"]


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_personal_data_are_replaced_on_the_way(tmp_path: Path, name: str) -> None:
    turns = tuple(Turn("a", f"mail me: ana{i}@example.org or call +49 30 1234567 " + "x " * 90) for i in range(20))
    save_dialogues([Dialogue(str(i), (turn,)) for i, turn in enumerate(turns)], tmp_path / "in.jsonl")
    config = ConvertConfig(target=str(tmp_path / "in.jsonl"), out=tmp_path / name, scrub=True, kinds=("email",))
    assert convert_corpus(config).replaced == {"email": 20}
    texts = [d.turns[0].text for d in load_dialogues(tmp_path / name)]
    assert all(text.startswith("mail me: [EMAIL] or call +49 30 1234567 x") for text in texts)
