"""Asking the judge: one call per question, a few at a time, and every answer kept the moment it arrives.

The answers are a file of JSON lines that only grows, one per model, in the cache folder. The key of a line is a digest
of everything the answer depends on: model, address, prompt, temperature, seed, version of the questions. So a run that
was interrupted, even killed, goes on where it was when it is started again, and a finished one makes no calls at all.
A line that was cut off by a kill is skipped when the file is read.
"""

import fcntl
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Self

import orjson

from tertulia.artefacts.files import fingerprint
from tertulia.core.dialogue import Dialogue, Json, Turn
from tertulia.core.errors import EndpointError
from tertulia.core.reply import Ask, Reply
from tertulia.judge.llm.questions import VERSION, JudgePrompt, JudgeQuestion, expected_answer, parse_answer, reminder
from tertulia.talk.bots.openai import OpenAIBot

CHARACTERS_PER_TOKEN = 4.0
"""For the estimate of the cost: English text has about four characters per token."""
TOKENS_PER_MESSAGE = 4
"""What chat templates add to each message."""
ANSWER_TOKENS = 3
"""Tokens of an answer: a word and the end."""
TOP_LOGPROBS = 10


class CallSettings(NamedTuple):
    """What all calls of a judge have in common."""

    temperature: float = 0.0
    max_tokens: int = 16
    seed: int = 0
    logprobs: bool = False
    concurrency: int = 4


class JudgeTask(NamedTuple):
    """A question about a unit, ready to be asked."""

    question: JudgeQuestion
    prompt: JudgePrompt


class Answer(NamedTuple):
    """What the judge answered."""

    value: float
    """nan if the answer cannot be read, not even after the reminder."""
    text: str
    """The last answer as it came."""
    attempts: int = 1
    """2 if the first answer could not be read."""
    soft: bool = False
    """Whether the value is an expectation by log-probabilities."""
    checkpoint: str = ""
    """What the endpoint calls its model."""


class AnswerCache:
    """Answers by key; thread-safe, and safe with several processes: every line is appended in one write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._answers: dict[str, dict[str, Json]] = {}
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._read()

    def _read(self) -> None:
        data = self.path.read_bytes()
        for line in data.split(b"\n"):
            try:
                record = orjson.loads(line)
                self._answers[record["key"]] = record
            except (orjson.JSONDecodeError, KeyError, TypeError):
                continue  # empty, or cut off when its writer was killed
        if data and not data.endswith(b"\n"):
            os.write(self._file, b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def __contains__(self, key: str) -> bool:
        return key in self._answers

    def get(self, key: str) -> dict[str, Json] | None:
        """The kept answer."""
        return self._answers.get(key)

    def put(self, key: str, record: dict[str, Json]) -> None:
        """Keep an answer; it is in the file when this returns."""
        line = orjson.dumps({"key": key, **record}) + b"\n"
        with self._lock:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                os.write(self._file, line)
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
            self._answers[key] = {"key": key, **record}


class Judge:
    """A model behind an endpoint, with its settings and its kept answers."""

    def __init__(self, bot: OpenAIBot, cache: AnswerCache, settings: CallSettings) -> None:
        self.bot, self.cache, self.settings = bot, cache, settings
        self.calls = 0
        """Answers that were asked for, not found in the cache."""
        self.prompt_tokens = self.completion_tokens = 0
        """As the endpoint counts them, of these calls."""
        self._lock = threading.Lock()

    def is_kept(self, task: JudgeTask) -> bool:
        """Whether the first answer is known without a call."""
        return self._key(task, _conversation(task)) in self.cache

    def ask(self, tasks: Sequence[JudgeTask], progress: Callable[[int], None] = lambda n: None) -> list[Answer]:
        """The answers to all tasks. If the endpoint fails, the answers so far are kept, and the failure is raised.

        Equal tasks, such as those about the same reply to the same greeting, are asked once.
        """
        keys = [self._key(task, _conversation(task)) for task in tasks]
        once = dict(zip(keys, tasks, strict=True))
        progress(len(tasks) - len(once))
        answers = dict(zip(once, self._ask_each(list(once.values()), progress), strict=True))
        return [answers[key] for key in keys]

    def _ask_each(self, tasks: Sequence[JudgeTask], progress: Callable[[int], None]) -> list[Answer]:
        failed = threading.Event()

        def work(task: JudgeTask) -> Answer | None:
            if failed.is_set():
                return None
            try:
                answer = self._answer(task)
            except BaseException:
                failed.set()
                raise
            progress(1)
            return answer

        before = self.calls
        with ThreadPoolExecutor(self.settings.concurrency, thread_name_prefix="judge") as threads:
            futures = [threads.submit(work, task) for task in tasks]
            try:
                answers = [future.result() for future in futures]
            except EndpointError as error:
                for future in futures:
                    future.cancel()
                new = self.calls - before
                kept = f"{new} new answers are kept; the same command goes on from there. {error.hint}"
                raise EndpointError(error.message, hint=kept) from None
            except BaseException:
                failed.set()
                raise
        # A task is skipped only after a failure, and then an exception has been raised above.
        return [answer for answer in answers if answer is not None]

    def _answer(self, task: JudgeTask) -> Answer:
        """The answer, after one reminder if the first one cannot be read."""
        turns = _conversation(task)
        first = self._call(task, turns)
        answer = self._read(task, first, attempts=1)
        if not math.isnan(answer.value):
            return answer
        turns = [*turns, Turn("bot", str(first["text"]) or "..."), Turn("person", reminder(task.question))]
        return self._read(task, self._call(task, turns), attempts=2)

    def _read(self, task: JudgeTask, record: dict[str, Json], *, attempts: int) -> Answer:
        value, soft = parse_answer(task.question, str(record["text"])), record.get("expected")
        checkpoint = str(record.get("checkpoint") or "")
        if soft is not None and self.settings.logprobs:
            return Answer(float(soft), str(record["text"]), attempts, True, checkpoint)
        return Answer(math.nan if value is None else value, str(record["text"]), attempts, False, checkpoint)

    def _call(self, task: JudgeTask, turns: Sequence[Turn]) -> dict[str, Json]:
        key = self._key(task, turns)
        if (record := self.cache.get(key)) is not None:
            return record
        limits = {"temperature": self.settings.temperature, "max_tokens": self.settings.max_tokens}
        extra = {"logprobs": True, "top_logprobs": TOP_LOGPROBS} if self.settings.logprobs else {}
        dialogue = Dialogue("judge", tuple(turns), meta={"system": task.prompt.system})
        (reply,) = self.bot.reply([Ask(dialogue, "bot", self.settings.seed, limits | extra)])
        record = self._record(task, reply)
        self.cache.put(key, record)
        with self._lock:
            self.calls += 1
            self.prompt_tokens += reply.usage.prompt if reply.usage else 0
            self.completion_tokens += reply.usage.completion if reply.usage else 0
        return {"key": key, **record}

    def _record(self, task: JudgeTask, reply: Reply) -> dict[str, Json]:
        return {
            "text": reply.text,
            "expected": expected_answer(task.question, reply.logprobs) if self.settings.logprobs else None,
            "checkpoint": reply.provenance.checkpoint,
            "usage": [reply.usage.prompt, reply.usage.completion] if reply.usage else None,
            "question": task.question.id,
            "time": round(time.time()),
        }

    def _key(self, task: JudgeTask, turns: Sequence[Turn]) -> str:
        settings = self.settings
        numbers = (settings.temperature, settings.max_tokens, settings.seed, settings.logprobs)
        texts = [text for turn in turns for text in (turn.speaker, turn.text)]
        where = (self.bot.model, self.bot.endpoint.url, VERSION)
        return fingerprint([*where, *map(repr, numbers), task.question.id, task.prompt.system, *texts])


def _conversation(task: JudgeTask) -> list[Turn]:
    return [Turn("person", task.prompt.user)]


class CostEstimate(NamedTuple):
    """What a run will ask of the endpoint, before it does."""

    tasks: int
    """Questions, at most: whether a turn is specific is asked only if it makes sense."""
    calls: int
    """Those without a kept answer, equal ones once; an answer that cannot be read costs one more."""
    prompt_tokens: int
    completion_tokens: int
    cost: float | None
    """None without prices."""


def estimate_cost(
    judge: Judge, tasks: Sequence[JudgeTask], *, price_in: float | None = None, price_out: float | None = None
) -> CostEstimate:
    """Calls and tokens, by four characters per token; prices are per million tokens."""
    new = list({task.prompt: task for task in tasks if not judge.is_kept(task)}.values())
    characters = sum(len(task.prompt.system) + len(task.prompt.user) for task in new)
    prompt = math.ceil(characters / CHARACTERS_PER_TOKEN) + 2 * TOKENS_PER_MESSAGE * len(new)
    completion = ANSWER_TOKENS * len(new)
    priced = price_in is not None or price_out is not None
    cost = ((price_in or 0.0) * prompt + (price_out or 0.0) * completion) / 1e6
    return CostEstimate(len(tasks), len(new), prompt, completion, cost if priced else None)
