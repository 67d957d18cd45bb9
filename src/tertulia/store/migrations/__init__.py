"""The schema's history, for Alembic: one file in `versions` for each step, never changed once released.

There is no way down: an older Tertulia refuses a newer database instead.
"""
