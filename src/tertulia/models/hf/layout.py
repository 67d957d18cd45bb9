"""How a dialogue becomes the tokens that a causal model is fine-tuned on, and later reads before it replies.

The model's chat template lays out the conversation: persona, partner's persona and evidence in the system message, the
turns after it. A model without a template gets a plain one, `PLAIN_TEMPLATE`, and so does any other that is told to.
The texts between the messages and the messages themselves are turned into tokens one by one, so that the stream of a
dialogue begins with the very tokens that the prompt of each of its turns has: what is learned is what is asked for
later.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from tertulia.core.errors import UsageError
from tertulia.models.generator import DialogueView, Stream, TargetTurns
from tertulia.models.hf.chat_format import ChatFormat
from tertulia.models.hf.generator import messages

PLAIN_TEMPLATE = (
    "{% for m in messages %}{{ {'system': 'persona', 'user': 'you', 'assistant': 'me'}[m.role] }}:\n"
    "{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}me:\n{% endif %}"
)
"""Who speaks, the end of the line, what is said, the end of the line; every message is a single line."""
EVIDENCE = "Passages with facts to base your answer on:"
"""What precedes the evidence in the system message."""
_SLOT = re.compile("\ue000(\\d+)\ue001")
"""A place in a rendered conversation where a message belongs; no text has these characters of the private use area."""


class Part(NamedTuple):
    """Some tokens of a stream."""

    ids: tuple[int, ...]
    is_target: bool


class DialogueLayout:
    """Dialogues as token streams and prompts of one chat model; gives the model a plain template if need be."""

    def __init__(self, chat: ChatFormat, *, plain: bool = False, evidence_words: int = 0) -> None:
        self.chat, self.evidence_words = chat, evidence_words
        self.single_lines = plain or not chat.tokenizer.chat_template
        if self.single_lines:
            use_plain_template(chat)
        self._encode = lru_cache(maxsize=200_000)(self._tokens)
        self._gaps = lru_cache(maxsize=4096)(self._render)
        # A trial, so that a template that cannot be used fails before anything is trained.
        opening = DialogueView(("a", "b"), (False, True))
        turn = len(self.stream(opening.with_turn("c", own=False).with_turn("d")).ids)
        self._overhead = -(-(turn - len(self.stream(opening).ids)) // 2)

    def messages(self, view: DialogueView) -> list[dict[str, str]]:
        """The conversation in messages, texts stripped, with evidence at the end of the system message."""
        chat = messages(view)
        if passages := self._evidence(view.evidence):
            if chat[0]["role"] != "system":
                chat.insert(0, {"role": "system", "content": ""})
            chat[0]["content"] = f"{chat[0]['content']}\n\n{passages}".strip()
        for message in chat:
            text = message["content"].strip()
            message["content"] = " ".join(text.splitlines()) if self.single_lines else text
        return chat

    def stream(self, view: DialogueView, target_turns: TargetTurns = "all") -> Stream:
        """The whole dialogue, and which of its tokens are predicted: target turns with their ends."""
        parts = list(self._parts(view, target_turns))
        ids = tuple(token for part in parts for token in part.ids)
        return Stream(ids, tuple(part.is_target for part in parts for _ in part.ids))

    def segments(self, view: DialogueView, target_turns: TargetTurns, max_length: int) -> Iterator[Stream]:
        """The dialogue in streams of at most `max_length` tokens, from the newest turns to the oldest.

        Each has the personas in front, and every turn is in exactly one of them. A turn that is too long is cut off.
        """
        rest = view
        while rest.turns:
            kept = self.newest(rest, max_length)
            ids, loss_mask = self.stream(kept, target_turns)
            if any(loss_mask[:max_length]):
                yield Stream(ids[:max_length], loss_mask[:max_length])
            rest = rest.before(len(rest.turns) - len(kept.turns))

    def prompt(self, view: DialogueView, max_length: int) -> list[int]:
        """What the model reads before its next turn; the oldest turns are left out if there is no room for them."""
        kept = self.newest(view, max_length)
        parts = self._parts(kept, "all", generate=True)
        return [token for part in parts for token in part.ids][-max_length:]

    def newest(self, view: DialogueView, max_length: int) -> DialogueView:
        """The view without the oldest turns if its stream would be longer than `max_length`."""
        room = max_length - len(self.stream(replace(view, turns=(), own=())).ids) - self._overhead
        first = len(view.turns)
        while first > 0:
            room -= len(self._encode(view.turns[first - 1].strip())) + self._overhead
            if room < 0 and first < len(view.turns):
                break
            first -= 1
        return replace(view, turns=view.turns[first:], own=view.own[first:])

    def _parts(self, view: DialogueView, target_turns: TargetTurns, *, generate: bool = False) -> Iterator[Part]:
        chat = self.messages(view)
        gaps = self._gaps(tuple(message["role"] for message in chat), generate)
        yield Part(self._encode(gaps[0]), False)
        for i, (message, gap) in enumerate(zip(chat, gaps[1:], strict=True)):
            is_target = {
                "all": message["role"] != "system" and bool(message["content"]),
                "own": message["role"] == "assistant",
                "last": i == len(chat) - 1,
            }[target_turns]
            yield Part(self._encode(message["content"]), is_target)
            between = self._encode(gap)
            end = next((n for n, token in enumerate(between, 1) if token in self.chat.end_tokens), 0)
            yield Part(between[:end], is_target)
            yield Part(between[end:], False)

    def _render(self, roles: tuple[str, ...], generate: bool) -> tuple[str, ...]:
        """The texts before, between and after messages of these roles."""
        slots = [{"role": role, "content": f"\ue000{i}\ue001"} for i, role in enumerate(roles)]
        try:
            text = self.chat.tokenizer.apply_chat_template(slots, add_generation_prompt=generate, tokenize=False)
        except Exception as error:  # a template is a program, and may raise anything
            raise UsageError(
                f"The chat template of {self.chat.name} rejects a conversation of {', '.join(roles)}: {error}.",
                hint='Set format = "plain" in the recipe, or choose another base.',
            ) from error
        pieces = _SLOT.split(text)
        if pieces[1::2] != [str(i) for i in range(len(roles))]:
            raise UsageError(
                f"The chat template of {self.chat.name} does not keep the messages in their order.",
                hint='Set format = "plain" in the recipe, or choose another base.',
            )
        return tuple(pieces[::2])

    def _evidence(self, passages: Sequence[str]) -> str:
        lines, left = [], self.evidence_words
        for passage in passages:
            words = passage.split()[:left]
            left -= len(words)
            if words:
                lines.append(f"- {' '.join(words)}")
        return "\n".join([EVIDENCE, *lines]) if lines else ""

    def _tokens(self, text: str) -> tuple[int, ...]:
        return tuple(self.chat.tokenizer(text, add_special_tokens=False)["input_ids"]) if text else ()


def use_plain_template(chat: ChatFormat) -> None:
    """Give a chat model the plain template: from now on the end of a line ends a turn, too."""
    tokenizer: Any = chat.tokenizer
    newline = tokenizer("\n", add_special_tokens=False)["input_ids"]
    if len(newline) != 1:
        raise UsageError(
            f"In {chat.name} the end of a line is no token of its own, so nothing could end a turn in plain text.",
            hint="Choose a base with a chat template, or another tokenizer.",
        )
    tokenizer.chat_template = PLAIN_TEMPLATE
    chat.add_end_token(int(newline[0]))
