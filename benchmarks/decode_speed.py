"""CPU time of sample-and-rank, compared with Hugging Face's `generate` on a BART of the same size, in one run.

Both models have random weights, which cost the same as trained ones: width 256, 4 heads, 4 + 4 layers, 8,000 tokens.
Both generate 20 samples of exactly 20 tokens for contexts of exactly 128 tokens, from the full distribution at
temperature 1. Tertulia is timed from text to ranked turns (`decode`: tokens, encoder, sampling, log-probabilities,
texts, ranking); Hugging Face from token ids to token ids and scores, without ranking. They alternate; figures are
medians. The stream model, whose decoder reads the context itself, is for information, and so are the matrix products
that Tertulia needs at least: the time that would remain if everything else took none.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from transformers import BartConfig, BartForConditionalGeneration, GenerationConfig

from common import finish
from tertulia.models.decoding import DecodingConfig, decode
from tertulia.models.generator import DialogueView
from tertulia.models.generators.blocks import BlockGenerator
from tertulia.models.generators.transformer import Transformer, TransformerConfig
from tertulia.models.tokenizer import END, OWN, PAD, WordTokenizer

VOCABULARY, WIDTH, HEADS, LAYERS = 8000, 256, 4, 4
CONTEXT, NEW, SAMPLES, MANY = 128, 20, 20, 16
TURNS = (30, 30, 30, 29)
"""Words of a context's turns: with two special tokens each, and that of the reply, 128 tokens."""
ONE, BATCH = 1 / 2.5, 1 / 4
"""Targets: Tertulia's share of Hugging Face's time, for one context and for a batch."""
TIMES = 4
"""Target: the cost of 20 samples relative to one."""


def tokenizer() -> WordTokenizer:
    """A vocabulary of made-up words."""
    letters = "abcdefghijklmnopqrst"
    words = ["".join(letters[i // 20**k % 20] for k in range(3)) for i in range(VOCABULARY - 6)]
    return WordTokenizer(words)


def views(words: WordTokenizer, count: int) -> list[DialogueView]:
    """Different contexts of the same length."""
    rng = torch.Generator().manual_seed(0)
    contexts = []
    for _ in range(count):
        turns = [torch.randint(len(words.words), (length,), generator=rng).tolist() for length in TURNS]
        texts = tuple(" ".join(words.words[index] for index in turn) for turn in turns)
        contexts.append(DialogueView(texts, tuple(i % 2 == 1 for i in range(len(TURNS)))))
    return contexts


def loaded(sizes: TransformerConfig, words: WordTokenizer) -> Transformer:
    """A Tertulia model, loaded from a folder as a bot loads it."""
    with TemporaryDirectory() as folder:
        Transformer.untrained(sizes, words).save(Path(folder))
        return Transformer.load(Path(folder))


def bart() -> BartForConditionalGeneration:
    """A Hugging Face model of the same size."""
    config = BartConfig(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=4 * WIDTH,
        decoder_ffn_dim=4 * WIDTH,
        max_position_embeddings=CONTEXT + NEW,
        pad_token_id=PAD,
        bos_token_id=OWN,
        eos_token_id=END,
        decoder_start_token_id=OWN,
        forced_eos_token_id=None,
    )
    return BartForConditionalGeneration(config).eval()


def run_bart(model: BartForConditionalGeneration, ids: torch.Tensor) -> None:
    """Generate samples with scores."""
    config = GenerationConfig(
        do_sample=True,
        top_k=0,
        num_return_sequences=SAMPLES,
        min_new_tokens=NEW,
        max_new_tokens=NEW,
        output_scores=True,
        return_dict_in_generate=True,
        pad_token_id=PAD,
        eos_token_id=END,
        decoder_start_token_id=OWN,
    )
    with torch.inference_mode():
        output = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
    assert output.sequences.shape == (SAMPLES * len(ids), NEW + 1)
    assert len(output.scores) == NEW


def run_tertulia(model: BlockGenerator[TransformerConfig], contexts: Sequence[DialogueView], samples: int) -> None:
    """Generate ranked turns, best first."""
    config = DecodingConfig(samples=samples, min_tokens=NEW, max_tokens=NEW)
    ranked = decode(model, contexts, config, range(len(contexts)))
    assert all(sum(turn.drawn for turn in part) == samples for part in ranked)
    assert all(turn.count == NEW for part in ranked for turn in part)


def products(contexts: int) -> Callable[[], None]:
    """The matrix products of encoder, memory, decoding steps and logits, with as many rows as needed."""

    def layer(*shapes: tuple[int, int]) -> list[torch.Tensor]:
        return [torch.randn(shape) for shape in shapes]

    own, beside = ((WIDTH, 3 * WIDTH), (WIDTH, WIDTH)), ((WIDTH, WIDTH), (WIDTH, WIDTH))
    wide = ((WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH))
    reading = [layer(*own, *wide) for _ in range(LAYERS)] + [layer((WIDTH, 2 * WIDTH)) for _ in range(LAYERS)]
    writing = [layer(*own, *beside, *wide) for _ in range(LAYERS)]
    logits = layer((WIDTH, VOCABULARY))
    inputs = {
        (rows, width): torch.randn(rows, width)
        for rows in (CONTEXT * contexts, SAMPLES * contexts)
        for width in (WIDTH, 4 * WIDTH)
    }

    @torch.inference_mode()
    def multiply() -> None:
        for rows, layers, times in (
            (CONTEXT * contexts, reading, 1),
            (SAMPLES * contexts, [*writing, logits], NEW - 1),
        ):
            for _ in range(times):
                for matrices in layers:
                    for matrix in matrices:
                        inputs[rows, len(matrix)] @ matrix

    return multiply


def alternate(calls: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Median CPU seconds of each call, after one round of warm-up."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            start = time.process_time()
            call()
            if number:
                times[name].append(time.process_time() - start)
    return {name: median(own) for name, own in times.items()}


def millions_of_parameters(model: torch.nn.Module) -> float:
    """Millions of parameters."""
    return sum(weight.numel() for weight in model.parameters()) / 1e6


def main() -> None:
    """Alternate, print a table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="rounds with one context; a third as many with 16")
    parser.add_argument("--quick", action="store_true", help="three rounds with one context, one with 16")
    args = parser.parse_args()
    rounds, of_many = (3, 1) if args.quick else (args.rounds, max(3, args.rounds // 3))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    words = tokenizer()
    sizes = TransformerConfig(d_model=WIDTH, heads=HEADS, encoder_layers=LAYERS, decoder_layers=LAYERS)
    pair = loaded(sizes, words)
    stream = loaded(sizes.model_copy(update={"encoder_layers": 0}), words)
    other = bart()
    contexts = views(words, MANY)
    ids = torch.randint(6, VOCABULARY, (MANY, CONTEXT))
    assert pair.start(contexts[:1]).caches[0].memory[0].keys.shape[2] == CONTEXT
    spent = alternate(
        {
            "pair": lambda: run_tertulia(pair, contexts[:1], SAMPLES),
            "hf": lambda: run_bart(other, ids[:1]),
            "pair_single": lambda: run_tertulia(pair, contexts[:1], 1),
            "stream": lambda: run_tertulia(stream, contexts[:1], SAMPLES),
            "products": products(1),
        },
        rounds,
    )
    batch = alternate(
        {
            "pair": lambda: run_tertulia(pair, contexts, SAMPLES),
            "hf": lambda: run_bart(other, ids),
            "pair_single": lambda: run_tertulia(pair, contexts, 1),
            "stream": lambda: run_tertulia(stream, contexts, SAMPLES),
            "products": products(MANY),
        },
        of_many,
    )
    sizes_in_millions = {
        name: f"{millions_of_parameters(model):.2f}M"
        for name, model in (("Tertulia", pair), ("BART", other), ("stream model", stream))
    }
    print("parameters:", ", ".join(f"{name} {millions}" for name, millions in sizes_in_millions.items()))
    report(spent, {name: seconds / MANY for name, seconds in batch.items()}, rounds, of_many)


def report(one: dict[str, float], many: dict[str, float], rounds: int, of_many: int) -> None:
    """Print the CPU time per context."""
    print(f"{'CPU ms per context, medians':<38}{'one context':>12}{f'batch of {MANY}':>13}")
    for name, label in (
        ("pair", f"encoder-decoder, {SAMPLES} samples"),
        ("pair_single", "encoder-decoder, 1 sample"),
        ("hf", f"Hugging Face BART, {SAMPLES} samples"),
        ("stream", f"stream model, {SAMPLES} samples"),
        ("products", "matrix products only"),
    ):
        print(f"{label:<38}{one[name] * 1e3:>12.1f}{many[name] * 1e3:>13.1f}")
    figures = {f"{name}_ms": seconds * 1e3 for name, seconds in one.items()}
    figures |= {f"{name}_batch_ms": seconds * 1e3 for name, seconds in many.items()}
    figures |= {"share_one": one["pair"] / one["hf"], "share_batch": many["pair"] / many["hf"]}
    figures |= {"floor_one": one["products"] / one["hf"], "floor_batch": many["products"] / many["hf"]}
    figures |= {"samples_cost": one["pair"] / one["pair_single"]}
    for name, label, aim in (
        ("share_one", "share of Hugging Face's time, one", ONE),
        ("share_batch", f"share of Hugging Face's time, {MANY}", BATCH),
        ("samples_cost", f"cost of {SAMPLES} samples / of one", TIMES),
    ):
        verdict = "met" if figures[name] <= aim else "missed"
        print(f"{label:<38}{figures[name]:>12.3f}   target {aim:.3f}: {verdict}")
    settings = {"rounds": rounds, "rounds_batch": of_many, "context": CONTEXT, "new": NEW, "samples": SAMPLES}
    settings |= {"contexts": MANY, "torch": torch.__version__, "threads": torch.get_num_threads()}
    finish("decode_speed", figures, settings)


if __name__ == "__main__":
    main()
