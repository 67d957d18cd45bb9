"""Filters of what a bot is about to say: one file each, every one a pure function that says nothing, or why not."""
