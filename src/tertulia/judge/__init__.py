"""Bots in, a verdict out: ranking, reports."""
