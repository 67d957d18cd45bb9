"""Next-reply ranking on #ubuntu, as in table 4 of Lowe et al. (2015): TF-IDF, the dual encoders, and any other bot.

Takes a folder with train/ and the split to measure (dev/), each with raw logs. Dialogues are extracted by the paper's
rules; the last tenth of the training days is for validation; the split's dialogues make the test set, by the rule of
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
from tertulia.corpus.chatlogs.mine import ChatlogConfig, mine_chatlogs
from tertulia.corpus.load import load_dialogues, save_dialogues
from tertulia.corpus.testsets import TestItem, TestSetConfig, make_test_set
from tertulia.judge.document import short
from tertulia.judge.paper_tables import UBUNTU, UBUNTU_ROWS
from tertulia.metrics.metric import RankBatch
from tertulia.metrics.ranking import ranks_of_truth
from tertulia.metrics.registry import metric_named
from tertulia.metrics.significance import bootstrap_means
from tertulia.models.rankers.base import score_candidates
from tertulia.models.rankers.dual_encoder import DualEncoder
from tertulia.talk.bot import RankingBot
from tertulia.talk.spec import make_bot
from tertulia.train.recipe import read_recipe
from tertulia.train.tasks.ranking import query_of

CONFIGS = Path(__file__).parents[1] / "configs"
VALID_SHARE = 0.1
PRINT_SECONDS = 60.0
"""Minimum time between progress lines."""
QUICK = {"max_dialogues": 600, "valid_dialogues": 100, "epochs": 1}
Scores = list[list[float]]


class PrintedSteps:
    """Prints the steps of training as lines, with the time since the start; in a long step one per minute."""

    def __init__(self) -> None:
        self._start, self._printed = time.perf_counter(), 0.0

    def step(self, title: str, total: int | None = None) -> None:
        self._printed = 0.0
        self.note(title)

    def advance(self, n: int = 1) -> None:
        pass

    def note(self, text: str) -> None:
        passed = time.perf_counter() - self._start
        if not self._printed or passed - self._printed >= PRINT_SECONDS:
            self._printed = passed
            print(f"  {passed:7.1f} s  {text}", flush=True)


class Prepared(NamedTuple):
    """Dialogues, saved as train, valid and test in a folder."""

    folder: Path
    counts: Mapping[str, int]
    days: Mapping[str, int]


def prepare(data: Path, folder: Path, *, split: str = "dev", tags: bool = False) -> Prepared:
    """Extract dialogues from train/ and the split by the paper's rules; the last days of train/ are for validation."""
    mined: dict[str, list[Dialogue]] = {}
    with TemporaryDirectory() as scratch:
        for part in ("train", split):
            file = mine_chatlogs(ChatlogConfig(source=str(data / part), out=Path(scratch) / part, tags=tags)).dialogues
            mined[part] = sorted(load_dialogues(file), key=lambda d: (float(d.meta["time"]), d.id))
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
    """The paper's baseline: cosine of context and reply, with words weighted by f(w, d) log(N / df).

    N and df are counted over the turns of train; an unseen word has df = 1.
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
    batch = RankBatch(ranks, sizes)
    columns = np.stack([metric_named(name).measure(batch)[0] for name in UBUNTU_ROWS.values()], axis=1)
    return dict(zip(UBUNTU_ROWS, bootstrap_means(columns, seed=seed), strict=True))


def trained(name: str, data: Path, out: Path, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Train one of the configs; returns its training record."""
    print(f"\nTraining {name}")
    recipe, config = read_recipe(CONFIGS / f"{name}.toml", {"data": str(data), "out": out, **options})
    return recipe.train(config, PrintedSteps()).figures()


def table(columns: Mapping[str, Mapping[str, Estimate]]) -> None:
    """Print the table in the paper's layout: one row per measure."""
    print(f"\n{'':<14}" + "".join(f"{name:>22}" for name in columns))
    for row in UBUNTU_ROWS:
        print(f"{row:<14}" + "".join(f"{short(own[row], percent=True):>22}" for own in columns.values()))
    print(f"\nPaper      {'':<3}" + "".join(f"{name:>14}" for name in UBUNTU))
    for i, row in enumerate(UBUNTU_ROWS):
        print(f"{row:<14}" + "".join(f"{figures[i]:>14.1f}" for figures in UBUNTU.values()))


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """The given folder, or a temporary one."""
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
    tagged = "URLs, paths and nicks are tagged, places and organisations are not" if args.tags else "nothing is tagged"
    print(
        f"\nn = {len(items)} contexts, one per dialogue of {prepared.days['test']} days of {args.split}/."
        f" Differences from the paper: {prepared.counts['train']} training dialogues of {prepared.days['train']} days,"
        f" not almost a million; {tagged}; LSTM and RNN with a softmax over in-batch negatives, not with single"
        " negatives; 1 in 2 is averaged over all nine distractors."
    )
    for label, rows in columns.items():
        for row, estimate in rows.items():
            key = f"{label} {row}".replace(" ", "_")
            figures |= {key: estimate.value, f"{key}_low": estimate.low, f"{key}_high": estimate.high}
    settings = {"split": args.split, "n": len(items), "quick": args.quick, "seed": args.seed, "tags": args.tags}
    finish("ubuntu_quality", figures, settings | {"vectors": bool(args.vectors), "best": bool(args.best)})


def main() -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train/ and the split, each with raw logs")
    parser.add_argument("--split", default="dev", help="folder in --data for the test set (default: dev)")
    parser.add_argument("--out", type=Path, help="save the dialogues and the models here")
    parser.add_argument("--only", choices=["prepare"], help="stop once the dialogues are written")
    parser.add_argument("--tags", action="store_true", help="tag URLs, paths and nicks")
    parser.add_argument("--vectors", type=Path, help="word vectors in GloVe's format (text or .npz)")
    parser.add_argument("--rnn", action="store_true", help="train the RNN as well")
    parser.add_argument("--best", help="another bot that ranks, such as the folder of a training run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="few dialogues, a small network, one epoch")
    args = parser.parse_args()
    if args.only and not args.out:
        parser.error("--only prepare needs --out")
    with _folder(args.out) as out:
        measure(args, out)


if __name__ == "__main__":
    main()
