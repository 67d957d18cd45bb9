"""Tertulia's own JSON: dialogues, and exchanges (see `tertulia.core.codec`)."""

from tertulia.core.codec import dialogue_from_json, dialogue_to_json, exchange_from_json, exchange_to_json
from tertulia.corpus.readers.base import Reader

READER = Reader(
    name="tertulia",
    recognises=lambda record: "turns" in record and "id" in record,
    decode=dialogue_from_json,
    encode=dialogue_to_json,
)
EXCHANGES = Reader(
    name="exchanges",
    recognises=lambda record: "context" in record and "response" in record and "id" in record,
    decode=exchange_from_json,
    encode=exchange_to_json,
    holds="exchanges",
)
