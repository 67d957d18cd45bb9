"""The demo's report: what was done, the results with their intervals, and what to do next."""

from pathlib import Path

from tertulia.judge.document import short
from tertulia.judge.html import HtmlSection, code, conversation, figure, paragraph, saved_table, write_html
from tertulia.judge.report_identity import identity_facts
from tertulia.lab.demo import DemoOutcome
from tertulia.metrics.plots import estimate_plot, funnel_plot


def write_demo_report(outcome: DemoOutcome, path: Path) -> None:
    """Write report.html."""
    write_html(
        path,
        title="A tertulia on the sample corpus",
        lead="Mining, indexing, ranking and self-play on the bundled corpus, from start to end.",
        identity=identity_facts(outcome.ranking),
        sections=(_corpus(outcome), _mining(outcome), _ranking(outcome), _talking(outcome), _next(outcome)),
    )


def _corpus(outcome: DemoOutcome) -> HtmlSection:
    s = outcome.corpus
    rows = [("dialogues", s.dialogues), ("turns", s.turns), ("words", s.words), ("different words", s.different_words)]
    rows += [("personas", s.personas)]
    means = [("turns per dialogue", f"{s.turns_per_dialogue:.1f}"), ("words per turn", f"{s.words_per_turn:.1f}")]
    head = ("persona dialogues of the sample", "count")
    return HtmlSection("Corpus", (saved_table(head, [*rows, *means], "Corpus"),))


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
            saved_table(
                ("removed because of", "messages"),
                [(reason, n) for reason, n in funnel.removed.items() if n],
                "Removed messages",
            ),
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
    rows = [
        (name, *(short(figures[name, setting, metric]) for metric in metrics), figures[name, setting, metrics[0]].n)
        for name in names
    ]
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
            figure(plot, "; ".join(f"{name} {short(estimate)}" for name, estimate in first.items())),
            saved_table(("bot", *metrics, "n"), rows, "Ranking"),
            paragraph(
                f"Intervals: 95 %, bootstrap over dialogues. Seed {run.seed}; persona: {setting}. The complete"
                " report is in ranking/report.html: every figure leads to the replies behind it.",
                quiet=True,
            ),
        ),
    )


def _talking(outcome: DemoOutcome) -> HtmlSection:
    parts = (
        [paragraph(f"The language model did not take part: {outcome.without_model}")] if outcome.without_model else []
    )
    for dialogue in outcome.conversations:
        personas = (f"{speaker} is {p.name}: {' '.join(p.sentences)}" for speaker, p in dialogue.personas.items())
        parts += [paragraph("; ".join(personas), quiet=True), conversation(dialogue)]
    rows = [(name, short(estimate), estimate.n) for name, estimate in outcome.distinct.items()]
    parts.append(saved_table(("bot", "distinct-2 of its turns", "bigrams"), rows, "Distinct bigrams"))
    return HtmlSection("Two bots talking", tuple(parts))


def _next(outcome: DemoOutcome) -> HtmlSection:
    served, first = " ".join(outcome.bots), outcome.bots[0]
    commands = f"tertulia serve {served}\ntertulia chat {first}\ntertulia judge rank {outcome.retrieval} generic"
    return HtmlSection(
        "Next steps", (paragraph("Talk to these bots in the browser or in the terminal:"), code(commands))
    )
