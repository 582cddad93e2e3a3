#!/usr/bin/env python
"""Command-line entry point; works from a bare checkout and from an installed one."""

import os
import sys
from pathlib import Path

SOURCE_DIR = Path(__file__).resolve().parent / "platform"


def main() -> None:
    if str(SOURCE_DIR) not in sys.path:
        sys.path.insert(0, str(SOURCE_DIR))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings.embedded")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
