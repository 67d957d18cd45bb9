"""Chat logs of many formats, and the conversations that are interleaved in them (disentanglement).

The parsers (`formats`, `exports`) give `LogLine`s. `lowe` extracts dialogues of two by the rules of the Ubuntu Dialogue
Corpus; `disentangler` is a learned model that links every line to the line it replies to. `mine` runs either over a set
of logs and writes a folder of dialogues.
"""
