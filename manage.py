#!/usr/bin/env python
"""Command-line entry point; works from a bare checkout and from an installed one."""

import os
import sys
from pathlib import Path

SOURCE_DIR = Path(__file__).resolve().parent / "platform"


def stated_home(arguments: list[str]) -> str:
    """The value of `--home`, which must be known before settings are read; "" when not given."""
    for position, argument in enumerate(arguments):
        if argument == "--home" and position + 1 < len(arguments):
            return arguments[position + 1]
        if argument.startswith("--home="):
            return argument.partition("=")[2]
    return ""


def main() -> None:
    for folder in (SOURCE_DIR, SOURCE_DIR.parent):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    home = stated_home(sys.argv)
    if home:
        os.environ["IGNITION_HOME"] = home
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings.embedded")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
