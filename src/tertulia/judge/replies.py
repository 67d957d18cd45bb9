"""Generating replies and measuring them: loading generative bots, drawing contexts, reply metrics of the registry.

Generating is slow, so contexts are drawn at random; all runs and settings get the same ones.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tertulia.artefacts.manifest import is_complete, read_about
from tertulia.artefacts.word_vectors import read_word_vectors
from tertulia.core.config import Config, validate
from tertulia.core.dialogue import Dialogue, exchanges
from tertulia.core.errors import UsageError
from tertulia.core.score import Score
from tertulia.core.text import words
from tertulia.corpus.candidates import CandidateReply
from tertulia.judge.config import PerplexityConfig, PersonaSetting
from tertulia.judge.runs import JudgedItem, unique_ids
from tertulia.metrics.embeddings import NAMES as EMBEDDING_METRICS
from tertulia.metrics.embeddings import WordVectors
from tertulia.metrics.metric import Metric, ReplyExample
from tertulia.metrics.registry import metrics_named
from tertulia.models.checkpoint import KIND, read_manifest
from tertulia.models.decoding import PRESETS
from tertulia.models.generator import Generator
from tertulia.talk.bot import Bot
from tertulia.talk.bots.dialogue_model import DialogueModelBot
from tertulia.talk.bots.generative import TRAIN, BaseGenerativeBot, GenerativeBot, GenerativeOptions
from tertulia.talk.bots.huggingface import HuggingFaceBot, HuggingFaceOptions
from tertulia.talk.registry import BOTS
from tertulia.talk.spec import parse_spec, reference_options

AnyGenerativeBot = BaseGenerativeBot[Any]
GeneratorSource = Generator | AnyGenerativeBot | Path | str
"""A generative model, its bot, or the bot's specification: the folder of a run, `smollm2` or hf:NAME_OR_FOLDER,
optionally followed by ?option=value."""
BATCH = 32
"""Contexts that a bot gets at once."""
CHUNK = 16
"""Replies that a metric gets at once."""


class LoadedBot(NamedTuple):
    """A generative bot and the name of its architecture."""

    bot: AnyGenerativeBot
    architecture: str


def load_bot(source: GeneratorSource, *, preset: str | None = None, method: str | None = None) -> LoadedBot:
    """The bot of a generative model. Options of its specification win over the arguments.

    Without a preset or method, decoding is greedy, so that nothing is random. Filters are off unless the options name
    some, since the model itself is judged.
    """
    if isinstance(source, BaseGenerativeBot):
        return LoadedBot(source, type(source.model).__name__)
    if not isinstance(source, str | Path):
        options = _options(GenerativeOptions, {}, preset, method)
        return LoadedBot(GenerativeBot(source, options), type(source).__name__)
    spec = parse_spec(str(source))
    factory = BOTS.get(spec.name) if spec.name in BOTS else None
    if factory is None or not issubclass(factory, BaseGenerativeBot):
        raise UsageError(
            f"{source} is no generative model: not the folder of a finished training run of one, nor smollm2 or"
            " hf:NAME_OR_FOLDER.",
            hint=TRAIN,
        )
    bot = factory.build(spec.target, _options(factory.Options, spec.options, preset, method))
    if isinstance(bot, HuggingFaceBot) and not isinstance(bot, DialogueModelBot):
        # Ranks and replies on the prompts of its perplexity: the dialogue alone, without instructions.
        bot = DialogueModelBot(bot.generator, bot.options, spec=bot.spec, engine=bot.engine)
    folder = Path(spec.target)
    return LoadedBot(bot, read_manifest(folder, check=False).model if is_run(folder) else spec.name)


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a finished training run."""
    return is_complete(folder) and read_about(folder).get("kind") == KIND


def _options(kind: type[Config], given: Mapping[str, str], preset: str | None, method: str | None) -> Any:
    values = {"filters": "none", **reference_options(kind), **given}
    if not {"preset", "method"} & set(given):
        if preset in PRESETS and issubclass(kind, HuggingFaceOptions):
            method = method or PRESETS[preset].method  # chat models sample, whatever the preset, unless they are told
        defaults = {"preset": preset, "method": method or (None if preset else "greedy")}
        values |= {name: value for name, value in defaults.items() if value is not None}
    return validate(kind, values, where="the decoding options")


def short_names(specs: Sequence[str]) -> list[str]:
    """Names of runs in tables: their folders' names, if these differ.

    >>> short_names(["runs/a", "runs/b?method=beam"]), short_names(["x/a", "y/a"])
    (['a', 'b'], ['x/a', 'y/a'])
    """
    names = [Path(spec.partition("?")[0]).name or spec for spec in specs]
    return names if len(set(names)) == len(names) else list(specs)


def draw_contexts(dialogues: Sequence[Dialogue], count: int, *, speaker: str | None, seed: int) -> list[CandidateReply]:
    """This many human replies with their contexts, drawn at random; all of them if there are fewer."""
    replies = [CandidateReply(d.id, e) for d in dialogues for e in exchanges(d, speaker=speaker)]
    if count >= len(replies):
        return replies
    return [replies[i] for i in sorted(random.Random(seed).sample(range(len(replies)), count))]


class GeneratedReply(NamedTuple):
    """A generated reply with the human one."""

    unit: str
    """The id of the exchange."""
    dialogue: str
    example: ReplyExample


def generate_replies(
    bot: Bot,
    contexts: Sequence[CandidateReply],
    setting: PersonaSetting,
    *,
    seed: int = 0,
    progress: Callable[[int], None] = lambda n: None,
) -> list[GeneratedReply]:
    """The bot's replies in those contexts that have the personas of the setting."""
    units = unique_ids(context.exchange.id for context in contexts)
    numbered = enumerate(zip(units, contexts, strict=True))
    fit = [(seed + i, unit, context) for i, (unit, context) in numbered if setting.fits(context.exchange)]
    generated = []
    for start in range(0, len(fit), BATCH):
        part = fit[start : start + BATCH]
        replies = bot.reply([setting.ask(context.exchange, seed=own_seed) for own_seed, _, context in part])
        for (_, unit, context), reply in zip(part, replies, strict=True):
            turns = tuple(turn.text for turn in context.exchange.context)
            persona = setting.own_sentences(context.exchange)
            example = ReplyExample(reply.text, context.text, turns, persona)
            generated.append(GeneratedReply(unit, context.dialogue, example))
        progress(len(part))
    return generated


def reply_metrics(config: PerplexityConfig) -> list[Metric]:
    """The metrics of generated replies that the config asks for, checked before the work."""
    given = config.metrics or (("f1", *(EMBEDDING_METRICS if config.vectors else ())) if config.replies else ())
    metrics = metrics_named(given, unit="reply", verb="judge perplexity")
    if metrics and not config.replies:
        raise UsageError(
            f"{metrics[0].name!r} is a metric of generated replies.", hint="Generate some with --replies N."
        )
    available = {"word_vectors"} if config.vectors else set()
    for metric in metrics:
        if missing := set(metric.needs) - available:
            hint = "Give a file with --vectors." if "word_vectors" in missing else ""
            raise UsageError(f"The metric {metric.name!r} needs {', '.join(sorted(missing))}.", hint=hint)
    return metrics


def score_replies(
    metrics: Sequence[Metric],
    replies: Sequence[GeneratedReply],
    *,
    subject: str,
    setting: str,
    resources: Mapping[str, Any],
    progress: Callable[[int], None] = lambda n: None,
) -> list[Score]:
    """One score per metric; units are the exchanges. `progress` is called with the number of values computed.

    Metrics with a value for each reply get the replies in chunks, so that there is progress to report, and one after
    the other for each chunk: they share what a language model computed for it.
    """
    examples = [reply.example for reply in replies]
    values: dict[str, list[float]] = {metric.name: [] for metric in metrics}
    for start in range(0, len(examples), CHUNK):
        for metric in metrics:
            if metric.reduction == "mean":
                part = examples[start : start + CHUNK]
                values[metric.name] += metric.measure(part, resources)[0].tolist()
                progress(len(part))
    units, clusters = tuple(reply.unit for reply in replies), tuple(reply.dialogue for reply in replies)
    scores = []
    for metric in metrics:
        if metric.reduction == "mean":
            scores.append(Score(subject, setting, metric.name, units, tuple(values[metric.name]), clusters))
        else:  # a figure of the whole set
            whole = metric.score(
                examples, subject=subject, setting=setting, units=units, clusters=clusters, resources=resources
            )
            scores.append(whole)
            progress(len(examples))
    return scores


def reply_items(replies: Sequence[GeneratedReply], *, subject: str, setting: str) -> list[JudgedItem]:
    """The texts behind each reply."""
    return [
        JudgedItem(
            reply.unit,
            {
                "dialogue": reply.dialogue,
                "context": list(reply.example.context),
                "reply": reply.example.reply,
                "reference": reply.example.reference,
                **({"persona": list(reply.example.persona)} if reply.example.persona else {}),
            },
            subject,
            setting,
        )
        for reply in replies
    ]


def load_vectors(path: Path, replies: Iterable[GeneratedReply]) -> WordVectors:
    """The vectors of all words of replies and references."""
    texts = (text for reply in replies for text in (reply.example.reply, reply.example.reference))
    return WordVectors.of(read_word_vectors(path, {word for text in texts for word in words(text)}))
