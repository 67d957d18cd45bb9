"""Simulated raters walk a study through its HTTP API, exactly as the page of a participant does.

The server is a real one, on this machine and with a temporary database. What a rater thinks of a bot is looked up in
the database by assignment, since the API does not tell which bot is shown.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx

from tertulia.core.dialogue import Json
from tertulia.core.errors import TertuliaError
from tertulia.store import StudyStore
from tertulia.study.config import StudyConfig
from tertulia.study.questions import SIDES, Question
from tertulia.study.simulate import ShownBots, SimulatedRater, item_quality

ENDS = ("done", "screened_out", "timed_out", "partner_left", "withdrawn", "closed")
PARALLEL = 4
"""Raters who are there at the same time."""


class RaterWalk:
    """One rater's way through a study."""

    def __init__(
        self,
        address: str,
        study: str,
        config: StudyConfig,
        rater: SimulatedRater,
        shown_for: Callable[[str], ShownBots],
    ) -> None:
        """`shown_for` an assignment gives the bots on its sides."""
        self._study, self._config, self._rater = study, config, rater
        self._shown_for = shown_for
        self._client = httpx.Client(base_url=address, timeout=60, headers={"Origin": address})
        self._state: dict[str, Json] = {}
        self._key = 0

    def enter(self) -> None:
        """Open the link."""
        entry = self._client.get(f"/study/{self._study}", params={"PROLIFIC_PID": self._rater.name})
        if entry.is_error:
            raise TertuliaError(f"A simulated rater cannot enter the study ({entry.status_code}): {entry.text}")
        self._state = self._call("state")

    def walk_on(self) -> bool:
        """Go on until a task is done or the end has come; whether there is more to do."""
        done = self._state["progress"]["done"]
        while self.end is None and self._state["progress"]["done"] == done:
            self._state = self._step(self._state)
        return self.end is None

    @property
    def end(self) -> str | None:
        """How it ended, if it has."""
        return self._state["step"] if self._state["step"] in ENDS else None

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _call(self, action: str, body: Mapping[str, Json] | None = None) -> dict[str, Json]:
        path = f"/api/study/{self._study}/{action}"
        response = self._client.get(path) if body is None else self._client.post(path, json=dict(body))
        while response.status_code in (429, 503):  # too fast, even for a simulated rater
            time.sleep(min(float(response.headers.get("Retry-After", "0.2")), 5.0))
            response = self._client.get(path) if body is None else self._client.post(path, json=dict(body))
        if response.is_error:
            raise TertuliaError(
                f"A simulated rater was refused at {action!r} ({response.status_code}): {response.text}"
            )
        return dict(response.json())

    def _step(self, state: Mapping[str, Json]) -> dict[str, Json]:
        match state["step"]:
            case "consent":
                version = state["consent"]["version"]
                return self._call("consent", {"version": version, "language": state["language"]})
            case "tutorial":
                return self._call("tutorial", {})
            case "training":
                index = state["training"]["index"]
                return self._call("training", {"index": index, "value": self._training_answer(index)})
            case "work":
                return self._work(state)
        raise TertuliaError(
            "Simulated raters do not talk to each other.", hint="Simulate a study whose partners are bots."
        )

    def _training_answer(self, index: int) -> Json:
        training = self._config.training[index]
        question = self._config.question(training.question)
        if question is None or self._rater.pays_attention():
            return training.answer
        return self._rater.wrong_answer(question, training.answer)

    def _work(self, state: Mapping[str, Json]) -> dict[str, Json]:
        task = state.get("task")
        if task is not None:
            return self._task(task)
        if "attention" in state:
            shown = state["attention"]["question"]["id"]
            check = next(check for check in self._config.attention if check.question.id == shown)
            attentive = self._rater.pays_attention()
            value = check.answer if attentive else self._rater.wrong_answer(check.question, check.answer)
            return self._call("attention", {"value": value})
        if state.get("preparing"):
            time.sleep(0.05)  # the bots are being loaded
        return self._call("next", {})

    def _task(self, task: Mapping[str, Json]) -> dict[str, Json]:
        assignment = str(task["assignment"])
        shown = self._shown_for(assignment)
        if "chat" in task:
            self._chat(task, shown)
        labels = [
            label for target, questions in self._targets(task) for label in self._labels(target, questions, shown)
        ]
        if labels:
            self._save(assignment, labels)
        return self._call("submit", {"assignment": assignment, "key": self._next_key()})

    def _targets(self, task: Mapping[str, Json]) -> Iterator[tuple[str, Sequence[Question]]]:
        """What is asked at the end, apart from turns."""
        asked = self._config.questions_of
        yield "unit", asked("unit")
        for side in task["sides"] if asked("side") else ():
            yield f"side:{side}", asked("side")
        if asked("sentence"):
            parts = task["persona"] if self._config.protocol == "write" else task["responses"][0]["sentences"]
            for i in range(len(parts)):
                yield f"sentence:{i}", asked("sentence")

    def _labels(self, target: str, questions: Sequence[Question], shown: ShownBots) -> list[dict[str, Json]]:
        kind, _, name = target.partition(":")
        answers = self._rater.answers(questions, shown.at(name if kind == "side" else None))
        return [{"target": target, "question": question, "value": value} for question, value in answers.items()]

    def _chat(self, task: Mapping[str, Json], shown: ShownBots) -> None:
        """Talk as long as needed, and label every turn of the bot."""
        assignment, chat = str(task["assignment"]), task["chat"]
        said = 0
        while True:
            self._label_turns(assignment, chat, shown)
            chat = self._call("state")["task"]["chat"]
            if chat["can_finish"] or chat["ended"]:
                break
            body = {"assignment": assignment, "text": self._rater.chat_line(said, self._config.max_words)}
            self._call("say", body | {"key": self._next_key(), "stream": False})
            said += 1
            chat = self._settled()
        if not chat["ended"]:
            self._call("finish", {"assignment": assignment})

    def _settled(self) -> Mapping[str, Json]:
        """The chat once no reply is awaited."""
        while True:
            chat: Mapping[str, Json] = self._call("state")["task"]["chat"]
            if not any(turn["pending"] for turn in chat["turns"]):
                return chat
            time.sleep(0.02)

    def _label_turns(self, assignment: str, chat: Mapping[str, Json], shown: ShownBots) -> None:
        questions = self._config.questions_of("turn")
        for turn in chat["turns"]:
            if turn["mine"] or turn["labels"] or turn["pending"]:
                continue
            about = [q for q in questions if q.kind != "side" or turn["side"] in (None, "A")]
            labels = self._labels(f"turn:{turn['id']}", about, shown.at(turn["side"]))
            if labels:
                self._save(assignment, labels)

    def _save(self, assignment: str, labels: Sequence[Mapping[str, Json]]) -> None:
        seconds = self._config.pay.minutes_per_unit * 60
        body = {"assignment": assignment, "key": self._next_key(), "labels": [dict(label) for label in labels]}
        self._call("labels", body | {"seconds": seconds})

    def _next_key(self) -> str:
        self._key += 1
        return f"{self._rater.name}-{self._key}"


def walk_study(
    address: str,
    store: StudyStore,
    study: str,
    config: StudyConfig,
    raters: Sequence[SimulatedRater],
    qualities: Mapping[str, float],
    advance: Callable[[], None] = lambda: None,
    *,
    item_deviation: float = 0.0,
) -> dict[str, int]:
    """Let all raters take part, a task each in turn; returns how many ended how."""

    def shown_for(assignment: str) -> ShownBots:
        record = store.assignment(assignment)
        bots = store.unit(study, record.unit).bots
        on_item = [item_quality(qualities[bot], f"{record.unit} {bot}", item_deviation) for bot in bots]
        if config.asks_persona:
            return ShownBots(tuple(on_item), SIDES[record.side_order.index(0)])
        return ShownBots(tuple(on_item[i] for i in record.side_order[: len(bots)]) or (0.5,))

    walks = [RaterWalk(address, study, config, rater, shown_for) for rater in raters]
    try:
        with ThreadPoolExecutor(PARALLEL, thread_name_prefix="rater") as threads:
            list(threads.map(RaterWalk.enter, walks))
            active = walks
            while active:  # one task each, in turn: a few fast raters must not do all the work
                going_on = list(threads.map(RaterWalk.walk_on, active))
                for more in going_on:
                    if not more:
                        advance()
                active = [walk for walk, more in zip(active, going_on, strict=True) if more]
    finally:
        for walk in walks:
            walk.close()
    ends = [str(walk.end) for walk in walks]
    return {end: ends.count(end) for end in dict.fromkeys(ends)}
