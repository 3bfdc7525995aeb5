"""Progress of long work with a server, as plain lines on stderr: they read the same in a terminal and in a log."""

from __future__ import annotations

import time

from rich.console import Console

from eagle_lab.serve.client import Completion

EVERY_S = 15.0


def say(line: str) -> None:
    Console(stderr=True, highlight=False).print(line, markup=False, soft_wrap=True)


class Progress:
    """Says what is done at most every 15 s, with the rate since it was made."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total = what, total
        self.done = self.tokens = 0
        self.started = self.said = time.monotonic()

    def ended(self, _: int, done: Completion) -> None:
        """As Client.generate's on_done."""
        self.step(len(done.token_ids))

    def step(self, tokens: int) -> None:
        """One more request ended, with this many generated tokens."""
        self.done += 1
        self.tokens += tokens
        if time.monotonic() - self.said >= EVERY_S:
            self.said = time.monotonic()
            rate = self.tokens / (self.said - self.started)
            say(f"{self.what}: {self.done} of {self.total}, {rate:.0f} tokens/s")
