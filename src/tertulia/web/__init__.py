"""HTTP only: the chat page with its API (`page`), and the OpenAI-compatible API (`openai`)."""
