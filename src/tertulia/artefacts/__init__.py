"""What everything saved to disk shares: atomic writes, digests, the manifest, word vectors, the cache folder.

A saved thing (a trained model, an index, a mined corpus, a judged run) is a folder that explains itself: its files, and
a manifest, written last, that names its kind, its format and the SHA-256 of every file it vouches for.
"""
