"""llama.cpp as an engine for the same generators: library (its C interface), context, sequences, model, adapters."""
