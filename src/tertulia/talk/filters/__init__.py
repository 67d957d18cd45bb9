"""Reply filters: base (the protocol, the registry, applying filters and choosing), rules (form), safety (content)."""
