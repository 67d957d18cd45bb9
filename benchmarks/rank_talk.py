"""How often a ranking bot replies to a question with only questions, by the weight `follow`, compared with people.

Contexts: one exchange per dialogue of the split whose last message is a question, with the second speaker's persona. A
reply is only a question if all its sentences are questions. Overlap is the share of the message's distinct words that
the reply repeats.
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


def is_only_questions(text: str) -> bool:
    """Whether all sentences of a text are questions."""
    sentences = [part.strip() for part in re.findall(r"[^.!?]+[.!?]*", text) if part.strip()]
    return bool(sentences) and all(sentence.endswith("?") for sentence in sentences)


def word_overlap(text: str, message: str) -> float:
    """Share of the message's distinct words that the text repeats."""
    repeated, original = set(words(text)), set(words(message))
    return len(repeated & original) / len(original) if original else 0.0


def main() -> None:
    """Generate replies, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of Persona-Chat")
    parser.add_argument("--split", default="valid", help="split to use (default: valid)")
    parser.add_argument("--run", required=True, help="folder of a trained ranker")
    parser.add_argument("--n", type=int, default=300, help="number of contexts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="20 contexts")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    contexts: list[Exchange] = []
    for dialogue in load_dialogues(args.data, split=args.split):
        questions = [
            e for e in exchanges(dialogue, speaker=dialogue.speakers[1]) if is_only_questions(e.context[-1].text)
        ]
        contexts += [rng.choice(questions)] if questions else []
    contexts = rng.sample(contexts, min(len(contexts), 20 if args.quick else args.n))
    figures: dict[str, float] = {}
    print(f"{'':<14}{'only questions':>26}{'word overlap':>26}   n = {len(contexts)}")
    print_row("people", [e.response.text for e in contexts], contexts, figures)
    for weight in WEIGHTS:
        bot = make_bot(f"{args.run}?follow={weight}")
        replies = bot.reply([Ask(e.dialogue, e.response.speaker, seed=args.seed) for e in contexts])
        print_row(f"follow={weight:g}", [reply.text for reply in replies], contexts, figures)
    finish(
        "rank_talk", figures, {"n": len(contexts), "split": args.split, "run": Path(args.run).name, "seed": args.seed}
    )


def print_row(name: str, texts: Sequence[str], contexts: Sequence[Exchange], figures: dict[str, float]) -> None:
    """Print a row of the table."""
    rows = [[is_only_questions(t), word_overlap(t, e.context[-1].text)] for t, e in zip(texts, contexts, strict=True)]
    asks, overlap = bootstrap_means(np.array(rows, float), seed=0)
    figures |= {f"{name} asks": asks.value, f"{name} overlap": overlap.value}
    cells = (f"{one.value:.3f} [{one.low:.3f}, {one.high:.3f}]" for one in (asks, overlap))
    print(f"{name:<14}" + "".join(f"{cell:>26}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
