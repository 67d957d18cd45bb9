"""One module per corpus format; each is a pure parser of lines or records, registered in `tertulia.corpus.registry`."""
