"""Target tokens a CPU second in training: our Transformer beside a Hugging Face BART of the same size.

The same talks, the same target tokens and the same batches for all; a step is tensors from token numbers, loss,
gradients, clipping and AdamW (fused, as Hugging Face's trainer has it). BART is fed as one would: a (context, turn)
pair for each turn, pairs of like length together, its own loss. Ours runs in both of its shapes: with an encoder on the
same pairs as BART (like for like), and as one stream, in which a single pass over a talk predicts all of its turns
(what we recommend). They take turns, batch by batch, in all orders; CPU time says the same on a busy machine.
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
from tertulia.models.generator import Talk, stream
from tertulia.models.likelihood import batches_of, talk_size, talks_of
from tertulia.models.threads import use_threads
from tertulia.models.tokenizer import END, OTHER, OWN, PAD, Tokenizer, learn_tokenizer
from tertulia.models.transformer import Transformer, TransformerConfig

AT_ONCE = 4096
"""Tokens of pairs that go through BART together, padding included: as many as go through ours."""
IGNORED = -100
"""What Hugging Face's loss leaves out."""
Loss = Callable[[Sequence[Talk]], int]
"""Adds the gradients of a batch; how many target tokens it has."""


def our_loss(model: Transformer) -> Loss:
    """As the training of writers has it."""

    def loss(talks: Sequence[Talk]) -> int:
        found = model.nll(talks)
        count = int(found.tokens.sum())
        (found.total.sum() / count).backward()  # type: ignore[no-untyped-call]
        return count

    return loss


def bart(tokens: int, args: argparse.Namespace) -> nn.Module:
    """A BART of the same width, heads, layers and vocabulary."""
    sizes = {"encoder_layers": args.layers // 2, "decoder_layers": args.layers // 2, "d_model": args.width}
    sizes |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 512 + 64}
    sizes |= {"encoder_ffn_dim": 4 * args.width, "decoder_ffn_dim": 4 * args.width, "vocab_size": tokens}
    marks = {"pad_token_id": PAD, "bos_token_id": OWN, "eos_token_id": END, "forced_eos_token_id": None}
    config = BartConfig(**sizes, **marks, decoder_start_token_id=OWN, dropout=0.1, use_cache=False)
    return BartForConditionalGeneration(config)


def bart_loss(model: nn.Module, tokenizer: Tokenizer) -> Loss:
    """Pairs of like length together, so many at once as ours takes."""

    def loss(talks: Sequence[Talk]) -> int:
        pairs = sorted(
            (pair for talk in talks for pair in pairs_of(talk, tokenizer)), key=lambda p: (len(p[0]), len(p[1]))
        )
        count = sum(len(target) for _, target in pairs)
        for batch in parts_of(pairs):
            sources, targets = padded([s for s, _ in batch], PAD), padded([t for _, t in batch], IGNORED)
            found = model(input_ids=sources, attention_mask=(sources != PAD).long(), labels=targets).loss
            (found * (sum(len(target) for _, target in batch) / count)).backward()
        return count

    return loss


Pair = tuple[tuple[int, ...], tuple[int, ...]]


def pairs_of(talk: Talk, tokenizer: Tokenizer) -> list[Pair]:
    """What is before each turn, and the turn: the tokens that ours reads with an encoder."""
    found = []
    for turn, text in enumerate(talk.turns):
        before = Talk(talk.turns[:turn], talk.own[:turn], talk.persona)
        mark = OWN if talk.own[turn] else OTHER
        source = (*stream(before, tokenizer, longest=512).ids[-512:], mark)
        found.append((source, (*tokenizer.encode(text), END)))
    return found


def parts_of(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Neighbours, few enough to go through at once."""
    found: list[list[Pair]] = []
    longest = 0
    for pair in pairs:
        longest = max(longest, len(pair[1]))
        if not found or (len(found[-1]) + 1) * (len(pair[0]) + longest) > AT_ONCE:
            found.append([])
            longest = len(pair[1])
        found[-1].append(pair)
    return found


def padded(rows: Sequence[Sequence[int]], fill: int) -> torch.Tensor:
    """(n, longest)."""
    found = [torch.tensor(row) for row in rows]
    return nn.utils.rnn.pad_sequence(found, batch_first=True, padding_value=fill)


class Contestant:
    """A model, its loss and its optimizer."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self.model, self.loss = model.train(), loss
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        self.speeds: list[float] = []
        """Target tokens a CPU second, batch by batch."""

    def step(self, talks: Sequence[Talk]) -> int:
        """One update."""
        self.optimizer.zero_grad(set_to_none=True)
        count = self.loss(talks)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return count

    def timed(self, talks: Sequence[Talk]) -> int:
        """One update, measured."""
        began = time.process_time()
        count = self.step(talks)
        self.speeds.append(count / (time.process_time() - began))
        return count


def contestants(tokenizer: Tokenizer, args: argparse.Namespace) -> dict[str, Contestant]:
    """Ours in both shapes, and BART."""
    half, sizes = args.layers // 2, {"d_model": args.width, "heads": 4}
    torch.manual_seed(0)
    encoded = Transformer(TransformerConfig(encoder_layers=half, decoder_layers=half, **sizes), tokenizer)
    streamed = Transformer(TransformerConfig(decoder_layers=args.layers, **sizes), tokenizer)
    other = bart(len(tokenizer), args)
    return {
        "stream": Contestant(streamed, our_loss(streamed)),
        "encoder": Contestant(encoded, our_loss(encoded)),
        "bart": Contestant(other, bart_loss(other, tokenizer)),
    }


def batches(tokenizer: Tokenizer, talks: Sequence[Talk], args: argparse.Namespace) -> list[list[Talk]]:
    """As training draws them; the first one is for warming up."""
    sizes = [talk_size(talk, tokenizer) for talk in talks]
    places = batches_of(sizes, args.tokens, random.Random(args.seed))
    return [[talks[place] for place in batch] for batch in places[: args.batches + 1]]


def measure(found: Mapping[str, Contestant], drawn: Sequence[Sequence[Talk]]) -> None:
    """Each takes each batch, the order goes round."""
    for one in found.values():
        one.step(drawn[0])
    for batch, order in zip(drawn[1:], cycle(permutations(found))):
        counts = {found[name].timed(batch) for name in order}
        assert len(counts) == 1, f"not the same targets: {counts}"


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="sample")
    parser.add_argument("--split", default="train")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4, help="in all: half of them read, where there is an encoder")
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--tokens", type=int, default=3000, help="tokens to a batch of talks")
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a narrow model, three batches of few talks")
    args = parser.parse_args()
    if args.quick:
        args.width, args.vocabulary, args.batches, args.tokens = 64, 2000, 3, 1000
    use_threads(1)
    dialogues = list(load_dialogues(args.data, split=args.split))
    talks = [talk for dialogue in dialogues for talk in talks_of(dialogue, "own")]
    said = (text for talk in talks for text in (*talk.persona, *talk.turns))
    tokenizer = learn_tokenizer("subwords", said, size=args.vocabulary)
    found = contestants(tokenizer, args)
    measure(found, batches(tokenizer, talks, args))
    report(found, tokenizer, args)


def report(found: Mapping[str, Contestant], tokenizer: Tokenizer, args: argparse.Namespace) -> None:
    """A table, and the figures."""
    figures = {}
    for name, one in found.items():
        ratios = [a / b for a, b in zip(one.speeds, found["bart"].speeds, strict=True)]
        figures |= {f"{name}_tokens_per_cpu_second": median(one.speeds), f"{name}_to_bart": median(ratios)}
        spread = f"{percentile(ratios, 0.1):.2f} to {percentile(ratios, 0.9):.2f}"
        size = f"{count_parameters(one.model) / 1e6:5.1f} M parameters"
        print(f"{name:8} {median(one.speeds):8.0f} target tokens/s  {median(ratios):5.2f} x BART ({spread})  {size}")
    settings = {key: getattr(args, key) for key in ("data", "width", "layers", "tokens", "batches", "quick")}
    finish("train_speed", figures, settings | {"vocabulary": len(tokenizer), "torch": torch.__version__})


if __name__ == "__main__":
    main()
