"""Raw sources in, clean, split and documented dialogues out."""
