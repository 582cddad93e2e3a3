"""`manage.py serve`: the portal on this machine, with a worker beside it. Thin by design."""

import os
import subprocess
import sys
from argparse import ArgumentParser
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
        worker = None
        if not options["no_worker"]:
            worker = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "portal", "worker", "--pool", "solo"],
                env=environment,
                stdout=subprocess.DEVNULL,
            )
        self.stdout.write(f"Portal on http://{options['bind']}:{options['port']}/ (Ctrl-C ends it)")
        command = [sys.executable, "-m", "gunicorn", "portal.wsgi:application"]
        command += ["--bind", f"{options['bind']}:{options['port']}", "--threads", "4"]
        command += ["--access-logfile", os.devnull, "--log-level", "warning"]
        try:
            raise SystemExit(subprocess.call(command, env=environment))
        except KeyboardInterrupt:
            self.stdout.write("stopped")
        finally:
            if worker is not None:
                worker.terminate()
                worker.wait()
