"""From ratings to a better bot: simulated raters with a known taste, and how far a fine-tuned bot comes to meet it.

The raters like replies that are short, use words of the persona, and do not repeat themselves or the conversation:

    taste = 1.5 * (shares a content word with the persona) - 1.5 * (repeats) - words / 8

Two replies to a context, sampled from the run, are a pair; a rater chooses the first with probability
sigmoid((taste of the first - taste of the second) / noise). The recipe `prefer` learns from these pairs; its figures on
held-out pairs are what `tertulia train` prints. The rate of the taste is measured on contexts of other dialogues, with
new samples before and after, without noise: the share of the wanted properties, and how often a reply after training is
more to the raters' taste than one before (0.5: no change). Intervals are over dialogues.

Pairs come from dialogues of one split, the rate of the taste and the perplexity from another; if they are the same
split (Persona-Chat's train split taught the fine-tuned run), its dialogues are divided. Without --run it is the
packaged `companion`.

Everything is kept in OUT (sampled pairs, the runs and their state, samples before and after), and continued from there.
"""

import argparse
import json
import math
import os
import random
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from common import finish
from tertulia.artefacts.files import write_json
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
from tertulia.talk.bots.companion import adapter_folder
from tertulia.train.preference_report import mean, share
from tertulia.train.recipe import read_recipe

CONFIG = Path(__file__).parents[1] / "configs" / "prefer.toml"
CONTEXT_TURNS = 2
AT_ONCE = 32
"""Contexts whose replies are sampled side by side."""
LOSSES = ("dpo", "kto")
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


def contexts_of(dialogues: Sequence[Dialogue], count: int, rng: random.Random) -> list[Exchange]:
    """Replies of the dialogues in turn, each with its last turns only: the fewer tokens, the more pairs."""
    by_dialogue = [[one for one in exchanges(d, min_context=CONTEXT_TURNS) if one.persona] for d in dialogues]
    for replies in by_dialogue:
        rng.shuffle(replies)
    chosen = [one for turn in zip_longest(*by_dialogue) for one in turn if one is not None][:count]
    return [replace(one, context=one.context[-CONTEXT_TURNS:]) for one in chosen]


def split_contexts(options: argparse.Namespace) -> tuple[list[Exchange], list[Exchange]]:
    """For pairs and for the rate of the taste, of different dialogues."""
    rng = random.Random(options.seed)
    dialogues = list(load_dialogues(options.data, split=options.split))
    rng.shuffle(dialogues)
    if options.test_split == options.split:
        share = options.test_contexts / (options.contexts + options.test_contexts)
        test, dialogues = dialogues[: round(share * len(dialogues))], dialogues[round(share * len(dialogues)) :]
    else:
        test = list(load_dialogues(options.data, split=options.test_split))
    return contexts_of(dialogues, options.contexts, rng), contexts_of(test, options.test_contexts, rng)


def sample(run: Path, contexts: Sequence[Exchange], file: Path, options: argparse.Namespace, seed: int) -> Any:
    """Two replies to each context, sampled once and kept; a prompt is read once for both."""
    if not file.is_file():
        model = FinetunedGenerator.load(run, base=options.base)
        config = DecodingConfig(method="sample-and-rank", samples=2, temperature=1.0, max_tokens=options.max_tokens)
        pairs = []
        for first in range(0, len(contexts), AT_ONCE):
            views = [view_as(one.dialogue, one.response.speaker, "own") for one in contexts[first : first + AT_ONCE]]
            pairs += decode(model, views, config, [seed + first + i for i in range(len(views))])
        rng = random.Random(seed)  # they are ranked
        texts = [rng.sample([candidate.text.strip() for candidate in pair], 2) for pair in pairs]
        write_json(file, texts)
    return json.loads(file.read_text(encoding="utf-8"))


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
        record = {
            "id": conversation_of(one),
            "rater": f"r{number % 7}",
            "prompt": prompt,
            "chosen": chosen,
            "rejected": rejected,
        }
        lines.append(json.dumps(record | {"persona": one.persona.sentences if one.persona else []}) + "\n")
    file.write_text("".join(lines))
    return float(np.mean(right))


def conversation_of(exchange: Exchange) -> str:
    """The dialogue that an exchange is from: what belongs together when preferences are held out."""
    return exchange.id.rpartition("#")[0]


def train(options: argparse.Namespace, loss: str) -> dict[str, Any]:
    """The run's own record: figures on held-out pairs, divergence, perplexity."""
    out = options.out / f"run-{loss}"
    settings: dict[str, Any] = {"start": str(options.run), "base": options.base, "out": out, "loss": loss}
    settings |= {"data": str(options.out / "pairs.jsonl"), "epochs": options.epochs, "beta": options.beta}
    settings |= {"learning_rate": options.learning_rate, "seed": options.seed, "held_out": 0.25, "warmup": 2}
    settings |= {"perplexity_data": options.data, "perplexity_split": options.test_split, "save_seconds": 30}
    settings |= {"perplexity_dialogues": options.dialogues, "kl_samples": options.kl_samples, "resume": True}
    settings |= {"kl_tokens": options.max_tokens, "precision": options.precision}
    recipe, config = read_recipe(CONFIG, settings)
    return dict(read_manifest(out).training if is_complete(out) else recipe.train(config, Silent()).figures())


def rates(contexts: Sequence[Exchange], before: Any, after: Any) -> dict[str, Any]:
    """The taste on new contexts, before and after; each dialogue is a cluster."""
    names = [conversation_of(one) for one in contexts]
    clusters = [names.index(name) for name in names for _ in range(2)]
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
    parser.add_argument("--run", type=Path, default=adapter_folder(), help="a fine-tuned run")
    parser.add_argument("--base", default="", help="where its base is, if it has moved")
    parser.add_argument("--out", type=Path, default=Path("run/prefer_quality"))
    parser.add_argument("--data", default="sample")
    parser.add_argument("--split", default="train", help="of the contexts for pairs")
    parser.add_argument("--test-split", default="valid", help="of the contexts for the rate of the taste")
    parser.add_argument("--contexts", type=int, default=300, help="for pairs")
    parser.add_argument("--test-contexts", type=int, default=96, help="for the rate of the taste")
    parser.add_argument("--dialogues", type=int, default=10, help="for perplexity")
    parser.add_argument("--kl-samples", type=int, default=32)
    parser.add_argument("--max-tokens", type=int, default=24)
    parser.add_argument("--noise", type=float, default=0.3)
    parser.add_argument("--losses", nargs="+", default=["dpo"], choices=LOSSES)
    parser.add_argument("--beta", type=float, default=0.1)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a few minutes of CPU: the intervals are wide")
    options = parser.parse_args()
    if options.quick:
        options.contexts, options.test_contexts, options.dialogues, options.kl_samples = 40, 16, 2, 8
    use_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    start = time.process_time()
    contexts, test = split_contexts(options)
    replies = sample(options.run, contexts, options.out / "pairs.json", options, options.seed)
    agree = write_pairs(contexts, replies, options.out / "pairs.jsonl", options.noise, options.seed)
    before = sample(options.run, test, options.out / "before.json", options, options.seed + 5_000)
    figures: dict[str, float] = {}
    pairs: dict[str, Any] = {}
    for loss in options.losses:
        record = train(options, loss)
        after = sample(options.out / f"run-{loss}", test, options.out / f"after-{loss}.json", options, 10_000)
        figures |= {f"{loss}_{name}": value for name, value in show(loss, rates(test, before, after), record).items()}
        pairs = {"train": record["examples"], "held_out": record["valid_examples"]}
    print(f"choices that follow the taste {agree:.2f}; {time.process_time() - start:.0f} CPU seconds of this process")
    settings = {name: str(value) for name, value in vars(options).items() if name not in ("out", "run", "base")}
    finish("prefer_quality", figures, {**settings, "pairs": pairs, "choices_follow_taste": round(agree, 3)})


def show(loss: str, table: dict[str, Any], record: dict[str, Any]) -> dict[str, float]:
    """Print the figures of a run; all of them under names for the last line."""
    print(f"\n{loss}, {record['cpu_seconds']:.0f} CPU seconds of training")
    table |= {name: value for name, value in record["held_out"].items() if isinstance(value, dict)}
    table["KL of sampled replies"] = record.get("kl_of_sampled_replies", {"value": math.nan, "n": 0})
    for name, one in table.items():
        ends = f" [{one['low']:.3f}, {one['high']:.3f}]" if "low" in one else ""
        print(f"{name:<32} {one['value']:8.3f}{ends}  n = {one['n']}")
    perplexity = record.get("perplexity", {})
    print("perplexity per word              " + ", ".join(f"{name} {one:.2f}" for name, one in perplexity.items()))
    if "warning" in record:
        print(record["warning"])
    figures = {
        f"{name}{end}".replace(" ", "_"): one[part]
        for name, one in table.items()
        for part, end in (("value", ""), ("low", "_low"), ("high", "_high"))
        if part in one
    }
    return figures | {f"perplexity_{name}": value for name, value in perplexity.items()}


if __name__ == "__main__":
    main()
