"""Hugging Face models as grounding classifiers: labels of inference, BEGIN's, and models that write the label."""

from typing import Any

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from tertulia.core.errors import BotError, UsageError
from tertulia.core.grounding import LABELS, GroundingInput
from tertulia.models.classifiers.grounding import load_grounding
from tertulia.models.classifiers.grounding_models import packaged
from tertulia.models.classifiers.hf_grounding import PROMPTS, load_hugging_face
from tertulia.models.classifiers.text_classifier import TextClassifier

INPUTS = [
    GroundingInput("i love cats", "i love dogs", "i hate cats"),
    GroundingInput("i love cats", "", "i love dogs i love dogs"),
    GroundingInput("", "", ""),
]


def test_neutral_is_divided_as_the_lexical_model_has_it(tiny_models: Any) -> None:
    folder = tiny_models.make_classifier("nli", ["CONTRADICTION", "entailed", "Neutral"])
    rows = load_grounding(f"hf:{folder}").probabilities(INPUTS)
    own = TextClassifier.load(str(folder)).probabilities([x.evidence for x in INPUTS], [x.response for x in INPUTS])
    lexical = packaged().probabilities(INPUTS)
    for row, three, five in zip(rows, own, lexical, strict=True):
        assert row[0] == pytest.approx(three["entailed"], abs=1e-5)
        assert row[4] == pytest.approx(three["CONTRADICTION"], abs=1e-5)
        assert row[1] / sum(row[1:4]) == pytest.approx(five[1] / sum(five[1:4]), abs=1e-4)
    assert load_grounding(f"hf:{folder}").probabilities([]) == []


def test_begins_own_labels_are_found_in_any_order(tiny_models: Any) -> None:
    folder = tiny_models.make_classifier(
        "five", ["Generic", "off topic", "contradiction", "ENTAILMENT", "hallucination"]
    )
    [row, *_] = load_grounding(f"hf:{folder}").probabilities(INPUTS)
    [own] = TextClassifier.load(str(folder)).probabilities([INPUTS[0].evidence], [INPUTS[0].response])
    expected = [own[name] for name in ("ENTAILMENT", "hallucination", "off topic", "Generic", "contradiction")]
    assert row == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("labels", PROMPTS)
def test_a_text_to_text_model_is_scored_by_what_it_would_write(labels: str, tiny_models: Any) -> None:
    folder = tiny_models.make_seq2seq("t2t", kind="Bart", window=512)
    classifier = load_hugging_face(f"{folder}?labels={labels}")
    rows = classifier.probabilities(INPUTS)
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    prompt = PROMPTS[labels]
    text = prompt.template.format(**INPUTS[0]._asdict())
    logprobs = []
    for answer in prompt.answers:
        target = tokenizer(text_target=answer, return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            loss = model(**_only_ids(tokenizer(text, return_tensors="pt")), labels=target).loss
        logprobs.append(-float(loss) * target.shape[1])
    expected = torch.tensor(logprobs).softmax(0).tolist()
    merged = [sum(rows[0][i] for i in group) for group in prompt.groups]
    assert merged == pytest.approx(expected, abs=1e-3)
    assert all(sum(row) == pytest.approx(1) for row in rows)
    assert len(rows[0]) == len(LABELS)


def _only_ids(read: Any) -> dict[str, Any]:
    return {name: read[name] for name in ("input_ids", "attention_mask")}


def test_what_cannot_be_used_is_refused(tiny_models: Any) -> None:
    with pytest.raises(UsageError, match="has no label for"):
        load_grounding(f"hf:{tiny_models.make_classifier('moods', ['happy', 'sad', 'angry'])}")
    with pytest.raises(UsageError, match="labels=maybe"):
        load_grounding("hf:x?labels=maybe")
    with pytest.raises(BotError, match="no/such-model"):
        load_grounding("hf:no/such-model")
