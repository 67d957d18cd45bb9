"""Texts in several languages: one string for all of them, or a table by language."""

from typing import Any, Literal, Self, get_args

from pydantic import ConfigDict, RootModel, model_serializer, model_validator

Language = Literal["en", "de", "es", "ar"]
"""Languages a study may have. The interface speaks the first three; Arabic needs the study's own texts."""
LANGUAGES: tuple[Language, ...] = get_args(Language)
RIGHT_TO_LEFT = frozenset({"ar"})
_EVERY = "*"


def direction(language: str) -> Literal["ltr", "rtl"]:
    """The writing direction of a language, as HTML has it."""
    return "rtl" if language in RIGHT_TO_LEFT else "ltr"


class Localised(RootModel[dict[str, str]]):
    """A text in several languages.

    >>> Localised.model_validate({"en": "Hello", "de": "Hallo"}).get("de")
    'Hallo'
    >>> Localised.model_validate("Hi!").get("es")
    'Hi!'
    """

    model_config = ConfigDict(frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {_EVERY: value}
        if not isinstance(value, dict):
            raise ValueError("must be text, or a table of texts by language")  # noqa: TRY004 - pydantic wants it
        return value

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.root:
            raise ValueError("must have a text in at least one language")
        unknown = [language for language in self.root if language not in (*LANGUAGES, _EVERY)]
        if unknown:
            raise ValueError(f"unknown language {unknown[0]!r} (known: {', '.join(LANGUAGES)})")
        empty = [language for language, text in self.root.items() if not text.strip()]
        if empty:
            raise ValueError(f"the text in {empty[0]!r} is empty" if empty[0] != _EVERY else "must not be empty")
        return self

    @model_serializer
    def _as_written(self) -> str | dict[str, str]:
        return self.root.get(_EVERY, self.root)

    def has(self, language: str) -> bool:
        """Whether there is a text in this language."""
        return _EVERY in self.root or language in self.root

    def get(self, language: str) -> str:
        """The text in this language, else in the first one it has."""
        return self.root.get(language) or self.root.get(_EVERY) or next(iter(self.root.values()))


def localise(text: Localised | None, language: str) -> str:
    """The text in a language; empty if there is none."""
    return text.get(language) if text else ""
