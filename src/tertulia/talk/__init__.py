"""Bots and what can be done with them: specifications, replies, self-play. Bots hold no conversation."""
