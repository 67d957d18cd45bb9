"""HTTP only: the chat page, its API, and the OpenAI-compatible API."""
