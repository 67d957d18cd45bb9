"""Subjects x settings -> scores: ranking, perplexity, replies, samples, profiles; judged runs and their reports."""

import sys

from tertulia.core.callable_module import CallableModule

sys.modules[__name__].__class__ = CallableModule
