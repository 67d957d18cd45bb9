"""What tests of several rooms share: how hypothesis makes dialogues (`st.from_type`), and where big data lies."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tertulia.core.dialogue import Dialogue, Evidence, Exchange, Message, Persona, Turn

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side: threads that wait for each other spin
os.environ["TERTULIA_CONFIG"] = ""  # the defaults of whoever runs the tests must not matter
os.environ["HF_HUB_OFFLINE"] = "1"  # no test reaches for a model hub; read when transformers is first imported

settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")  # how long an example takes says how busy the machine is

texts = st.text(max_size=12)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
metas = st.dictionaries(
    texts,
    st.recursive(st.none() | st.booleans() | numbers | texts, lambda inner: st.lists(inner, max_size=2), max_leaves=3),
    max_size=2,
)
several = st.lists(texts, max_size=3).map(tuple)
turns = st.builds(Turn, texts, texts, source=several, meta=metas)
personas = st.builds(Persona, several, revised=several, id=texts, name=texts)
evidences = st.lists(st.builds(Evidence, texts, source=texts, id=texts), max_size=2).map(tuple)
contexts = st.lists(turns, max_size=4).map(tuple)

st.register_type_strategy(
    Dialogue, st.builds(Dialogue, texts, contexts, st.dictionaries(texts, personas, max_size=2), evidences, metas)
)
st.register_type_strategy(
    Exchange,
    st.builds(
        Exchange,
        texts,
        contexts,
        turns,
        persona=st.none() | personas,
        partner=st.none() | personas,
        evidence=evidences,
        label=st.none() | texts,
    ),
)
st.register_type_strategy(
    Message,
    st.builds(
        Message,
        texts,
        texts,
        texts,
        parent=st.none() | texts,
        thread=st.none() | texts,
        time=st.none() | st.floats(allow_nan=False, allow_infinity=False),
        meta=metas,
    ),
)


TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


class TinyModels:
    """Two-layer random models and a tokenizer of bytes, saved as anybody's model would be."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(
        self,
        name: str,
        *,
        template: str | None = TEMPLATE,
        window: int = 512,
        end: str | None = "<|end|>",
        learned_positions: bool = False,
    ) -> Path:
        """The folder of a model: a Llama, or a GPT-2 where positions are learned. The same name is the same model."""
        folder = self.folder / name
        if not folder.exists():
            torch = pytest.importorskip("torch")
            transformers = pytest.importorskip("transformers")
            tokenizer = self._tokenizer(transformers, template, end)
            kind = transformers.GPT2Config if learned_positions else transformers.LlamaConfig
            config = kind(
                vocab_size=len(tokenizer),
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                max_position_embeddings=window,
                initializer_range=0.6,
                bos_token_id=None,
                eos_token_id=tokenizer.eos_token_id,
                **({} if learned_positions else {"intermediate_size": 64}),
            )
            torch.manual_seed(5)
            transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        return folder

    def make_seq2seq(self, name: str, *, kind: str = "Blenderbot", window: int = 128) -> Path:
        """The folder of a model with an encoder, a BlenderBot or a BART. The same name is the same model."""
        folder = self.folder / name
        if not folder.exists():
            torch = pytest.importorskip("torch")
            transformers = pytest.importorskip("transformers")
            tokenizer = self._tokenizer(transformers, None, "<|end|>")
            start, end = (tokenizer.convert_tokens_to_ids(token) for token in ("<|user|>", "<|end|>"))
            config = getattr(transformers, f"{kind}Config")(
                vocab_size=len(tokenizer),
                d_model=32,
                encoder_layers=2,
                decoder_layers=2,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_ffn_dim=64,
                decoder_ffn_dim=64,
                max_position_embeddings=window,
                init_std=0.6,
                bos_token_id=start,
                decoder_start_token_id=start,
                eos_token_id=end,
                forced_eos_token_id=None,
                pad_token_id=0,
            )
            torch.manual_seed(6)
            transformers.AutoModelForSeq2SeqLM.from_config(config).save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        return folder

    def make_classifier(self, name: str, labels: Sequence[str]) -> Path:
        """The folder of a classifier of texts and pairs of texts. The same name is the same model."""
        folder = self.folder / name
        if not folder.exists():
            torch = pytest.importorskip("torch")
            transformers = pytest.importorskip("transformers")
            folder.mkdir()
            words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "i", "love", "hate", "cats", "dogs"]
            (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
            transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
            config = transformers.BertConfig(
                vocab_size=len(words),
                hidden_size=16,
                intermediate_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                max_position_embeddings=32,
                initializer_range=1.0,
                id2label=dict(enumerate(labels)),
                label2id={label: i for i, label in enumerate(labels)},
            )
            torch.manual_seed(7)
            transformers.BertForSequenceClassification(config).save_pretrained(folder)
        return folder

    def _tokenizer(self, transformers: Any, template: str | None, end: str | None) -> Any:
        tokenizers = pytest.importorskip("tokenizers")
        letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
        raw = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
        raw.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        raw.decoder = tokenizers.decoders.ByteLevel()
        raw.add_special_tokens(["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"])
        made = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=end)
        made.chat_template = template
        return made


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> TinyModels:
    return TinyModels(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The public corpora beside a checkout of the project, where there are any."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the public corpora are not at {folder}")
    return folder
