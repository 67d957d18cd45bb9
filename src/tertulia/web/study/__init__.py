"""Studies over HTTP: what participants see and send, and nothing of the bots but their sides."""
