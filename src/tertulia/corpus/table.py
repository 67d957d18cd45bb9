"""The table of corpus formats. A row points at a `Reader`; plugins add rows through `tertulia.readers`."""

from tertulia.core.registry import Registry

READERS = Registry("reader", "tertulia.readers")

READERS.add("tertulia", "tertulia.corpus.readers.native:READER", "Tertulia's own dialogues, one JSON object a line")
READERS.add("personachat", "tertulia.corpus.readers.personachat:READER", "Persona-Chat, one JSON object a line")
READERS.add("messages", "tertulia.corpus.readers.messages:READER", "OpenAI `messages`, one JSON object a line")
