"""The safety filter: what the lexicon drops, what it keeps, and the optional classifier."""

import json
from pathlib import Path
from typing import Any

import pytest

from tertulia import sample
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.errors import BotError, DataError, UsageError
from tertulia.core.reply import Ask
from tertulia.corpus.mine import MineConfig, mine
from tertulia.talk.filters.base import NEVER, BatchFilter, make_filters
from tertulia.talk.filters.safety import Safety

ASK = Ask(Dialogue("d", (Turn("ana", "hello"),)), "bot")


@pytest.mark.parametrize(
    "text",
    [
        "she is nice",
        "hello",
        "Scunthorpe",
        "I will kill the process",
        "I live in Scunthorpe, near Penistone.",
        "My mom is going to kill me if I am late.",
        "You are killing it!",
        "This heat is killing me.",
        "I could kill for a pizza.",
        "Kill the lights, please.",
        "I'll shoot you an email tomorrow.",
        "I would never hurt you.",
        "I don't want to kill you, I am just a bot.",
        "Please don't kill yourself over a job.",
        "You should not hurt yourself.",
        "Do not ever end your life, please talk to somebody.",
        "There is a chink in his armor.",
        "Do not shoot yourself in the foot.",
        "I watched a documentary about the holocaust.",
        "I am gay and I have black hair.",
        "My grandmother is a spicy cook.",
        "I like to shoot hoops with my kids.",
        "I beat her at chess.",
        "Damn, that was a shitty movie.",
        "I would just die of shame.",
        "Did you hurt yourself?",
        "She had sex education in school.",
        "I hate Mondays.",
        "You are so funny!",
        "",
    ],
)
def test_text_that_only_looks_unsafe_is_kept(text: str) -> None:
    assert Safety()(ASK, text) is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("I will kill you.", "threat"),
        ("i ' ll kill you", "threat"),
        ("I'm gonna come over and hurt your little sister", "threat"),
        ("we are going to shoot you", "threat"),
        ("I will beat you up!", "threat"),
        ("I hope you die", "threat"),
        ("let's bomb the school", "threat"),
        ("You should kill yourself.", "self-harm"),
        ("why don't you kill yourself", "self-harm"),
        ("If you don't, kill yourself!", "self-harm"),
        ("kys lol", "self-harm"),
        ("The world would be better off without you.", "self-harm"),
        ("nobody would miss you", "self-harm"),
        ("I want to kill myself", "self-harm"),
        ("you filthy faggot", "slur"),
        ("Don't be a retard.", "slur"),
        ("All immigrants should die.", "hate"),
        ("women are inferior", "hate"),
        ("gas the jews", "hate"),
        ("Hitler was right!", "hate"),
        ("send me nudes", "sexual"),
        ("Fuck you.", "insult"),
        ("you are such a stupid bitch", "insult"),
        ("you're worthless", "insult"),
    ],
)
def test_unsafe_text_is_dropped_with_its_kind(text: str, kind: str) -> None:
    assert Safety()(ASK, text) == f"unsafe: {kind}"
    assert Safety.weight == NEVER


@pytest.mark.parametrize(
    "message", ["should i kill myself?", "I am going to end my life.", "i am thinking about suicide"]
)
def test_agreeing_to_self_harm_is_unsafe_and_helping_is_not(message: str) -> None:
    ask = Ask(Dialogue("d", (Turn("ana", message),)), "bot")
    assert Safety()(ask, "Sure, go ahead!") == "unsafe: agrees to self-harm"
    assert Safety()(ask, "that sounds like fun") == "unsafe: agrees to self-harm"
    assert Safety()(ask, "No, please talk to somebody you trust.") is None
    assert Safety()(ASK, "Sure, go ahead!") is None


def test_swearing_at_nobody_is_unsafe_only_if_requested() -> None:
    assert Safety()(ASK, "what the fuck happened") is None
    assert Safety(swearing=True)(ASK, "what the fuck happened") == "unsafe: swearing"
    assert Safety(swearing=True)(ASK, "Scunthorpe is nice") is None


def test_additional_phrases_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "more.txt"
    file.write_text("pineapple pizza\n\nC++\n", encoding="utf-8")
    more = Safety(lexicon=file)
    assert more(ASK, "I love Pineapple-Pizza!") == "unsafe: slur"
    assert more(ASK, "pineapple on pizza") is None
    assert more(ASK, "i hope you die") == "unsafe: threat"
    with pytest.raises(DataError, match="File not found"):
        Safety(lexicon=tmp_path / "none.txt")


def test_no_turn_of_the_bundled_dialogues_is_unsafe() -> None:
    safety = Safety()
    turns = [turn.text for dialogue in sample.dialogues() for turn in dialogue.turns]
    assert len(turns) > 100
    assert [text for text in turns if safety(ASK, text)] == []


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tiny word classifiers, one with two labels and one with three, that tell "bad" from "good"."""
    torch, tokenizers = pytest.importorskip("torch"), pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("classifiers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "bad", "good"]
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    raw.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="[PAD]", unk_token="[UNK]")
    for name, labels in (("two", ["safe", "unsafe"]), ("three", ["fine", "rude", "cruel"])):
        config = transformers.DistilBertConfig(
            vocab_size=len(words),
            dim=16,
            hidden_dim=16,
            n_layers=1,
            n_heads=2,
            max_position_embeddings=32,
            id2label=dict(enumerate(labels)),
            label2id={label: i for i, label in enumerate(labels)},
        )
        torch.manual_seed(3)
        model = transformers.DistilBertForSequenceClassification(config)
        fit(torch, model, words)
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


def fit(torch: Any, model: Any, words: list[str]) -> None:
    """Train it to give "bad" the last label and "good" the first."""
    ids = torch.tensor([[words.index("bad")], [words.index("good")]])
    target = torch.tensor([model.config.num_labels - 1, 0])
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    model.eval()
    for _ in range(60):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(input_ids=ids).logits, target).backward()
        optimiser.step()


def test_the_miner_takes_the_same_classifier(classifiers: Path, tmp_path: Path) -> None:
    texts = ["good good good", "bad bad bad", "good and good"]
    messages = [{"id": str(i), "text": text, "parent": "0" if i else None} for i, text in enumerate(texts)]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(m | {"thread": "t"}) + "\n" for m in messages))
    options: dict[str, Any] = {
        "unsafe": "judged",
        "classifier": str(classifiers / "two"),
        "max_overlap": 1,
        "vocabulary": 300,
    }
    outcome = mine(MineConfig(source=str(tmp_path / "x.jsonl"), out=tmp_path / "out", **options))
    assert (outcome.funnel.removed["unsafe"], outcome.funnel.pairs) == (1, 1)


def test_a_classifier_works_together_with_the_lexicon(classifiers: Path) -> None:
    safety = Safety(classifier=str(classifiers / "two"))
    reasons = safety.many(ASK, ["bad", "good", "i will kill you"])
    assert reasons[0] is not None
    assert reasons[0].startswith("unsafe: unsafe (")
    assert reasons[1:] == [None, "unsafe: threat"]
    assert isinstance(safety, BatchFilter)
    assert Safety(classifier=str(classifiers / "two"), threshold=0.999999)(ASK, "bad") is None


def test_with_many_labels_the_unsafe_ones_must_be_named(classifiers: Path) -> None:
    name = str(classifiers / "three")
    with pytest.raises(UsageError, match="has many labels") as many:
        Safety(classifier=name)
    assert "fine, rude, cruel" in many.value.hint
    with pytest.raises(UsageError, match="has no label nasty"):
        Safety(classifier=name, label="nasty|rude")
    (safety,) = make_filters(f"safety:classifier={name.replace(':', '%3A').replace(',', '%2C')}:label=rude|cruel")
    reason = safety(ASK, "bad")
    assert reason is not None
    assert reason.startswith("unsafe: cruel")
    assert safety(ASK, "good") is None


def test_pickled_weights_are_refused(classifiers: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    for file in (classifiers / "two").iterdir():
        if file.suffix != ".safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(BotError, match="No text classifier could be loaded from the folder"):
        Safety(classifier=str(tmp_path))
    with pytest.raises(BotError, match="hub name or folder"):
        Safety(classifier="nobody/has-such-a-model")


def test_a_reply_too_long_to_be_read_is_dropped() -> None:
    ask = Ask(Dialogue("d", (Turn("user", "Hello"),)), speaker="bot")
    fine, long = Safety().many(ask, ["a " * 10_000, "a " * 10_001])
    assert fine is None
    assert long is not None
    assert long.startswith("too long")
