"""From ratings to a better bot: simulated raters with a known taste, and how far a fine-tuned bot comes to meet it.

The raters like replies that are short, use words of the persona, and do not repeat themselves or the conversation:

    taste = 1.5 * (shares a content word with the persona) - 1.5 * (repeats) - words / 8

Two replies to a context, sampled from the run, are a pair; a rater chooses the first with probability
sigmoid((taste of the first - taste of the second) / noise). The recipe `prefer` learns from these pairs; its figures on
held-out pairs are what `tertulia train` prints. The rate of the taste is measured on contexts of other dialogues, with
new samples before and after, without noise: the share of the wanted properties, and how often a reply after training is
more to the raters' taste than one before (0.5: no change). Intervals are over dialogues.

Everything is kept in OUT (sampled pairs, the run and its state, samples before and after), and continued from there.
"""

import argparse
import json
import math
import os
import random
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from common import finish
from tertulia.artefacts.manifest import is_complete
from tertulia.core.dialogue import Dialogue, Exchange, exchanges
from tertulia.core.english import STOP_WORDS
from tertulia.core.progress import Silent
from tertulia.corpus.load import load_dialogues
from tertulia.models.checkpoint import read_manifest
from tertulia.models.decoding import DecodingConfig, decode
from tertulia.models.hf.finetuned import FinetunedGenerator
from tertulia.models.likelihood import view_as
from tertulia.models.threads import use_threads
from tertulia.train.preference_report import mean, share
from tertulia.train.recipe import read_recipe

CONFIG = Path(__file__).parents[1] / "configs" / "prefer.toml"
CONTEXT_TURNS = 2
_WORD = re.compile(r"[a-z']+")


class Taste(NamedTuple):
    """What a rater sees in a reply."""

    words: int
    on_persona: bool
    repeats: bool

    @property
    def value(self) -> float:
        return 1.5 * self.on_persona - 1.5 * self.repeats - self.words / 8


def taste_of(reply: str, exchange: Exchange) -> Taste:
    words = _WORD.findall(reply.lower())
    persona = set(_WORD.findall(" ".join(exchange.persona.sentences if exchange.persona else ()).lower())) - STOP_WORDS
    pairs = list(pairwise(words))
    said = [" ".join(_WORD.findall(turn.text.lower())) for turn in exchange.context]
    repeats = len(set(pairs)) < len(pairs) or (len(words) > 2 and " ".join(words) in said)
    return Taste(len(words), bool(persona & set(words)), repeats)


def contexts_of(dialogues: Sequence[Dialogue], count: int, seed: int) -> list[Exchange]:
    """One reply of each dialogue, with its last turns only: the fewer tokens, the more pairs."""
    rng = random.Random(seed)
    drawn = rng.sample(list(dialogues), min(count, len(dialogues)))
    chosen = []
    for dialogue in drawn:
        candidates = [one for one in exchanges(dialogue, min_context=CONTEXT_TURNS) if one.persona]
        one = rng.choice(candidates)
        chosen.append(Exchange(one.id, one.context[-CONTEXT_TURNS:], one.response, one.persona))
    return chosen


def sample(run: Path, contexts: Sequence[Exchange], file: Path, options: argparse.Namespace, seed: int) -> Any:
    """Two replies to each context, sampled once and kept."""
    if not file.is_file():
        model = FinetunedGenerator.load(run, base=options.base)
        config = DecodingConfig(method="sample", temperature=1.0, max_tokens=options.max_tokens)
        views = [view_as(one.dialogue, one.response.speaker, "own") for one in contexts for _ in range(2)]
        drawn = decode(model, views, config, [seed + i for i in range(len(views))])
        texts = [candidates[0].text.strip() for candidates in drawn]
        file.write_text(json.dumps(list(zip(texts[::2], texts[1::2], strict=True))))
    return json.loads(file.read_text())


def write_pairs(contexts: Sequence[Exchange], replies: Any, file: Path, noise: float, seed: int) -> float:
    """The noisy choices as TRL's JSON lines; returns how often they follow the taste."""
    rng, right, lines = random.Random(f"{seed} raters"), [], []
    for number, (one, (first, second)) in enumerate(zip(contexts, replies, strict=True)):
        difference = taste_of(first, one).value - taste_of(second, one).value
        if not (first and second) or not difference:
            continue
        takes_first = rng.random() < 1 / (1 + math.exp(-difference / noise))
        right.append(takes_first == (difference > 0))
        chosen, rejected = (first, second) if takes_first else (second, first)
        me = one.response.speaker
        prompt = [{"role": "assistant" if t.speaker == me else "user", "content": t.text} for t in one.context]
        record = {"id": one.id, "rater": f"r{number % 7}", "prompt": prompt, "chosen": chosen, "rejected": rejected}
        lines.append(json.dumps(record | {"persona": one.persona.sentences if one.persona else []}) + "\n")
    file.write_text("".join(lines))
    return float(np.mean(right))


def train(options: argparse.Namespace, pairs: Path) -> dict[str, Any]:
    out = options.out / "run"
    settings: dict[str, Any] = {"start": str(options.run), "base": options.base, "data": str(pairs), "out": out}
    settings |= {"epochs": options.epochs, "learning_rate": options.learning_rate, "beta": options.beta}
    settings |= {"seed": options.seed, "loss": options.loss, "held_out": 0.25, "warmup": 2, "resume": True}
    settings |= {"perplexity_data": options.data, "perplexity_split": options.split, "save_seconds": 30}
    settings |= {"perplexity_dialogues": options.dialogues, "kl_samples": options.kl_samples}
    settings |= {"kl_tokens": options.max_tokens, "precision": options.precision}
    recipe, config = read_recipe(CONFIG, settings)
    return dict(read_manifest(out).training if is_complete(out) else recipe.train(config, Silent()).figures())


def rates(contexts: Sequence[Exchange], before: Any, after: Any) -> dict[str, Any]:
    """The taste on new contexts, before and after; each context is a cluster."""
    clusters = [i for i in range(len(contexts)) for _ in range(2)]
    sides = {
        name: [taste_of(reply, one) for one, pair in zip(contexts, replies, strict=True) for reply in pair]
        for name, replies in (("before", before), ("after", after))
    }
    figures: dict[str, Any] = {}
    for name, tastes in sides.items():
        figures[f"words {name}"] = mean(np.array([float(t.words) for t in tastes]), clusters)
        figures[f"on persona {name}"] = share(np.array([float(t.on_persona) for t in tastes]), clusters)
        figures[f"repeats {name}"] = share(np.array([float(t.repeats) for t in tastes]), clusters)
    wins = [(np.sign(b.value - a.value) + 1) / 2 for a, b in zip(sides["before"], sides["after"], strict=True)]
    figures["more to the taste after"] = share(np.array(wins), clusters)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="a fine-tuned run")
    parser.add_argument("--base", default="", help="where its base is, if it has moved")
    parser.add_argument("--out", type=Path, default=Path("run/prefer_quality"))
    parser.add_argument("--data", default="sample")
    parser.add_argument("--split", default="valid")
    parser.add_argument("--contexts", type=int, default=200, help="for pairs")
    parser.add_argument("--test-contexts", type=int, default=60, help="for the rate of the taste")
    parser.add_argument("--dialogues", type=int, default=10, help="for perplexity")
    parser.add_argument("--kl-samples", type=int, default=32)
    parser.add_argument("--max-tokens", type=int, default=24)
    parser.add_argument("--noise", type=float, default=0.3)
    parser.add_argument("--loss", default="dpo")
    parser.add_argument("--beta", type=float, default=0.1)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a few minutes of CPU: the intervals are wide")
    options = parser.parse_args()
    if options.quick:
        options.contexts, options.test_contexts, options.dialogues, options.kl_samples = 40, 16, 2, 8
    use_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    dialogues = list(load_dialogues(options.data, split=options.split))
    every = contexts_of(dialogues, options.contexts + options.test_contexts, options.seed)
    test, contexts = every[: options.test_contexts], every[options.test_contexts :]
    drawn = sample(options.run, every, options.out / "before.json", options, options.seed)
    before, replies = drawn[: len(test)], drawn[len(test) :]
    agree = write_pairs(contexts, replies, options.out / "pairs.jsonl", options.noise, options.seed)
    record = train(options, options.out / "pairs.jsonl")
    after = sample(options.out / "run", test, options.out / "after.json", options, options.seed + 10_000)
    table = rates(test, before, after)
    held_out = record["held_out"]
    table |= {name: value for name, value in held_out.items() if isinstance(value, dict)}
    table["KL of sampled replies"] = record.get("kl_of_sampled_replies", {"value": math.nan, "n": 0})
    for name, one in table.items():
        ends = f" [{one['low']:.2f}, {one['high']:.2f}]" if "low" in one else ""
        print(f"{name:<32} {one['value']:8.3f}{ends}  n = {one['n']}")
    perplexity = record.get("perplexity", {})
    print(f"perplexity per word before / after {perplexity.get('before')} / {perplexity.get('after')}")
    print(f"choices that follow the taste {agree:.2f}; {record['cpu_seconds']:.0f} CPU seconds of training")
    if "warning" in record:
        print(record["warning"])
    figures = {name.replace(" ", "_"): one["value"] for name, one in table.items()}
    figures |= {f"perplexity_{name}": value for name, value in perplexity.items()}
    pairs = {"train": record["examples"], "held_out": record["valid_examples"]}
    settings = {name: str(value) for name, value in vars(options).items() if name not in ("out", "run", "base")}
    finish("prefer_quality", figures, {**settings, "pairs": pairs, "choices_follow_taste": round(agree, 3)})


if __name__ == "__main__":
    main()
