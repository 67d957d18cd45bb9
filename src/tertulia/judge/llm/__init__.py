"""A language model as a judge: questions and prompts, what is judged, calls and their cache, agreement with people."""
