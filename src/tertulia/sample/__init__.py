"""The bundled corpus, written for this project (CC0), and its loader."""
