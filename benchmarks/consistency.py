"""Do bots stay true to their personas, and what does the filter `consistent` change? And how good are its classifiers?

1. Classifiers: the rules, a trained run (`--model`), and both, on held-out pairs (`--pairs`, such as Dialogue NLI's
   validation set: persona sentence as premise, utterance as hypothesis) and on silver pairs made of the validation
   personas. The rules were written by looking at Dialogue NLI's training pairs only.
2. Bots: questions that a persona answers, made from its sentences by `QUESTIONS`; every bot gets them with the persona,
   without and with the filter. Judged are the replies against the whole persona: shares that contradict it and that
   speak from it, by every classifier, also by those that the filter does not use. `--show` prints some to read.
   A classifier that is asked about every sentence and every premise errs often: the row of people's own replies says
   how much of a share is error, and the trained judge counts from `JUDGE_THRESHOLD` on for that reason.
3. Cost: hits@1 among 20 replies of people, without the filter and with it choosing among the same ranked replies; how
   often it drops what a person said; seconds per reply.

Intervals: 95 %, bootstrap over personas (questions) or dialogues.
"""

import argparse
import json
import random
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.metrics import precision_recall_fscore_support

from common import finish
from tertulia import sample
from tertulia.core.clauses import plain
from tertulia.core.consistency import RELATIONS, Claim, ConsistencyClassifier, consistency_verdicts
from tertulia.core.dialogue import Dialogue, Persona, Turn, exchanges
from tertulia.core.fact_words import Fact, Kind
from tertulia.core.facts import facts
from tertulia.core.reply import Ask, Candidate, Reply
from tertulia.corpus.candidates import rank_tasks
from tertulia.corpus.load import load_dialogues
from tertulia.corpus.readers.text_pairs import nli_labels, read_labelled_pairs
from tertulia.corpus.silver.persona import PersonaSilverConfig, persona_pairs
from tertulia.metrics.significance import bootstrap_means
from tertulia.models.classifiers.consistency import load_consistency
from tertulia.talk.bot import Bot, RankingBot
from tertulia.talk.bots.generative import BaseGenerativeBot
from tertulia.talk.filters.base import ALL, Filter, apply_filters, choose, make_filters
from tertulia.talk.spec import make_bot

PARTNER, BOT = "partner", "bot"
JUDGE_THRESHOLD = {"rules": 0.5, "trained": 0.9}
"""From which probability a judge counts; at 0.5 the trained one would blame a quarter of people's own replies."""
SLOW = 60
"""Questions that generative bots get at most."""


class Question(NamedTuple):
    text: str
    kind: Kind
    sentence: str
    """The sentence of the persona that answers it."""
    persona: Persona

    @property
    def ask(self) -> Ask:
        return Ask(Dialogue(self.text, (Turn(PARTNER, self.text),), {BOT: self.persona}), BOT)


def _favorite(sentence: str) -> str | None:
    match = re.search(
        r"\bmy favorite (\w+(?: \w+)?) (?:is|are)\b|\bis my favorite (\w+)$", plain(sentence).rstrip(" .")
    )
    of = (match[1] or match[2]) if match else None
    return f"what is your favorite {of} ?" if of else None


def _taste(sentence: str) -> str | None:
    match = re.match(
        r"^i (?:really )?(?:love|like|enjoy|hate|dislike|do not like) (?:to )?((?:\w+ ?){1,4})$",
        plain(sentence).rstrip(" ."),
    )
    return f"do you like {'to ' if ' to ' in match[0][:16] else ''}{match[1].strip()} ?" if match else None


QUESTIONS: dict[Kind, Callable[[str], str | None] | tuple[str, ...]] = {
    "job": ("what do you do for a living ?", "what is your job ?", "do you work ? what do you do ?"),
    "child": ("do you have any kids ?", "do you have children ?"),
    "pet": ("do you have any pets ?", "do you have a dog or a cat ?"),
    "sibling": ("do you have any brothers or sisters ?", "do you have siblings ?"),
    "marital": ("are you married ?", "are you married or single ?"),
    "age": ("how old are you ?",),
    "home": ("where do you live ?",),
    "origin": ("where are you from ?",),
    "name": ("what is your name ?",),
    "favorite": _favorite,
    "like": _taste,
    "diet": ("do you eat meat ?",),
    "meat": ("do you eat meat ?",),
    "alcohol": ("do you drink alcohol ?",),
}
"""From the kind of a persona sentence's fact to a question that the sentence answers."""


def make_questions(personas: Iterable[Persona], count: int, seed: int) -> list[Question]:
    """One question per persona sentence with a fact that can be asked for; kinds take turns."""
    rng = random.Random(seed)
    by_kind: dict[Kind, list[Question]] = {}
    seen: set[tuple[str, Kind]] = set()
    for persona in personas:
        for sentence in persona.sentences:
            for fact in facts(sentence):
                text = _question(fact, sentence, rng)
                if text and (sentence, fact.kind) not in seen:
                    seen.add((sentence, fact.kind))
                    by_kind.setdefault(fact.kind, []).append(Question(text, fact.kind, sentence, persona))
    for listed in by_kind.values():
        rng.shuffle(listed)
    made: list[Question] = []
    while len(made) < count and any(by_kind.values()):
        made += [listed.pop() for listed in by_kind.values() if listed]
    return made[:count]


def _question(fact: Fact, sentence: str, rng: random.Random) -> str | None:
    how = QUESTIONS.get(fact.kind)
    if how is None or fact.holder != "i":
        return None
    return how(sentence) if callable(how) else rng.choice(how)


class TimedReply(NamedTuple):
    """A reply and the seconds it took."""

    text: str
    seconds: float


def answers(bot: Bot, questions: Sequence[Question]) -> tuple[list[TimedReply], list[Reply]]:
    """The bot's replies, one by one, so that seconds are those of a single reply."""
    replies = [bot.reply([replace(question.ask, seed=i)])[0] for i, question in enumerate(questions)]
    return [TimedReply(reply.text, reply.seconds) for reply in replies], replies


def chosen_again(
    replies: Sequence[Reply], questions: Sequence[Question], filters: Sequence[Filter]
) -> list[TimedReply]:
    """What a generative bot would have said with the filter: the choice among the same candidates."""
    chosen = []
    for question, reply in zip(questions, replies, strict=True):
        start = time.perf_counter()
        candidates = [replace(candidate, dropped=None) for candidate in reply.candidates]
        choice = choose(apply_filters(filters, question.ask, candidates), fallback=reply.text)
        chosen.append(TimedReply(choice.text, reply.seconds + time.perf_counter() - start))
    return chosen


def all_answers(spec: str, questions: Sequence[Question], args: argparse.Namespace) -> dict[str, list[TimedReply]]:
    """Replies without and with the filter; kept in the file of `--replies`, as generating them takes long."""
    key = f"{spec} {args.filter} {args.seed} {[question.text for question in questions[:20]]} {len(questions)}"
    kept = json.loads(args.replies.read_text()) if args.replies and args.replies.exists() else {}
    if key not in kept:
        bot = make_bot(spec)
        off, replies = answers(bot, questions)
        if isinstance(bot, BaseGenerativeBot):
            on = chosen_again(replies, questions, make_filters(f"{ALL},{args.filter}"))
        else:
            on = answers(make_bot(with_filter(spec, args.filter)), questions)[0]
        kept[key] = {"off": off, "on": on}
        if args.replies:
            args.replies.write_text(json.dumps(kept))
    return {state: [TimedReply(*one) for one in given] for state, given in kept[key].items()}


def with_filter(spec: str, name: str) -> str:
    return f"{spec}{'&' if '?' in spec else '?'}filters={name.replace(':', '%3A') if '/' in name else name}"


def interval(values: np.ndarray, clusters: Sequence[str]) -> tuple[float, str]:
    (one,) = bootstrap_means(values.reshape(-1, 1).astype(float), clusters, seed=0)
    return one.value, f"{one.value:.3f} [{one.low:.3f}, {one.high:.3f}]"


def macro_f1(gold: np.ndarray, predicted: np.ndarray, premises: Sequence[str]) -> tuple[float, float, float]:
    """Mean F1 of the three labels, with its interval by bootstrap over premises."""
    _, cluster = np.unique(premises, return_inverse=True)
    tables = np.zeros((cluster.max() + 1, 3, 3))
    np.add.at(tables, (cluster, gold, predicted), 1)

    def of(table: np.ndarray) -> np.ndarray:
        right = np.diagonal(table, axis1=-2, axis2=-1)
        return np.asarray((2 * right / np.maximum(table.sum(-1) + table.sum(-2), 1e-9)).mean(-1))

    draws = np.random.default_rng(0).multinomial(len(tables), np.full(len(tables), 1 / len(tables)), size=1000)
    low, high = np.quantile(of(np.tensordot(draws, tables, axes=1)), (0.025, 0.975))
    return float(of(tables.sum(0))), float(low), float(high)


def judge_classifiers(
    models: dict[str, ConsistencyClassifier], sets: dict[str, list[tuple[str, str, str]]], figures: dict[str, float]
) -> None:
    """Accuracy, macro-F1, and precision and recall of contradiction on labelled pairs."""
    for name, rows in sets.items():
        gold = np.array([RELATIONS.index(label) for _, _, label in rows])
        print(f"\n{name}: {len(rows)} pairs")
        print(f"{'':<22}{'accuracy':>24}{'macro-F1':>24}{'contradiction P / R':>22}{'pairs/s':>9}")
        for model_name, model in models.items():
            start = time.perf_counter()
            given = model.probabilities([p for p, _, _ in rows], [h for _, h, _ in rows])
            speed = len(rows) / (time.perf_counter() - start)
            neutral = [1 - one.entailment - one.contradiction for one in given]
            scores = np.array([[g.entailment, n, g.contradiction] for g, n in zip(given, neutral, strict=True)])
            predicted = scores.argmax(1)
            accuracy, shown = interval(predicted == gold, [p for p, _, _ in rows])
            macro, low, high = macro_f1(gold, predicted, [p for p, _, _ in rows])
            precision, recall, _, _ = precision_recall_fscore_support(gold, predicted, labels=[2], zero_division=0)
            cells = f"{shown:>24}{f'{macro:.3f} [{low:.3f}, {high:.3f}]':>24}{precision[0]:>14.3f} / {recall[0]:.3f}"
            print(f"{model_name:<22}{cells}{speed:>9.0f}", flush=True)
            key = f"{name}, {model_name}"
            figures |= {f"{key} accuracy": accuracy, f"{key} macro-F1": macro, f"{key} pairs/s": speed}
            figures |= {f"{key} precision": float(precision[0]), f"{key} recall": float(recall[0])}


def judge_replies(
    name: str,
    said: Sequence[Claim],
    seconds: float,
    judges: dict[str, ConsistencyClassifier],
    figures: dict[str, float],
) -> None:
    """Rows of the table: shares that contradict and that speak from the persona, by every judge."""
    people = [" ".join(one.premises) for one in said]
    for judge_name, threshold in JUDGE_THRESHOLD.items():
        if judge_name not in judges:
            continue
        verdicts = consistency_verdicts(judges[judge_name], said, threshold=threshold)
        against, shown = interval(np.array([v.relation == "contradiction" for v in verdicts]), people)
        from_it, shown_from = interval(np.array([v.relation == "entailment" for v in verdicts]), people)
        print(f"{name:<44}{judge_name:<16}{shown:>24}{shown_from:>24}{seconds:>9.3f}", flush=True)
        figures |= {f"{name}, {judge_name} contradicts": against, f"{name}, {judge_name} uses": from_it}
    figures[f"{name} seconds"] = seconds


def of_people(dialogues: Sequence[Dialogue], count: int) -> list[Claim]:
    """People's replies, one per dialogue, against their own personas: what is found here is mostly a judge's error."""
    rng = random.Random(0)
    drawn = (rng.choice(list(exchanges(dialogue))) for dialogue in rng.sample(dialogues, min(len(dialogues), count)))
    return [Claim(e.response.text, e.persona.sentences, e.context[-1].text) for e in drawn if e.persona]


def judge_ranking(
    bot: RankingBot, dialogues: Sequence[Dialogue], on: Sequence[Filter], limit: int, figures: dict[str, float]
) -> None:
    """hits@1 of the best candidate, and of the best one that the filter keeps."""
    tasks = rank_tasks(dialogues, speaker=None, seed=0)
    tasks = [t for t in random.Random(0).sample(tasks, min(len(tasks), limit * 2)) if t.exchange.persona][:limit]
    asks = [Ask(t.exchange.dialogue, t.exchange.response.speaker) for t in tasks]
    scores = bot.score(asks, [t.candidates for t in tasks])
    plain_hits, hits, dropped = [], [], []
    for task, ask, row in zip(tasks, asks, scores, strict=True):
        order = sorted(range(len(row)), key=lambda i: -row[i])
        filtered = apply_filters(on, ask, [Candidate(task.candidates[i], row[i]) for i in order])
        index = choose(filtered, fallback="").candidate_index
        plain_hits.append(order[0] == task.truth)
        hits.append(index is not None and order[index] == task.truth)
        dropped.append(filtered[order.index(task.truth)].candidate.dropped is not None)
    clusters = [t.dialogue for t in tasks]
    before, shown = interval(np.array(plain_hits), clusters)
    after, shown_on = interval(np.array(hits), clusters)
    lost, shown_lost = interval(np.array(dropped), clusters)
    difference, shown_difference = interval(np.array(hits, float) - np.array(plain_hits, float), clusters)
    print(
        f"{bot.spec}: hits@1 {shown}, filtered {shown_on}, difference {shown_difference};"
        f" true replies dropped {shown_lost}"
    )
    figures |= {f"{bot.spec} hits@1": before, f"{bot.spec} hits@1 filtered": after}
    figures |= {f"{bot.spec} hits@1 difference": difference, f"{bot.spec} true replies dropped": lost}


def labelled_sets(args: argparse.Namespace, dialogues: Sequence[Dialogue]) -> dict[str, list[tuple[str, str, str]]]:
    """Held-out pairs: premise, hypothesis, label."""
    sets = {}
    for file in args.pairs:
        pairs = list(islice(read_labelled_pairs(file), 300 if args.quick else None))
        labels = nli_labels(pairs)
        sets[file.name.split(".")[0]] = [
            (p.second, p.first, one[0]) for p, one in zip(pairs, labels, strict=True) if len(one) == 1
        ]
    config = PersonaSilverConfig(per_label=50 if args.quick else 500, seed=args.seed)
    silver = persona_pairs(dialogues, config)
    sets["silver"] = [(e.evidence[0].text, e.response.text, str(e.label)) for e in silver]
    return sets


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of Persona-Chat, or `sample`")
    parser.add_argument("--bot", action="append", default=[], help="a bot's specification; repeat for more")
    parser.add_argument("--model", default="", help="run folder of the recipe entailment: a second classifier")
    parser.add_argument("--pairs", type=Path, action="append", default=[], help="labelled pairs (utterance, persona)")
    parser.add_argument("--filter", default="consistent", help="the filter (default: consistent)")
    parser.add_argument("--n", type=int, default=300, help="questions")
    parser.add_argument("--slow-n", type=int, default=SLOW, help="questions for generative bots")
    parser.add_argument("--people-n", type=int, default=300, help="replies of people")
    parser.add_argument("--rank-n", type=int, default=300, help="ranking tasks")
    parser.add_argument("--replies", type=Path, help="a file to keep replies in, and to take them from")
    parser.add_argument("--show", type=int, default=0, help="print so many questions, with the replies")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="few questions and pairs")
    return parser.parse_args()


def main() -> None:
    args = parse()
    figures: dict[str, float] = {}
    dialogues = list(load_dialogues(args.data, split="valid"))
    personas = [persona for dialogue in dialogues for persona in dialogue.personas.values()]
    questions = make_questions([*personas, *sample.personas()], 20 if args.quick else args.n, args.seed)
    for question in questions[: args.show]:
        print(f"{question.kind:<10}{question.text:<50}{question.sentence}")
    judges: dict[str, ConsistencyClassifier] = {"rules": load_consistency("rules")}
    if args.model:
        judges |= {"trained": load_consistency(args.model), "rules+trained": load_consistency(f"rules+{args.model}")}
    if args.pairs:
        judge_classifiers(judges, labelled_sets(args, dialogues), figures)
    print(f"\n{'':<44}{'judge':<16}{'contradicts':>24}{'uses persona':>24}{'s/reply':>9}")
    judge_replies("people", of_people(dialogues, args.people_n), 0.0, judges, figures)
    on = make_filters(args.filter)
    for spec in args.bot:
        slow = isinstance(bot := make_bot(spec), BaseGenerativeBot)
        own = questions[: args.slow_n] if slow else questions
        replies = all_answers(spec, own, args)
        for state, given in replies.items():
            said = [Claim(one.text, q.persona.sentences, q.text) for one, q in zip(given, own, strict=True)]
            seconds = sum(one.seconds for one in given) / max(1, len(given))
            judge_replies(f"{Path(spec).name}, filter {state}", said, seconds, judges, figures)
        for question, one, two in islice(zip(own, *replies.values(), strict=True), args.show):
            print(f"  {question.text}  ({question.sentence})\n    off: {one.text}\n    on:  {two.text}")
        if isinstance(bot, RankingBot) and not slow:
            judge_ranking(bot, dialogues, on, 20 if args.quick else args.rank_n, figures)
    settings = {"n": len(questions), "seed": args.seed, "filter": args.filter, "bots": args.bot, "quick": args.quick}
    finish("consistency", figures, settings)


if __name__ == "__main__":
    main()
