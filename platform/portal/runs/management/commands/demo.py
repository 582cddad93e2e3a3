"""`manage.py demo`: the main job end to end on this machine. Thin: the story is portal.demo."""

import signal
from argparse import ArgumentParser
from pathlib import Path
from types import FrameType
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from portal.demo.story import DemoStopped, Options, run
from portal.demo.terminal import Terminal


class Command(BaseCommand):
    help = "Run the main job end to end and add one billed month; results in <home>/demo."

    def add_arguments(self, parser: ArgumentParser) -> None:
        # Read by manage.py before settings load; listed here for --help.
        parser.add_argument("--home", type=Path, help="folder for everything (IGNITION_HOME)")
        first = "(first run only)"
        parser.add_argument(
            "--budget", type=int, default=Options.budget_s, help=f"seconds to search {first}"
        )
        parser.add_argument(
            "--pairs", type=int, default=Options.pairs, help=f"pairs to measure {first}"
        )
        parser.add_argument(
            "--cores", type=int, default=Options.cores, help=f"cores of both arms {first}"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["budget"] < 0 or options["pairs"] < 6 or options["cores"] < 1:
            raise CommandError(
                f"got --budget {options['budget']} --pairs {options['pairs']} --cores"
                f" {options['cores']}; wanted a budget from 0, at least 6 pairs, at least 1 core"
            )
        # So that a terminated run unwinds like Ctrl-C: children end, the job waits again.
        signal.signal(signal.SIGTERM, _interrupt)
        call_command("migrate", verbosity=0, interactive=False)
        try:
            status = run(Options(options["budget"], options["pairs"], options["cores"]), Terminal())
        except DemoStopped as stopped:
            raise CommandError(str(stopped)) from stopped
        except KeyboardInterrupt as interrupted:
            raise CommandError(
                "stopped; everything finished so far is kept, run it again to go on",
                returncode=130,
            ) from interrupted
        if status:
            raise SystemExit(status)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
