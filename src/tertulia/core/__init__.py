"""The values that all of Tertulia passes around, and what everything else builds on: errors, registry, config, text.

Nothing here depends on a database, a network or a neural network: only on the standard library and pydantic.
"""
