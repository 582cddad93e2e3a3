"""Runs `manage.py demo` and kills itself with SIGKILL at a stated point; started by a test.

kill_driver.py ""                                    to the end
kill_driver.py line:STEP:N                           at the N-th line a job's step says
kill_driver.py before:MODULE:NAME  after:MODULE:NAME around one call of a function
"""

import os
import signal
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT), str(PROJECT / "platform")]
os.environ["DJANGO_SETTINGS_MODULE"] = "portal.settings.embedded"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at_line(step: str, number: int) -> None:
    from portal.runs.jobs import Lease

    real, counts, current = Lease.say, Counter(), [""]

    def say(self, progress, *, step=None):
        real(self, progress, step=step)
        current[0] = step or current[0]
        counts[current[0]] += 1
        if counts[wanted] >= number:
            die()

    wanted = step
    Lease.say = say


def around(when: str, module: str, name: str) -> None:
    place = import_module(module)
    real = getattr(place, name)

    def wrapped(*args, **kwargs):
        if when == "before":
            die()
        value = real(*args, **kwargs)
        die()
        return value

    setattr(place, name, wrapped)


if __name__ == "__main__":
    import django

    django.setup()
    if sys.argv[1]:
        kind, first, second = sys.argv[1].split(":")
        if kind == "line":
            at_line(first, int(second))
        else:
            around(kind, first, second)
    from django.core.management import call_command

    call_command("demo", budget=1, pairs=6, cores=1)
