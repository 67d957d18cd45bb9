"""How every model that writes is trained: talks out of dialogues, batches by token count, perplexity to stop by.

A dialogue is learned from as each of its speakers in turn: the same words, seen from the other side, with the other
persona. All turns are predicted, also the partner's, which costs nothing extra in models that read a dialogue as one
stream; perplexity counts the turns of the one the model speaks for, per word whatever the tokens. A model may also
learn what another one, its teacher, expects at each token (`tertulia.train.distillation`).
"""

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import nn

from tertulia.core.config import save
from tertulia.core.dialogue import Dialogue, Json, Whose
from tertulia.core.errors import DataError
from tertulia.core.progress import Progress
from tertulia.corpus.load import load_dialogues
from tertulia.models.checkpoint import count_parameters, seal
from tertulia.models.generator import Generator, Scored, Talk
from tertulia.models.likelihood import batches_of, likelihoods, perplexity, talk_size, talks_of
from tertulia.models.threads import use_threads
from tertulia.models.tokenizer import Kind, Tokenizer, learn_tokenizer
from tertulia.train.data import some
from tertulia.train.distillation import Teacher, distilled, load_teacher
from tertulia.train.loop import LoopConfig, Loss, Outcome, fit, settings
from tertulia.train.recipe import RecipeConfig
from tertulia.train.record import PICTURE, RECORD, draw_record

CONFIG = "config.toml"
PARTIAL = "partial"


class WriterConfig(LoopConfig, RecipeConfig):
    """What the recipe of every model that writes has."""

    split: str = "train"
    """The split to learn from."""
    valid_split: str = "valid"
    """The split that decides when to stop."""
    persona: Whose = "own"
    """Whose persona the model is shown: none, own (of the one it speaks for), their (of the other one), or both."""
    persona_dropout: float = Field(0.0, ge=0, lt=1)
    """Share of the talks that are learned from without a persona, so that the model can also do without; where it is
    shown both, each of them is left out so often."""
    valid_persona: Whose | None = None
    """Whose persona it is shown when it is validated; as in training by default."""
    learn: Scored = "all"
    """Turns that are learned from: all, or only those of the one the model speaks for (own)."""
    speaker: str | None = None
    """Speak for this speaker only; for each in turn by default."""
    valid_speaker: str | None = None
    """Validate as this speaker only."""
    tokenizer: Kind = "subwords"
    """Words, or SentencePiece subwords."""
    vocabulary: int = Field(8000, ge=20)
    """Tokens to learn from the training text, at most."""
    tokens: int = Field(3000, ge=32)
    """Tokens to a batch, padding included: long dialogues come fewer at a time."""
    valid_dialogues: int | None = Field(None, ge=1)
    """Validate on so many dialogues, drawn by the seed; on all by default."""
    max_dialogues: int | None = Field(None, ge=1)
    """Learn from so many dialogues only, drawn by the seed."""
    threads: int = Field(1, ge=1)
    """Threads to compute with; on a busy machine one is fastest."""
    teacher: Path | None = None
    """The folder of a trained model, larger as a rule, with the same tokens: what it expects is learned too."""
    teacher_weight: float = Field(0.5, gt=0, le=1)
    """Share of what the teacher expects in the loss; the rest is the text."""
    teacher_temperature: float = Field(1.0, gt=0)
    """Above 1, more is learned of what the teacher finds improbable."""

    later: ClassVar[frozenset[str]] = LoopConfig.later | {"teacher_weight", "teacher_temperature"}


class Data(NamedTuple):
    """What a model learns from."""

    talks: list[Talk]
    valid: list[Talk]
    tokenizer: Tokenizer
    dialogues: int


Build = Callable[[Tokenizer], nn.Module]
"""Makes the untrained model, a `Generator`."""


@dataclass(frozen=True, slots=True)
class TrainedWriter:
    """What came of it."""

    folder: Path
    record: Mapping[str, Json]

    def figures(self) -> Mapping[str, Json]:
        """What was measured, and what it took."""
        return self.record


def train_writer(
    config: WriterConfig,
    progress: Progress,
    *,
    name: str,
    build: Build,
    trainee: "type[WriterTrainee] | None" = None,
) -> TrainedWriter:
    """Train a model that writes and leave it in `config.out`, a bot of that name."""
    use_threads(config.threads)
    progress.step("Reading dialogues")
    data = read_data(config)
    torch.manual_seed(config.seed)
    model = build(data.tokenizer)
    learner = (trainee or WriterTrainee)(model, data, config)
    same = _same(name, config, data.talks, learner.teacher)
    outcome = fit(learner, config, config.out / PARTIAL, progress, resume=config.resume, same=same)
    model.eval()
    training = _training(outcome, model, data, learner.teacher)
    if outcome.first:
        _leave(model, name, config, data, training)
    return TrainedWriter(config.out, training)


def read_data(config: WriterConfig) -> Data:
    """Talks to learn from and to validate with, and the tokens of the former."""
    dialogues = some(load_dialogues(config.data, split=config.split), config.max_dialogues, config.seed)
    talks = [talk for dialogue in dialogues for talk in talks_of(dialogue, config.persona, config.speaker)]
    valid = some(load_dialogues(config.data, split=config.valid_split), config.valid_dialogues, config.seed)
    whose = config.valid_persona or config.persona
    judged = [talk for dialogue in valid for talk in talks_of(dialogue, whose, config.valid_speaker)]
    for split, found in ((config.split, talks), (config.valid_split, judged)):
        if not found:
            raise DataError(
                f"The split {split!r} of {config.data} has no dialogue with a turn of the speaker asked for.",
                hint="Check split, speaker and data in the recipe.",
            )
    tokenizer = learn_tokenizer(config.tokenizer, _texts(dialogues, config), size=config.vocabulary)
    return Data(talks, judged, tokenizer, len(dialogues))


def _texts(dialogues: Iterable[Dialogue], config: WriterConfig) -> Iterator[str]:
    for dialogue in dialogues:
        yield from (turn.text for turn in dialogue.turns)
        if config.persona != "none":
            yield from (sentence for persona in dialogue.personas.values() for sentence in persona.sentences)


class WriterTrainee:
    """A model that writes, as the loop sees it."""

    goal = "-perplexity"
    unit = "tokens"

    def __init__(self, model: nn.Module, data: Data, config: WriterConfig) -> None:
        self.module, self.data, self.config = model, data, config
        assert isinstance(model, Generator)
        self.model: Generator = model
        self.teacher: Teacher | None = load_teacher(config.teacher, model, data.tokenizer) if config.teacher else None
        self._sizes = [talk_size(talk, data.tokenizer) for talk in data.talks]

    def batches(self, epoch: int) -> Sequence[list[Talk]]:
        """Talks of like length together, batches in a random order."""
        rng = random.Random(f"{self.config.seed} {epoch}")
        places = batches_of(self._sizes, self.config.tokens, rng)
        return [[self._shown(self.data.talks[place], rng) for place in batch] for batch in places]

    def _shown(self, talk: Talk, rng: random.Random) -> Talk:
        share = self.config.persona_dropout
        for name in ("persona", "partner") if share else ():
            if getattr(talk, name) and rng.random() < share:
                talk = replace(talk, **{name: ()})
        return talk

    def loss(self, batch: list[Talk]) -> Loss:
        """Mean over the tokens of the turns that count."""
        if self.teacher:
            config = self.config
            weight, temperature = config.teacher_weight, config.teacher_temperature
            return distilled(self.model, self.teacher, batch, config.learn, weight=weight, temperature=temperature)
        found = self.model.nll(batch, scored=self.config.learn)
        count = int(found.tokens.sum())
        return Loss(found.total.sum() / max(1, count), count)

    def validate(self) -> Mapping[str, float]:
        """Perplexity of the turns of the one the model speaks for, per word and per token."""
        return perplexity(likelihoods(self.model, self.data.valid, tokens=self.config.tokens))


def _training(outcome: Outcome, model: nn.Module, data: Data, teacher: Teacher | None) -> dict[str, Json]:
    taught: dict[str, Json] = {"teacher": teacher.fingerprint} if teacher else {}
    return {
        **taught,
        "dialogues": data.dialogues,
        "talks": len(data.talks),
        "valid_talks": len(data.valid),
        "tokens": len(data.tokenizer),
        "parameters": count_parameters(model),
        **outcome.as_json(),
    }


def _leave(model: nn.Module, name: str, config: WriterConfig, data: Data, training: Mapping[str, Json]) -> None:
    """Write the folder, the manifest last."""
    folder = config.out
    files = [CONFIG, RECORD, PICTURE, *model.save(folder), data.tokenizer.save(folder)]  # type: ignore[operator]
    save(config.model_copy(update={"resume": False}), folder / CONFIG)
    (folder / RECORD).write_bytes((folder / PARTIAL / RECORD).read_bytes())
    draw_record(folder, goal=WriterTrainee.goal)
    seal(folder, bot=name, model=name, files=sorted(set(files)), training=training)


def _same(name: str, config: WriterConfig, talks: Sequence[Talk], teacher: Teacher | None) -> str:
    known = settings(config, without={"out", "resume", "keep_seconds", "threads", "data", "teacher"})
    parts = [name, known] if teacher is None else [name, known, teacher.fingerprint]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode())
    for talk in talks:
        digest.update(repr(talk).encode())
    return digest.hexdigest()
