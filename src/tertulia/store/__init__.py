"""Everything that is SQL: conversations and turns, kept for good."""
