"""Models that generate replies token by token: one file per architecture."""
