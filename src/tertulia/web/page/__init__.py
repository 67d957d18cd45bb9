"""The chat page and its API under /api."""
