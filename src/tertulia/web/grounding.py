"""Verdicts on replies that had evidence: which sentences it supports. For visitors of the page, never in studies.

A verdict is computed when a page asks for it, after the reply is complete, on a thread of its own, so that neither the
reply nor the event loop waits for it. A finished reply never changes, and so does its verdict: it is cached, and
computed again only after a restart.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tertulia.core.dialogue import Json
from tertulia.core.grounding import SUMMARIES, GroundingInput, GroundingVerdict, SentenceVerdict
from tertulia.models.classifiers.grounding import grounding_verdicts, load_grounding
from tertulia.store import StoredTurn

DEFAULT = "default"
"""What the option calls the classifier that is used if no other is named."""
MAX_CACHED = 2_000
SUPPORTED = ("entailment", "generic")
"""Labels of sentences that claim nothing beyond the evidence."""


class GroundingService:
    """Classifies replies, one after the other. Used on the event loop only."""

    def __init__(self, name: str) -> None:
        """Loads the classifier, so that a wrong name fails at once."""
        self._classifier = load_grounding() if name == DEFAULT else load_grounding(name)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="grounding")
        self._verdicts: OrderedDict[str, asyncio.Future[dict[str, Any]]] = OrderedDict()

    async def verdict(self, turn: StoredTurn, previous: str) -> dict[str, Any]:
        """The verdict on a finished reply as JSON; `previous` is the message that it answers."""
        verdict = self._verdicts.get(turn.id)
        if verdict is None or verdict.cancelled() or (verdict.done() and verdict.exception()):
            loop = asyncio.get_running_loop()
            verdict = loop.run_in_executor(self._thread, self._classify, turn, previous)
            self._verdicts[turn.id] = verdict
            while len(self._verdicts) > MAX_CACHED:
                self._verdicts.popitem(last=False)
        self._verdicts.move_to_end(turn.id)
        return await asyncio.shield(verdict)  # others may wait for it, too

    def close(self) -> None:
        """Start nothing more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _classify(self, turn: StoredTurn, previous: str) -> dict[str, Any]:
        evidence = "\n".join(passage["text"] for passage in stored_evidence(turn))
        verdict = grounding_verdicts(self._classifier, [GroundingInput(evidence, previous, turn.text)])[0]
        return verdict_out(turn.text, verdict, self._classifier.name)


def stored_evidence(turn: StoredTurn) -> list[dict[str, Json]]:
    """The passages that a bot had when it replied, as they were stored."""
    evidence: list[dict[str, Json]] = (turn.reply or {}).get("evidence") or []
    return evidence


def verdict_out(text: str, verdict: GroundingVerdict, classifier: str) -> dict[str, Any]:
    """A verdict with its texts: browsers count characters in another way than Python does."""
    return {
        "classifier": classifier.rstrip("/").rpartition("/")[2],  # visitors see it: no folder
        "label": verdict.label,
        "sentences": [_sentence_out(text, sentence) for sentence in verdict.sentences],
    }


def _sentence_out(text: str, sentence: SentenceVerdict) -> dict[str, Any]:
    start, end = sentence.span
    return {
        "text": text[start:end],
        "label": sentence.label,
        "summary": SUMMARIES[sentence.label],
        "supported": sentence.label in SUPPORTED,
        "parts": _parts(text, start, end, sentence.unsupported),
    }


def _parts(text: str, start: int, end: int, unsupported: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    """A sentence cut where words that the evidence lacks begin and end.

    >>> [(part["text"], part["unsupported"]) for part in _parts("Yes. In 1985.", 5, 13, [(8, 12)])]
    [('In ', False), ('1985', True), ('.', False)]
    """
    parts = []
    for first, last in unsupported:
        parts += [(text[start:first], False), (text[first:last], True)]
        start = last
    return [{"text": part, "unsupported": flag} for part, flag in (*parts, (text[start:end], False)) if part]
