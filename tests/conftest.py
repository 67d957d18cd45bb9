"""What tests of several rooms share: how hypothesis makes dialogues (`st.from_type`), and where big data lies."""

import os
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tertulia.core.dialogue import Dialogue, Evidence, Exchange, Message, Persona, Turn

os.environ["HF_HUB_OFFLINE"] = "1"  # no test reaches for a model hub; read when transformers is first imported

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


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The public corpora beside a checkout of the project, where there are any."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the public corpora are not at {folder}")
    return folder
