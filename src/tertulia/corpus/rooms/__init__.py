"""Chat rooms: logs of many formats in, the conversations that were tangled in them out, by rules or by a learned model.

A parser gives `RoomLine`s; `lowe` pulls dialogues of two out by the rules of the Ubuntu Dialogue Corpus, `disentangler`
links every line to the one it answers; `job` makes a folder of either.
"""
