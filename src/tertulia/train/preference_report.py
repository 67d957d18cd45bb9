"""What a model that learned preferences is measured by: held-out preferences, distance to the reference, perplexity.

A model can win preferences by breaking: it drifts away from everything it knew, and its replies only look better to the
loss. So beside accuracy and margin there is the KL divergence to the reference on replies of its own, and the
perplexity of dialogues by people before and after; a warning names what looks wrong.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch

from tertulia.core.dialogue import Json
from tertulia.metrics.intervals import Floats, cluster_codes, crossed_variance, share_interval, t_interval
from tertulia.models.decoding import DecodingConfig, decode
from tertulia.models.generator import DialogueView
from tertulia.models.hf.generator import SHIFT
from tertulia.train.tasks.preference import PreferenceTask, Rewards

ROWS_AT_ONCE = 8
"""Sampled replies whose distributions are compared at once: each position has a number for every token."""


def report(task: PreferenceTask) -> dict[str, Json]:
    """Everything that is measured once, at the end, with the best weights."""
    rewards = task.held_out()
    pairs = task.held_out_pairs()
    clusters = [task.data.valid[i].group for i, _ in pairs] if pairs else [one.group for one in task.data.valid]
    correct, margins = (values.cpu().double().numpy() for values in task.outcomes(rewards))
    held_out: dict[str, Json] = {
        "measured on": "pairs" if pairs else "labels",
        "accuracy": share(correct, clusters),
        "margin": mean(margins, clusters),
    }
    before, after = (task.likelier(values) for values in (rewards.reference, rewards.policy))
    if before is not None and after is not None:
        held_out["better reply likelier before"] = share(before.cpu().double().numpy(), clusters)
        held_out["better reply likelier after"] = share(after.cpu().double().numpy(), clusters)
    figures: dict[str, Json] = {"held_out": held_out}
    if task.config.kl_samples:
        figures["kl_of_sampled_replies"] = sampled_kl(task)
    if task.data.dialogues:
        now, first = task.perplexity()["perplexity"], task.first_perplexity["perplexity"]
        figures["perplexity"] = {"before": first, "after": now, "ratio": now / first}
    if problems := warnings(task, rewards, figures):
        figures["warning"] = " ".join(problems)
    return figures


def warnings(task: PreferenceTask, rewards: Rewards, figures: dict[str, Json]) -> list[str]:
    """What a user should know before they use the model."""
    problems = []
    ratio = figures.get("perplexity", {}).get("ratio", 1.0)
    if ratio > task.config.max_perplexity_ratio:
        problems.append(
            f"The perplexity of dialogues by people rose by the factor {ratio:.2f}: the model forgets how people talk."
            " Raise beta, lower learning_rate, or train for fewer epochs."
        )
    loss = float(task.losses(rewards, task.data.valid).mean())
    at_first = float(task.losses(Rewards(rewards.reference, rewards.reference), task.data.valid).mean())
    if loss >= at_first:
        problems.append(
            f"The loss on held-out preferences is {loss:.3f}, and was {at_first:.3f} before training: nothing was"
            " learned that holds for new contexts. Give more preferences, or check them."
        )
    return problems


def sampled_kl(task: PreferenceTask) -> dict[str, Json]:
    """KL(model || reference) in nats per reply, on replies that the model itself samples for held-out contexts.

    At every position of a sampled reply the divergence of the two distributions over the next token is computed
    exactly; their sum over the reply has the KL divergence of replies (of at most `kl_tokens` tokens) as its mean, and
    varies less than the log-ratio of the sampled tokens.
    """
    views, clusters = _contexts(task)
    config = DecodingConfig(method="sample", temperature=1.0, min_tokens=0, max_tokens=task.config.kl_tokens)
    seeds = [task.config.seed + i for i in range(len(views))]
    drawn = [candidates[0] for candidates in decode(task.model, views, config, seeds)]
    streams = []
    for view, reply in zip(views, drawn, strict=True):
        prompt = task.model.prompt(view)
        ids = [token - SHIFT for token in reply.tokens]
        streams.append(([*prompt, *ids], range(len(prompt), len(prompt) + reply.count)))
    sums = [
        value
        for i in range(0, len(streams), ROWS_AT_ONCE)
        for value in _divergences(task, streams[i : i + ROWS_AT_ONCE])
    ]
    return mean(np.array(sums), clusters)


def _contexts(task: PreferenceTask) -> tuple[list[DialogueView], list[int]]:
    """Held-out contexts with their groups, as many as replies are wanted; a context may serve several times."""
    unique = {example.context: example for example in task.data.valid}.values()
    examples = [list(unique)[i % len(unique)] for i in range(task.config.kl_samples)]
    return [example.view for example in examples], [example.group for example in examples]


@torch.no_grad()
def _divergences(task: PreferenceTask, streams: Sequence[tuple[list[int], range]]) -> list[float]:
    """The summed divergence of each reply."""
    # A position is predicted from everything before it; the one behind the last token is that of the end.
    sequences = [[*ids, 0] for ids, _ in streams]
    positions = [list(where) for _, where in streams]
    policy = [logits.float().log_softmax(-1) for logits in task.model.chat.lm.logits_before(sequences, positions)]
    with task.as_reference():
        reference = [
            logits.float().log_softmax(-1) for logits in task.model.chat.lm.logits_before(sequences, positions)
        ]
    return [float((p.exp() * (p - q)).sum()) for p, q in zip(policy, reference, strict=True)]


def share(values: Floats, clusters: Sequence[int]) -> dict[str, Json]:
    """A share with its 95 % interval over groups of contexts."""
    codes, _ = cluster_codes(clusters)
    low, high = share_interval(np.stack([values, np.ones_like(values)], 1), codes)
    return {"value": float(values.mean()), "low": low, "high": high, "n": len(values)}


def mean(values: Floats, clusters: Sequence[int]) -> dict[str, Json]:
    """A mean with its 95 % interval over groups of contexts; without an interval if there is a single group."""
    codes, _ = cluster_codes(clusters)
    value = float(values.mean())
    variance, degrees = crossed_variance((values - value)[:, None] / len(values), codes)
    figures: dict[str, Json] = {"value": value}
    if math.isfinite(float(variance[0])):
        low, high = t_interval(value, float(variance[0]), float(degrees[0]))
        figures |= {"low": low, "high": high}
    return figures | {"n": len(values)}
