import re
from string import Formatter

import pytest

from tertulia.study.localised import direction
from tertulia.study.texts import INTERFACE_LANGUAGES, interface_texts, text


def test_every_language_has_the_same_keys_and_fields() -> None:
    english = interface_texts("en")
    for language in INTERFACE_LANGUAGES:
        strings = interface_texts(language)
        assert list(strings) == list(english), language
        assert [key for key, value in strings.items() if not value.strip()] == []
        assert {key: fields(value) for key, value in strings.items()} == {
            key: fields(value) for key, value in english.items()
        }


def fields(string: str) -> set[str | None]:
    return {name for _, name, _, _ in Formatter().parse(string) if name is not None}


def test_translations_are_translations() -> None:
    same = {"label.side_a", "label.side_b", "label.original", "label.persona_of", "label.no"}
    for language in ("de", "es"):
        strings = interface_texts(language)
        assert {key for key, value in interface_texts("en").items() if strings[key] == value} <= same


def test_values_are_filled_in_and_unknown_keys_raise() -> None:
    assert text("answer.scale", "de", question="Gut?", low=1, high=5) == "Bitte wählen Sie eine Zahl von 1 bis 5: Gut?"
    with pytest.raises(KeyError):
        text("button.nothing", "en")


def test_a_language_without_translation_has_english_strings_and_its_direction() -> None:
    assert text("button.next", "ar") == "Next"
    assert [direction(language) for language in ("en", "de", "es", "ar")] == ["ltr", "ltr", "ltr", "rtl"]


def test_withdrawal_says_what_is_deleted() -> None:
    for language, word in {"en": "deleted", "de": "gelöscht", "es": "borran"}.items():
        assert re.search(word, text("withdraw.text", language))
