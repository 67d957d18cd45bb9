"""Dialogues and a model's config in, a checkpoint out. The learned bots move in here."""
