"""Do bots stay true to their personas, and what does the filter `consistent` change? And how good are its classifiers?

1. Classifiers: the rules, the trained judge (`--judge`) and the trained filter (`--model`), on held-out pairs
   (`--pairs`, such as Dialogue NLI's validation set: persona sentence as premise, utterance as hypothesis), on silver
   pairs made of the validation personas. The rules were written by looking at Dialogue NLI's training pairs only.
2. Bots: questions that a persona answers, made from its sentences by `QUESTIONS`; every bot gets them with the persona.
   The reply without the filter and those with it (rules; with `--model`, rules and that model) are chosen from the same
   first candidates; with the filter, bots may look for more as they do in a chat (`--first-only` also shows what they
   say if not), and bots that write may shorten what they wrote (`--whole` also shows what they say if not). Judged are
   replies against the whole persona: shares that contradict it and that speak from it, by the rules and by the judge,
   which must be another model than the filter's. `--show` prints some to read; `--blind` writes some out for a reader
   who shall not know which is which, and reports the reader's verdicts.
   A classifier that is asked about every sentence and every premise errs often. So thresholds are chosen on replies of
   people in the training split (`--train-n`): the judge blames `JUDGE_ERROR` of these, or `SURE_ERROR`, and the
   filter's model drops `FILTER_ERROR`. The row of people says what they blame of people's replies in the validation
   split; what is left of a bot's contradictions is printed as it is, and less that error, before and after.
3. Cost: hits@1 among 20 replies of people, without the filter and with it choosing among the same ranked replies; how
   often it drops what a person said; CPU seconds per reply.

Intervals: 95 %, bootstrap over personas (questions) or dialogues.
"""

import argparse
import json
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from sklearn.metrics import precision_recall_fscore_support

from common import finish
from tertulia import sample
from tertulia.artefacts.files import fingerprint
from tertulia.core.clauses import plain
from tertulia.core.consistency import RELATIONS, Claim, ConsistencyClassifier, consistency_verdicts
from tertulia.core.dialogue import Dialogue, Persona, Turn, exchanges
from tertulia.core.fact_words import Fact, Kind
from tertulia.core.facts import facts
from tertulia.core.reply import Ask, Candidate
from tertulia.core.text import words
from tertulia.corpus.candidates import rank_tasks
from tertulia.corpus.load import load_dialogues
from tertulia.corpus.readers.text_pairs import nli_labels, read_labelled_pairs
from tertulia.corpus.silver.persona import PersonaSilverConfig, persona_pairs
from tertulia.metrics.significance import bootstrap_means
from tertulia.models.classifiers.consistency import Remembering, load_consistency
from tertulia.models.decoding import decode
from tertulia.models.generated import Generation
from tertulia.talk.bot import RankingBot
from tertulia.talk.bots.generative import BaseGenerativeBot
from tertulia.talk.filters.base import Filter, apply_filters, choose, make_filters
from tertulia.talk.filters.retrieval import CONSIDERED, MAX_CONSIDERED, choose_filtered
from tertulia.talk.generation import CUT, DrawnCandidates
from tertulia.talk.spec import make_bot

PARTNER, BOT = "partner", "bot"
PEOPLE = "people"
JUDGE_ERROR, SURE_ERROR, FILTER_ERROR = 0.05, 0.02, 0.03
"""Shares of people's own replies, in the training split, that the judge may blame (and if it has to be surer), and that
the filter's model may drop."""
SLOW = 60
"""Questions that generative bots get at most."""
READ = 60
"""Questions whose replies are written out to be read."""
THRESHOLD_SHARE = 10
"""One training dialogue in so many is for thresholds."""
FORM = make_filters("empty,safety")
"""Filters that bots that write have in any case."""


class Judge(NamedTuple):
    """A classifier that judges replies, and the probability from which it counts."""

    classifier: ConsistencyClassifier
    threshold: float = 0.5


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


class Effort(NamedTuple):
    """What a bot does where filters find no candidate good enough."""

    again: bool = True
    """It looks for more."""
    shorten: bool = True
    """If it writes, it offers the beginnings of what it wrote."""


class FinalReply(NamedTuple):
    """What a bot says."""

    text: str
    redraws: int
    """How often it looked for more candidates."""
    shortened: bool = False
    """Whether it is the beginning of what it wrote."""


class TimedReply(NamedTuple):
    """A reply, and the CPU seconds it took."""

    said: FinalReply
    seconds: float

    @property
    def text(self) -> str:
        return self.said.text


class Tokens(NamedTuple):
    """What a candidate was written in: parts of it are scored by these."""

    ids: list[int]
    logprobs: list[float]
    """The end token's, too."""


class Drawn(NamedTuple):
    """The candidates of one round, the best first, and the CPU seconds that they took."""

    candidates: list[Candidate]
    seconds: float
    tokens: Sequence[Tokens] = ()
    """Of each candidate, for bots that write."""


class Source(Protocol):
    """Where a bot's candidates come from."""

    def draw(self, question: Question, seed: int, round_: int) -> Drawn:
        """Those of a round: the first ones, or what comes after the rounds before."""
        ...

    def say(self, question: Question, filters: Sequence[Filter], rounds: Iterator[Drawn], effort: Effort) -> FinalReply:
        """What the bot says with these filters, taking more rounds as it does in a chat."""
        ...


class Pool:
    """Of a bot that chooses: the best candidates, then those that come after them."""

    def __init__(self, spec: str) -> None:
        self.bot = make_bot(with_option(spec, f"candidates={MAX_CONSIDERED}"))

    def draw(self, question: Question, seed: int, round_: int) -> Drawn:
        """The first 50 that the bot may use, or the others."""
        start = time.process_time()
        candidates = self.bot.reply([replace(question.ask, seed=seed)])[0].candidates
        allowed = [c for c in candidates if c.dropped is None]
        part = allowed[:CONSIDERED] if round_ == 0 else allowed[CONSIDERED:]
        return Drawn(part, time.process_time() - start)

    def say(self, question: Question, filters: Sequence[Filter], rounds: Iterator[Drawn], effort: Effort) -> FinalReply:
        """As `choose_filtered` does."""
        given = (one.candidates for one in islice(rounds, 2 if effort.again else 1))
        choice, _, redraws = choose_filtered(filters, question.ask, given, listed=1)
        return FinalReply(choice.text, redraws)


class Samples:
    """Of a bot that writes: its first samples, then those that it would draw again."""

    def __init__(self, spec: str) -> None:
        bot = make_bot(spec)
        assert isinstance(bot, BaseGenerativeBot), f"{spec} does not write"
        self.bot = bot

    def draw(self, question: Question, seed: int, round_: int) -> Drawn:
        """As many samples as the bot draws at once."""
        start = time.process_time()
        request, config, _ = self.bot.prepare(replace(question.ask, seed=seed))
        (generations,) = decode(
            self.bot.model,
            [request.view],
            config,
            [seed],
            prompt_tokens=[request.prompt_tokens],
            first_sample=round_ * config.draws,
        )
        candidates = [Candidate(g.text, g.score, None if g.finished else CUT) for g in generations]
        tokens = [Tokens(list(g.tokens), list(g.logprobs)) for g in generations]
        return Drawn(candidates, time.process_time() - start, tokens)

    def say(self, question: Question, filters: Sequence[Filter], rounds: Iterator[Drawn], effort: Effort) -> FinalReply:
        """As `DrawnCandidates` does."""
        request, config, own = self.bot.prepare(question.ask)
        policy = replace(
            own,
            filters=(*FORM, *filters),
            max_candidates=1,
            redraws=own.redraws if effort.again else 0,
            shorten=own.shorten and effort.shorten,
        )
        drawn = DrawnCandidates(request, config, policy, self.bot.model.tokenizer)
        while True:
            new = next(rounds)
            drawn.add([_generation(*pair) for pair in zip(new.candidates, new.tokens, strict=True)])
            if not drawn.wants_more:
                reply = drawn.choose_reply(0.0)
                shortened = any(one.note is not None for one in reply.candidates if one.text == reply.text)
                return FinalReply(reply.text, reply.redraws, shortened)


def _generation(candidate: Candidate, tokens: Tokens) -> Generation:
    """What a bot that writes had drawn."""
    total, number = sum(tokens.logprobs), len(tokens.logprobs)
    finished, score = candidate.dropped is None, candidate.score or 0.0
    logprobs = tuple(tokens.logprobs)
    return Generation(tuple(tokens.ids), candidate.text, total, number, score, finished, logprobs=logprobs)


class KeptRounds:
    """The rounds of a bot's candidates; kept in a file, if one is given, as generating them takes long."""

    def __init__(self, spec: str, source: Source, file: Path | None) -> None:
        self.spec, self.source, self.file = spec, source, file
        rows = [json.loads(line) for line in file.read_text().splitlines()] if file and file.exists() else []
        self._kept = {(row["question"], row["persona"], row["round"]): row for row in rows if row["bot"] == spec}

    def rounds(self, question: Question, seed: int) -> Iterator[Drawn]:
        """One after the other, as long as anybody wants more."""
        persona = " ".join(question.persona.sentences)
        for round_ in count():
            key = (question.text, persona, round_)
            if key not in self._kept:
                drawn = self.source.draw(question, seed, round_)
                row = {"bot": self.spec, "question": question.text, "persona": persona, "round": round_}
                row |= {
                    "candidates": [[c.text, c.score, c.dropped] for c in drawn.candidates],
                    "seconds": drawn.seconds,
                    "tokens": drawn.tokens,
                }
                self._kept[key] = row
                if self.file:
                    with self.file.open("a") as out:
                        out.write(json.dumps(row) + "\n")
            row = self._kept[key]
            tokens = [Tokens(*one) for one in row["tokens"]]
            yield Drawn([Candidate(*one) for one in row["candidates"]], row["seconds"], tokens)


class Metered:
    """Rounds that count the CPU seconds they took when they were drawn, instead of those that they take now."""

    def __init__(self, rounds: Iterator[Drawn]) -> None:
        self._rounds, self.seconds = rounds, 0.0

    def __iter__(self) -> "Metered":
        return self

    def __next__(self) -> Drawn:
        start = time.process_time()
        drawn = next(self._rounds)
        self.seconds += drawn.seconds - (time.process_time() - start)
        return drawn


def chosen(
    kept: KeptRounds, questions: Sequence[Question], filters: Sequence[Filter], effort: Effort
) -> list[TimedReply]:
    """What a bot says with these filters."""
    replies = []
    for i, question in enumerate(questions):
        rounds, start = Metered(kept.rounds(question, i)), time.process_time()
        said = kept.source.say(question, filters, rounds, effort)
        replies.append(TimedReply(said, rounds.seconds + time.process_time() - start))
    return replies


def with_option(spec: str, option: str) -> str:
    return f"{spec}{'&' if '?' in spec else '?'}{option}"


def blames(judge: ConsistencyClassifier, claims: Sequence[Claim], *, related_only: bool) -> np.ndarray:
    """The highest probability of contradiction in each claim."""
    verdicts = consistency_verdicts(judge, claims, threshold=1e-9, related_only=related_only)
    return np.array([v.probability if v.relation == "contradiction" else 0.0 for v in verdicts])


def threshold_for(judge: ConsistencyClassifier, claims: Sequence[Claim], share: float, *, related_only: bool) -> float:
    """The probability from which this share of people's replies is blamed, at least 0.5 and rounded up."""
    limit = float(np.quantile(blames(judge, claims, related_only=related_only), 1 - share))
    return min(0.999, max(0.5, np.ceil(limit * 1000) / 1000))


def interval(values: np.ndarray, clusters: Sequence[str], low: float = 0.0) -> tuple[float, str]:
    """The mean of values between `low` and 1, with its interval."""
    (one,) = bootstrap_means(values.reshape(-1, 1).astype(float), clusters, bounds=[(low, 1.0)], seed=0)
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
    judges: dict[str, Judge],
    figures: dict[str, float],
) -> dict[str, np.ndarray]:
    """Rows of the table: shares that contradict and that speak from the persona, by every judge."""
    people = [" ".join(one.premises) for one in said]
    contradicting = {}
    for judge_name, judge in judges.items():
        verdicts = consistency_verdicts(judge.classifier, said, threshold=judge.threshold)
        contradicting[judge_name] = np.array([v.relation == "contradiction" for v in verdicts], float)
        against, shown = interval(contradicting[judge_name], people)
        from_it, shown_from = interval(np.array([v.relation == "entailment" for v in verdicts]), people)
        print(f"{name:<44}{judge_name:<16}{shown:>24}{shown_from:>24}{seconds:>9.3f}", flush=True)
        figures |= {f"{name}, {judge_name} contradicts": against, f"{name}, {judge_name} uses": from_it}
    figures[f"{name} seconds"] = seconds
    return contradicting


def judge_bot(
    kept: KeptRounds,
    own: Sequence[Question],
    filters: dict[str, str],
    judges: dict[str, Judge],
    figures: dict[str, float],
    args: argparse.Namespace,
) -> None:
    """A bot's replies without a filter and with each, and what is left of the contradictions."""
    spec = kept.spec
    replies = {"off": chosen(kept, own, (), Effort(again=False))}
    efforts = {", first only": Effort(again=False)} if args.first_only else {}
    if args.whole and isinstance(kept.source, Samples):
        efforts |= {
            f"{less}, whole": effort._replace(shorten=False) for less, effort in ({"": Effort()} | efforts).items()
        }
    for name, on in filters.items():
        for less, effort in (efforts | {"": Effort()}).items():  # filters made anew: a model remembers what it has read
            replies[name + less] = chosen(kept, own, make_filters(on), effort)
    without: dict[str, np.ndarray] = {}
    people = [" ".join(question.persona.sentences) for question in own]
    errors = {judge: figures.get(f"{PEOPLE}, {judge} contradicts", 0.0) for judge in judges}
    for state, given in replies.items():
        said = [Claim(one.text, q.persona.sentences, q.text) for one, q in zip(given, own, strict=True)]
        name = f"{Path(spec.partition('?')[0]).name}, filter {state}"
        seconds = sum(one.seconds for one in given) / max(1, len(given))
        contradicting = judge_replies(name, said, seconds, judges, figures)
        form = {
            "redraws a reply": np.mean([one.said.redraws for one in given]),
            "shortened": np.mean([one.said.shortened for one in given]),
            "words": np.mean([len(words(one.text)) for one in given]),
        }
        print(f"{'':<44}{', '.join(f'{what}: {value:.3f}' for what, value in form.items())}")
        figures |= {f"{name} {what}": float(value) for what, value in form.items()}
        without = without or contradicting
        for judge, now in contradicting.items():
            if state != "off" and without[judge].any():
                figures[f"{name}, {judge} left"] = left(now, without[judge], people, judge)
                if error := errors[judge]:  # blamed of people's own replies: not all that is left is the bot's
                    net = left(now - error, without[judge] - error, people, f"{judge}, less {error:.3f}")
                    figures[f"{name}, {judge} left, less its error"] = net
    if args.blind:
        read_blind(args.blind / Path(spec.partition("?")[0]).name, own[:READ], replies)
    for i, question in enumerate(own[: args.show]):
        print(f"  {question.text}  ({question.sentence})")
        print("\n".join(f"    {state + ':':<16}{given[i].text}" for state, given in replies.items()))


def read_blind(file: Path, own: Sequence[Question], replies: dict[str, list[TimedReply]]) -> None:
    """Replies to read without knowing which is which, and, once verdicts on them have been written, what they say.

    FILE.txt has the reply without the filter and the one with the last filter, as A and B in random order (once if they
    are the same); FILE.key.json says which is which. FILE.verdicts.txt is for whoever reads: `7A` or `7AB` for each
    reply that contradicts the persona, separated by white space.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    pair, rng, lines = ("off", list(replies)[-1]), random.Random(f"blind {file.name}"), []
    key = [rng.sample(pair, 2) for _ in own]
    for i, (question, order) in enumerate(zip(own, key, strict=True)):
        texts = [replies[state][i].text for state in order]
        lines += [f"{i}. {question.text}  ({' '.join(question.persona.sentences)})"]
        lines += [
            f"    {'AB'[k] if len(set(texts)) > 1 else 'AB'}: {text}" for k, text in enumerate(dict.fromkeys(texts))
        ]
    file.with_suffix(".txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    file.with_suffix(".key.json").write_text(json.dumps(key), encoding="utf-8")
    verdicts = file.with_suffix(".verdicts.txt")
    if not verdicts.is_file():
        return
    blamed = {
        (int(v.rstrip("AB")), side)
        for v in verdicts.read_text(encoding="utf-8").split()
        for side in v.lstrip("0123456789")
    }
    sides = {state: ["AB"[order.index(state)] for order in key] for state in pair}
    given = {
        state: np.array([float((i, side) in blamed) for i, side in enumerate(own_)]) for state, own_ in sides.items()
    }
    print(f"{'':<44}by reading {len(own)}: {' and '.join(f'{state} {int(v.sum())}' for state, v in given.items())}")
    left(given[pair[1]], given["off"], [" ".join(q.persona.sentences) for q in own], "reader")


def left(now: np.ndarray, without: np.ndarray, people: Sequence[str], judge: str) -> float:
    """What is left of the contradictions; prints it."""
    share = float(now.mean() / without.mean())
    low, high = ratio_interval(now, without, people)
    print(f"{'':<44}{judge:<28} left of those without: {share:.3f} [{low:.3f}, {high:.3f}], n = {len(now)}")
    return share


def ratio_interval(top: np.ndarray, bottom: np.ndarray, clusters: Sequence[str]) -> tuple[float, float]:
    """Of the ratio of two means over the same replies, by bootstrap over clusters."""
    names, codes = np.unique(clusters, return_inverse=True)
    draws = np.random.default_rng(0).multinomial(len(names), np.full(len(names), 1 / len(names)), size=1000)[:, codes]
    low, high = np.quantile((draws @ top) / np.maximum(draws @ bottom, 1e-9), (0.025, 0.975))
    return float(low), float(high)


def sets_threshold(dialogue: Dialogue) -> bool:
    """Whether a dialogue of the training split is for thresholds; no model may learn from these."""
    return int(fingerprint([dialogue.id, "threshold"]), 16) % THRESHOLD_SHARE == 0


def of_people(dialogues: Sequence[Dialogue], count: int) -> list[Claim]:
    """People's replies, one per dialogue, against their own personas: what is found here is mostly a judge's error."""
    rng = random.Random(0)
    drawn = (rng.choice(list(exchanges(dialogue))) for dialogue in rng.sample(dialogues, min(len(dialogues), count)))
    return [Claim(e.response.text, e.persona.sentences, e.context[-1].text) for e in drawn if e.persona]


def judge_ranking(
    name: str,
    bot: RankingBot,
    dialogues: Sequence[Dialogue],
    on: Sequence[Filter],
    limit: int,
    figures: dict[str, float],
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
    difference, shown_difference = interval(np.array(hits, float) - np.array(plain_hits, float), clusters, -1.0)
    print(
        f"{bot.spec}, {name}: hits@1 {shown}, filtered {shown_on}, difference {shown_difference};"
        f" true replies dropped {shown_lost}"
    )
    figures |= {f"{bot.spec} hits@1": before, f"{bot.spec}, {name}, hits@1 filtered": after}
    figures |= {f"{bot.spec}, {name}, hits@1 difference": difference, f"{bot.spec}, {name}, true dropped": lost}


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
    parser.add_argument("--bot", action="append", default=[], help="a bot that chooses replies; repeat for more")
    parser.add_argument("--generator", action="append", default=[], help="a bot that draws several samples")
    parser.add_argument("--judge", default="", help="run folder of the recipe entailment: judges replies")
    parser.add_argument("--model", default="", help="another one, for the filter")
    parser.add_argument("--pairs", type=Path, action="append", default=[], help="labelled pairs (utterance, persona)")
    parser.add_argument("--n", type=int, default=300, help="questions")
    parser.add_argument(
        "--skip", type=int, default=0, help="questions to leave out first: others to choose settings on"
    )
    parser.add_argument("--slow-n", type=int, default=SLOW, help="questions for generative bots")
    parser.add_argument("--people-n", type=int, default=300, help="replies of people")
    parser.add_argument("--train-n", type=int, default=300, help="replies of people to choose thresholds on")
    parser.add_argument("--rank-n", type=int, default=300, help="ranking tasks")
    parser.add_argument("--replies", type=Path, help="a file to keep candidates in, and to take them from")
    parser.add_argument("--whole", action="store_true", help="also without shortened candidates, for bots that write")
    parser.add_argument("--first-only", action="store_true", help="also without looking for more candidates")
    parser.add_argument("--blind", type=Path, help="a folder for replies to read without knowing which is which")
    parser.add_argument("--show", type=int, default=0, help="print so many questions, with the replies")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="few questions and pairs")
    return parser.parse_args()


def main() -> None:
    args = parse()
    figures: dict[str, float] = {}
    dialogues = list(load_dialogues(args.data, split="valid"))
    personas = [persona for dialogue in dialogues for persona in dialogue.personas.values()]
    wanted = 20 if args.quick else args.n
    questions = make_questions([*personas, *sample.personas()], args.skip + wanted, args.seed)[args.skip :]
    for question in questions[: args.show]:
        print(f"{question.kind:<10}{question.text:<50}{question.sentence}")
    judges, filters = {"rules": Judge(load_consistency("rules"))}, {"rules": "consistent"}
    training = filter(sets_threshold, load_dialogues(args.data, split="train")) if args.judge or args.model else ()
    people = of_people(list(training), args.train_n)
    if args.judge:
        trained = Remembering(load_consistency(args.judge), size=10**6)
        for error in (JUDGE_ERROR, SURE_ERROR):
            limit = threshold_for(trained, people, error, related_only=False)
            judges[f"judge {error:.0%}"] = Judge(trained, limit)
            figures[f"judge {error:.0%} threshold"] = limit
    if args.model:
        limit = threshold_for(load_consistency(args.model), people, FILTER_ERROR, related_only=True)
        path = str(Path(args.model).resolve()).replace(",", "%2C").replace(":", "%3A")
        filters["rules+model"] = f"consistent:classifier=rules+{path}:model_threshold={limit}"
        figures["filter threshold"] = limit
    if args.pairs:
        models = {name: judge.classifier for name, judge in judges.items()}
        models |= {"filter's model": load_consistency(args.model)} if args.model else {}
        judge_classifiers(models, labelled_sets(args, dialogues), figures)
    print(f"thresholds: { {name: value for name, value in figures.items() if 'threshold' in name} }")
    print(f"\n{'':<44}{'judge':<16}{'contradicts':>24}{'uses persona':>24}{'CPU s':>9}")
    judge_replies(PEOPLE, of_people(dialogues, args.people_n), 0.0, judges, figures)
    for spec in args.bot:
        pool = Pool(spec)
        judge_bot(KeptRounds(spec, pool, args.replies), questions, filters, judges, figures, args)
        for name, on in filters.items() if isinstance(pool.bot, RankingBot) else ():
            judge_ranking(name, pool.bot, dialogues, make_filters(on), 20 if args.quick else args.rank_n, figures)
    for spec in args.generator:
        kept = KeptRounds(spec, Samples(spec), args.replies)
        judge_bot(kept, questions[: args.slow_n], filters, judges, figures, args)
    settings = {"n": len(questions), "seed": args.seed, "bots": [*args.bot, *args.generator], "quick": args.quick}
    finish("consistency", figures, settings | {"slow_n": args.slow_n, "judge_error": JUDGE_ERROR})


if __name__ == "__main__":
    main()
