"""How often a ranking bot answers a question with nothing but a question, by the weight of `follow`, beside people.

Contexts: the first exchanges of the split's dialogues whose last message asks something, one of each dialogue, the
second speaker's persona shown. A reply counts that ends in a question mark and has none but questions in it; likeness
is the share of the message's different words that the reply says again.
"""

import argparse
import random
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from common import finish
from tertulia.core.dialogue import Exchange, exchanges
from tertulia.core.reply import Ask
from tertulia.core.text import words
from tertulia.corpus.load import load_dialogues
from tertulia.metrics.significance import bootstrap_means
from tertulia.talk.spec import make_bot

WEIGHTS = (0.0, 1.0, 1.5, 2.0)


def only_asks(text: str) -> bool:
    """Whether a text is questions from its beginning to its end."""
    sentences = [part.strip() for part in re.findall(r"[^.!?]+[.!?]*", text) if part.strip()]
    return bool(sentences) and all(sentence.endswith("?") for sentence in sentences)


def likeness(text: str, message: str) -> float:
    """Share of the message's words that stand in the text."""
    said, asked = set(words(text)), set(words(message))
    return len(said & asked) / len(asked) if asked else 0.0


def main() -> None:
    """Ask, count, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of Persona-Chat")
    parser.add_argument("--split", default="valid")
    parser.add_argument("--run", required=True, help="the folder of a trained ranker")
    parser.add_argument("--n", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="20 contexts")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    found: list[Exchange] = []
    for dialogue in load_dialogues(args.data, split=args.split):
        asked = [e for e in exchanges(dialogue, speaker=dialogue.speakers[1]) if only_asks(e.context[-1].text)]
        found += [rng.choice(asked)] if asked else []
    found = rng.sample(found, min(len(found), 20 if args.quick else args.n))
    figures: dict[str, float] = {}
    print(f"{'':<14}{'only a question':>26}{'words of the message':>26}   n = {len(found)}")
    tell("people", [e.response.text for e in found], found, figures)
    for weight in WEIGHTS:
        bot = make_bot(f"{args.run}?follow={weight}")
        replies = bot.reply([Ask(e.dialogue, e.response.speaker, seed=args.seed) for e in found])
        tell(f"follow={weight:g}", [reply.text for reply in replies], found, figures)
    finish("rank_talk", figures, {"n": len(found), "split": args.split, "run": Path(args.run).name, "seed": args.seed})


def tell(name: str, texts: Sequence[str], asked: Sequence[Exchange], figures: dict[str, float]) -> None:
    """A row of the table."""
    rows = [[only_asks(t), likeness(t, e.context[-1].text)] for t, e in zip(texts, asked, strict=True)]
    asks, like = bootstrap_means(np.array(rows, float), seed=0)
    figures |= {f"{name} asks": asks.value, f"{name} likeness": like.value}
    cells = (f"{one.value:.3f} [{one.low:.3f}, {one.high:.3f}]" for one in (asks, like))
    print(f"{name:<14}" + "".join(f"{cell:>26}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
