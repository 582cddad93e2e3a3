"""`manage.py serve`: the portal on this machine, with a worker beside it. Thin by design."""

import os
import signal
import subprocess
import sys
from argparse import ArgumentParser
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand


class Command(BaseCommand):
    help = "Serve the portal on 127.0.0.1 with gunicorn and one worker for queued jobs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument("--bind", default="127.0.0.1")
        parser.add_argument("--no-worker", action="store_true", help="serve pages only")

    def handle(self, *args: Any, **options: Any) -> None:
        call_command("migrate", verbosity=0, interactive=False)
        call_command("collectstatic", verbosity=0, interactive=False)
        paths = [str(settings.PROJECT_ROOT), str(settings.PROJECT_ROOT / "platform")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        children = []
        if not options["no_worker"]:
            # A worker beside the pages: a page only asks for work, it never does any.
            worker = ["celery", "-A", "portal", "worker", "--pool", "solo", "--loglevel", "ERROR"]
            children.append(_start(worker, environment))
        where = f"{options['bind']}:{options['port']}"
        pages = ["gunicorn", "portal.wsgi:application", "--bind", where, "--threads", "4"]
        pages += ["--access-logfile", os.devnull, "--log-level", "warning"]
        children.append(_start(pages, environment))
        self.stdout.write(f"Portal on http://{where}/ (Ctrl-C ends it)")
        signal.signal(signal.SIGTERM, _stop)
        try:
            status = children[-1].wait()
        except KeyboardInterrupt:
            status = 0
        finally:
            for child in children:
                child.terminate()
            for child in children:
                child.wait()
        raise SystemExit(status)


def _start(module: list[str], environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    """A child that does not hear the terminal's Ctrl-C: this process ends it in order."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", *module], env=environment, start_new_session=True
    )


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
