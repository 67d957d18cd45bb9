"""Everything that is SQL: conversations and turns, kept for good, in SQLite or PostgreSQL.

`Store` is the door; what comes out of it are the frozen values of `records`.
"""

from tertulia.store.records import UNSET, Conversation, ConversationLine, NotFound, Said, StoredTurn
from tertulia.store.store import Store

__all__ = ["UNSET", "Conversation", "ConversationLine", "NotFound", "Said", "Store", "StoredTurn"]
