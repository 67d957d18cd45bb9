"""The stage on which the commands of the docs are run: a folder in which every name that they use is the real thing.

Each page has a folder of its own. A command's props (`PERSONACHAT`, `run/mine`, `fed_data.json`) are made when one is
first named, as small as they can be, and copied to each page that names them.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from tests.cli.test_judge_llm import Coin
from tests.cli.test_prefer import hold_study
from tests.conftest import TinyModels
from tests.docs.markdown import ROOT, blocks
from tests.judge.test_human_ratings import USR
from tests.judge.test_hybrid import human_run, metric_run, selfplay_run
from tests.study.conftest import item_lines
from tests.study.test_importers import entries

from tertulia import sample
from tertulia.core.codec import dialogue_to_json, dump_line, message_to_json
from tertulia.core.dialogue import Dialogue
from tertulia.judge.runs import save_run
from tertulia.store import Database
from tertulia.talk.spec import make_bot
from tertulia.web.app import create_app
from tertulia.web.config import ServeConfig
from tertulia.web.server import running

Call = Callable[[str], object]
"""Runs a command line in the current folder; fails if it fails."""
OUTPUT = re.compile(r"(?:--(?:out|merged|adapter|model|study|inspect)|>|corpus convert \S+)\s+(\S+)")
"""What a command writes. Commands of a page that write to the same place are alternatives."""
NAME = re.compile(r"[\w./-]+")
SHORT = "--set max_steps=1 --set precision=float32"
SMALL = f"{SHORT} --set vocabulary=400 --set valid_dialogues=2 --set batch_tokens=400"
RECURRENT = f"{SMALL} --set model.dim=8 --set model.encoder=8 --set model.context=8 --set model.decoder=8"


class Stage:
    """The props, by name; a name is made once."""

    def __init__(self, folder: Path, models: TinyModels, call: Call) -> None:
        self.folder = folder
        self.models = models
        self.call = call
        self.makers: dict[str, Callable[[Path], object]] = {}
        for names, maker in PROPS.items():
            self.makers |= dict.fromkeys(names.split(), getattr(self, maker))
        (folder / "props").mkdir(parents=True)
        self.open = ExitStack()

    def close(self) -> None:
        """Stop what serves."""
        self.open.close()

    @cached_property
    def endpoint(self) -> str:
        """The address of an OpenAI-compatible server, until the stage is closed."""
        database = self.open.enter_context(Database.open(f"sqlite:///{self.folder / 'endpoint.db'}"))
        config = ServeConfig(messages_per_minute=0, max_in_flight=0)
        app = create_app({"smollm2": make_bot(f"hf:{self.model}"), "MODEL": Coin()}, database, config=config)
        return f"{self.open.enter_context(running(app))}/v1"

    @contextmanager
    def scene(self, page: str) -> Iterator[Path]:
        """The current folder of one page's commands; the files that the page shows are there."""
        folder = self.folder / page.replace("/", "-")
        folder.mkdir()
        shutil.copytree(ROOT / "configs", folder / "configs")
        for block in blocks(ROOT / page):
            if block.title:
                (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
                (folder / block.title).write_text(block.text, encoding="utf-8")
        with within(folder):
            yield folder

    def set_up(self, command: str) -> None:
        """Put what the command reads into the current folder, and out of its way what it would overwrite."""
        written = {name.rstrip("/") for name in OUTPUT.findall(command)}
        if command.startswith("tertulia selfplay ") and not written:
            written = {"selfplay.jsonl"}
        for name in written:
            remove(Path(name))
        named = {name.rstrip("/") for name in NAME.findall(command)}
        for name in sorted(named.union(*(needed for mark, needed in NEEDS.items() if mark in command)) - written):
            if name in self.makers and not Path(name).exists():
                self.put(name, Path(name))

    def put(self, name: str, place: Path) -> Path:
        """A copy of a prop."""
        made = self.prop(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        if made.is_dir():
            shutil.copytree(made, place)
        else:
            shutil.copy2(made, place)
        return place

    def prop(self, name: str) -> Path:
        """The one that all copies are of: two names of the same kind are the same thing, but for a file's ending."""
        maker = self.makers[name]
        place = self.folder / "props" / (maker.__name__ + Path(name).suffix)
        if not place.exists():
            workshop = self.folder / "workshops" / place.name
            workshop.mkdir(parents=True)
            with within(workshop):
                maker(place)
        return place

    @property
    def model(self) -> Path:
        """A causal language model of Hugging Face's, with two layers."""
        return self.models.make("wide", window=4096)

    def language_model(self, place: Path) -> None:
        shutil.copytree(self.model, place)

    def classifier(self, place: Path) -> None:
        shutil.copytree(self.models.make_classifier("nli", ["entailment", "neutral", "contradiction"]), place)

    def encoder(self, place: Path) -> None:
        shutil.copytree(self.models.make_classifier("encoder", ["a", "b"]), place)

    # Dialogues

    def corpus(self, place: Path) -> None:
        for split in sample.SPLITS:
            write(place / f"{split}.jsonl", map(dialogue_to_json, map(as_persona_chat, sample.dialogues(split)[:10])))

    def dialogues(self, place: Path) -> None:
        write(place, map(dialogue_to_json, sample.dialogues("valid")[:4]))

    def grounded_corpus(self, place: Path) -> None:
        grounded = [
            Dialogue(e.id, (*e.context, e.response), evidence=e.evidence)
            for e in sample.grounded()
            if e.label == "entailment"
        ]
        for split, part in (("train", grounded[:60]), ("valid", grounded[60:70])):
            write(place / f"{split}.jsonl", map(dialogue_to_json, part))

    def ubuntu(self, place: Path) -> None:
        for split in sample.SPLITS:
            write(place / f"{split}.jsonl", map(dialogue_to_json, sample.dialogues(split)[:24]))

    def dumps(self, place: Path) -> None:
        write(place / "forum.jsonl", map(message_to_json, sample.messages()[:300]))

    def room(self, place: Path) -> None:
        place.mkdir()
        for day in sample.room()[:2]:
            (place / f"{day.day}.txt").write_text("\n".join(day.lines) + "\n", encoding="utf-8")

    def annotated_room(self, place: Path) -> None:
        data = files("tertulia.sample") / "data/room"
        for split, day in zip(("train", "train", "dev"), sample.room(), strict=False):
            (place / split).mkdir(parents=True, exist_ok=True)
            for name in (f"{day.day}.raw.txt", f"{day.day}.annotation.txt"):
                (place / split / name).write_text((data / name).read_text(encoding="utf-8"), encoding="utf-8")

    def parlai(self, place: Path) -> None:
        self.put("DATA", Path("parlai-data"))
        self.call(f"tertulia corpus convert parlai-data {place} --to parlai --split valid")

    def mined(self, place: Path) -> None:
        self.put("DUMPS", Path("mined-dumps"))
        self.call(f"tertulia corpus mine mined-dumps --out {place}")

    def rooms(self, place: Path) -> None:
        self.put("logs", Path("rooms-logs"))
        self.call(f"tertulia corpus mine rooms-logs --threads rules --out {place}")

    def conversations(self, place: Path) -> None:
        self.call(f"tertulia selfplay tfidf generic -n 2 --turns 4 --out {place}")
        if place.suffix:  # a conversation about something that the bots were shown
            spoken = map(json.loads, place.read_text(encoding="utf-8").splitlines())
            write(place, [d | {"evidence": [{"text": "Tea is a hot drink."}]} for d in spoken])

    def openers(self, place: Path) -> None:
        place.write_text("Hi, how was your day?\nDo you have any pets?\n", encoding="utf-8")

    def replies(self, place: Path) -> None:
        (shown,) = (block.text for block in blocks(ROOT / "docs/reply-scores.md") if block.language == "json")
        place.write_text(shown + shown.replace("d7", "d8"), encoding="utf-8")

    def notes(self, place: Path) -> None:
        place.mkdir()
        (place / "harbour.md").write_text(
            "The last ferry leaves at ten.\n\nA ticket costs 9 euros.\n", encoding="utf-8"
        )

    def vectors(self, place: Path) -> None:
        words = sorted(
            {word for d in sample.dialogues("valid")[:24] for t in d.turns for word in t.text.lower().split()}
        )
        np.savez(place, words=np.array(words), vectors=np.random.default_rng(0).normal(size=(len(words), 4)))

    # People's ratings

    def fed(self, place: Path) -> None:
        """In the published layout, with people who like the second of the bots that the docs compare."""
        rng = np.random.default_rng(0)
        rated = [*entries()]
        for number in range(24):
            system = ("first", "second")[number % 2]
            much = "Yes! " * int(rng.integers(1, 5))
            chat = f"User: Do you like tea, number {number}?\nSystem: {much}And you?\nUser: I do."
            liked = [int(rng.integers(1, 4)) + number % 2 for _ in range(3)]
            rated.append({"context": f"{chat}\nSystem: Good.", "system": system, "annotations": {"Overall": liked}})
            rated.append(
                {"context": chat, "response": "System: Good.", "system": system, "annotations": {"Overall": liked}}
            )
        place.write_text(json.dumps(rated), encoding="utf-8")

    def usr(self, place: Path) -> None:
        place.write_text(
            json.dumps([USR[0] | {"context": f"hi {n}\nhello , i sing\n"} for n in range(8)]), encoding="utf-8"
        )

    def preferences(self, place: Path) -> None:
        shown = {b.title: b.text for b in blocks(ROOT / "docs/tutorials/finetune-and-prefer.md") if b.title}
        place.write_text(shown["preferences.jsonl"], encoding="utf-8")

    def database(self, place: Path) -> None:
        """With a study of pairs that people have chosen from (tea), and one of conversations that they have rated."""
        hold_study(place)
        self.put("fed_data.json", Path("rated.json"))
        for name in ("my-study", "NAME"):
            self.call(f"tertulia study import rated.json --format fed --name {name} --db sqlite:///{place}")

    def items(self, place: Path) -> None:
        place.write_text("\n".join(item_lines("ssa-static")) + "\n", encoding="utf-8")

    def study(self, place: Path) -> None:
        (shown,) = (block.text for block in blocks(ROOT / "docs/studies.md") if block.title == "study.toml")
        place.write_text(shown, encoding="utf-8")

    def study_run(self, place: Path) -> None:
        self.put("items.jsonl", Path("items.jsonl"))
        self.call("tertulia study new ssa-static > study.toml")
        self.call(f"tertulia study simulate study.toml --raters 6 --seed 1 --out {place}")

    def labels(self, place: Path) -> None:
        self.call("tertulia study new begin > study.toml")
        Path("items.jsonl").write_text("\n".join(item_lines("begin")) + "\n", encoding="utf-8")
        self.call("tertulia study simulate study.toml --raters 3 --db sqlite:///labels.db")
        self.call(f"tertulia study export study-simulated-0 --out {place} --db sqlite:///labels.db")

    def judged(self, place: Path) -> None:
        self.put("study-run", Path("judged-run"))
        judge = f"openai:MODEL?base_url={self.endpoint}"
        self.call(f"tertulia judge llm judged-run --endpoint '{judge}' --question ssa --cache answers --out {place}")

    def question(self, place: Path) -> None:
        place.write_text(
            '[[questions]]\nid = "turn_overall"\nkind = "yes-no"\nabout = "reply"\ntext = "Is this a good reply?"\n'
        )

    def bodies(self, place: Path) -> None:
        renamed = (
            {"body" if name == "text" else name: value for name, value in message_to_json(m).items()}
            for m in sample.messages()[:300]
        )
        write(place, renamed)

    def begin(self, place: Path, drink: str = "tea") -> None:
        said = {"entailment": f"{drink} is hot", "generic": "do you like it?", "hallucination": "rockets fly"}
        head = "evidence\tprevious turn\tresponse\tgold label\tcoarse label\tfull label set\n"
        rows = (f"{drink} is hot {i}\thm\t{text}\t{label}\tx\tx\n" for i in range(6) for label, text in said.items())
        place.write_text(head + "".join(rows), encoding="utf-8")

    def begin_dev(self, place: Path) -> None:
        self.begin(place, "coffee")

    def inference(self, place: Path) -> None:
        for seed, split in enumerate(("train", "valid")):
            self.call(f"tertulia corpus silver sample --per-label 8 --seed {seed} --out {place / split}.jsonl")

    def silver(self, place: Path) -> None:
        self.call(f"tertulia corpus silver sample --per-label 20 --out {place}")

    def people(self, place: Path) -> None:
        save_run(human_run(), place)

    def measured(self, place: Path) -> None:
        save_run(metric_run(), place)

    def played(self, place: Path) -> None:
        save_run(selfplay_run(), place)

    # Trained runs

    def finetuned(self, place: Path) -> None:
        self.train(
            "sample-finetune",
            f"--set base={self.model} --set accumulate=1 --set valid_dialogues=1 {SHORT} --set batch_tokens=500",
            place,
        )

    def generator(self, place: Path) -> None:
        self.train("personachat-transformer", f"{SMALL} --set model.d_model=16 --set model.heads=2", place)

    def hred(self, place: Path) -> None:
        self.train("selfplay-hred", RECURRENT, place)

    def vhred(self, place: Path) -> None:
        self.train("selfplay-vhred", RECURRENT, place)

    def vhcr(self, place: Path) -> None:
        self.train("selfplay-vhcr", RECURRENT, place)

    def ranker(self, place: Path) -> None:
        self.train("personachat-starspace", f"{SHORT} --set batch=16 --set model.dim=8", place)

    def grounding(self, place: Path) -> None:
        self.put("silver.jsonl", Path("grounding.jsonl"))
        self.call(f"tertulia train {ROOT}/configs/grounding.toml --data grounding.jsonl --out {place}")

    def verdict(self, place: Path) -> None:
        self.call(f"tertulia judge rank tfidf --limit 10 --out {place}")

    def other_verdict(self, place: Path) -> None:
        self.call(f"tertulia judge rank generic --limit 10 --out {place}")

    def train(self, config: str, options: str, place: Path) -> None:
        data = self.prop("DATA")
        self.call(f"tertulia train {ROOT}/configs/{config}.toml --data {data} --out {place} {options}")


PROPS = {
    "MODEL": "language_model",
    "PERSONACHAT personachat corpora/personachat DATA FOLDER DIR CORPUS my-corpus split": "corpus",
    "mine.jsonl all.jsonl train.jsonl valid.jsonl FILE": "dialogues",
    "cmu_dog": "grounded_corpus",
    "UBUNTU": "ubuntu",
    "DUMPS": "dumps",
    "logs LOGS": "room",
    "ROOMS": "annotated_room",
    "my_task.txt": "parlai",
    "mined": "mined",
    "rooms": "rooms",
    "chats.jsonl selfplay.jsonl talk.jsonl": "conversations",
    "chats talks": "conversations",
    "openers.txt 60.txt": "openers",
    "replies.jsonl": "replies",
    "notes manual": "notes",
    "GLOVE.npz glove6B_100d.npz": "vectors",
    "fed_data.json": "fed",
    "labels.csv": "labels",
    "judged run/my-llm-judge": "judged",
    "dump.jsonl": "bodies",
    "fed.toml": "question",
    "pc_usr_data.json": "usr",
    "RATINGS preferences.jsonl": "preferences",
    "tertulia.db": "database",
    "items.jsonl": "items",
    "study.toml": "study",
    "study-run run/my-study": "study_run",
    "begin/test.tsv BEGIN": "begin",
    "begin/dev.tsv": "begin_dev",
    "NLI_FOLDER": "inference",
    "NLI": "classifier",
    "ENCODER": "encoder",
    "silver.jsonl": "silver",
    "run/mine run/sample-finetune run/sample-companion run/better FINETUNED": "finetuned",
    "RUN OTHER THIRD run/evolved EVOLVED TRANSFORMER LSTM": "generator",
    "HRED run/hred": "hred",
    "VHRED run/vhred": "vhred",
    "VHCR run/vhcr": "vhcr",
    "RANKER": "ranker",
    "runs/grounding GROUNDING": "grounding",
    "runs/monday": "verdict",
    "runs/tuesday": "other_verdict",
    "HUMAN run/ssa-study": "people",
    "CHATS run/perplexity": "measured",
    "PLAYED": "played",
}
"""Names in the docs, and the method that makes what they stand for."""

NEEDS = {
    "study.toml": {"items.jsonl"},
    " prefer.toml": {"run/mine"},
    "configs/prefer.toml": {"run/sample-finetune"},
    "tertulia study ": {"tertulia.db"},
    "train ubuntu": {"UBUNTU"},
}
"""What a command needs that it does not name, by what it says."""


@contextmanager
def within(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def as_persona_chat(dialogue: Dialogue) -> Dialogue:
    """With the names of speakers that the readers of Persona-Chat give."""
    names = {"a": "first", "b": "second"}
    turns = tuple(replace(turn, speaker=names[turn.speaker]) for turn in dialogue.turns)
    return replace(dialogue, turns=turns, personas={names[key]: value for key, value in dialogue.personas.items()})


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write(file: Path, records: Iterable[Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{dump_line(record)}\n" for record in records), encoding="utf-8")
