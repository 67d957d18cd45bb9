"""How many prompts an engine reads before the turns that are being decoded go on.

An engine that reads prompts one by one could take a step with all running turns after each prompt. But a step of few
turns costs nearly as much as one of many. So the prompts that wait are read first, each with its first token, and then
all turns go on together. Nobody waits long for that: after `READ_AHEAD` tokens the running turns take a step.
"""

from tertulia.models.generator import LimitedGenerator

READ_AHEAD = 512
"""Tokens of new prompts that running turns wait for: two seconds on a core that reads 4 ms a token. One prompt is read
as a whole, however long it is."""


class ReadAhead:
    """Counts what an engine reads between two steps of the running turns."""

    def __init__(self, engine: LimitedGenerator) -> None:
        self._engine = engine
        self._before = engine.tokens_read

    def prompts(self, *, running: bool) -> int:
        """How many prompts may be read now, while turns are `running` or not."""
        if not running:
            self.went_on()
        return self._engine.prompts_at_once if self._engine.tokens_read - self._before < READ_AHEAD else 0

    def went_on(self) -> None:
        """The running turns took a step."""
        self._before = self._engine.tokens_read
