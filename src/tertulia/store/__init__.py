"""Everything that is SQL. A `Database` is SQLite or PostgreSQL; the stores keep things in it.

`ConversationStore` keeps conversations, `StudyStore` studies with people, `AccountStore` the accounts of researchers.
What comes out of a store are the frozen values of `records` and `study_records`.
"""

from tertulia.store.accounts import AccountStore
from tertulia.store.conversations import ConversationStore
from tertulia.store.database import Database
from tertulia.store.listener import Notices
from tertulia.store.records import UNSET, Conversation, ConversationSummary, NotFound, StoredExchange, StoredTurn
from tertulia.store.studies import StudyStore

__all__ = [
    "UNSET",
    "AccountStore",
    "Conversation",
    "ConversationStore",
    "ConversationSummary",
    "Database",
    "NotFound",
    "Notices",
    "StoredExchange",
    "StoredTurn",
    "StudyStore",
]
