"""The nouns of Tertulia and the few tools everything else stands on: values, errors, registry, config, text.

Nothing here knows a database, a network or a neural net; the standard library and pydantic (for configs) suffice.
"""
