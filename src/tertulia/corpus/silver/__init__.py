"""Silver data for grounding: labelled responses made from grounded dialogues by rules that are recorded with each."""
