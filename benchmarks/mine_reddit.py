"""Mines real Reddit replies: rebuilds trees from question-answer pairs, mines them, and shows ten random pairs.

The data are files of {file, q_id, question, a_id, answer}, one JSON object per line; a question that equals an earlier
answer of the same file is that message. The data have no authors, so the filter for bots has no effect.
"""

import argparse
import gzip
import random
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import orjson

from common import finish
from tertulia.corpus.mine import MineConfig, mine
from tertulia.corpus.mining.pairs import read_pairs

Record = dict[str, str | None]


def messages(path: Path) -> Iterator[Record]:
    """The messages of one file of pairs, each once. A thread has the name of its first message."""
    by_text: dict[tuple[str, str], Record] = {}
    with gzip.open(path, "rb") as lines:
        for line in lines:
            pair = orjson.loads(line)
            source = pair["file"]
            question = by_text.get((source, pair["question"]))
            if question is None:
                name = f"{source}#{pair['q_id']}"
                question = {"id": name, "thread": name, "author": "", "text": pair["question"]}
                by_text[source, pair["question"]] = question
                yield question
            answer: Record = {
                "id": f"{source}#{pair['a_id']}",
                "parent": question["id"],
                "thread": question["thread"],
                "author": "",
                "text": pair["answer"],
            }
            by_text.setdefault((source, pair["answer"]), answer)
            yield answer


def main() -> None:
    """Rebuild trees, mine them, print the funnel and some pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of .jsonl.gz files of pairs, or one such file")
    parser.add_argument("--split", help="use only files whose names begin with this")
    parser.add_argument("--pairs", type=int, default=10, help="number of pairs to show")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="the first 20,000 messages")
    args = parser.parse_args()
    files = [args.data] if args.data.is_file() else sorted(args.data.glob(f"{args.split or ''}*.jsonl.gz"))
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "messages.jsonl"
        all_messages = (record for file in files for record in messages(file))
        with corpus.open("wb") as out:
            for record in islice(all_messages, 20_000 if args.quick else None):
                out.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
        config = MineConfig(source=str(corpus), out=Path(folder) / "mined", seed=args.seed)
        outcome = mine(config)
        pairs = list(read_pairs(config.out))
    for step, left in outcome.funnel.steps():
        print(f"{step:<24}{left:>9}")
    for pair in random.Random(args.seed).sample(pairs, min(args.pairs, len(pairs))):
        print(f"\n{pair.id} in {pair.meta['thread']}")
        for turn in pair.turns:
            print("  - " + turn.text.replace("\n", "\n    "))
    print()
    funnel = outcome.funnel
    turns = sum(len(pair.turns) - 1 for pair in pairs) / max(1, len(pairs))
    figures = {"messages": funnel.messages, "kept": funnel.kept, "pairs": funnel.pairs, "context_turns": turns}
    settings = {"files": len(files), "seed": args.seed, "subwords": outcome.subwords}
    finish("mine_reddit", figures | {f"removed_{k.replace(' ', '_')}": n for k, n in funnel.removed.items()}, settings)


if __name__ == "__main__":
    main()
