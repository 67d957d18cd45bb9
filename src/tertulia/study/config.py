"""What a study is: its bots, items, questions, texts, limits, checks and pay, as one strict config.

A preset fills in most of it (`tertulia.study.presets`). Validators name the key that is wrong, so that an error of a
study's TOML file names its line.
"""

import secrets
from collections.abc import Iterator
from datetime import datetime
from typing import Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from tertulia.core.config import Config, InvalidKey
from tertulia.core.toml_lines import Location
from tertulia.study.localised import Language, Localised
from tertulia.study.questions import Answer, Question, Scope, fits

StudyProtocol = Literal["judge", "chat", "write"]
HUMAN = "human"
"""The specification of a partner who is another participant."""


class StudyBot(Config):
    """One of the bots that are compared."""

    name: str = Field(min_length=1, max_length=100)
    """Its name in the results; participants never see it."""
    spec: str = ""
    """What to run, such as "tfidf:DATA"; "human" pairs two participants. Empty: its responses are in the item file."""


class Consent(Config):
    """What participants agree to."""

    version: str = Field(default="1", min_length=1, max_length=40)
    """Recorded with each consent; change it whenever the text changes."""
    text: Localised
    """The text."""


class TrainingQuestion(Config):
    """A question with a known answer that participants must get right before they begin."""

    text: Localised
    """What is shown: usually a short conversation."""
    responses: tuple[Localised, ...] = ()
    """The responses to judge, if they are shown apart: one, or A and B."""
    evidence: Localised | None = None
    """The document that the response is about."""
    question: str
    """Id of the question that is asked."""
    answer: Answer
    """The right answer."""
    explanation: Localised
    """Why; shown after a wrong answer."""


class AttentionCheck(Config):
    """A question that anyone who reads it answers correctly."""

    question: Question
    """The question."""
    answer: Answer
    """Its only right answer."""
    every: int = Field(default=10, ge=1)
    """Shown after every so many units."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not fits(self.question, self.answer):
            raise InvalidKey(f"{self.answer!r} is no answer to this question", ("answer",))
        return self


class Codes(Config):
    """Completion codes; those that are empty are generated when the study opens."""

    done: str = ""
    """For participants who finish."""
    screened_out: str = ""
    """For participants who do not pass the training questions."""
    partner_left: str = ""
    """For participants whose partner left."""
    timed_out: str = ""
    """For participants who waited for a partner in vain."""


class Pay(Config):
    """What participants earn, and how long they need."""

    currency: str = Field(default="EUR", pattern=r"^[A-Z]{3}$")
    """Currency code."""
    per_hour: float = Field(default=12.0, ge=0)
    """Wage."""
    minutes_per_unit: float = Field(default=1.0, gt=0)
    """How long one unit takes."""
    minutes_overhead: float = Field(default=4.0, ge=0)
    """How long consent, tutorial and training take."""


class Stopping(Config):
    """Stop when a question is answered precisely enough."""

    question: str
    """Id of the question."""
    half_width: float = Field(gt=0)
    """Half-width of the confidence sequence at which the study may stop."""


class StudyConfig(Config):
    """A study."""

    preset: str = ""
    """The preset it is based on."""
    title: Localised
    """Title that participants see."""
    protocol: StudyProtocol
    """What participants do: judge fixed items, chat, or write."""
    languages: tuple[Language, ...] = Field(default=("en",), min_length=1)
    """Languages that participants may choose; the first is the default."""
    bots: tuple[StudyBot, ...] = ()
    """The bots that are compared; empty for items that have responses of their own."""
    items: str | None = None
    """JSON lines with contexts, responses, conversations, evidence or personas; relative to the study's file."""
    questions: tuple[Question, ...] = ()
    """The questions, in order."""
    ratings_per_unit: int = Field(default=1, ge=1)
    """How many participants rate each unit."""
    units_per_participant: int | None = Field(default=None, ge=1)
    """At most so many units per participant."""
    conversations_per_bot: int = Field(default=1, ge=1)
    """Chats: conversations with each bot, or each pair of bots, if there are no items; else per item."""
    sides: Literal[1, 2] = 1
    """Whether one thing is judged at a time, or two side by side."""
    persona: Literal["none", "bot", "participant"] = "none"
    """Chats: who plays the personas of the items."""
    min_turns: int = Field(default=0, ge=0)
    """Chats: turns of both sides before the participant may end the conversation."""
    min_turns_up_to: int | None = Field(default=None, ge=0)
    """Chats: the minimum is drawn for each conversation between min_turns and this."""
    max_turns: int | None = Field(default=None, ge=1)
    """Chats: turns of both sides after which the conversation ends."""
    opener: Localised | None = None
    """Chats: the first turn, in the name of the bot."""
    max_words: int | None = Field(default=None, ge=1)
    """Words of a message or a written text."""
    copy_limit: int | None = Field(default=None, ge=1)
    """Longest run of words that a message or a written text may have in common with the persona."""
    lease_minutes: float = Field(default=60.0, gt=0)
    """How long a unit is kept for a participant who does nothing."""
    reply_seconds: float | None = Field(default=None, ge=0)
    """Chats: show every reply after this many seconds, so that speed does not give a bot away."""
    instructions: Localised
    """What to do, shown beside the task."""
    tutorial: tuple[Localised, ...] = ()
    """Pages that are shown before the task."""
    consent: Consent
    """What participants agree to."""
    training: tuple[TrainingQuestion, ...] = ()
    """Questions that must all be answered correctly."""
    training_attempts: int = Field(default=2, ge=1)
    """Attempts at the training questions."""
    attention: tuple[AttentionCheck, ...] = ()
    """Checks of attention between units."""
    completion: Codes = Codes()
    """Completion codes."""
    access: Literal["identified", "open"] = "identified"
    """Who may take part: people with an id of a platform or an invitation, or everybody who has the link."""
    invitation_key: str = ""
    """Signs invitation links (`tertulia.study.invitations`); generated when the study opens if it is empty."""
    pay: Pay = Pay()
    """What participants earn."""
    ends: AwareDatetime | None = None
    """When the study closes, with a time zone."""
    max_participants: int | None = Field(default=None, ge=1)
    """How many participants may enrol."""
    wait_seconds: float = Field(default=180.0, gt=0)
    """Pairing: how long a participant waits for a partner."""
    stopping: Stopping | None = None
    """When to stop early."""
    seed: int = 0
    """Seed of the units and of the order of sides."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for problem in (*_bot_problems(self), *_turn_problems(self), *_question_problems(self), *_text_problems(self)):
            raise problem
        return self

    def questions_of(self, scope: Scope) -> tuple[Question, ...]:
        """The questions about one kind of target."""
        return tuple(question for question in self.questions if question.scope == scope)

    def question(self, name: str) -> Question | None:
        """The question of this id."""
        return next((question for question in self.questions if question.id == name), None)

    def bot(self, name: str) -> StudyBot | None:
        """The bot of this name."""
        return next((bot for bot in self.bots if bot.name == name), None)

    @property
    def asks_persona(self) -> bool:
        """Whether participants tell the bot's persona from another one, in the end."""
        return self.persona == "bot" and any(question.kind == "side" for question in self.questions_of("unit"))

    def is_over(self, now: datetime) -> bool:
        """Whether the study's time has run out."""
        return self.ends is not None and now >= self.ends


def with_codes(config: StudyConfig) -> StudyConfig:
    """The study with codes and a key for invitations that nobody can guess, where they are empty."""
    codes = {name: code or secrets.token_hex(4).upper() for name, code in config.completion.model_dump().items()}
    key = config.invitation_key or secrets.token_urlsafe(32)
    return config.model_copy(update={"completion": Codes(**codes), "invitation_key": key})


def missing_parts(config: StudyConfig) -> list[InvalidKey]:
    """What a study needs beyond its preset before it can be opened."""
    problems = []
    if config.protocol == "chat" and not config.bots:
        problems.append(InvalidKey("a study in which people chat needs [[bots]] with name and spec", ("bots",)))
    if config.protocol == "chat" and any(not bot.spec for bot in config.bots):
        index = next(i for i, bot in enumerate(config.bots) if not bot.spec)
        problems.append(InvalidKey("a bot to chat with needs a 'spec'", ("bots", index)))
    if config.protocol == "chat" and config.sides == 2 and len(config.bots) == 1:
        problems.append(InvalidKey("two bots side by side need at least two [[bots]]", ("bots",)))
    if config.items is None and (config.protocol != "chat" or config.persona != "none"):
        problems.append(InvalidKey("this study needs 'items', the path of a file of JSON lines", ("items",)))
    return problems


def _bot_problems(config: StudyConfig) -> Iterator[InvalidKey]:
    names = [bot.name for bot in config.bots]
    for i, bot in enumerate(config.bots):
        if bot.name in names[:i]:
            yield InvalidKey(f"there are two bots called {bot.name!r}", ("bots", i, "name"))
        if bot.spec == HUMAN and config.protocol != "chat":
            yield InvalidKey("people can be partners in chats only", ("bots", i, "spec"))
        if bot.spec == HUMAN and config.sides == 2:
            yield InvalidKey("a person cannot answer side by side with a bot", ("bots", i, "spec"))


def _turn_problems(config: StudyConfig) -> Iterator[InvalidKey]:
    if config.max_turns is not None and config.min_turns > config.max_turns:
        yield InvalidKey(
            f"min_turns ({config.min_turns}) must not exceed max_turns ({config.max_turns})",
            ("min_turns",),
            ("max_turns",),
        )
    if config.min_turns_up_to is not None and not (
        config.min_turns <= config.min_turns_up_to <= (config.max_turns or config.min_turns_up_to)
    ):
        keys: tuple[Location, ...] = (("min_turns_up_to",), ("min_turns",), ("max_turns",))
        yield InvalidKey("must be between min_turns and max_turns", *keys)
    if config.protocol != "chat":
        for name in ("opener", "reply_seconds", "min_turns_up_to", "max_turns"):
            if name in config.model_fields_set and vars(config)[name] is not None:
                yield InvalidKey(f"is for chats only, and the protocol is {config.protocol!r}", (name,))


def _question_problems(config: StudyConfig) -> Iterator[InvalidKey]:
    if not config.questions and config.protocol != "chat":
        yield InvalidKey("a study needs at least one question", ("questions",))
    earlier: dict[str, Question] = {}
    for i, question in enumerate(config.questions):
        if question.id in earlier:
            yield InvalidKey(f"there are two questions called {question.id!r}", ("questions", i, "id"))
        if reason := _misplaced(config, question):
            yield InvalidKey(reason, ("questions", i, "scope"), ("questions", i, "kind"), ("sides",), ("protocol",))
        for name, values in (question.when or {}).items():
            where: Location = ("questions", i, "when", name)
            if name not in earlier or earlier[name].scope != question.scope:
                yield InvalidKey(f"no earlier question of the same scope is called {name!r}", where)
            elif wrong := [value for value in values if not fits(earlier[name], value)]:
                yield InvalidKey(f"{wrong[0]!r} is no answer to {name!r}", where)
        earlier[question.id] = question
    for i, training in enumerate(config.training):
        asked_question = earlier.get(training.question)
        if asked_question is None:
            reason = f"training asks {training.question!r}, which is not among the questions; adapt [[training]] too"
            yield InvalidKey(reason, ("training", i, "question"), ("questions",))
        elif not fits(asked_question, training.answer):
            yield InvalidKey(f"{training.answer!r} is no answer to {training.question!r}", ("training", i, "answer"))
    if config.stopping and config.stopping.question not in earlier:
        yield InvalidKey(f"there is no question called {config.stopping.question!r}", ("stopping", "question"))


def _misplaced(config: StudyConfig, question: Question) -> str | None:
    """Why a question cannot be asked in this study."""
    if question.scope == "turn" and config.protocol != "chat":
        return "questions about turns are asked in chats only"
    if question.scope == "sentence" and config.protocol == "chat":
        return "questions about sentences are not asked in chats"
    if question.scope == "side" and config.sides != 2:
        return "questions about each side need sides = 2"
    if question.kind == "side" and config.sides != 2 and config.persona != "bot":
        return "a question of the kind 'side' needs sides = 2, or personas of the bot to choose from"
    if question.kind == "vote" and question.scope != "turn":
        return "votes are for turns only"
    return None


def _text_problems(config: StudyConfig) -> Iterator[InvalidKey]:
    if len({*config.languages}) < len(config.languages):
        yield InvalidKey("a language is listed twice", ("languages",))
    for language in config.languages:
        for key in _texts_without(config, language):
            name = ".".join(str(part) for part in key)
            reason = f"no text in {language!r} for {name}; add it, or take {language!r} out of 'languages'"
            yield InvalidKey(reason, key, ("languages",))


def _texts_without(config: StudyConfig, language: str) -> Iterator[Location]:
    texts: list[tuple[Location, Localised | None]] = [
        (("title",), config.title),
        (("instructions",), config.instructions),
        (("opener",), config.opener),
        (("consent", "text"), config.consent.text),
        *((("tutorial", i), page) for i, page in enumerate(config.tutorial)),
    ]
    for i, training in enumerate(config.training):
        here: Location = ("training", i)
        texts += [((*here, "text"), training.text), ((*here, "explanation"), training.explanation)]
        texts += [((*here, "evidence"), training.evidence)]
        texts += [((*here, "responses", j), response) for j, response in enumerate(training.responses)]
    yield from (key for key, text in texts if text and not text.has(language))
    for i, question in enumerate(config.questions):
        yield from (("questions", i, *key) for key in question.languages_missing(language))
    for i, check in enumerate(config.attention):
        yield from (("attention", i, "question", *key) for key in check.question.languages_missing(language))
