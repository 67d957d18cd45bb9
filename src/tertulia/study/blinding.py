"""What the page may know: exactly what `task_view` returns, and nothing of the bots but their sides.

Bots differ in Markdown habits, names and sizes; all of them would give a bot away. So texts lose their Markdown,
speakers become numbers ("2" is always the one to judge), and no name, specification or id of a bot, item or unit is in
a view.
"""

import re
from collections.abc import Mapping, Sequence

from tertulia.core.dialogue import Json
from tertulia.core.text import sentences
from tertulia.study.config import StudyConfig
from tertulia.study.localised import direction, localise
from tertulia.study.questions import SIDES, Question, allowed_values
from tertulia.study.texts import text as interface_text
from tertulia.study.units import Unit

JUDGED = "2"
"""The speaker to judge."""


def task_view(
    config: StudyConfig, unit: Unit, order: Sequence[int], lang: str, *, ended: bool = False
) -> dict[str, Json]:
    """A unit as the page shows it. `order` says which thing stands at which side (`assignment.side_order`).

    In a chat in which both people have a persona, the first number of the order is the participant's role. The two
    personas to choose from after a chat are only given when it has ended.
    """
    view: dict[str, Json] = {
        "protocol": config.protocol,
        "language": lang,
        "direction": direction(lang),
        "title": config.title.get(lang),
        "instructions": config.instructions.get(lang),
        "sides": list(SIDES[: config.sides]),
        "max_words": config.max_words,
        "questions": [question_view(question, lang) for question in config.questions],
    }
    payload = unit.payload
    if "context" in payload:
        view["context"] = turns_view(payload["context"], _replier(payload["context"]))
    if config.protocol == "judge":
        view |= _judge_view(config, payload, order)
    elif config.protocol == "chat":
        view |= _chat_view(config, payload, order, lang, ended=ended)
    else:
        view |= {"persona": list(payload["persona"]), "copy_limit": config.copy_limit}
    return view


def question_view(question: Question, lang: str) -> dict[str, Json]:
    """A question in one language."""
    view: dict[str, Json] = {
        "id": question.id,
        "scope": question.scope,
        "kind": question.kind,
        "text": question.text.get(lang),
        "help": localise(question.help, lang),
        "optional": question.optional,
        "when": {name: list(values) for name, values in question.when.items()} if question.when else None,
        "otherwise": question.otherwise,
    }
    if question.kind == "scale":
        view |= {
            "low": question.low,
            "high": question.high,
            "low_label": localise(question.low_label, lang),
            "high_label": localise(question.high_label, lang),
        }
    elif question.choices:
        view["choices"] = [{"value": choice.value, "text": choice.text.get(lang)} for choice in question.choices]
    elif question.kind in ("side", "vote"):
        labels = {"A": "side_a", "B": "side_b"}
        view["choices"] = [
            {"value": value, "text": interface_text(f"label.{labels.get(value, value)}", lang)}
            for value in allowed_values(question)
        ]
    return view


def training_view(config: StudyConfig, lang: str) -> list[dict[str, Json]]:
    """The training questions without their answers and explanations."""
    return [
        {
            "text": training.text.get(lang),
            "responses": [response.get(lang) for response in training.responses],
            "evidence": localise(training.evidence, lang),
            "question": question_view(question, lang),
        }
        for training in config.training
        if (question := config.question(training.question))
    ]


def attention_view(config: StudyConfig, index: int, lang: str) -> dict[str, Json]:
    """An attention check without its answer."""
    return question_view(config.attention[index].question, lang)


def _judge_view(config: StudyConfig, payload: Mapping[str, Json], order: Sequence[int]) -> dict[str, Json]:
    view: dict[str, Json] = {}
    if "responses" in payload:
        texts = [plain(payload["responses"][i]) for i in order]
        view["responses"] = [{"side": side, "text": text} for side, text in zip(SIDES, texts, strict=False)]
        if config.questions_of("sentence"):
            for response in view["responses"]:
                response["sentences"] = sentences(response["text"])
    if "conversations" in payload:
        shown = [payload["conversations"][i] for i in order]
        view["conversations"] = [
            {"side": side, "turns": turns_view(conversation["turns"], conversation["judged"])}
            for side, conversation in zip(SIDES, shown, strict=False)
        ]
    if "evidence" in payload:
        view["evidence"] = payload["evidence"]
    if "persona" in payload:
        view["persona"] = list(payload["persona"])
    return view


def _chat_view(
    config: StudyConfig, payload: Mapping[str, Json], order: Sequence[int], lang: str, *, ended: bool
) -> dict[str, Json]:
    view: dict[str, Json] = {
        "min_turns": payload.get("min_turns", config.min_turns),
        "max_turns": config.max_turns,
        "opener": localise(config.opener, lang),
    }
    if "personas" in payload:
        view |= {"own_persona": list(payload["personas"][order[0]]), "copy_limit": config.copy_limit}
    if ended and "decoy_persona" in payload:
        both = [payload["persona"], payload["decoy_persona"]]
        view["personas"] = [{"side": side, "sentences": list(both[i])} for side, i in zip(SIDES, order, strict=True)]
    return view


def sides_of(config: StudyConfig, unit: Unit) -> int:
    """How many things change places in a unit: the n of `assignment.side_order`."""
    return 2 if config.sides == 2 or "decoy_persona" in unit.payload or "personas" in unit.payload else 1


def _replier(context: Sequence[Mapping[str, str]]) -> str | None:
    """The speaker who replies to a context: the last one before the last speaker, if there is one."""
    last = context[-1]["speaker"] if context else None
    return next((turn["speaker"] for turn in reversed(context) if turn["speaker"] != last), None)


def turns_view(turns: Sequence[Mapping[str, str]], judged: str | None) -> list[dict[str, str]]:
    """Turns with numbers for speakers: "2" for the judged one, the others 1, 3, 4, ... as they appear."""
    others = dict.fromkeys(turn["speaker"] for turn in turns if turn["speaker"] != judged)
    numbers = {speaker: str(1 if i == 0 else i + 2) for i, speaker in enumerate(others)}
    return [{"speaker": numbers.get(turn["speaker"], JUDGED), "text": plain(turn["text"])} for turn in turns]


# Bounded or possessive quantifiers only: the texts are strangers', and none of these patterns may scan a run twice.
_LINE_MARKS = re.compile(r"(?m)^[ \t]*+(?:#{1,6}+[ \t]++|(?:>[ \t]?+)++|[-*+][ \t]++)")
_FENCE_OR_RULE = re.compile(r"(?m)^[ \t]*+(?:(?:```|~~~)[^\n]*+|(?:[-*_=][ \t]*+){3,}+|\|[-:| \t]++)$\n?")
_LINK = re.compile(r"!?\[([^\[\]\n]{0,300})\]\([^()\s]{0,500}\)")
_TAG = re.compile(r"</?[A-Za-z][^<>\n]{0,200}>")
_STARS = re.compile(r"(?<![\w*])\*++(?=\S)|(?<=[^\s*])\*++(?!\w)|\*{2,}+")
_UNDERSCORES = re.compile(r"(?<![^\W_])_++(?=[^\W_])|(?<=[^\W_])_++(?![^\W_])")
_CODE_OR_STRIKE = re.compile(r"`++|~~++")
_CELLS = re.compile(r"(?m)^[ \t]*+\|([^\n]*)\|[ \t]*+$")
_BLANK_LINES = re.compile(r"\n{3,}+")


def plain(text: str) -> str:
    """The text without Markdown marks, as a person would have typed it.

    >>> plain("## Hi\\n\\n**You** said `x_y`: see [the *page*](http://a.b).\\n- one\\n- two")
    'Hi\\n\\nYou said x_y: see the page.\\none\\ntwo'
    >>> plain("2 * 3 = 6, 4*5 = 20 <3 snake_case")
    '2 * 3 = 6, 4*5 = 20 <3 snake_case'
    """
    text = _FENCE_OR_RULE.sub("", text)
    text = _LINE_MARKS.sub("", text)
    text = _LINK.sub(r"\1", text)
    text = _TAG.sub("", text)
    text = _CELLS.sub(lambda row: "  ".join(cell.strip() for cell in row.group(1).split("|")), text)
    for pattern in (_STARS, _UNDERSCORES, _CODE_OR_STRIKE):
        text = pattern.sub("", text)
    return _BLANK_LINES.sub("\n\n", text).strip()
