"""The demo's report: what was done, what came out, how sure it is, and what to do next."""

from pathlib import Path

from tertulia.judge.demo import DemoOutcome
from tertulia.judge.report import Section, code, conversation, figure, paragraph, table, write_report
from tertulia.metrics.plots import estimate_plot, funnel_plot


def write_demo_report(outcome: DemoOutcome, path: Path) -> None:
    """Write report.html."""
    write_report(
        path,
        title="A tertulia on the sample corpus",
        lead="Mined, indexed, ranked, talked: the four verbs on the bundled corpus, start to end.",
        sections=(_corpus(outcome), _mining(outcome), _ranking(outcome), _talking(outcome), _next(outcome)),
    )


def _corpus(outcome: DemoOutcome) -> Section:
    s = outcome.corpus
    rows = [("dialogues", s.dialogues), ("turns", s.turns), ("words", s.words), ("different words", s.different_words)]
    rows += [("personas", s.personas)]
    means = [("turns per dialogue", f"{s.turns_per_dialogue:.1f}"), ("words per turn", f"{s.words_per_turn:.1f}")]
    return Section("Corpus", (table(("persona dialogues of the sample", "count"), [*rows, *means]),))


def _mining(outcome: DemoOutcome) -> Section:
    funnel = outcome.mined.funnel
    caption = (
        f"{funnel.messages} forum messages; rules and sub-trees leave {funnel.kept}, which give {funnel.pairs} pairs."
    )
    return Section(
        "From threads to pairs",
        (
            paragraph(
                "Meena's removal rules on the sample's forum: a message that goes takes its whole sub-tree along."
            ),
            figure(funnel_plot(funnel.steps()), caption),
            table(("removed because of", "messages"), [(reason, n) for reason, n in funnel.removed.items() if n]),
            paragraph(
                f"Length is counted in {outcome.mined.subwords} BPE subwords learned from the same messages.",
                quiet=True,
            ),
        ),
    )


def _ranking(outcome: DemoOutcome) -> Section:
    config, results = outcome.rank_config, outcome.ranking
    rows = [(name, *(str(r.figures[m]) for m in config.metrics)) for name, r in results.items()]
    first = {name: r.figures["hits@1"] for name, r in results.items()}
    k, setting = config.candidates, next(iter(results.values())).setting
    return Section(
        "Choosing the next reply",
        (
            paragraph(
                f"Each held-out reply (split {config.split!r}) stands at a random place among {k - 1} others. "
                f"Chance picks it {outcome.chance:.0%} of the time; ties are broken at random."
            ),
            figure(
                estimate_plot(
                    first, title=f"hits@1 of {k}, with 95 % interval", rule=outcome.chance, rule_name="chance"
                ),
                "; ".join(f"{name} {estimate}" for name, estimate in first.items()),
            ),
            table(("bot", *config.metrics), rows),
            paragraph(
                f"Intervals: 95 %, bootstrap over dialogues. Seed {config.seed}; persona: {setting}.", quiet=True
            ),
        ),
    )


def _talking(outcome: DemoOutcome) -> Section:
    parts = (
        [paragraph(f"The language model did not take part: {outcome.without_model}")] if outcome.without_model else []
    )
    for talk in outcome.talks:
        who = "; ".join(f"{speaker} is {p.name}: {' '.join(p.sentences)}" for speaker, p in talk.personas.items())
        parts += [paragraph(who, quiet=True), conversation(talk)]
    parts.append(table(("bot", "distinct-2 of what it said"), [(n, e) for n, e in outcome.talk_distinct.items()]))
    return Section("Two bots at a table", tuple(parts))


def _next(outcome: DemoOutcome) -> Section:
    first = outcome.bots[0]
    commands = f"tertulia serve {' '.join(outcome.bots)}\ntertulia chat {first}\ntertulia judge rank {first} generic"
    return Section("Go on from here", (paragraph("Talk to these bots, in the browser or here:"), code(commands)))
