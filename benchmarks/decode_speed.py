"""CPU time of sample-and-rank, beside Hugging Face's `generate` on a BART of the same size, in the same run.

Both models are random, which costs what trained ones cost: width 256, 4 heads, 4 + 4 layers, 8,000 tokens. Both write
20 samples of exactly 20 tokens after contexts of exactly 128 tokens, drawn from the whole distribution at temperature
1. Ours is timed from text to ranked turns (`decode`: tokens, encoder, samples, own log-probabilities, texts, ranking);
Hugging Face's from token numbers to token numbers and scores, with which nobody has ranked anything yet. They
alternate; figures are medians. The stream model, whose decoder reads the context itself, is there for information, and
so are the products of matrices alone that ours cannot do without: what would be left if all else took no time.
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
from tertulia.models.blocks import BlockGenerator
from tertulia.models.decoding import DecodingConfig, decode
from tertulia.models.generator import Talk
from tertulia.models.tokenizer import END, OWN, PAD, WordTokenizer
from tertulia.models.transformer import Transformer, TransformerConfig

VOCABULARY, WIDTH, HEADS, LAYERS = 8000, 256, 4, 4
CONTEXT, NEW, SAMPLES, MANY = 128, 20, 20, 16
TURNS = (30, 30, 30, 29)
"""Words of a context's turns: with two marks each, and the mark of the reply, 128 tokens."""
ONE, BATCH = 1 / 2.5, 1 / 4
"""What is aimed at: our share of their time, for one context and for many."""
TIMES = 4
"""What is aimed at: how many times as much 20 samples cost as one."""


def tokenizer() -> WordTokenizer:
    """Made-up words of letters."""
    letters = "abcdefghijklmnopqrst"
    words = ["".join(letters[i // 20**k % 20] for k in range(3)) for i in range(VOCABULARY - 6)]
    return WordTokenizer(words)


def talks(words: WordTokenizer, count: int) -> list[Talk]:
    """Contexts of one length, all different."""
    dice = torch.Generator().manual_seed(0)
    found = []
    for _ in range(count):
        places = [torch.randint(len(words.words), (length,), generator=dice).tolist() for length in TURNS]
        texts = tuple(" ".join(words.words[place] for place in some) for some in places)
        found.append(Talk(texts, tuple(i % 2 == 1 for i in range(len(TURNS)))))
    return found


def loaded(sizes: TransformerConfig, words: WordTokenizer) -> Transformer:
    """Ours, from a folder, as a bot has it."""
    with TemporaryDirectory() as folder:
        Transformer.untrained(sizes, words).save(Path(folder))
        return Transformer.load(Path(folder))


def bart() -> BartForConditionalGeneration:
    """Theirs."""
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


def theirs(model: BartForConditionalGeneration, ids: torch.Tensor) -> None:
    """Samples and scores of some contexts."""
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
        found = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
    assert found.sequences.shape == (SAMPLES * len(ids), NEW + 1)
    assert len(found.scores) == NEW


def ours(model: BlockGenerator[TransformerConfig], contexts: Sequence[Talk], samples: int) -> None:
    """Turns of some contexts, best first."""
    config = DecodingConfig(samples=samples, min_tokens=NEW, max_tokens=NEW)
    found = decode(model, contexts, config, range(len(contexts)))
    assert all(sum(turn.drawn for turn in part) == samples for part in found)
    assert all(turn.count == NEW for part in found for turn in part)


def products(contexts: int) -> Callable[[], None]:
    """The matrices of encoder, memory, steps and logits, multiplied with as many rows as they have to be."""

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


def alternated(calls: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Median CPU seconds of each call; one more round comes first, and is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            start = time.process_time()
            call()
            if number:
                taken[name].append(time.process_time() - start)
    return {name: median(times) for name, times in taken.items()}


def size(model: torch.nn.Module) -> float:
    """Millions of parameters."""
    return sum(weight.numel() for weight in model.parameters()) / 1e6


def main() -> None:
    """Alternate, print a table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="rounds of one context; a third as many of 16")
    parser.add_argument("--quick", action="store_true", help="three rounds, and one")
    args = parser.parse_args()
    rounds, of_many = (3, 1) if args.quick else (args.rounds, max(3, args.rounds // 3))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    words = tokenizer()
    sizes = TransformerConfig(d_model=WIDTH, heads=HEADS, encoder_layers=LAYERS, decoder_layers=LAYERS)
    pair = loaded(sizes, words)
    stream = loaded(sizes.model_copy(update={"encoder_layers": 0}), words)
    other = bart()
    contexts = talks(words, MANY)
    ids = torch.randint(6, VOCABULARY, (MANY, CONTEXT))
    assert pair._memory([(*pair._context(contexts[0]), OWN)])[0].shape[1] == CONTEXT  # type: ignore[union-attr]
    spent = alternated(
        {
            "pair": lambda: ours(pair, contexts[:1], SAMPLES),
            "hf": lambda: theirs(other, ids[:1]),
            "pair_single": lambda: ours(pair, contexts[:1], 1),
            "stream": lambda: ours(stream, contexts[:1], SAMPLES),
            "products": products(1),
        },
        rounds,
    )
    batch = alternated(
        {
            "pair": lambda: ours(pair, contexts, SAMPLES),
            "hf": lambda: theirs(other, ids),
            "pair_single": lambda: ours(pair, contexts, 1),
            "stream": lambda: ours(stream, contexts, SAMPLES),
            "products": products(MANY),
        },
        of_many,
    )
    print(f"parameters: ours {size(pair):.2f}M, BART {size(other):.2f}M, stream model {size(stream):.2f}M")
    report(spent, {name: seconds / MANY for name, seconds in batch.items()}, rounds, of_many)


def report(one: dict[str, float], many: dict[str, float], rounds: int, of_many: int) -> None:
    """Tell what a context costs."""
    print(f"{'CPU ms a context, medians':<38}{'one context':>12}{f'{MANY} together':>13}")
    for name, label in (
        ("pair", f"encoder-decoder, {SAMPLES} samples"),
        ("pair_single", "encoder-decoder, 1 sample"),
        ("hf", f"Hugging Face BART, {SAMPLES} samples"),
        ("stream", f"stream model, {SAMPLES} samples"),
        ("products", "the first one's matrices alone"),
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
        ("samples_cost", f"{SAMPLES} samples cost, of one", TIMES),
    ):
        verdict = "met" if figures[name] <= aim else "missed"
        print(f"{label:<38}{figures[name]:>12.3f}   aim {aim:.3f}: {verdict}")
    settings = {"rounds": rounds, "rounds_batch": of_many, "context": CONTEXT, "new": NEW, "samples": SAMPLES}
    settings |= {"contexts": MANY, "torch": torch.__version__, "threads": torch.get_num_threads()}
    finish("decode_speed", figures, settings)


if __name__ == "__main__":
    main()
