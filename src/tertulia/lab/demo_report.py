"""The demo's report: what was done, the results with their intervals, and what to do next."""

from pathlib import Path

from tertulia.judge.html import HtmlSection, code, conversation, figure, paragraph, table, write_html
from tertulia.lab.demo import DemoOutcome
from tertulia.metrics.plots import estimate_plot, funnel_plot


def write_demo_report(outcome: DemoOutcome, path: Path) -> None:
    """Write report.html."""
    write_html(
        path,
        title="A tertulia on the sample corpus",
        lead="Mining, indexing, ranking and self-play on the bundled corpus, from start to end.",
        sections=(_corpus(outcome), _mining(outcome), _ranking(outcome), _talking(outcome), _next(outcome)),
    )


def _corpus(outcome: DemoOutcome) -> HtmlSection:
    s = outcome.corpus
    rows = [("dialogues", s.dialogues), ("turns", s.turns), ("words", s.words), ("different words", s.different_words)]
    rows += [("personas", s.personas)]
    means = [("turns per dialogue", f"{s.turns_per_dialogue:.1f}"), ("words per turn", f"{s.words_per_turn:.1f}")]
    return HtmlSection("Corpus", (table(("persona dialogues of the sample", "count"), [*rows, *means]),))


def _mining(outcome: DemoOutcome) -> HtmlSection:
    funnel = outcome.mined.funnel
    caption = (
        f"{funnel.messages} forum messages; after filtering {funnel.kept} are left, which give {funnel.pairs} pairs."
    )
    return HtmlSection(
        "From threads to pairs",
        (
            paragraph("Meena's filters on the sample's forum: removing a message also removes its replies."),
            figure(funnel_plot(funnel.steps()), caption),
            table(("removed because of", "messages"), [(reason, n) for reason, n in funnel.removed.items() if n]),
            paragraph(
                f"Length is counted in subwords of a BPE vocabulary of {outcome.mined.subwords}, learned here.",
                quiet=True,
            ),
        ),
    )


def _ranking(outcome: DemoOutcome) -> HtmlSection:
    run = outcome.ranking
    figures, metrics, setting = run.estimates(), run.metric_names(), run.settings[0]
    names = [subject.name for subject in run.subjects]
    rows = [(name, *(figures[name, setting, metric] for metric in metrics)) for name in names]
    first = {name: figures[name, setting, "hits@1"] for name in names}
    k, chance = run.config["candidates"], float(run.details["chance"])
    plot = estimate_plot(first, title=f"hits@1 of {k}, with 95 % interval", rule=chance, rule_name="chance")
    return HtmlSection(
        "Choosing the next reply",
        (
            paragraph(
                f"Each held-out reply (split {run.config['split']!r}) has a random position among {k - 1} distractors. "
                f"Chance picks it {chance:.0%} of the time; ties are broken at random."
            ),
            figure(plot, "; ".join(f"{name} {estimate}" for name, estimate in first.items())),
            table(("bot", *metrics), rows),
            paragraph(f"Intervals: 95 %, bootstrap over dialogues. Seed {run.seed}; persona: {setting}.", quiet=True),
        ),
    )


def _talking(outcome: DemoOutcome) -> HtmlSection:
    parts = (
        [paragraph(f"The language model did not take part: {outcome.without_model}")] if outcome.without_model else []
    )
    for dialogue in outcome.conversations:
        personas = (f"{speaker} is {p.name}: {' '.join(p.sentences)}" for speaker, p in dialogue.personas.items())
        parts += [paragraph("; ".join(personas), quiet=True), conversation(dialogue)]
    parts.append(table(("bot", "distinct-2 of its turns"), list(outcome.distinct.items())))
    return HtmlSection("Two bots talking", tuple(parts))


def _next(outcome: DemoOutcome) -> HtmlSection:
    served, first = " ".join(outcome.bots), outcome.bots[0]
    commands = f"tertulia serve {served}\ntertulia chat {first}\ntertulia judge rank {outcome.retrieval} generic"
    return HtmlSection(
        "Next steps", (paragraph("Talk to these bots in the browser or in the terminal:"), code(commands))
    )
