"""The schema's history for Alembic: one file per step in `versions`, never changed once released.

There are no downgrades: an older Tertulia refuses a newer database instead.
"""
