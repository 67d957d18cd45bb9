"""What has to be said beside perplexities, so that nobody compares what does not compare."""

from collections.abc import Iterator, Sequence

from tertulia.judge.perplexity import PerplexityConfig, Verdict
from tertulia.judge.perplexity_count import KL
from tertulia.judge.perplexity_replies import F1


def notes_of(
    config: PerplexityConfig, verdicts: Sequence[Sequence[Verdict]], *, speaker: str | None
) -> tuple[str, ...]:
    """All that applies; verdicts are a row for each run."""
    rows = [verdict for row in verdicts for verdict in row]
    notes = [
        _told(config, verdicts[0], speaker),
        "Perplexity is per word: words and punctuation marks as Tertulia parts them, and the end of each turn, whatever"
        " the model's own tokens. Turns that open a dialogue count too. n is the number of turns.",
        *_likelihoods(config, verdicts),
        *_unknown(verdicts),
    ]
    if config.ranked:
        notes.append(
            f"hits@1: the true reply among {config.candidates} by log-likelihood, as the option score of a run has it"
            " (a token by default); latent variables at their means."
        )
    if config.replies:
        notes += _replies(config, verdicts)
    if config.vectors and any(verdict.said for verdict in rows):
        missing = max(verdict.missing_vectors or 0.0 for verdict in rows)
        notes.append(
            f"Vectors of words from {config.vectors.name}; at most {100 * missing:.1f} % of a run's words have none and"
            " are left out."
        )
    return (*notes, *_missing(verdicts[0]))


def _told(config: PerplexityConfig, row: Sequence[Verdict], speaker: str | None) -> str:
    counts = max((verdict.counts for verdict in row), key=lambda c: c.turns)
    of = f" of {speaker}" if speaker else ""
    where = f"{config.data}, split {config.split}" if config.split else config.data
    drawn = "drawn by the seed" if config.limit else "all there are"
    return (
        f"Ours: {counts.turns} turns{of} with {counts.words} words in {counts.dialogues} dialogues of {where}"
        f" ({drawn}); 95 % intervals by bootstrap over dialogues; seed {config.seed}."
    )


def _likelihoods(config: PerplexityConfig, verdicts: Sequence[Sequence[Verdict]]) -> Iterator[str]:
    for row in verdicts:
        first = row[0]
        if first.kind == "importance":
            draws = f"{config.importance_samples} samples"
            yield f"{first.run}: perplexity by importance sampling, {draws}; on average no lower than the true one."
        elif first.kind == "bound":
            yield f"{first.run}: perplexity from a bound on the likelihood, by one draw; the true one is lower."
        if KL in first.figures:
            yield f"{first.run}: KL in nats a turn; it is part of the bound, which is what was learned."
        elif first.kind != "exact":
            yield f"{first.run}: the model does not tell its KL divergence."


def _unknown(verdicts: Sequence[Sequence[Verdict]]) -> Iterator[str]:
    for row in verdicts:
        counts = row[0].counts
        if counts.unknown:
            yield (
                f"{row[0].run}: {100 * counts.unknown / counts.tokens:.1f} % of the tokens stand for words it does not"
                " know, and any of these counts as foreseen: a model that can spell them is worse off."
            )


def _replies(config: PerplexityConfig, verdicts: Sequence[Sequence[Verdict]]) -> Iterator[str]:
    written = max(verdict.figures[F1].n for row in verdicts for verdict in row)
    yield (
        f"{F1}: {written} replies, contexts drawn by the seed; lower case, without punctuation and articles (a, an,"
        " the), each word as often as both texts have it."
    )
    for row in verdicts:
        decoding = next((verdict.decoding for verdict in row if verdict.decoding), None)
        if decoding:
            yield f"{row[0].run}: {_way(decoding)}."


def _way(decoding: dict[str, object]) -> str:
    """How replies were written, in a few words.

    >>> _way({"method": "sample-and-rank", "samples": 20, "temperature": 0.88, "top_k": 0, "filters": "none"})
    'written by sample-and-rank (samples 20, temperature 0.88, top_k 0), filters none'
    """
    telling = {
        "sample": ("temperature", "top_k"),
        "sample-and-rank": ("samples", "temperature", "top_k"),
        "beam": ("beams", "length_penalty"),
    }.get(str(decoding["method"]), ())
    more = ", ".join(f"{name} {decoding[name]}" for name in telling)
    return f"written by {decoding['method']}{f' ({more})' if more else ''}, filters {decoding['filters'] or 'none'}"


def _missing(row: Sequence[Verdict]) -> list[str]:
    """Which settings the data does not have, or not for all."""
    most = max(verdict.counts.turns for verdict in row)
    none = [f"persona {v.setting}: the data has no such personas, n = 0." for v in row if not v.counts.turns]
    return none + [
        f"persona {v.setting}: only the {v.counts.turns} turns of those who have such personas."
        for v in row
        if 0 < v.counts.turns < most
    ]
