"""The report of a study: tables and figures in the manner of the papers, and a judged run that keeps every rating.

`study_run` makes the judged run (scores, texts, tables), which `tertulia report` can open like any other one, also
beside runs of automatic metrics. `study_report` makes the document of it, with plots and published reference lines.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tertulia.core.dialogue import Json
from tertulia.core.estimate import Estimate
from tertulia.core.text import plural
from tertulia.judge.document import Plot, Section, short
from tertulia.judge.report import RunReport, report_run
from tertulia.judge.runs import JudgedItem, JudgedRun, Subject
from tertulia.metrics.metric import MetricInfo
from tertulia.metrics.plots import estimate_plot, outcome_plot, panel_plot, reference_plot
from tertulia.metrics.ratings import MIN_RATINGS, RatingComparison
from tertulia.metrics.registry import metric_named
from tertulia.study import analysis
from tertulia.study.labels import LabelSet
from tertulia.study.reference import (
    CAUTION,
    MEENA,
    PERSONA_CHAT,
    PERSONA_CHAT_HUMAN,
    PERSONA_CHAT_KV,
    SSA_AGREEMENT,
    published_ssa,
)

MAX_ROWS = 20
"""Tables with more rows than this are in the files, not on the terminal."""
VERB = "study"


def study_run(
    labels: LabelSet, sections: Sequence[Section], *, name: str, notes: Sequence[str] = (), about: Json = None
) -> JudgedRun:
    """A study's results as a judged run, with the tables of its `study_sections`.

    `about` describes the data, such as state, participants and progress.
    """
    scores = analysis.study_scores(labels)
    metrics: dict[str, MetricInfo] = {score.metric: metric_named(score.metric).info for score in scores}
    units = dict.fromkeys(unit for score in scores for unit in score.units)
    items = tuple(JudgedItem(unit, labels.contents[unit]) for unit in units)
    config = labels.config
    specs = {bot.name: bot.spec for bot in config.bots}
    subjects = tuple(
        Subject(
            bot,
            specs.get(bot, ""),
            "human" if specs.get(bot) == "human" else "",
            ", ".join(labels.checkpoints.get(bot, ())),
        )
        for bot in labels.bots
    )
    bounds = {question.id: list(labels.bounds(question.id)) for question in config.questions}
    return JudgedRun(
        VERB,
        {"study": name, "preset": config.preset, "title": config.title.get("en"), "seed": config.seed},
        subjects,
        tuple(dict.fromkeys(score.setting for score in scores)),
        tuple(scores),
        metrics,
        items,
        (*_notes(labels), *notes),
        {"bounds": bounds, "data": about, "tables": [section.as_json() for section in sections]},
    )


def study_report(run: JudgedRun, labels: LabelSet, sections: Sequence[Section]) -> RunReport:
    """The report: the study's own sections first, then what every judged run has."""
    plain = report_run(run, plots=False)
    own = {section.title for section in sections}
    title = f"{run.config['study']}: {run.config['title']}"
    others = [replace(section, detail=True) for section in plain.document.sections if section.title not in own]
    raters = {content["rater"] for content in labels.contents.values()}
    raters |= {writer for texts in labels.texts.values() for writer, _ in texts}
    people = plural(len(raters), "person", "people")
    lead = f"{plural(labels.labels, 'answer')} by {people} about {plural(len(labels.bots), 'bot')}. "
    lead += "95 % intervals over conversations (or contexts) and raters, unless another level is given."
    document = replace(plain.document, title=title, lead=lead, sections=(*sections, *others))
    return replace(plain, document=document)


def _notes(labels: LabelSet) -> list[str]:
    seen = {
        (content["rater"], labels.clusters[f"{content['unit']}/{content['target']}"])
        for content in labels.contents.values()
        if "unit" in content
    }
    crossed = len(seen) > len({rater for rater, _ in seen})
    notes = [
        "Intervals are two-way: for new conversations (or contexts) and new raters."
        if crossed
        else "Every rater has a single conversation (or context): intervals are over conversations, raters included."
    ]
    if labels.missing:
        notes.append(f"{labels.missing} answers are not on their scale (such as N/A) and are left out of the means.")
    return notes


def study_sections(labels: LabelSet, *, plots: bool = False) -> list[Section]:
    """The tables of a study, those that apply; with plots on request, since drawing takes longer than computing."""
    pairs = analysis.comparisons(labels)
    sections = [
        *_ssa_section(labels, pairs, plots),
        *_rating_section(labels, pairs, plots),
        *_majority_section(labels),
        *_detection_section(labels, plots),
        *_begin_section(labels, plots),
        *_vote_sections(labels, plots),
        *_agreement_section(labels, plots),
        *_normalised_section(labels),
        *_comparison_section(pairs),
        *_text_section(labels),
    ]
    return [replace(section, detail=len(section.rows) > MAX_ROWS) for section in sections]


def _ssa_section(labels: LabelSet, pairs: Mapping[str, Sequence[RatingComparison]], plots: bool) -> Iterable[Section]:
    if not labels.ssa:
        return
    figures = analysis.ssa_figures(labels)
    published = published_ssa(labels.config.preset)
    rows: list[tuple[object, ...]] = []
    for bot in sorted(figures, key=lambda bot: -figures[bot].ssa.value):
        sensible, specific, average = figures[bot]
        rows.append((bot, *(short(e, percent=True) for e in (average, sensible, specific)), average.n))
    rows += [(f"  paper: {name}", *(f"{100 * value:.0f}" for value in row), "") for name, row in published.items()]
    notes = (
        [f"Ranking by SSA (~: not significantly different): {analysis.ranking(labels, 'ssa', pairs['ssa'])}"]
        if ("ssa" in pairs)
        else []
    )
    drawn: tuple[Plot, ...] = ()
    if plots:
        svg = reference_plot(
            {bot: figure.ssa for bot, figure in figures.items()},
            {name: row.ssa for name, row in published.items()},
            title="SSA, with 95 % interval",
        )
        caption = "; ".join(f"{bot} {figure.ssa}" for bot, figure in figures.items())
        drawn = (Plot("ssa.svg", svg, f"SSA by bot; dashed: {MEENA}. {caption}" if published else f"SSA. {caption}"),)
    yield Section(
        f"SSA in per cent{f' (published: {MEENA})' if published else ''}",
        ("bot", "SSA", "sensible", "specific", "labels"),
        tuple(rows),
        (*notes, *([CAUTION] if published else [])),
        drawn,
    )


def _rating_section(
    labels: LabelSet, pairs: Mapping[str, Sequence[RatingComparison]], plots: bool
) -> Iterable[Section]:
    means = analysis.rating_means(labels)
    means = {name: by_bot for name, by_bot in means.items() if not (labels.ssa and name in ("sensible", "specific"))}
    if not means:
        return
    human = PERSONA_CHAT_HUMAN if labels.config.preset == "persona-chat" else {}
    rows = []
    for name, by_bot in means.items():
        low, high = labels.bounds(name)
        cells = [_two_digits(by_bot[bot]) if bot in by_bot else "-" for bot in labels.bots]
        references = [f"{human[name]:.2f}" if name in human else ""] if human else []
        order = analysis.ranking(labels, name, pairs[name]) if name in pairs else ""
        rows.append((name, f"{low:g} to {high:g}", *cells, *references, order))
    head = ("question", "scale", *labels.bots, *([f"human ({PERSONA_CHAT})"] if human else []), "ranking")
    drawn: tuple[Plot, ...] = ()
    if plots:
        caption = "; ".join(f"{name}: " + ", ".join(f"{b} {e}" for b, e in by.items()) for name, by in means.items())
        drawn = (Plot("ratings.svg", panel_plot(means, title="mean, with 95 % interval"), caption),)
    notes = ["Ranking: > where neighbours differ significantly (Holm's correction within the question), else ~."]
    yield Section("Mean ratings by question and bot", head, tuple(rows), tuple(notes), drawn)


def _majority_section(labels: LabelSet) -> Iterable[Section]:
    results = analysis.majorities(labels)
    rows = [
        (
            name,
            *(short(r.shares[bot], percent=True) if bot in r.shares else "-" for bot in labels.bots),
            r.items,
            r.ambiguous,
        )
        for name, r in results.items()
    ]
    if rows:
        note = "Share of items of which most raters say yes; ambiguous items (as many yes as no) are left out."
        yield Section(
            "Majority votes in per cent", ("question", *labels.bots, "items", "ambiguous"), tuple(rows), (note,)
        )


def _detection_section(labels: LabelSet, plots: bool) -> Iterable[Section]:
    if not labels.detections:
        return
    figures = analysis.detection_accuracy(labels)
    rows: list[tuple[object, ...]] = [(bot, short(figures[bot]), figures[bot].n) for bot in figures]
    low, high = PERSONA_CHAT_KV["persona"]
    rows += [
        ("  paper: human", f"{PERSONA_CHAT_HUMAN['persona']:.2f}", ""),
        ("  paper: KV", f"{low:.2f} to {high:.2f}", ""),
    ]
    drawn: tuple[Plot, ...] = ()
    if plots:
        svg = estimate_plot(figures, title="persona detection, with 95 % interval", rule=0.5, rule_name="chance")
        drawn = (Plot("detection.svg", svg, "; ".join(f"{bot} {e}" for bot, e in figures.items())),)
    yield Section(f"Persona detection ({PERSONA_CHAT})", ("bot", "accuracy", "chats"), tuple(rows), (CAUTION,), drawn)


def _begin_section(labels: LabelSet, plots: bool) -> Iterable[Section]:
    if not labels.begin:
        return
    shares, cooperative = analysis.begin_shares(labels), analysis.cooperativeness(labels)
    rows = [(name, *(_cell(by_bot, bot) for bot in labels.bots)) for name, by_bot in shares.items()]
    rows.append(("cooperative sentences", *(_cell(cooperative, bot) for bot in labels.bots)))
    drawn: tuple[Plot, ...] = ()
    if plots:
        panels = {str(name): by_bot for name, by_bot in shares.items()}
        drawn = (Plot("begin.svg", panel_plot(panels, title="share of responses"), "BEGIN labels by bot"),)
    note = "The label of a response is the worst of its sentences."
    yield Section("BEGIN labels in per cent of responses", ("label", *labels.bots), tuple(rows), (note,), drawn)


def _two_digits(estimate: Estimate) -> str:
    """A mean on a scale, with its interval."""
    if math.isnan(estimate.low):
        return f"{estimate.value:.2f}"
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def _cell(figures: Mapping[str, Estimate], bot: str) -> str:
    return short(figures[bot], percent=True) if bot in figures else "-"


def _vote_sections(labels: LabelSet, plots: bool) -> Iterable[Section]:
    by_question = analysis.head_to_heads(labels)
    rows, shares = [], {}
    for name, pairs in by_question.items():
        for (first, second), result in pairs.items():
            cells = (short(e, percent=True) for e in (result.win, result.loss, result.tie, result.margin))
            rows.append((name, f"{first} : {second}", *cells, result.items, result.ambiguous))
            shares[f"{name}: {first} : {second}"] = (result.win, result.tie, result.loss)
    if not rows:
        return
    head = ("question", "pair", "wins", "losses", "ties", "wins - losses", "items", "ambiguous")
    drawn = (
        (
            Plot(
                "votes.svg",
                outcome_plot(shares),
                "Wins, ties and losses of the first bot of each pair; line: 90 % interval of the wins",
            ),
        )
        if plots
        else ()
    )
    notes = ("Shares of votes in per cent. Ambiguous items (as many votes for both sides) are left out.",)
    yield Section("Wins, losses and ties, with 90 % intervals", head, tuple(rows), notes, drawn)
    yield from _strength_section(labels, plots)


def _strength_section(labels: LabelSet, plots: bool) -> Iterable[Section]:
    rows, plots_drawn = [], []
    for name, fit in analysis.strengths(labels).items():
        for bot, strength in fit.strengths.items():
            rank = fit.ranks[bot]
            others = [other for other in fit.strengths if other != bot]
            wins = sum(fit.outcome(bot, other).win for other in others) / max(len(others), 1)
            rows.append(
                (name, bot, short(strength), f"{rank.rank} [{rank.best}, {rank.worst}]", f"{wins:.0%}", strength.n)
            )
        if plots:
            svg = estimate_plot(fit.strengths, title=f"{name}: strength, with 95 % interval", rule=0.0)
            caption = f"Bradley-Terry strengths, {name}: " + "; ".join(f"{b} {e}" for b, e in fit.strengths.items())
            plots_drawn.append(Plot(f"strengths-{name}.svg", svg, caption))
    note = "Log scale, mean zero; ties after Davidson (1970); intervals over items and raters."
    head = ("question", "bot", "strength", "rank", "expected wins", "votes")
    yield Section("Bradley-Terry strengths", head, tuple(rows), (note,), tuple(plots_drawn))


def _agreement_section(labels: LabelSet, plots: bool) -> Iterable[Section]:
    results = analysis.agreement(labels)
    published = SSA_AGREEMENT if labels.config.preset == "ssa-static" else {}
    rows: list[tuple[object, ...]] = []
    for one in results:
        alphas = [short(one.alpha[d]) if d in one.alpha else "" for d in ("nominal", "ordinal", "interval")]
        rows.append((one.question, short(one.percent, percent=True), *alphas, one.percent.n))
        if one.question in published:
            percent, alpha = published[one.question]
            rows.append((f"  paper: {MEENA}", f"{100 * percent:.0f}", f"{alpha:.2f}".lstrip("0"), "", "", ""))
    if not rows:
        return
    head = ("question", "agreement, %", "alpha, nominal", "ordinal", "interval", "items")
    drawn: tuple[Plot, ...] = ()
    if plots:
        figures = {one.question: one.alpha.get("ordinal", one.alpha["nominal"]) for one in results}
        svg = estimate_plot(figures, title="Krippendorff's alpha, with 95 % interval")
        drawn = (Plot("agreement.svg", svg, "; ".join(f"{name} {e}" for name, e in figures.items())),)
    note = "Agreement: of pairs of ratings of the same item. Alpha: Krippendorff's; 0 is chance, 1 is perfect."
    yield Section("Agreement of raters", head, tuple(rows), (note,), drawn)


def _normalised_section(labels: LabelSet) -> Iterable[Section]:
    results = analysis.normalised(labels)
    rows = [
        (
            name,
            *(short(means[bot]) if bot in means else "-" for bot in labels.bots),
            len(normal.ratings),
            normal.excluded_raters,
        )
        for name, (means, normal) in results.items()
        if normal.ratings
    ]
    if rows:
        note = f"z-scores within annotators with at least {MIN_RATINGS} ratings; the others are left out."
        head = ("question", *labels.bots, "ratings", "annotators left out")
        yield Section("Ratings normalised by annotator", head, tuple(rows), (note,))


def _comparison_section(pairs: Mapping[str, Sequence[RatingComparison]]) -> Iterable[Section]:
    rows = [
        (
            name,
            f"{pair.subject} - {pair.baseline}",
            short(pair.difference),
            f"{pair.p_value:.4f}",
            f"{pair.adjusted_p:.4f}",
        )
        for name, compared in pairs.items()
        for pair in compared
    ]
    if rows:
        note = (
            "Differences of means, clustered two-way (by conversation or context, and by rater); p-values adjusted "
            "for the number of pairs by Holm's procedure, within each question. No mixed-effects model."
        )
        yield Section("All pairs of bots", ("question", "pair", "difference", "p", "adjusted p"), tuple(rows), (note,))


def _text_section(labels: LabelSet) -> Iterable[Section]:
    rows = []
    for name, texts in labels.texts.items():
        words = sum(len(text.split()) for _, text in texts) / len(texts)
        rows.append((name, len(texts), len({writer for writer, _ in texts}), f"{words:.1f}"))
    if rows:
        note = "`tertulia study export` has the texts."
        yield Section("Written answers", ("question", "texts", "people", "words per text"), tuple(rows), (note,))
