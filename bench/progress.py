"""A progress bar of a few lines: one rewritten line on a terminal, one line a finished step elsewhere."""

import sys
import time


class Progress:
    """`with Progress(total) as bar: bar.begin("bert inference"); ...; bar.end("0.54 x")`. Writes to stderr only."""

    WIDTH = 28

    def __init__(self, total, stream=None):
        self.total = max(total, 1)
        self.stream = stream or sys.stderr
        self.is_terminal = self.stream.isatty()
        self.done = 0
        self.start_time = time.monotonic()
        self.text = ""

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.is_terminal:
            self.stream.write("\r\033[K")
            self.stream.flush()

    def begin(self, text):
        self.text = text
        if self.is_terminal:
            self.draw(text)

    def note(self, text):
        """Say what the current step is doing; terminals only."""
        if self.is_terminal:
            self.draw(f"{self.text}: {text}")

    def end(self, outcome=""):
        self.done += 1
        if self.is_terminal:
            self.draw(self.text)
        else:
            elapsed = time.monotonic() - self.start_time
            print(
                f"[{self.done:3}/{self.total}] {elapsed:6.1f} s  {self.text}  {outcome}", file=self.stream, flush=True
            )

    def draw(self, text):
        full = self.WIDTH * self.done // self.total
        bar = "#" * full + "." * (self.WIDTH - full)
        elapsed = time.monotonic() - self.start_time
        self.stream.write(f"\r\033[K[{bar}] {self.done}/{self.total} {elapsed:5.0f} s  {text[:60]}")
        self.stream.flush()
