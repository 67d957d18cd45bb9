"""Models that rank given replies: one file per architecture."""
