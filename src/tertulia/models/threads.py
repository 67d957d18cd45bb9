"""How many threads the models of this process compute with."""

import os

import torch


def use_threads(threads: int) -> None:
    """Compute with this many threads; 0 means half the cores.

    On a busy machine, threads that wait for each other spin: twice the threads can then cost many times the work.
    """
    torch.set_num_threads(threads or max(1, (os.cpu_count() or 2) // 2))
