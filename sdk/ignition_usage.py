"""Count accepted work and send it to Ignition: one file, Python's standard library, nothing else.

    from ignition_usage import UsageCounter

    usage = UsageCounter("https://ignition.example/api/v1/usage/events", token="ign_...",
                         source="gateway-1", spool="/var/lib/gateway/usage.sqlite")
    usage.start()                                      # sends in the background
    usage.count("text-encoder", "search-eu-1", 32)     # 32 samples were answered just now
    usage.close()                                      # sends what is left, at most ten seconds

What it promises: when `count` has returned, the event is on disk and is sent with the same id
until the portal has said what became of it, whatever is killed in between; the portal counts an id
once for ever. What the portal does not count (a model that is not registered, another content under
the same id) is kept in the spool with the reason: `refused()` lists it, `send_again()` retries it.
Several threads and processes may share one spool.

It never drops an event, never changes one that is on disk, and never raises from the background.
Licence: Apache-2.0.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import sqlite3
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

__all__ = ["NotAllowed", "Refused", "Unreachable", "UsageCounter"]

_TABLES = """
CREATE TABLE IF NOT EXISTS waiting (place INTEGER PRIMARY KEY AUTOINCREMENT, event TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS refused (place INTEGER PRIMARY KEY, event TEXT NOT NULL,
                                    fate TEXT NOT NULL, reason TEXT NOT NULL);
"""
_COUNTED = ("stored", "duplicate")


class NotAllowed(Exception):
    """The portal does not take this token: make one with scope usage:write. Nothing is lost."""


class Unreachable(Exception):
    """The portal did not answer, or not with a receipt. Nothing is lost."""


class Refused(NamedTuple):
    """An event that the portal did not count, and why."""

    event: dict[str, object]
    fate: str
    reason: str


class UsageCounter:
    """Counts for one source. `batch`: events in one delivery; `every_s`: pause between them.

    `survive_power_loss=False` saves one flush of the disk per call; a killed process then still
    loses nothing, a machine without power may lose the last moments.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str,
        source: str,
        spool: str | os.PathLike[str],
        batch: int = 1_000,
        every_s: float = 1.0,
        timeout_s: float = 30.0,
        survive_power_loss: bool = True,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url: got {url!r}; wanted http:// or https://")
        if not 0 < len(source) <= 200:
            raise ValueError(f"source: got {source!r}; wanted 1 to 200 characters")
        self.url, self.source, self.batch = url, source, batch
        self._token, self._every_s, self._timeout_s = token, every_s, timeout_s
        self._spool = Path(spool)
        self._synchronous = "FULL" if survive_power_loss else "NORMAL"
        self._local = threading.local()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        with self._transaction() as spool_file:
            for statement in _TABLES.split(";"):
                spool_file.execute(statement)

    def count(
        self, model: str, system: str, samples: int, *, at: datetime | None = None,
        event_id: str | None = None,
    ) -> str:  # fmt: skip
        """Put `samples` answered by `model` on `system` on disk; returns the event's id.

        `at`: when the work happened (aware), now by default. `event_id`: your own id of the work;
        giving it twice counts once.
        """
        event = self._event(model, system, samples, at, event_id)
        self._put([event])
        return str(event["id"])

    def count_many(self, work: Iterable[tuple[str, str, int]]) -> list[str]:
        """The same for several (model, system, samples) with one write to the disk."""
        events = [self._event(*item, None, None) for item in work]
        self._put(events)
        return [str(event["id"]) for event in events]

    def flush(self) -> int:
        """Send everything that waits; returns how many events the portal has answered for.

        NotAllowed or Unreachable when it could not; what waits still waits.
        """
        answered = 0
        size = self.batch
        while rows := self._next(size):
            receipt = self._deliver([event for _, event in rows])
            if receipt is None:
                if size == 1:
                    raise Unreachable("413 for a single event")
                size = max(1, size // 2)
                continue
            self._settle(rows, receipt)
            answered += len(rows)
        return answered

    def start(self) -> None:
        """Send in the background until `close`."""
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name="ignition-usage", daemon=True)
            self._thread.start()

    def close(self, within_s: float = 10.0) -> int:
        """Stop, try to send the rest for `within_s` seconds; returns how many events still wait."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        end = time.monotonic() + within_s
        while self.waiting() and time.monotonic() < end:
            try:
                self.flush()
            except (NotAllowed, Unreachable):
                time.sleep(min(0.2, max(0.0, end - time.monotonic())))
        return self.waiting()

    def waiting(self) -> int:
        """Events on disk that the portal has not answered for."""
        with self._transaction() as spool:
            return int(spool.execute("SELECT count(*) FROM waiting").fetchone()[0])

    def refused(self) -> list[Refused]:
        """Events that the portal did not count, with its reasons."""
        with self._transaction() as spool:
            rows = spool.execute("SELECT event, fate, reason FROM refused ORDER BY place")
            return [Refused(json.loads(event), fate, reason) for event, fate, reason in rows]

    def send_again(self) -> int:
        """Let refused events wait again, unchanged (after a model was registered, say)."""
        with self._transaction() as spool:
            spool.execute("INSERT INTO waiting (event) SELECT event FROM refused ORDER BY place")
            return spool.execute("DELETE FROM refused").rowcount

    def _event(
        self, model: str, system: str, samples: int, at: datetime | None, event_id: str | None
    ) -> dict[str, object]:
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 0:
            raise ValueError(f"samples: got {samples!r}; wanted a whole number, zero or more")
        at = datetime.now(UTC) if at is None else at
        if at.tzinfo is None:
            raise ValueError(f"at: got {at!r}; wanted a time with an offset")
        return {
            "specversion": "1.0",
            "type": "ignition.usage.v1",
            "source": self.source,
            "id": event_id or uuid.uuid4().hex,
            "time": at.astimezone(UTC).isoformat(timespec="microseconds"),
            "datacontenttype": "application/json",
            "data": {"model": model, "system": system, "samples": samples},
        }

    def _put(self, events: list[dict[str, object]]) -> None:
        with self._transaction() as spool:
            spool.executemany(
                "INSERT INTO waiting (event) VALUES (?)",
                [(json.dumps(event, separators=(",", ":")),) for event in events],
            )

    def _next(self, size: int) -> list[tuple[int, str]]:
        with self._transaction() as spool:
            return spool.execute(
                "SELECT place, event FROM waiting ORDER BY place LIMIT ?", (size,)
            ).fetchall()

    def _settle(self, rows: list[tuple[int, str]], fates: list[tuple[str, str]]) -> None:
        """Forget what is counted, keep what is refused, in one transaction."""
        with self._transaction() as spool:
            for (place, event), (fate, reason) in zip(rows, fates, strict=True):
                gone = spool.execute("DELETE FROM waiting WHERE place = ?", (place,)).rowcount
                if gone and fate not in _COUNTED:
                    spool.execute(
                        "INSERT INTO refused (event, fate, reason) VALUES (?, ?, ?)",
                        (event, fate, reason),
                    )

    def _deliver(self, events: list[str]) -> list[tuple[str, str]] | None:
        """What became of each event, in order; None when there were too many of them."""
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            self.url,
            data=("[" + ",".join(events) + "]").encode(),
            headers={
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/cloudevents-batch+json",
            },
            method="POST",
        )
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:  # noqa: S310
                receipt = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            if error.code == 413:
                return None
            if error.code in (401, 403):
                raise NotAllowed(f"{error.code}: {error.read(300)!r}") from error
            raise Unreachable(f"{error.code}: {error.read(300)!r}") from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Unreachable(str(error)) from error
        try:
            fates = [(str(fate["fate"]), str(fate["reason"])) for fate in receipt["fates"]]
        except (KeyError, TypeError) as error:
            raise Unreachable("the answer is no receipt") from error
        if len(fates) != len(events):
            raise Unreachable(f"{len(fates)} fates for {len(events)} events")
        return fates

    def _run(self) -> None:
        pause = self._every_s
        while not self._stop.wait(pause):
            try:
                self.flush()
                pause = self._every_s
            except (NotAllowed, Unreachable, sqlite3.OperationalError):
                # Longer each time, up to a minute, and never all customers at once.
                pause = min(60.0, max(self._every_s, 0.1) + pause * random.uniform(1, 2))  # noqa: S311

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A write transaction of this thread's own connection (a fork opens its own, too)."""
        mine = (os.getpid(), threading.get_ident())
        if getattr(self._local, "owner", None) != mine:
            spool = sqlite3.connect(self._spool, timeout=60, isolation_level=None)
            spool.execute("PRAGMA journal_mode = WAL")
            spool.execute(f"PRAGMA synchronous = {self._synchronous}")
            self._local.spool, self._local.owner = spool, mine
        spool = self._local.spool
        spool.execute("BEGIN IMMEDIATE")
        try:
            yield spool
        except BaseException:
            spool.execute("ROLLBACK")
            raise
        spool.execute("COMMIT")
