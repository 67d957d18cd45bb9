"""Pure numbers about replies, conversations and ratings. A metric that needs a model takes it as an argument."""
