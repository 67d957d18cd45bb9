"""Engines: whatever can map a function over tasks. In this process, in a pool of processes, on a Ray cluster."""
