"""No text can freeze the process: whatever reads strangers' text takes time linear in its length.

Every such function is listed here and reads up to a megabyte of each of the worst texts. A quadratic function needs
minutes to hours for one of them, a linear one about a second, so a generous limit on CPU time tells them apart on any
machine; another process that runs meanwhile does not count.
"""

import gc
import math
import signal
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from inspect import getmembers, isfunction
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import FrameType

import numpy as np
import pytest

from tertulia.core import text as core_text
from tertulia.core.dialogue import Dialogue, Evidence, Message, Persona, Turn
from tertulia.core.reply import Ask
from tertulia.core.safety import normalise
from tertulia.corpus import rules, scrub
from tertulia.corpus.chatlogs import nicks, tags
from tertulia.corpus.chatlogs.exports import parse_slack
from tertulia.corpus.chatlogs.log import LogLine
from tertulia.corpus.custom_rules import Blocklist
from tertulia.corpus.shingles import shingle_sets
from tertulia.corpus.tag import make_taggers
from tertulia.corpus.taggers import DEFAULT, Tagger
from tertulia.judge.resources import emotions as emotion_resource
from tertulia.metrics.embeddings import WordVectors
from tertulia.metrics.metric import ConversationExample, Metric, MetricFamily, ReplyExample
from tertulia.metrics.overlap import normalised
from tertulia.metrics.registry import METRICS
from tertulia.metrics.shared_runs import TrainingTurns
from tertulia.models.generators.teachers import emotions
from tertulia.study.blinding import plain, task_view
from tertulia.study.presets import load_preset
from tertulia.study.units import Unit
from tertulia.study.writing import copied_words, longest_copied_run
from tertulia.talk import repetition
from tertulia.talk.chat import chat_messages
from tertulia.talk.filters.base import FILTERS, make_filters
from tertulia.talk.stop_sequences import StopSequences, cut_at_stop

Function = Callable[[str], object]

SIZES = (20_000, 200_000, 1_000_000)
"""Characters. A quadratic function fails at a small size, and does not hang at the largest."""
LIMIT_SECONDS = 5.0
"""CPU time for one text. Most functions take a tenth of a second for the largest, the safety filter up to three."""
TIME_LIMITS = tuple(max(0.4, LIMIT_SECONDS * size / SIZES[-1]) for size in SIZES)
MEASURABLE_SECONDS, MARGIN = 0.005, 0.2
MAX_GROWTH = 3.0
"""How much longer a text of twice the length may take; a quadratic function takes four times as long."""


def repeat(unit: str, *, before: str = "", after: str = "") -> Callable[[int], str]:
    """Texts of any size made of one repeated unit."""
    return lambda size: before + unit * ((size - len(before) - len(after)) // len(unit)) + after


def numbered(unit: str) -> Callable[[int], str]:
    """Texts of any size in which each unit is another one."""
    return lambda size: "".join(unit.format(i) for i in range(size // (len(unit.format(100_000)))))


TEXTS: dict[str, Callable[[int], str]] = {
    "dots": repeat("."),
    "dots before a letter": repeat(".", after="x"),
    "full stops": repeat("a. "),
    "question and exclamation marks": repeat("?!"),
    "question marks before a letter": repeat("?!", after="x"),
    "ideographic full stops": repeat("。", after="x"),
    "spaces": repeat(" "),
    "spaces between letters": repeat(" ", before="x", after="x"),
    "spaces before a dot": repeat(" ", before="mr", after=". x"),
    "newlines": repeat("\n"),
    "newlines before a letter": repeat("\n", after="x"),
    "quotation marks": repeat('"'),
    "quotation marks after a dot": repeat('"', before=".", after="x"),
    "dots and quotation marks": repeat(".'\""),
    "apostrophes": repeat("'"),
    "apostrophes after a letter": repeat("'", before="a"),
    "brackets": repeat("(["),
    "closing brackets": repeat(")]", before=".", after="x"),
    "one accent on one letter": repeat("\u0301", before="a"),
    "accents without a letter": repeat("\u0301"),
    "accents above and below one letter": lambda size: "a" + "\u0301" * (size // 2) + "\u0316" * (size // 2),
    "alternating accents on one letter": repeat("\u0301\u0316", before="e"),
    "accents that are two accents": repeat("\u0344\u0316"),
    "an accent on each letter": repeat("a\u0301"),
    "one long word": repeat("a"),
    "one long word before a mark": repeat("a", after="!"),
    "a long hyphenated word": repeat("-a", before="a"),
    "hyphens": repeat("-", before="a"),
    "underscores": repeat("_"),
    "laughter": repeat("ha"),
    "laughter that ends in a letter": repeat("ha", after="x"),
    "laughing out loud": repeat("lo", after="x"),
    "laughs": repeat("ha "),
    "emoji": repeat("🙂"),
    "a family of emoji": repeat("👩\u200d"),
    "ideographs": repeat("日"),
    "letters that grow in lower case": repeat("İ"),
    "abbreviations": repeat("mr. "),
    "abbreviated numbers": repeat("no. 5 "),
    "abbreviations with a space": repeat("dr . "),
    "different words": numbered("w{} "),
    "different sentences": numbered("It was {}. "),
    "different quotes": numbered("> w{}\n"),
    "quotes": repeat("> a\n"),
    "quote marks": repeat(">"),
    "negated insults": repeat("don't kill yourself "),
    "unfinished insults": repeat("you stupid ugly "),
    "unfinished threats": repeat("I will find you and "),
    "one unfinished insult": repeat("stupid ", before="you "),
    "hosts": repeat("www."),
    "hosts without a name": repeat(".", before="www"),
    "protocols": repeat("http://"),
    "paths": repeat("/a"),
    "path without a name": repeat(".", before="/a/"),
    "home folders": repeat("-~a"),
    "address marks": repeat(":", before="a", after="x"),
    "addresses": repeat("a: "),
    "at signs": repeat("@"),
    "changed nicks": repeat(" is now known as"),
    "unclosed Slack users": repeat("<@A|"),
    "unclosed Slack channels": repeat("<#a"),
    "unclosed Slack links": repeat("<a:a|"),
    "unclosed Slack channels before a user": repeat("<#a", after="<@A>"),
    "a mixture": repeat('Well... "isn\'t it"?! (no)\n\n😀 a\u0301-b: > http://x /etc/y 3.50 ha-ha\t_'),
}
PERSONAL_TEXTS: dict[str, Callable[[int], str]] = {
    "digits": repeat("1"),
    "digits and spaces": repeat("1 "),
    "digits and hyphens": repeat("12-"),
    "numbers like cards": repeat("4111 1111 1111 1112 "),
    "telephones without a number": repeat("call "),
    "telephones with too much of a number": repeat("call 1 2 3 4 5 6 "),
    "plus signs": repeat("+1"),
    "mail addresses that do not end": repeat("a@b."),
    "a mail address of numbers": repeat("1.", before="a@"),
    "mail addresses in words": repeat("a(at)"),
    "one long local part": repeat("a.", after="@"),
    "numbers and dots": repeat("1.2."),
    "colons between letters": repeat("a:"),
    "colons": repeat(":"),
    "beginnings of tokens": repeat("eyJ"),
    "tokens without an end": repeat("eyJhbGciOiJ."),
    "keys that begin": repeat("-----BEGIN PRIVATE KEY-----"),
    "key prefixes": repeat("sk-"),
    "passwords": repeat("password="),
    "passwords without a digit": repeat("password=abcdefgh "),
    "house numbers": repeat("1 Elm "),
    "house numbers and names": repeat("1 Elm Oak Ash "),
    "capitalised names": repeat("Aa Bb, "),
    "German streets": repeat("Astra"),
}
"""Almost personal data, for what looks for it."""
ALWAYS_FULL = ("dots before a letter", "accents above and below one letter", "one long word", "a mixture")
"""Texts of which every function reads the full megabyte, however fast it was with less."""


def ask(text: str) -> Ask:
    """A conversation in which both sides have said the text before."""
    turns = (Turn("ana", text), Turn("bot", text), Turn("ana", text))
    return Ask(Dialogue("d", turns, {"bot": Persona((text,))}, evidence=(Evidence(text),)), "bot")


_filters = cache(make_filters)  # a classifier is loaded once


def apply_filter(name: str, text: str) -> object:
    (one,) = _filters("safety:swearing=true" if name == "safety" else name)
    return one(ask(text), text)


METRIC_RESOURCES = {
    "word_vectors": WordVectors.of({word: np.ones(8) for word in ("a", "x", "ha", "you", "w1", "日", "stupid", "is")}),
    "emotions": emotion_resource(""),
    "training_turns": TrainingTurns([("a", "b")]),
    "logprobs": [-1.0],
    "seconds": 1.0,
}
"""What metrics of texts need, except for neural models, which truncate their texts."""


def text_metrics() -> dict[str, Metric]:
    """All metrics of replies and conversations that need no neural model; of a family, the one of 2."""
    metrics = {}
    for row in METRICS.rows():
        metric = METRICS.get(row.name)
        if isinstance(metric, MetricFamily):
            metric = metric.make(row.name, *range(2, 2 + sum(row.name.count(letter) for letter in "KMN")))
        if metric and metric.unit in ("reply", "conversation") and set(metric.needs) <= set(METRIC_RESOURCES):
            metrics[row.name] = metric
    return metrics


def measure(metric: Metric, text: str) -> object:
    resources = METRIC_RESOURCES | {"word_vectors": replica(METRIC_RESOURCES["word_vectors"])}
    if metric.unit == "reply":
        return metric.measure([ReplyExample(text, text, (text,))], resources)
    return metric.measure([ConversationExample((text, text, text), (True,) * 3)], resources)


def replica(vectors: WordVectors) -> WordVectors:
    """The same vectors, without the texts that were looked up before."""
    return WordVectors(vectors.index, vectors.matrix)


def stream(text: str, *, stops: list[str], strip: bool) -> object:
    """The text in small pieces."""
    sequences = StopSequences(stops, strip=strip)
    return "".join([sequences.feed(text[i : i + 20]) for i in range(0, len(text), 20)]) + sequences.rest()


def reason_to_remove(text: str) -> object:
    item = rules.RuleInput(Message("1", "ana", text), text, text, 1, len, lambda message: False)
    return rules.reason_to_remove(item, rules.MiningRules(min_letters=0, max_overlap=1))


CORE: dict[str, Function] = {
    "clean": core_text.clean,
    "visible": core_text.visible,
    "squash": core_text.squash,
    "words": core_text.words,
    "words_of_each": lambda text: core_text.words_of_each([text, text[:5]]),
    "tokens": core_text.tokens,
    "sentences": core_text.sentences,
    "sentence_spans": core_text.sentence_spans,
    "ngrams": lambda text: sum(1 for _ in core_text.ngrams(text.split(), 3)),
    "is_question": core_text.is_question,
}


def apply_taggers(text: str) -> object:
    """The taggers that use nothing that is checked by itself (`filter safety`, personal data)."""
    return [tagger([Dialogue("d", (Turn("ana", text),))]) for tagger in _taggers()]


@cache
def _taggers() -> list[Tagger]:
    taggers = make_taggers([name for name in DEFAULT if name not in ("safety", "pii")])
    for tagger in taggers:
        tagger([Dialogue("d", (Turn("ana", "hi there"),))])  # loads its model
    return taggers


_taggers()


@cache
def _blocklist() -> Blocklist:
    with NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
        file.write("a a a b\nw1 w2 x\nha ha no\n")
    return Blocklist(file=Path(file.name))


CORPUS: dict[str, Function] = {
    "share_of_letters": rules.share_of_letters,
    "is_letter": lambda text: [rules.is_letter(character) for character in text[:1000]],
    "overlap": lambda text: rules.overlap(text, text, 3),
    "without_quotes": lambda text: rules.without_quotes(text, text),
    "without_quotes of another text": lambda text: rules.without_quotes(text, text.replace(">", "").replace("w", "-")),
    "reason_to_remove": reason_to_remove,
    "tag": lambda text: tags.tag(text, {"aaa", "---"}),
    "tag_dialogue": lambda text: tags.tag_dialogue(Dialogue("d", (Turn("ana", text),)), {"aaa"}),
    "is_common": nicks.is_common,
    "parse_address": lambda text: nicks.parse_address(text, {"a", "@"}),
    "mentions": lambda text: nicks.mentions(text, {"aaa"}),
    "aliases": lambda text: nicks.aliases([LogLine(0, 0.0, "", text, "system")]),
    "shingle_sets": lambda text: shingle_sets([text, text[1:]]),
    "taggers": apply_taggers,
    "blocklist": lambda text: _blocklist()(Dialogue("d", (Turn("ana", text),))),
    "parse_slack": lambda text: parse_slack([{"ts": "1", "user": "U", "text": text}], {"U": "ana"}),
}
TALK: dict[str, Function] = {
    "chat_messages": lambda text: chat_messages(ask(text).dialogue, "bot"),
    "persona_sentences": lambda text: repetition.persona_sentences(ask(text)),
    "text_key": repetition.text_key,
    "evidence_candidates": lambda text: repetition.evidence_candidates(ask(text)),
    "overlap of words": lambda text: repetition.overlap(text.split(), text.split()),
    "RepetitionCheck": lambda text: repetition.RepetitionCheck.of(ask(text + " more")).reason(
        text, repeat_overlap=2, echo=2
    ),
    "normalise": normalise,
    "cut_at_stop": lambda text: cut_at_stop(text, [text[: len(text) // 2] + "#", text[-9:] + "#"], strip=True),
    "StopSequences": partial(stream, stops=["aab", "..#"], strip=True),
    "StopSequences of a long stop sequence": lambda text: stream(text, stops=[text[:-1] + "#"], strip=False),
    "normalised": normalised,
    "emotions": emotions,
}
STUDY: dict[str, Function] = {
    "plain": plain,
    "longest_copied_run": lambda text: longest_copied_run(text, [text[: len(text) // 2], text]),
    "copied_words": lambda text: copied_words(text, text, "en"),
    "task_view of sentences": lambda text: task_view(
        load_preset("begin"), Unit("u", ("b",), {"context": [], "responses": [text], "evidence": text}), (0,), "en"
    ),
}
FILTER_NAMES = ("empty", "too-long", "cross-turn", "in-turn", "safety", "grounded", "consistent")
FUNCTIONS: dict[str, Function] = {
    **CORE,
    **CORPUS,
    **TALK,
    **STUDY,
    **{f"filter {name}": partial(apply_filter, name) for name in FILTER_NAMES},
    **{f"metric {name}": partial(measure, metric) for name, metric in text_metrics().items()},
}


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Interrupts what takes more CPU time; pytest-timeout has the timer of wall time for itself."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code.co_filename == weakref.__file__:
            signal.setitimer(signal.ITIMER_PROF, 0.01)  # an exception in its callbacks would be lost: a little later
            return
        raise TimeoutError(f"more than {seconds} CPU seconds")

    previous = signal.signal(signal.SIGPROF, interrupt)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def cpu_seconds(function: Function, text: str, limit: float) -> float:
    """The CPU time of a call, which is interrupted beyond the limit (unless it spends all of it in C)."""
    gc.disable()  # a collection of what other tests left behind is not the function's time
    try:
        start = time.process_time()
        with cpu_limit(limit):
            function(text)
        return time.process_time() - start
    finally:
        gc.enable()


def complaint(function: Function, make: Callable[[int], str], *, full: bool = False) -> str | None:
    """What is wrong each of three times with the time that a function takes, or None: a busy processor is slow too."""
    problem = None
    for _ in range(3):
        problem = complaint_once(function, make, full=full)
        if problem is None:
            break
    return problem


def complaint_once(function: Function, make: Callable[[int], str], *, full: bool) -> str | None:
    """What is wrong with the time that a function takes for growing texts, or None.

    Unless `full`, a larger size is left out where it cannot fail: it would stay within the limit with a little more
    than the power with which the time has grown so far, or with the second where that cannot be told.
    """
    before = seconds = 0.0
    for i, (size, limit) in enumerate(zip(SIZES, TIME_LIMITS, strict=True)):
        if i and not full and seconds * (size / SIZES[i - 1]) ** power(i, before, seconds) < limit:
            return None
        before = seconds
        try:
            seconds = cpu_seconds(function, make(size), limit)
        except TimeoutError as error:
            return f"{error} for {size:,} characters"
        if seconds > limit:
            return f"{seconds:.1f} CPU seconds for {size:,} characters"
    if seconds > LIMIT_SECONDS / 5:
        half = cpu_seconds(function, make(SIZES[-1] // 2), LIMIT_SECONDS)
        if seconds > MAX_GROWTH * half:
            return f"{half:.2f} CPU seconds for half of the text, {seconds:.2f} for all of it"
    return None


def power(i: int, before: float, seconds: float) -> float:
    """A little more than the power of the size with which the time has grown, up to the size before the i-th.

    2 where the first size takes too little time to tell.
    """
    if i < 2 or min(before, seconds) < MEASURABLE_SECONDS:
        return 2.0
    return max(1.0, math.log(seconds / before) / math.log(SIZES[i - 1] / SIZES[i - 2])) + MARGIN


@pytest.mark.slow
@pytest.mark.timeout(1800)  # wall time, on a busy machine; cpu_limit is what notices a freeze
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_megabyte_of_the_worst_text_takes_linear_time(name: str) -> None:
    complaints = {text: complaint(FUNCTIONS[name], make, full=text in ALWAYS_FULL) for text, make in TEXTS.items()}
    assert {text: problem for text, problem in complaints.items() if problem} == {}


@pytest.mark.slow
def test_what_is_almost_personal_data_takes_linear_time() -> None:
    texts = PERSONAL_TEXTS | {"a mixture": TEXTS["a mixture"], "different words": TEXTS["different words"]}
    complaints = {text: complaint(scrub.scrub, make) for text, make in texts.items()}
    assert {text: problem for text, problem in complaints.items() if problem} == {}


def test_a_quadratic_function_is_reported() -> None:
    def quadratic(text: str) -> None:
        for i in range(len(text)):
            text.count("#", i)

    problem = complaint(quadratic, repeat("a"))
    assert problem is not None
    assert "CPU seconds" in problem
    assert power(2, 0.01, 1.0) == 2 + MARGIN
    assert power(2, 0.01, 0.1) == 1 + MARGIN
    assert power(2, 0.001, 0.01) == 2, "too little time to tell"


def test_every_public_function_of_core_text_is_checked() -> None:
    public = {
        name
        for name, function in getmembers(core_text, isfunction)
        if function.__module__ == core_text.__name__ and not name.startswith("_")
    }
    assert set(CORE) == public - {"plural"}, "it reads only our own nouns"


def test_every_rule_of_mining_is_checked() -> None:
    for module in (rules, tags, nicks, repetition):
        public = {
            name
            for name, function in getmembers(module, isfunction)
            if function.__module__ == module.__name__ and not name.startswith("_")
        }
        assert public - {"common_words"} <= {*CORPUS, *TALK}


def test_every_filter_is_checked() -> None:
    assert set(FILTER_NAMES) == set(FILTERS)


def test_every_kind_of_text_metric_is_checked() -> None:
    checked = {f"metric {name}" for name in ("f1", "bleu-N", "embedding greedy", "rouge-l", "laughter", "loop")}
    assert checked <= set(FUNCTIONS)
