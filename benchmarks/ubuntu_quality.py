"""Ranking the next reply in #ubuntu, as in table 4 of Lowe et al. (2015): TF-IDF, the dual encoders, and our best bot.

Takes a folder with train/ and the split to measure (dev/), each of raw logs. Dialogues are pulled out by the paper's
rules; the last tenth of the training days is for validation, the split's dialogues make the test set by the rule of
version 1. `--only prepare --out FOLDER` stops once FOLDER/data has train, valid and test, for `tertulia train`.
Intervals: 95 %, by bootstrap over the test set.
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import normalize

from common import finish
from tertulia.core.dialogue import Dialogue
from tertulia.core.errors import UsageError
from tertulia.core.estimate import Estimate
from tertulia.core.reply import Ask
from tertulia.core.text import words
from tertulia.corpus.load import load_dialogues, save_dialogues
from tertulia.corpus.rooms.job import RoomsConfig, mine_rooms
from tertulia.corpus.testsets import TestItem, TestSetConfig, make_test_set
from tertulia.judge.rank_tables import UBUNTU, UBUNTU_ROWS, short
from tertulia.metrics.ranking import measure_named, ranks_of_truth
from tertulia.metrics.significance import bootstrap_means
from tertulia.models.dual_encoder import DualEncoder
from tertulia.models.ranker import score_candidates
from tertulia.talk.bot import RankingBot
from tertulia.talk.spec import make_bot
from tertulia.train.rankers import query_of
from tertulia.train.recipe import read_recipe

CONFIGS = Path(__file__).parents[1] / "configs"
VALID_SHARE = 0.1
EVERY = 60.0
"""Seconds between lines."""
QUICK = {"max_dialogues": 600, "valid_dialogues": 100, "epochs": 1, "hidden": 32}
Scores = list[list[float]]


class Tell:
    """Steps of a training as plain lines, with the time since the start; in a long step one a minute."""

    def __init__(self) -> None:
        self._start, self._said = time.perf_counter(), 0.0

    def step(self, title: str, total: int | None = None) -> None:
        self._said = 0.0
        self.note(title)

    def advance(self, n: int = 1) -> None:
        pass

    def note(self, text: str) -> None:
        passed = time.perf_counter() - self._start
        if not self._said or passed - self._said >= EVERY:
            self._said = passed
            print(f"  {passed:7.1f} s  {text}", flush=True)


class Prepared(NamedTuple):
    """Dialogues, on disk as train, valid and test of a folder."""

    folder: Path
    counts: Mapping[str, int]
    days: Mapping[str, int]


def prepare(data: Path, folder: Path, *, split: str = "dev", tags: bool = False) -> Prepared:
    """Pull dialogues out of train/ and the split by the paper's rules; the last days of train/ are for validation."""
    mined: dict[str, list[Dialogue]] = {}
    with TemporaryDirectory() as scratch:
        for part in ("train", split):
            found = mine_rooms(RoomsConfig(source=str(data / part), out=Path(scratch) / part, tags=tags)).dialogues
            mined[part] = sorted(load_dialogues(found), key=lambda d: (float(d.meta["time"]), d.id))
    logs = list(dict.fromkeys(dialogue.meta["log"] for dialogue in mined["train"]))
    late = set(logs[-max(1, round(VALID_SHARE * len(logs))) :])
    parts = {
        "train": [d for d in mined["train"] if d.meta["log"] not in late],
        "valid": [d for d in mined["train"] if d.meta["log"] in late],
        "test": mined[split],
    }
    counts = {name: save_dialogues(part, folder / f"{name}.jsonl") for name, part in parts.items()}
    return Prepared(folder, counts, {name: len({d.meta["log"] for d in part}) for name, part in parts.items()})


def by_tfidf(train: Sequence[Dialogue], items: Sequence[TestItem]) -> Scores:
    """The paper's baseline: cosine of context and reply, words weighed f(w, d) log(N / df).

    N and df are those of the turns of train; a word that is in none of them counts as if it were in one.
    """
    turns = [turn.text for dialogue in train for turn in dialogue.turns]
    contexts = [" ".join(turn.text for turn in item.exchange.context) for item in items]
    replies = [text for item in items for text in item.candidates]
    counter = CountVectorizer(analyzer=words, dtype=np.float64).fit([*turns, *contexts, *replies])
    df = np.asarray((counter.transform(turns) > 0).sum(axis=0)).ravel()
    idf = np.log(len(turns) / np.maximum(df, 1))
    left, right = (normalize(counter.transform(texts).multiply(idf).tocsr()) for texts in (contexts, replies))
    owner = np.repeat(np.arange(len(items)), [len(item.candidates) for item in items])
    scores = np.asarray(left[owner].multiply(right).sum(axis=1)).ravel()
    ends = np.cumsum([len(item.candidates) for item in items])
    return [part.tolist() for part in np.split(scores, ends[:-1])]


def by_encoder(model: DualEncoder, items: Sequence[TestItem], *, max_turns: int) -> Scores:
    """The scores of a dual encoder."""
    queries = [query_of(item.exchange, "none", max_turns=max_turns) for item in items]
    return score_candidates(model, queries, [item.candidates for item in items])


def by_bot(spec: str, items: Sequence[TestItem]) -> Scores:
    """The scores of any bot that ranks."""
    bot = make_bot(spec)
    if not isinstance(bot, RankingBot):
        raise UsageError(f"{spec} cannot rank replies.")
    asks = [Ask(item.exchange.dialogue, item.exchange.response.speaker) for item in items]
    return bot.score(asks, [item.candidates for item in items])


def estimates(scores: Scores, items: Sequence[TestItem], seed: int) -> dict[str, Estimate]:
    """The rows of the paper's table, with intervals."""
    ranks = ranks_of_truth(scores, [item.truth for item in items], seed=seed)
    sizes = np.array([len(item.candidates) for item in items])
    columns = np.stack([measure_named(name).values(ranks, sizes) for name in UBUNTU_ROWS.values()], axis=1)
    return dict(zip(UBUNTU_ROWS, bootstrap_means(columns, seed=seed), strict=True))


def trained(name: str, data: Path, out: Path, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Train one of the configs; what it took."""
    print(f"\nTraining {name}")
    recipe, config = read_recipe(CONFIGS / f"{name}.toml", {"data": str(data), "out": out, **options})
    return recipe.train(config, Tell()).figures()


def table(columns: Mapping[str, Mapping[str, Estimate]]) -> None:
    """The paper's layout: a row for each measure."""
    print(f"\n{'':<14}" + "".join(f"{name:>22}" for name in columns))
    for row in UBUNTU_ROWS:
        print(f"{row:<14}" + "".join(f"{short(found[row], percent=True):>22}" for found in columns.values()))
    print(f"\nThe paper's{'':<3}" + "".join(f"{name:>14}" for name in UBUNTU))
    for i, row in enumerate(UBUNTU_ROWS):
        print(f"{row:<14}" + "".join(f"{figures[i]:>14.1f}" for figures in UBUNTU.values()))


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """The folder asked for, or one that goes away."""
    if out is not None:
        yield out
        return
    with TemporaryDirectory() as scratch:
        yield Path(scratch)


def measure(args: argparse.Namespace, out: Path) -> None:
    """Prepare, train, rank, print."""
    prepared = prepare(args.data, out / "data", split=args.split, tags=args.tags)
    print("Dialogues:", ", ".join(f"{n} {name} of {prepared.days[name]} days" for name, n in prepared.counts.items()))
    if args.only == "prepare":
        return
    parts = {name: list(load_dialogues(prepared.folder, split=name)) for name in ("train", "test")}
    items = make_test_set(parts["test"], TestSetConfig(seed=args.seed))
    columns = {"TF-IDF": estimates(by_tfidf(parts["train"], items), items, args.seed)}
    figures: dict[str, float] = {f"{name}_dialogues": float(n) for name, n in prepared.counts.items()}
    options = {"vectors": args.vectors, "seed": args.seed, "pool": False, **(QUICK if args.quick else {})}
    for label in ("LSTM", "RNN") if args.rnn else ("LSTM",):
        name = f"ubuntu-{label.lower()}"
        record = trained(name, prepared.folder, out / name, options)
        figures |= {f"{label}_{key}": float(record[key]) for key in ("seconds", "cpu_seconds", "pairs", "steps")}
        _, config = read_recipe(CONFIGS / f"{name}.toml")
        scores = by_encoder(DualEncoder.load(out / name), items, max_turns=config.max_turns)  # type: ignore[attr-defined]
        columns[label] = estimates(scores, items, args.seed)
    if args.best:
        columns["best bot"] = estimates(by_bot(args.best, items), items, args.seed)
    table(columns)
    tagged = "URLs, paths and nicks are tagged, places and organisations not" if args.tags else "nothing is tagged"
    print(
        f"\nn = {len(items)} contexts, one of each dialogue of {prepared.days['test']} days of {args.split}/. What"
        f" differs from the paper: {prepared.counts['train']} dialogues of {prepared.days['train']} days to learn from,"
        f" not almost a million; {tagged}; LSTM and RNN by softmax over a batch, not by single negatives; 1"
        " in 2 is meant over all nine distractors."
    )
    for label, found in columns.items():
        for row, estimate in found.items():
            key = f"{label} {row}".replace(" ", "_")
            figures |= {key: estimate.value, f"{key}_low": estimate.low, f"{key}_high": estimate.high}
    settings = {"split": args.split, "n": len(items), "quick": args.quick, "seed": args.seed, "tags": args.tags}
    finish("ubuntu_quality", figures, settings | {"vectors": bool(args.vectors), "best": bool(args.best)})


def main() -> None:
    """Take the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train/ and the split, of raw logs")
    parser.add_argument("--split", default="dev", help="the folder of --data whose days are for the test")
    parser.add_argument("--out", type=Path, help="keep the dialogues and the models here")
    parser.add_argument("--only", choices=["prepare"], help="stop once the dialogues are written")
    parser.add_argument("--tags", action="store_true", help="tag URLs, paths and nicks")
    parser.add_argument("--vectors", type=Path, help="word vectors in GloVe's format (text or .npz)")
    parser.add_argument("--rnn", action="store_true", help="train the RNN as well")
    parser.add_argument("--best", help="a trained run's folder or any bot that ranks, to be compared with")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="few dialogues, a small network, one epoch")
    args = parser.parse_args()
    if args.only and not args.out:
        parser.error("--only prepare needs --out")
    with _folder(args.out) as out:
        measure(args, out)


if __name__ == "__main__":
    main()
