"""Tertulia's own JSON lines (see `tertulia.core.codec`)."""

from tertulia.core.codec import dialogue_from_json, dialogue_to_json
from tertulia.corpus.readers.base import Reader

READER = Reader(
    name="tertulia",
    recognises=lambda record: "turns" in record and "id" in record,
    decode=dialogue_from_json,
    encode=dialogue_to_json,
)
