"""What the filter `grounded` does to the replies of a small language model, and what it costs.

    python benchmarks/grounded_filter.py --data ../shared/data/cmu_dog [--cache candidates.jsonl] [--quick]

For each context (a turn of CMU-DoG, valid, with the section of the document that was open) sample-and-rank draws
candidates once. The reply with the filter and the one without are chosen from the same candidates, so the comparison is
paired. A reply is ungrounded if its label is neither entailment nor generic. It is judged by the classifier that
filters, which flatters the filter, and by another one: `boosted`, gradient boosting on lexical features, learned here
from silver data of CMU-DoG's train split, or any classifier by name. The cost is likelihood, and CPU time.
Intervals: 95 %, by bootstrap over dialogues. A stopped run resumes from --cache.
"""

import argparse
import json
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from common import finish
from tertulia.core.dialogue import Dialogue, Evidence
from tertulia.core.grounding import LABELS, GroundingClassifier, GroundingInput, most_likely
from tertulia.core.reply import Ask, Candidate
from tertulia.corpus.load import load_dialogues
from tertulia.corpus.silver.generate import SilverConfig, silver_exchanges
from tertulia.metrics.significance import bootstrap_means
from tertulia.models.classifiers.grounding import load_grounding
from tertulia.models.classifiers.grounding_features import grounding_features
from tertulia.talk.filters.base import apply_filters, choose, make_filters
from tertulia.talk.filters.grounded import GroundedFilter
from tertulia.talk.spec import make_bot

BOOSTED = "boosted"
FORM = "empty,too-long,cross-turn,in-turn,safety"
MIN_CONTEXT, MAX_CONTEXT = 2, 6
"""Turns before a reply, and how many of them the bot reads."""


class Boosted:
    """Gradient boosting on lexical features, learned from silver data."""

    name = BOOSTED

    def __init__(self, dialogues: Sequence[Dialogue], per_label: int, seed: int) -> None:
        silver = silver_exchanges(dialogues, SilverConfig(per_label=per_label, seed=seed))
        inputs = [
            GroundingInput(e.evidence[0].text, e.context[-1].text if e.context else "", e.response.text) for e in silver
        ]
        labels = [LABELS.index(e.label) for e in silver]  # type: ignore[arg-type]
        model = HistGradientBoostingClassifier(max_iter=150, learning_rate=0.07, max_leaf_nodes=16, random_state=seed)
        self._model = model.fit(grounding_features(inputs), labels)

    def probabilities(self, inputs: Sequence[GroundingInput], /) -> list[tuple[float, ...]]:
        return [tuple(map(float, row)) for row in self._model.predict_proba(grounding_features(inputs))]


class Drawn(NamedTuple):
    """An ask with the candidates that were drawn for it."""

    ask: Ask
    candidates: list[Candidate]
    seconds: float


class Pair(NamedTuple):
    """The reply without the filter and the one with it."""

    plain: Candidate
    filtered: Candidate
    all_dropped: bool
    filter_seconds: float


def contexts(data: Path, count: int, seed: int) -> list[Ask]:
    """Turns of the valid split as asks, at most one for each dialogue until there are no more."""
    asks: list[list[Ask]] = []
    for dialogue in load_dialogues(data, split="valid"):
        own = []
        for i, turn in enumerate(dialogue.turns[MIN_CONTEXT:], MIN_CONTEXT):
            section = [e for e in dialogue.evidence if e.id.endswith(f"/{turn.meta.get('docIdx')}")]
            before = dialogue.turns[max(0, i - MAX_CONTEXT) : i]
            if not section or before[-1].speaker == turn.speaker:
                continue
            evidence = tuple(Evidence(e.text, e.source, e.id) for e in section)
            part = Dialogue(f"{dialogue.id}#{i}", before, evidence=evidence)
            own.append(Ask(part, turn.speaker, seed=seed))
        random.Random(f"{seed} {dialogue.id}").shuffle(own)
        asks.append(own)
    random.Random(seed).shuffle(asks)
    rounds = [own[i] for i in range(max(map(len, asks))) for own in asks if i < len(own)]
    return rounds[:count]


def draw(asks: Sequence[Ask], bot_spec: str, cache: Path | None) -> list[Drawn]:
    """Candidates for each ask: those of the cache, and new ones, which are added to it one by one."""
    known: dict[str, dict[str, object]] = {}
    if cache is not None and cache.is_file():
        rows = [json.loads(line) for line in cache.read_text(encoding="utf-8").splitlines()]
        known = {row["id"]: row for row in rows if row["bot"] == bot_spec}
    bot = None
    drawn = []
    for number, ask in enumerate(asks, 1):
        row = known.get(ask.dialogue.id)
        if row is None:
            bot = bot or make_bot(bot_spec)
            start = time.process_time()
            reply = bot.reply([ask])[0]
            seconds = time.process_time() - start
            texts = [[c.text, c.score, c.dropped] for c in reply.candidates]
            row = {"id": ask.dialogue.id, "bot": bot_spec, "seconds": seconds, "candidates": texts}
            if cache is not None:
                with cache.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(row) + "\n")
            print(f"  {number} of {len(asks)}: {seconds:.1f} CPU s", flush=True)
        candidates = [Candidate(*values) for values in row["candidates"]]  # type: ignore[attr-defined]
        drawn.append(Drawn(ask, candidates, float(row["seconds"])))  # type: ignore[arg-type]
    return drawn


def choose_both(one: Drawn, grounded: GroundedFilter) -> Pair:
    """Choose with the form filters alone, and with the grounding filter as well."""
    form = make_filters(FORM)
    plain = choose(apply_filters(form, one.ask, one.candidates), fallback="").candidate_index
    start = time.process_time()
    filtered = apply_filters((*form, grounded), one.ask, one.candidates)
    seconds = time.process_time() - start
    index = choose(filtered, fallback="").candidate_index
    empty = Candidate("", None)
    pick = [one.candidates[i] if i is not None else empty for i in (plain, index)]
    return Pair(pick[0], pick[1], all(row.weight > 0 for row in filtered), seconds)


def ungrounded(classifier: GroundingClassifier, drawn: Sequence[Drawn], texts: Sequence[str]) -> list[float]:
    """For each reply 1 if the evidence should support it and does not, else 0."""
    inputs = [
        GroundingInput("\n".join(e.text for e in one.ask.dialogue.evidence), one.ask.last, text)
        for one, text in zip(drawn, texts, strict=True)
    ]
    labels = [most_likely(row) for row in classifier.probabilities(inputs)]
    return [float(label not in ("entailment", "generic")) for label in labels]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/cmu_dog"))
    parser.add_argument("--bot", default="smollm2?method=sample-and-rank&temperature=0.7&max_tokens=24&filters=none")
    parser.add_argument("--contexts", type=int, default=200)
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--filter", default="overlap", help="the classifier that filters")
    parser.add_argument("--judge", default=BOOSTED, help="another classifier, which judges")
    parser.add_argument("--cache", type=Path, help="where drawn candidates are kept, to resume from")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="10 contexts, and less silver data")
    given = parser.parse_args()
    count = 10 if given.quick else given.contexts
    asks = contexts(given.data, count, given.seed)
    drawn = draw(asks, f"{given.bot}&samples={given.samples}", given.cache)
    # Candidates that were cut off at the maximum length are as good as others here.
    drawn = [one._replace(candidates=[replace(c, dropped=None) for c in one.candidates]) for one in drawn]
    grounded = GroundedFilter(classifier=given.filter)
    pairs = [choose_both(one, grounded) for one in drawn]
    judges: dict[str, GroundingClassifier] = {given.filter: load_grounding(given.filter)}
    if given.judge == BOOSTED:
        train = list(islice(load_dialogues(given.data, split="train"), 60 if given.quick else 600))
        judges[BOOSTED] = Boosted(train, 100 if given.quick else 2000, given.seed)
    else:
        judges[given.judge] = load_grounding(given.judge)
    report(given, drawn, pairs, judges)


def report(
    given: argparse.Namespace, drawn: Sequence[Drawn], pairs: Sequence[Pair], judges: dict[str, GroundingClassifier]
) -> None:
    clusters = [one.ask.dialogue.id.partition("#")[0] for one in drawn]
    figures: dict[str, float] = {"contexts": len(drawn), "dialogues": len(set(clusters))}
    print(f"{len(drawn)} contexts of {len(set(clusters))} dialogues, {given.samples} candidates each")
    columns: dict[str, Sequence[float]] = {}
    for name, judge in judges.items():
        without = ungrounded(judge, drawn, [pair.plain.text for pair in pairs])
        with_it = ungrounded(judge, drawn, [pair.filtered.text for pair in pairs])
        columns |= {f"ungrounded by {name}, off": without, f"ungrounded by {name}, on": with_it}
        columns[f"ungrounded by {name}, on - off"] = np.subtract(with_it, without).tolist()
    scores = [(pair.plain.score or 0.0, pair.filtered.score or 0.0) for pair in pairs]
    columns["log-likelihood per token, off"] = [plain for plain, _ in scores]
    columns["log-likelihood per token, on - off"] = [other - plain for plain, other in scores]
    columns["all candidates dropped"] = [float(pair.all_dropped) for pair in pairs]
    columns["reply changed"] = [float(pair.plain.text != pair.filtered.text) for pair in pairs]
    columns["CPU seconds to draw"] = [one.seconds for one in drawn]
    columns["CPU seconds to filter"] = [pair.filter_seconds for pair in pairs]
    for name, estimate in zip(columns, bootstrap_means(np.array(list(columns.values())).T, clusters), strict=True):
        print(f"  {name:<42} {estimate}")
        key = name.replace(" - ", "_minus_").replace(",", "").replace("-", "_").replace(" ", "_")
        figures |= {key: estimate.value, f"{key}_low": estimate.low, f"{key}_high": estimate.high}
    settings = {"bot": given.bot, "samples": given.samples, "filter": given.filter, "judge": given.judge}
    finish("grounded_filter", figures, settings | {"seed": given.seed, "data": given.data.name})


if __name__ == "__main__":
    main()
