"""Hugging Face models behind the same interfaces as our own."""
