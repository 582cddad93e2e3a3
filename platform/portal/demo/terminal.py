"""How the demonstration speaks: steps as they happen, a table at the end.

In: words. Out: lines. On a terminal with rich a step's last line is shown live under it; in a
pipe every step is one plain line when it ends, so that a log stays readable.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status
from rich.table import Table

STEPS = 9


class Terminal:
    """Prints numbered steps to standard output."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
        self.live = self.console.is_terminal
        self.status: Status | None = None
        self.head, self.last, self.started = "", "", 0.0

    def hear(self, text: str) -> None:
        """One line of progress inside the running step."""
        self.last = text
        if self.status is not None:
            self.status.update(f"[dim]      {_plain(text)[:110]}[/dim]")

    def begin(self, number: int, title: str) -> None:
        """Announce a step; what is heard from now on belongs to it."""
        self.head = f"[{number}/{STEPS}] {title}"
        self.started, self.last = time.monotonic(), ""
        if self.live:
            self.console.print(f"[bold]{_plain(self.head)}[/bold]")
            self.status = self.console.status("")
            self.status.start()

    def end(self) -> None:
        """End the running step with its last line and its time."""
        if not self.head:
            return
        if self.status is not None:
            self.status.stop()
            self.status = None
        took = time.monotonic() - self.started
        if self.live:
            self.console.print(f"      {_plain(self.last)} [dim]({took:.1f} s)[/dim]")
        else:
            # A pipe may be block-buffered; a step that ended should be seen.
            print(f"{self.head}: {self.last} ({took:.1f} s)", flush=True)
        self.head = ""

    @contextmanager
    def step(self, number: int, title: str) -> Iterator[None]:
        """One step from begin to end, also when it fails."""
        self.begin(number, title)
        try:
            yield
        finally:
            self.end()

    def say(self, text: str = "") -> None:
        """A line outside any step."""
        self.console.print(_plain(text))

    def table(self, rows: Sequence[tuple[str, str]]) -> None:
        """The closing table."""
        if not self.live:
            width = max(len(name) for name, _ in rows)
            for name, value in rows:
                print(f"  {name:<{width}}  {value}", flush=True)
            return
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 2))
        table.add_column(style="dim")
        table.add_column(overflow="fold")
        for name, value in rows:
            table.add_row(name, _plain(value))
        self.console.print(table)


def _plain(text: str) -> str:
    """Text in which rich sees no markup."""
    return text.replace("[", "\\[")
