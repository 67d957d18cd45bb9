"""Grounding classifiers as judges: of labelled responses, of conversations with evidence, beside people."""
