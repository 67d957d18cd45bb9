"""Subjects x settings -> scores: ranking, perplexity, replies, samples, profiles; judged runs and their reports."""
