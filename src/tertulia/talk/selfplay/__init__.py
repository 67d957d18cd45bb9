"""Self-play: bots talk to themselves and to each other.

`conversation` lets two bots talk, many conversations side by side. `plan` says which conversations a command wants and
cuts them into shards. `run` plays the shards in one process, in several or on Ray, and continues what was interrupted.
"""

from tertulia.talk.selfplay.config import SelfplayConfig
from tertulia.talk.selfplay.conversation import Scene, Seat, converse, selfplay
from tertulia.talk.selfplay.run import SelfplayOutcome, run_selfplay

__all__ = ["Scene", "Seat", "SelfplayConfig", "SelfplayOutcome", "converse", "run_selfplay", "selfplay"]
