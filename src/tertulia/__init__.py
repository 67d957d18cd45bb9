"""Tertulia: a lab for open-domain dialogue, in four verbs: corpus, train, talk, judge."""

__version__ = "0.2.0"
