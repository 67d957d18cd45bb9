"""Models that label texts."""
