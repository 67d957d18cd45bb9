"""Everything that needs torch: one file per architecture, with its config on top."""
