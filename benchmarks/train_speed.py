"""Target tokens per CPU second in training: Tertulia's Transformer and a Hugging Face BART of the same size.

All use the same dialogues, target tokens and batches; a step is tensors from token ids, loss, gradients, clipping and
AdamW (fused, as in Hugging Face's trainer). BART is trained in the usual way: one (context, turn) pair for each turn,
batched by length, with its own loss. Tertulia runs in both layouts: with an encoder on the same pairs as BART (like for
like), and as one stream, in which a single pass over a dialogue predicts all of its turns (the recommended way). They
alternate, batch by batch, in all orders; CPU time is robust on a busy machine.
"""

import argparse
import random
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, permutations
from statistics import median

import torch
from torch import nn
from transformers import BartConfig, BartForConditionalGeneration

from common import finish, percentile
from tertulia.corpus.load import load_dialogues
from tertulia.models.checkpoint import count_parameters
from tertulia.models.generator import DialogueView, stream
from tertulia.models.generators.transformer import Transformer, TransformerConfig
from tertulia.models.likelihood import batches_of, view_size, views_of
from tertulia.models.threads import use_threads
from tertulia.models.tokenizer import END, OTHER, OWN, PAD, Tokenizer, learn_tokenizer

TOKENS_PER_PASS = 4096
"""Tokens per forward pass of BART, padding included: as many as for Tertulia."""
IGNORED = -100
"""The label that Hugging Face's loss ignores."""
Loss = Callable[[Sequence[DialogueView]], int]
"""Computes the gradients of a batch; returns its number of target tokens."""


def our_loss(model: Transformer) -> Loss:
    """The loss of the generators' training task."""

    def loss(views: Sequence[DialogueView]) -> int:
        nll = model.nll(views)
        count = int(nll.tokens.sum())
        (nll.total.sum() / count).backward()  # type: ignore[no-untyped-call]
        return count

    return loss


def bart(tokens: int, args: argparse.Namespace) -> nn.Module:
    """A BART of the same width, heads, layers and vocabulary."""
    sizes = {"encoder_layers": args.layers // 2, "decoder_layers": args.layers // 2, "d_model": args.width}
    sizes |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 512 + 64}
    sizes |= {"encoder_ffn_dim": 4 * args.width, "decoder_ffn_dim": 4 * args.width, "vocab_size": tokens}
    special_tokens = {"pad_token_id": PAD, "bos_token_id": OWN, "eos_token_id": END, "forced_eos_token_id": None}
    config = BartConfig(**sizes, **special_tokens, decoder_start_token_id=OWN, dropout=0.1, use_cache=False)
    return BartForConditionalGeneration(config)


def bart_loss(model: nn.Module, tokenizer: Tokenizer) -> Loss:
    """BART's loss on pairs batched by length, with as many tokens per pass as Tertulia."""

    def loss(views: Sequence[DialogueView]) -> int:
        pairs = sorted(
            (pair for view in views for pair in pairs_of(view, tokenizer)), key=lambda p: (len(p[0]), len(p[1]))
        )
        count = sum(len(target) for _, target in pairs)
        for batch in parts_of(pairs):
            sources, targets = padded([s for s, _ in batch], PAD), padded([t for _, t in batch], IGNORED)
            mean_loss = model(input_ids=sources, attention_mask=(sources != PAD).long(), labels=targets).loss
            (mean_loss * (sum(len(target) for _, target in batch) / count)).backward()
        return count

    return loss


Pair = tuple[tuple[int, ...], tuple[int, ...]]


def pairs_of(view: DialogueView, tokenizer: Tokenizer) -> list[Pair]:
    """The context of each turn, and the turn: the tokens that Tertulia reads with an encoder."""
    pairs = []
    for turn, text in enumerate(view.turns):
        before = DialogueView(view.turns[:turn], view.own[:turn], view.persona)
        mark = OWN if view.own[turn] else OTHER
        source = (*stream(before, tokenizer, max_length=512).ids[-512:], mark)
        pairs.append((source, (*tokenizer.encode(text), END)))
    return pairs


def parts_of(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Consecutive pairs, few enough for one pass."""
    batches: list[list[Pair]] = []
    max_length = 0
    for pair in pairs:
        max_length = max(max_length, len(pair[1]))
        if not batches or (len(batches[-1]) + 1) * (len(pair[0]) + max_length) > TOKENS_PER_PASS:
            batches.append([])
            max_length = len(pair[1])
        batches[-1].append(pair)
    return batches


def padded(rows: Sequence[Sequence[int]], fill: int) -> torch.Tensor:
    """(rows, longest row)"""
    tensors = [torch.tensor(row) for row in rows]
    return nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=fill)


class Contestant:
    """A model, its loss and its optimizer."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self.model, self.loss = model.train(), loss
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        self.speeds: list[float] = []
        """Target tokens per CPU second, one entry per batch."""

    def step(self, views: Sequence[DialogueView]) -> int:
        """One update."""
        self.optimizer.zero_grad(set_to_none=True)
        count = self.loss(views)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return count

    def timed(self, views: Sequence[DialogueView]) -> int:
        """One update, measured."""
        began = time.process_time()
        count = self.step(views)
        self.speeds.append(count / (time.process_time() - began))
        return count


def contestants(tokenizer: Tokenizer, args: argparse.Namespace) -> dict[str, Contestant]:
    """Tertulia in both layouts, and BART."""
    half, sizes = args.layers // 2, {"d_model": args.width, "heads": 4}
    torch.manual_seed(0)
    encoded = Transformer.untrained(TransformerConfig(encoder_layers=half, decoder_layers=half, **sizes), tokenizer)
    streamed = Transformer.untrained(TransformerConfig(decoder_layers=args.layers, **sizes), tokenizer)
    other = bart(len(tokenizer), args)
    return {
        "stream": Contestant(streamed, our_loss(streamed)),
        "encoder": Contestant(encoded, our_loss(encoded)),
        "bart": Contestant(other, bart_loss(other, tokenizer)),
    }


def batches(tokenizer: Tokenizer, views: Sequence[DialogueView], args: argparse.Namespace) -> list[list[DialogueView]]:
    """Batches as in training; the first is for warm-up."""
    sizes = [view_size(view, tokenizer) for view in views]
    indices = batches_of(sizes, args.tokens, random.Random(args.seed))
    return [[views[index] for index in batch] for batch in indices[: args.batches + 1]]


def measure(models: Mapping[str, Contestant], drawn: Sequence[Sequence[DialogueView]]) -> None:
    """Train each on each batch, in rotating order."""
    for one in models.values():
        one.step(drawn[0])
    for batch, order in zip(drawn[1:], cycle(permutations(models))):
        counts = {models[name].timed(batch) for name in order}
        assert len(counts) == 1, f"not the same targets: {counts}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="sample")
    parser.add_argument("--split", default="train")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument(
        "--layers", type=int, default=4, help="total number; with an encoder, half of them belong to it"
    )
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--tokens", type=int, default=3000, help="tokens per batch of dialogues")
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a narrow model, three small batches")
    args = parser.parse_args()
    if args.quick:
        args.width, args.vocabulary, args.batches, args.tokens = 64, 2000, 3, 1000
    use_threads(1)
    dialogues = list(load_dialogues(args.data, split=args.split))
    views = [view for dialogue in dialogues for view in views_of(dialogue, "own")]
    texts = (text for view in views for text in (*view.persona, *view.turns))
    tokenizer = learn_tokenizer("subwords", texts, size=args.vocabulary)
    models = contestants(tokenizer, args)
    measure(models, batches(tokenizer, views, args))
    report(models, tokenizer, args)


def report(models: Mapping[str, Contestant], tokenizer: Tokenizer, args: argparse.Namespace) -> None:
    """Print the table and the figures."""
    figures = {}
    for name, one in models.items():
        ratios = [a / b for a, b in zip(one.speeds, models["bart"].speeds, strict=True)]
        figures |= {f"{name}_tokens_per_cpu_second": median(one.speeds), f"{name}_to_bart": median(ratios)}
        spread = f"{percentile(ratios, 0.1):.2f} to {percentile(ratios, 0.9):.2f}"
        size = f"{count_parameters(one.model) / 1e6:5.1f} M parameters"
        print(f"{name:8} {median(one.speeds):8.0f} target tokens/s  {median(ratios):5.2f} x BART ({spread})  {size}")
    settings = {key: getattr(args, key) for key in ("data", "width", "layers", "tokens", "batches", "quick")}
    finish("train_speed", figures, settings | {"vocabulary": len(tokenizer), "torch": torch.__version__})


if __name__ == "__main__":
    main()
