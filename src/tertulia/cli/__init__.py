"""One file per verb: parses, prints and exits, nothing else."""
